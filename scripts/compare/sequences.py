"""Random sequences of idempotent producers: the same steps to both brokers, and the same logs at the end.

A sequence is a few topics of different kinds, a few producers and a hundred steps chosen by its seed: batches in order,
retries, gaps, newer and older epochs, sequences that wrap, batches without producer, broken batches, requests in flight
together, deleted records, reads. What comes next follows from Kafka's answers, so that a sequence stays sensible.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from compare import broken
from compare.batches import Batch, Record
from compare.differences import TAKEN_BY_KAFKA_ONLY
from compare.faults import tags_of
from compare.pair import Both, Pair
from compare.side import Given
from compare.steps import Records, fetch, offsets, produce_body, produce_unanswered, same_log

LAST_SEQUENCE = 0x7FFFFFFF
KINDS: list[dict[str, object]] = [
    {},
    {},
    {"message_timestamp_type": "LogAppendTime"},
    {"cleanup_policy": "compact", "min_compaction_lag_ms": 9 * 10**15},
    {"max_message_bytes": 4000},
]


def after(sequence: int, count: int) -> int:
    """The sequence `count` records later; it wraps to 0."""
    return (sequence + count) & LAST_SEQUENCE


@dataclass
class Stream:
    """What a producer has sent to one partition, as far as Kafka said that it was written."""

    epoch: int = 0
    next: int = 0
    sent: list[Batch] = field(default_factory=list)

    def written(self, batch: Batch) -> None:
        """Notes a batch that was accepted."""
        if (batch.epoch, batch.sequence) not in [(one.epoch, one.sequence) for one in self.sent]:
            self.sent.append(batch)
            self.epoch, self.next = batch.epoch, after(batch.sequence, len(batch.records))


@dataclass
class Part:
    """One partition that the sequence writes to."""

    topic: str
    index: int
    wants_keys: bool
    is_append_time: bool


class Sequence:
    """One sequence."""

    def __init__(self, pair: Pair, seed: str, steps: int) -> None:
        self.pair, self.steps = pair, steps
        self.dice = pair.random = random.Random(seed)
        self.parts: list[Part] = []
        self.streams: dict[tuple[str, str, int], Stream] = {}
        self.producers: list[str] = []
        self.clock = pair.past_ms

    def run(self) -> None:
        """All of it."""
        for kind in self.dice.sample(KINDS, self.dice.randint(1, 2)):
            partitions = self.dice.randint(1, 3)
            topic = self.pair.create("sequence", partitions, **kind)
            self.parts += [Part(topic, index, "cleanup_policy" in kind, "message_timestamp_type" in kind) for index in range(partitions)]
        for _ in range(self.dice.randint(1, 4)):
            self.new_producer()
        choices, weights = zip(*STEPS, strict=True)
        stem, before = self.pair.step, len(self.pair.unexpected)
        for number, step in enumerate(self.dice.choices(choices, weights, k=self.steps)):
            self.pair.step = f"{stem} step {number} {step.__name__}"
            step(self)
            if len(self.pair.unexpected) > before:
                return  # what follows from one difference would hide the next
        self.pair.step = f"{stem} log"
        for topic in dict.fromkeys(part.topic for part in self.parts):
            same_log(self.pair, topic, sum(part.topic == topic for part in self.parts), self.dice.randint(4, 18))

    # --- choosing ---

    def new_producer(self) -> None:
        """One more producer id."""
        name = f"producer {self.pair.name('p')}"
        self.pair.producer(name)
        self.producers.append(name)

    def part(self) -> Part:
        """Some partition."""
        return self.dice.choice(self.parts)

    def stream(self, producer: str, part: Part) -> Stream:
        """What this producer has sent there. A new stream may begin anywhere, also just before the wrap."""
        key = (producer, part.topic, part.index)
        if key not in self.streams:
            first = self.dice.choice((0, 0, 0, self.dice.randrange(1000), LAST_SEQUENCE - self.dice.randrange(6)))
            self.streams[key] = Stream(next=first)
        return self.streams[key]

    def some(self) -> tuple[Part, Stream, str]:
        """A partition, a producer and what it sent there."""
        part, producer = self.part(), self.dice.choice(self.producers)
        return part, self.stream(producer, part), producer

    def records(self, part: Part) -> tuple[Record, ...]:
        """One to six records, of any shape that clients send."""
        dice, made = self.dice, []
        for _ in range(dice.choice((1, 1, 1, 2, 3, 6))):
            key = dice.choice((b"k1", b"k2", b"")) if part.wants_keys else dice.choice((None, None, b"key"))
            value = dice.choice((None, b"", dice.randbytes(dice.randrange(1, 40)), b"value"))
            headers = dice.choice(((), (), ((b"name", b"1"),), ((b"a", None), (b"", b""))))
            made.append(Record(value, key, headers, dice.randrange(-3, 50)))
        return tuple(made)

    def batch(self, part: Part, producer: str | None, epoch: int, sequence: int) -> Batch:
        """A good batch; its timestamp is that of no other one."""
        self.clock += self.dice.randrange(1, 1000)
        codec = self.dice.choice(("none",) * 6 + ("gzip", "snappy", "lz4", "zstd"))
        made = Batch(self.records(part), timestamp=self.clock, codec=codec)
        return made if producer is None else made.but(producer_id=Given(producer), epoch=epoch, sequence=sequence)

    def version(self, batch: Records) -> int:
        """Any version; zstd is known from 7 on, and mostly asked for there."""
        is_zstd = isinstance(batch, Batch) and batch.codec == "zstd"
        return self.dice.randint(7 if is_zstd and self.dice.random() < 0.9 else 3, 13)

    # --- sending ---

    def send(self, part: Part, batch: Batch, stream: Stream | None = None) -> None:
        """Sends one batch and notes what became of it."""
        acks = self.dice.choice((-1, -1, -1, 1))
        version, body = self.body(part, batch, acks)
        both = self.pair.ask("Produce", version, body)
        self.note(both, batch, stream)

    def body(self, part: Part, batch: Records, acks: int) -> tuple[int, dict]:
        """A version and a request in it."""
        version = self.version(batch)
        return version, produce_body(version, acks, {(part.topic, part.index): batch})

    def note(self, both: Both, batch: Batch, stream: Stream | None) -> None:
        """Notes an accepted batch."""
        parts = [one for topic in both.kafka.get("responses", ()) for one in topic["partition_responses"]]
        if stream is not None and parts and parts[0]["error_code"] == 0:
            stream.written(batch)

    # --- steps ---

    def in_order(self) -> None:
        """The next batch."""
        part, stream, producer = self.some()
        self.send(part, self.batch(part, producer, stream.epoch, stream.next), stream)

    def retry(self) -> None:
        """One of the last eight, of which five are remembered."""
        part, stream, _ = self.some()
        if stream.sent:
            self.send(part, self.dice.choice(stream.sent[-8:]))

    def gap(self) -> None:
        """A sequence that is not the next: ahead, behind, or across a batch that is known."""
        part, stream, producer = self.some()
        sequence = after(stream.next, self.dice.choice((1, 2, 5, 1000, -1, -2, -3, -7)) & LAST_SEQUENCE)
        self.send(part, self.batch(part, producer, stream.epoch, sequence), stream)

    def new_epoch(self) -> None:
        """A newer epoch, mostly from 0 as it must be."""
        part, stream, producer = self.some()
        sequence = self.dice.choice((0, 0, 0, 1, stream.next))
        self.send(part, self.batch(part, producer, stream.epoch + self.dice.randint(1, 3), sequence), stream)

    def old_epoch(self) -> None:
        """An epoch that may be fenced."""
        part, stream, producer = self.some()
        self.send(part, self.batch(part, producer, max(stream.epoch - 1, 0), self.dice.choice((0, stream.next))), stream)

    def plain(self) -> None:
        """A batch without producer, or the same one twice."""
        part = self.part()
        batch = self.batch(part, None, -1, -1)
        for _ in range(self.dice.choice((1, 1, 2))):
            self.send(part, batch)

    def broken_batch(self) -> None:
        """A batch with one fault; what was refused is not remembered, so the next one in order must work."""
        part, stream, producer = self.some()
        name = self.dice.choice([one for one in broken.ALL if one not in TAKEN_BY_KAFKA_ONLY])
        good = self.batch(part, self.dice.choice((producer, producer, None)), stream.epoch, stream.next)
        version, body = self.body(part, broken.ALL[name](self.pair, good), self.dice.choice((-1, -1, 1)))
        self.pair.step += f" ({name})"
        both = self.pair.ask("Produce", version, body, tags=tags_of(name), seconds=3)
        self.note(both, good, stream if good.sequence >= 0 else None)

    def silent(self) -> None:
        """A batch without acks: in order, again, or with a gap, which ends the connection."""
        part, stream, producer = self.some()
        if part.index:
            return
        batch = self.batch(part, producer, stream.epoch, after(stream.next, self.dice.choice((0, 0, 0, 4))))
        produce_unanswered(self.pair, part.topic, batch)
        if batch.sequence == stream.next:
            stream.written(batch)

    def wrong_acks(self) -> None:
        """Acks that do not exist."""
        part, stream, producer = self.some()
        version, body = self.body(part, self.batch(part, producer, stream.epoch, stream.next), self.dice.choice((2, -2)))
        self.pair.ask("Produce", version, body)

    def in_flight(self) -> None:
        """Several at once on one connection: mostly in order, sometimes with a retry or a gap between."""
        part, stream, producer = self.some()
        sent, at, epoch = [], stream.next, stream.epoch
        for _ in range(self.dice.randint(2, 6)):
            if sent and self.dice.random() < 0.2:
                batch = self.dice.choice([one for one, _, _ in sent])
            else:
                batch = self.batch(part, producer, epoch, after(at, self.dice.choice((0,) * 8 + (2,))))
                at = after(batch.sequence, len(batch.records))
            sent.append((batch, *self.body(part, batch, -1)))
        for _, version, body in sent:
            self.pair.send("Produce", version, body)
        for batch, version, body in sent:
            self.note(self.pair.receive("Produce", version, body), batch, stream)

    def several_partitions(self) -> None:
        """One request for several partitions, of which one may be unknown."""
        producer = self.dice.choice(self.producers)
        version, batches, streams = self.dice.randint(7, 13), {}, {}
        for part in self.dice.sample(self.parts, self.dice.randint(1, len(self.parts))):
            stream = self.stream(producer, part)
            batches[part.topic, part.index] = self.batch(part, producer, stream.epoch, stream.next)
            streams[part.topic, part.index] = stream
        if self.dice.random() < 0.2:
            batches[self.parts[0].topic, 77] = self.batch(self.parts[0], None, -1, -1)
        both = self.pair.ask("Produce", version, produce_body(version, -1, batches))
        answers = [one for topic in both.kafka.get("responses", ()) for one in topic["partition_responses"]]
        for (place, batch), answer in zip(batches.items(), answers, strict=True):
            if place in streams and answer["error_code"] == 0:
                streams[place].written(batch)

    def producer_more(self) -> None:
        """One more producer."""
        if len(self.producers) < 8:
            self.new_producer()

    def list_offsets(self) -> None:
        """Ends, beginnings, largest timestamp, by time."""
        part, version = self.part(), self.dice.randint(1, 10)
        special = (-1, -2) + ((-4,) if version >= 8 else ())
        if version >= 7 and not part.is_append_time:  # else it is a matter of the same millisecond
            special += (-3,)
        timestamp = self.dice.choice(special + (self.dice.randrange(self.pair.past_ms, self.clock + 2),))
        offsets(self.pair, part.topic, timestamp, sum(one.topic == part.topic for one in self.parts), version)

    def read(self) -> None:
        """A fetch from somewhere, also out of range."""
        part, version = self.part(), self.dice.randint(4, 18)
        fetch(self.pair, part.topic, self.dice.choice((0, 0, self.dice.randrange(30), 10_000, -1)), part.index, version)

    def delete_records(self) -> None:
        """Moves the start of a log."""
        if "DeleteRecords" not in self.pair.served:
            return
        part = self.part()
        upto = self.dice.choice((-1, 0, self.dice.randrange(20), 10_000, -2))
        partitions = [{"partition_index": part.index, "offset": upto}]
        # What was appended without waiting for the disk can be deleted when it is there.
        offsets(self.pair, part.topic, -1, sum(one.topic == part.topic for one in self.parts))
        body = {"timeout_ms": 5000, "topics": [{"name": part.topic, "partitions": partitions}]}
        self.pair.ask("DeleteRecords", self.dice.randint(0, 2), body)


STEPS: list[tuple[Callable[[Sequence], None], int]] = [
    (Sequence.in_order, 30),
    (Sequence.retry, 14),
    (Sequence.gap, 7),
    (Sequence.new_epoch, 3),
    (Sequence.old_epoch, 3),
    (Sequence.plain, 6),
    (Sequence.broken_batch, 12),
    (Sequence.silent, 4),
    (Sequence.wrong_acks, 1),
    (Sequence.in_flight, 8),
    (Sequence.several_partitions, 5),
    (Sequence.producer_more, 1),
    (Sequence.list_offsets, 4),
    (Sequence.read, 4),
    (Sequence.delete_records, 1),
]


def run(pair: Pair, count: int, steps: int, seed: int) -> None:
    """Runs this many sequences; each can be repeated by the seed that its name tells."""
    for number in range(seed, seed + count):
        pair.part(f"sequence {number}", lambda _, number=number: Sequence(pair, f"sequence {number}", steps).run())
