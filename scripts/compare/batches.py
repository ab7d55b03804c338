"""Record batches: right ones and broken ones are built here, and stored ones are read for comparing.

The packers store rather than compress (except gzip): what counts is that a broker can unpack them.
"""

import gzip
import struct
import zlib
from dataclasses import dataclass, field, replace

from compare.wire import Reader, varint

HEADER_BYTES = 61
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20


def crc_table() -> list[int]:
    """CRC-32C (Castagnoli), reflected."""
    table = []
    for one in range(256):
        for _ in range(8):
            one = one >> 1 ^ (0x82F63B78 if one & 1 else 0)
        table.append(one)
    return table


CRC_TABLE = crc_table()


def crc32c(data: bytes) -> int:
    """The checksum of a batch from its attributes on."""
    table, crc = CRC_TABLE, 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def signed(number: int) -> bytes:
    """A zigzag varint."""
    return varint((number << 1 ^ number >> 63) & 0xFFFFFFFFFFFFFFFF)


def sized(data: bytes | None) -> bytes:
    """Bytes with their length in front; -1 for null."""
    return signed(-1) if data is None else signed(len(data)) + data


@dataclass(frozen=True)
class Record:
    """One record."""

    value: bytes | None = b"v"
    key: bytes | None = None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    timestamp_delta: int = 0

    def encode(self, index: int) -> bytes:
        """Its bytes as the record with this offset delta."""
        body = b"\x00" + signed(self.timestamp_delta) + signed(index) + sized(self.key) + sized(self.value)
        body += signed(len(self.headers)) + b"".join(sized(name) + sized(value) for name, value in self.headers)
        return signed(len(body)) + body


@dataclass(frozen=True)
class Batch:
    """One record batch; what is None follows from the records, what is given may be wrong."""

    records: tuple[Record, ...] = (Record(),)
    producer_id: int = -1
    epoch: int = -1
    sequence: int = -1
    timestamp: int = 0
    codec: str = "none"
    attributes: int = 0
    base_offset: int = 0
    leader_epoch: int = -1
    magic: int = 2
    crc: int | None = None
    count: int | None = None
    last_delta: int | None = None
    max_timestamp: int | None = None
    length: int | None = None
    payload: bytes | None = None

    def but(self, **changes: object) -> "Batch":
        """The same with other fields."""
        return replace(self, **changes)

    def encode(self) -> bytes:
        """Its bytes."""
        plain = b"".join(record.encode(index) for index, record in enumerate(self.records))
        payload = pack(self.codec, plain) if self.payload is None else self.payload
        deltas = [record.timestamp_delta for record in self.records]
        latest = self.timestamp + max(deltas, default=0) if self.max_timestamp is None else self.max_timestamp
        count = len(self.records) if self.count is None else self.count
        last_delta = len(self.records) - 1 if self.last_delta is None else self.last_delta
        tail = struct.pack(
            ">hiqqqhii",
            self.attributes | CODECS[self.codec],
            last_delta,
            self.timestamp,
            latest,
            self.producer_id,
            self.epoch,
            self.sequence,
            count,
        )
        tail += payload
        crc = crc32c(tail) if self.crc is None else self.crc
        length = 9 + len(tail) if self.length is None else self.length
        return struct.pack(">qiibI", self.base_offset, length, self.leader_epoch, self.magic, crc) + tail


def old_message(magic: int, value: bytes, timestamp: int) -> bytes:
    """A message of format 0 or 1, which no client of today sends."""
    body = struct.pack(">bb", magic, 0) + (struct.pack(">q", timestamp) if magic else b"")
    body += struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message


# --- codecs ---------------------------------------------------------------------------------------------------------


def pack(codec: str, plain: bytes) -> bytes:
    """What a client of this codec would send."""
    if codec == "gzip":
        return gzip.compress(plain, mtime=0)
    if codec == "snappy":
        return pack_snappy(plain)
    if codec == "lz4":
        return pack_lz4(plain)
    if codec == "zstd":
        return pack_zstd(plain)
    return plain


def pack_snappy(plain: bytes) -> bytes:
    """One block of literals in the framing of the Java client (magic, version 1, compatible 1, blocks)."""
    block = varint(len(plain))
    for start in range(0, len(plain), 65536):
        literal = plain[start : start + 65536]
        block += b"\xf4" + struct.pack("<H", len(literal) - 1) + literal
    return b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, len(block)) + block


def pack_lz4(plain: bytes) -> bytes:
    """A frame of stored blocks of 64 KiB; the byte 0x82 is the checksum of the two bytes before it."""
    out = b"\x04\x22\x4d\x18\x60\x40\x82"
    for start in range(0, len(plain), 65536):
        block = plain[start : start + 65536]
        out += struct.pack("<I", len(block) | 0x80000000) + block
    return out + struct.pack("<I", 0)


def pack_zstd(plain: bytes) -> bytes:
    """A single segment of stored blocks, with its size in four bytes."""
    out = b"\x28\xb5\x2f\xfd\xa0" + struct.pack("<I", len(plain))
    starts = range(0, max(len(plain), 1), 65536)
    for start in starts:
        block = plain[start : start + 65536]
        is_last = start == starts[-1]
        out += struct.pack("<I", is_last | len(block) << 3)[:3] + block
    return out


# --- what a broker stored -------------------------------------------------------------------------------------------


@dataclass
class Stored:
    """A batch as a broker gave it."""

    base_offset: int
    leader_epoch: int
    magic: int
    crc_fits: bool
    attributes: int
    last_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    epoch: int
    sequence: int
    count: int
    payload: bytes = field(repr=False)

    @property
    def next_offset(self) -> int:
        """The offset behind its last record."""
        return self.base_offset + self.last_delta + 1


def stored_batches(data: bytes) -> list[Stored]:
    """The whole batches of an answer; a part of one at the end is left out, as clients do."""
    found, reader = [], Reader(data)
    while reader.position + HEADER_BYTES <= len(data):
        base_offset, length = reader.number(">q"), reader.number(">i")
        if reader.position + length > len(data):
            break
        body = Reader(reader.take(length))
        leader_epoch, magic, crc = body.number(">i"), body.number(">b"), body.number(">I")
        fits = crc32c(body.data[9:]) == crc
        forms = (">h", ">i", ">q", ">q", ">q", ">h", ">i", ">i")
        rest = [body.number(form) for form in forms]
        found.append(Stored(base_offset, leader_epoch, magic, fits, *rest, payload=body.data[body.position :]))
    return found
