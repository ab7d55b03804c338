"""Compaction: the same records with keys, tombstones and producers, until both sides have compacted them, leave the same.

How many headers without records stay is each side's own affair (a producer's newest batch, the end of a segment), so what
is compared are records, and what clients are told of offsets, old ones, removed ones and new ones.
"""

import gzip
import time
from dataclasses import dataclass

from compare.batches import CODECS, Batch, Record, Stored, stored_batches
from compare.pair import Pair
from compare.side import Given, Side
from compare.steps import fetch_body, offsets, offsets_body, produce
from compare.wire import Reader

# Some batches fill a segment.
SEGMENT_BYTES = 1500
KEYS = 9
PRODUCERS = 3
# A round takes ms; Kafka begins one each log.cleaner.backoff.ms, see compare-with-kafka.
PATIENCE_SECONDS = 25
LOOK_SECONDS = 0.25
# So many looks in a row must find the same.
CALM_LOOKS = 4
TOMBSTONE_MS = 1500
# What this script can unpack.
PACKED = ("none", "gzip")
CODEC_BITS = 7


@dataclass(frozen=True)
class Found:
    """A record in a log."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int


def signed(reader: Reader) -> int:
    """A zigzag varint."""
    value, shift = 0, 0
    while True:
        byte = reader.take(1)[0]
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1)


def sized(reader: Reader) -> bytes | None:
    """Bytes with their length in front."""
    size = signed(reader)
    return None if size < 0 else reader.take(size)


def records_of(batch: Stored) -> list[Found]:
    """The records of a batch; of a marker none."""
    found = []
    if batch.count == 0:
        return found
    is_packed = batch.attributes & CODEC_BITS == CODECS["gzip"]
    reader = Reader(gzip.decompress(batch.payload) if is_packed else batch.payload)
    for _ in range(batch.count):
        record = Reader(reader.take(signed(reader)))
        record.take(1)
        timestamp, delta = signed(record), signed(record)
        key, value = sized(record), sized(record)
        # Where a tombstone's batch says when it may go, its base timestamp is that time.
        found.append(Found(batch.base_offset + delta, key, value, batch.base_timestamp + timestamp))
    return found


def log_of(side: Side, topic: str) -> list[Found]:
    """All records of a partition as a reader meets them."""
    start, end = (side.call("ListOffsets", 7, offsets_body(topic, [0], which))["topics"][0]["partitions"][0]["offset"] for which in (-2, -1))
    found, next_offset = [], start
    while next_offset < end:
        batches = batches_at(side, topic, next_offset)
        if not batches:
            raise AssertionError(f"{side.name} gives nothing at {next_offset} of {end}")
        for batch in batches:
            if batch.next_offset > next_offset:
                found.extend(records_of(batch))
                next_offset = batch.next_offset
    return found


def batches_at(side: Side, topic: str, offset: int) -> list[Stored]:
    """What a fetch from an offset gives."""
    answer = side.call("Fetch", 12, fetch_body(12, topic, {0: offset}))
    if "responses" not in answer:
        raise AssertionError(f"{side.name} at {offset}: {answer}")
    return stored_batches(answer["responses"][0]["partitions"][0]["records"] or b"")


def settle(pair: Pair, topic: str, most: int) -> tuple[list[Found], list[Found]]:
    """Until both hold at most so many records, and the same, and for a while; or patience is over."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    before, calm = None, 0
    while True:
        kafka, ours = (log_of(side, topic) for side in pair.sides)
        is_settled = timeless(kafka) == timeless(ours) and len(kafka) <= most
        calm = calm + 1 if is_settled and before == timeless(ours) else 0
        if calm >= CALM_LOOKS or time.monotonic() > deadline:
            return kafka, ours
        before = timeless(ours)
        time.sleep(LOOK_SECONDS)


def timeless(log: list[Found]) -> list[tuple]:
    """Without timestamps."""
    return [(one.offset, one.key, one.value) for one in log]


class Writer:
    """Writes the same to both, by several idempotent producers and by nobody."""

    def __init__(self, pair: Pair, topic: str) -> None:
        self.pair, self.topic = pair, topic
        self.ids: list[Given | int] = [-1, *(pair.producer(f"producer {one} of {topic}") for one in range(PRODUCERS))]
        self.sequences = [0] * (PRODUCERS + 1)
        self.newest: dict[int, Batch] = {}
        self.written = 0

    def write(self, count: int) -> None:
        """Some batches of one to four records."""
        for _ in range(count):
            who = self.pair.random.randrange(PRODUCERS + 1)
            self.send(who, tuple(self.record() for _ in range(self.pair.random.randint(1, 4))))

    def record(self) -> Record:
        """Any key, a value or none."""
        random = self.pair.random
        value = None if random.random() < 0.25 else b"value %d " % self.written + b"x" * random.randint(0, 300)
        self.written += 1
        return Record(value, key=b"key %d" % random.randrange(KEYS))

    def send(self, who: int, records: tuple[Record, ...]) -> None:
        """One batch."""
        codec = self.pair.random.choice(PACKED)
        batch = Batch(records, timestamp=self.pair.past_ms + self.written, codec=codec)
        if who:
            batch = batch.but(producer_id=self.ids[who], epoch=0, sequence=self.sequences[who])
            self.sequences[who] += len(records)
            self.newest[who] = batch
        produce(self.pair, self.topic, batch)

    def close_segment(self) -> None:
        """What was written before is below the active segment then."""
        for one in range(4):
            self.send(0, (Record(b"y" * 900, key=b"last %d" % one),))


def compacted(pair: Pair, **configs: object) -> str:
    """A topic that is compacted at once."""
    settings = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0.01, "internal_segment_bytes": SEGMENT_BYTES,
                "retention_ms": -1, "segment_ms": 3_600_000 * 24 * 365} | configs  # fmt: skip
    name = pair.name("compacted")
    listed = [{"name": key.replace("_", "."), "value": str(value)} for key, value in settings.items()]
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1, "configs": listed}
    for side in pair.sides:
        side.call("CreateTopics", 7, {"topics": [topic]})
        pair.await_topic(side, name, 1)
    return name


def same(pair: Pair, topic: str, writer: Writer, most: int) -> list[Found]:
    """What is left is the same, and so is what clients are told of it."""
    kafka, ours = settle(pair, topic, most)
    pair.check("records that are left", timeless(kafka), timeless(ours))
    pair.check("something was compacted away", True, len(ours) < writer.written + 4)
    newest = [{one.key: (one.offset, one.value) for one in log} for log in (kafka, ours)]
    pair.check("the newest of each key", *newest)
    for timestamp in (-1, -2, -3):
        offsets(pair, topic, timestamp)
    values = [one for one in kafka if one.value is not None]
    for at in range(0, len(values), 3):
        pair.ask("ListOffsets", 7, offsets_body(topic, [0], values[at].timestamp), tags=("compacted",))
    end = kafka[-1].offset + 1
    pair.check("what readers meet who begin at each offset", *([first_at(side, topic, offset) for offset in range(end)] for side in pair.sides))
    # A retry of the newest batch of each producer is known, wherever its records are; the next one is taken.
    for who in sorted(writer.newest):
        produce(pair, topic, writer.newest[who])
    return kafka


def first_at(side: Side, topic: str, offset: int) -> tuple | None:
    """The first record that a reader at an offset is given."""
    while True:
        batches = batches_at(side, topic, offset)
        found = [one for batch in batches for one in records_of(batch) if one.offset >= offset]
        if found or not batches:
            return (found[0].offset, found[0].key, found[0].value) if found else None
        offset = batches[-1].next_offset


def at_random(pair: Pair) -> None:
    """Rounds over what several producers write, tombstones that go after their time, and records that follow."""
    topic = compacted(pair, delete_retention_ms=TOMBSTONE_MS)
    writer = Writer(pair, topic)
    writer.write(40)
    writer.close_segment()
    met = same(pair, topic, writer, KEYS + 12)[-1].offset
    # The tombstones that a round has met go with a later one.
    time.sleep(TOMBSTONE_MS / 1000 + 0.3)
    writer.write(12)
    writer.close_segment()
    left = same(pair, topic, writer, KEYS + 12)
    pair.check("no tombstone of the first round is left", [], [one.key for one in left if one.value is None and one.offset < met])
    writer.write(3)


def tombstones(pair: Pair) -> None:
    """A key that was deleted is gone, and its tombstone too."""
    topic = compacted(pair, delete_retention_ms=TOMBSTONE_MS)
    writer = Writer(pair, topic)
    for round_of in range(6):
        for key in range(3):
            value = None if round_of == 5 else b"v" * 200
            writer.send(1, (Record(value, key=b"key %d" % key),))
            writer.written += 1
    writer.close_segment()
    same(pair, topic, writer, 7)
    time.sleep(TOMBSTONE_MS / 1000 + 0.3)
    writer.close_segment()
    left = same(pair, topic, writer, 5)
    pair.check("no tombstone is left", [], [one.key for one in left if one.value is None])


def tombstones_stay(pair: Pair) -> None:
    """Until delete.retention.ms has passed they do not go."""
    topic = compacted(pair, delete_retention_ms=3_600_000)
    writer = Writer(pair, topic)
    writer.write(25)
    writer.close_segment()
    same(pair, topic, writer, KEYS + 12)
    writer.write(10)
    writer.close_segment()
    same(pair, topic, writer, KEYS + 12)


def deleted_records(pair: Pair) -> None:
    """DeleteRecords into what compaction has removed."""
    topic = compacted(pair, delete_retention_ms=3_600_000, cleanup_policy="compact,delete")
    writer = Writer(pair, topic)
    writer.write(25)
    writer.close_segment()
    left = same(pair, topic, writer, KEYS + 12)
    part = {"partition_index": 0, "offset": left[0].offset + 1}
    pair.ask("DeleteRecords", 2, {"topics": [{"name": topic, "partitions": [part]}], "timeout_ms": 10_000})
    offsets(pair, topic, -2)
    pair.check("a reader behind it meets", *(first_at(side, topic, left[0].offset + 1) for side in pair.sides))
    pair.check("a reader before it is told", *(error_at(side, topic, left[0].offset) for side in pair.sides))


def error_at(side: Side, topic: str, offset: int) -> int:
    """The error of a fetch."""
    answer = side.call("Fetch", 12, fetch_body(12, topic, {0: offset}))
    return answer["responses"][0]["partitions"][0]["error_code"]


def no_key(pair: Pair) -> None:
    """A record without a key has no place in a compacted log."""
    topic = compacted(pair)
    produce(pair, topic, Batch((Record(b"v"),)))
    produce(pair, topic, Batch((Record(b"v", key=b"k"), Record(b"v"))))
    offsets(pair, topic, -1)


CASES = {
    "tombstones": tombstones,
    "tombstones stay": tombstones_stay,
    "deleted records": deleted_records,
    "no key": no_key,
}


def run(pair: Pair) -> None:
    """Each case, and some at random."""
    for name, case in CASES.items():
        pair.part(f"compaction {name}", case)
    for number in range(pair.scale(20)):
        pair.part(f"compaction at random {number}", at_random)
