"""Ways to break a good batch: each gives records that a broker must refuse, or must store although they look odd."""

from collections.abc import Callable

from compare.batches import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, Batch, Record, old_message, pack, signed
from compare.pair import Pair
from compare.steps import Records

Breaker = Callable[[Pair, Batch], Records]


def plain(batch: Batch) -> bytes:
    """The records of a batch, not packed."""
    return b"".join(record.encode(index) for index, record in enumerate(batch.records))


def packed(batch: Batch, payload: bytes) -> Batch:
    """The batch with other records, packed as it says."""
    return batch.but(payload=pack(batch.codec, payload))


def body_of(record: bytes) -> bytes:
    """A record of these bytes, with its length in front."""
    return signed(len(record)) + record


def repacked(pair: Pair, batch: Batch) -> str:
    """A codec other than none."""
    return batch.codec if batch.codec != "none" else pair.random.choice(("gzip", "snappy", "lz4", "zstd"))


# What the header says is wrong.
HEADER: dict[str, Breaker] = {
    "crc": lambda _, batch: batch.but(crc=0x12345678),
    "count too large": lambda _, batch: batch.but(count=len(batch.records) + 1),
    "count too small": lambda _, batch: batch.but(count=len(batch.records) - 1),
    "count zero": lambda _, batch: batch.but(count=0, last_delta=-1),
    "count negative": lambda _, batch: batch.but(count=-1),
    "last delta too large": lambda _, batch: batch.but(last_delta=len(batch.records)),
    "last delta negative": lambda _, batch: batch.but(last_delta=-1),
    "magic 3": lambda _, batch: batch.but(magic=3),
    "magic 0 over format 2": lambda _, batch: batch.but(magic=0),
    "magic 1 over format 2": lambda _, batch: batch.but(magic=1),
    "format 0": lambda pair, _: old_message(0, b"old", pair.past_ms),
    "format 1": lambda pair, _: old_message(1, b"old", pair.past_ms),
    "control": lambda _, batch: batch.but(attributes=CONTROL),
    "sequence -1": lambda _, batch: batch.but(sequence=-1) if batch.sequence >= 0 else batch.but(count=0),
    "base offset 5": lambda _, batch: batch.but(base_offset=5),
    "base offset -1": lambda _, batch: batch.but(base_offset=-1),
    "two batches": lambda _, batch: (batch, batch),
    "no batch": lambda _pair, _batch: b"",
    "cut in the header": lambda _, batch: batch.but(length=49),
    "length too large": lambda _, batch: batch.but(length=100_000),
    "length too small": lambda _, batch: batch.but(length=20),
    "length negative": lambda _, batch: batch.but(length=-5),
    "codec 5": lambda _, batch: batch.but(attributes=5, codec="none"),
    "codec 6": lambda _, batch: batch.but(attributes=6, codec="none"),
    "codec 7": lambda _, batch: batch.but(attributes=7, codec="none"),
    "oversize": lambda _, batch: batch.but(records=(Record(b"x" * 9000),), codec="none"),
    "ahead of time": lambda pair, batch: batch.but(timestamp=pair.start_ms + 3 * 3_600_000),
    "transactional": lambda _, batch: batch.but(attributes=TRANSACTIONAL),
}

# What the header says is true, but the records cannot be read as it says.
PAYLOAD: dict[str, Breaker] = {
    "garbage": lambda pair, batch: batch.but(payload=pair.random.randbytes(30), codec=repacked(pair, batch)),
    "empty payload": lambda pair, batch: batch.but(payload=b"", codec=repacked(pair, batch)),
    "packed half": lambda pair, batch: batch.but(
        payload=(full := pack(codec := repacked(pair, batch), plain(batch)))[: len(full) // 2], codec=codec
    ),
    "plain where packed is said": lambda pair, batch: batch.but(payload=plain(batch), codec=repacked(pair, batch)),
    "bytes left over": lambda _, batch: packed(batch, plain(batch) + b"\x00"),
    "last byte missing": lambda _, batch: packed(batch, plain(batch)[:-1]),
    "one record more": lambda _, batch: packed(batch, plain(batch) + Record().encode(len(batch.records))),
    "one record less": lambda _, batch: packed(batch, plain(batch)[: -len(batch.records[-1].encode(len(batch.records) - 1))]),
    "offset deltas twice": lambda _, batch: packed(batch, b"".join(one.encode(0) for one in batch.records)),
    "offset deltas from one": lambda _, batch: packed(batch, b"".join(one.encode(at + 1) for at, one in enumerate(batch.records))),
    "record length negative": lambda _, batch: packed(batch, signed(-3) + plain(batch)[1:]),
    "value longer than the record": lambda _, batch: packed(batch, body_of(b"\x00\x00\x00\x01" + signed(50) + b"v\x00")),
    "key length -2": lambda _, batch: packed(batch, body_of(b"\x00\x00\x00" + signed(-2) + signed(1) + b"v\x00")),
    "headers negative": lambda _, batch: packed(batch, body_of(b"\x00\x00\x00\x01\x02v" + signed(-1))),
    "header without name": lambda _, batch: packed(batch, body_of(b"\x00\x00\x00\x01\x02v" + signed(1) + signed(-1) + signed(0))),
    "record attributes": lambda _, batch: packed(batch, body_of(b"\x7f\x00\x00\x01\x02v\x00")),
}

# Odd, and yet stored.
ODD: dict[str, Breaker] = {
    "append time bit": lambda _, batch: batch.but(attributes=LOG_APPEND_TIME),
    "max timestamp wrong": lambda _, batch: batch.but(max_timestamp=batch.timestamp + 999),
    "no timestamp": lambda _, batch: batch.but(timestamp=-1),
    "unused bits": lambda _, batch: batch.but(attributes=0x100),
    "delete horizon bit": lambda _, batch: batch.but(attributes=0x40),
    "leader epoch 7": lambda _, batch: batch.but(leader_epoch=7),
    "start of a second batch": lambda _, batch: (batch, b"\x00" * 11),
}

ALL: dict[str, Breaker] = HEADER | PAYLOAD | ODD
