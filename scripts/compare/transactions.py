"""Random sequences of transactional calls: the same steps to both brokers, and the same logs, offsets and states at the end.

Three transactional ids write to two partitions and commit offsets of groups, by both protocols, in any version and order;
between them are retries, zombies, other people's ids, unknown partitions, deleted records and readers of what is
committed. A step is compared once no transaction is between its outcome and its markers, since brokers differ in how long
that takes. What comes next follows from Kafka's answers.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

from compare.batches import Batch
from compare.pair import Pair
from compare.steps import fetch_body, offsets_body, produce, records
from compare.writers import Writer, describe, kept, new_id, plain_commit, producers, settle

PARTITIONS = 2
IDS = 3
GROUPS = 2
ABORTABLE_FROM, ADDS_FROM = 11, 12


@dataclass
class Stream:
    """What a producer has sent to one partition, as far as Kafka said that it was written."""

    epoch: int = -1
    next: int = 0


class Sequence:
    """One sequence."""

    def __init__(self, pair: Pair, seed: str, steps: int) -> None:
        self.pair, self.steps = pair, steps
        self.dice = pair.random = random.Random(seed)
        self.topic = pair.create("transactions", PARTITIONS)
        self.groups = [pair.name("offsets") for _ in range(GROUPS)]
        self.ids = [new_id(pair, "sequence") for _ in range(IDS)]
        # Every incarnation that there was, the newest last.
        self.lives: dict[str, list[Writer]] = {one: [Writer(pair, one).init()] for one in self.ids}
        self.streams: dict[tuple[str, int], Stream] = {}

    def run(self) -> None:
        """All of it."""
        choices, weights = zip(*STEPS, strict=True)
        stem, before = self.pair.step, len(self.pair.unexpected)
        for number, step in enumerate(self.dice.choices(choices, weights, k=self.steps)):
            self.pair.step = f"{stem} step {number} {step.__name__}"
            step(self)
            settle(self.pair, self.ids)
            if len(self.pair.unexpected) > before:
                return  # what follows from one difference would hide the next
        self.pair.step = f"{stem} end"
        self.look()

    # --- choosing ---

    def writer(self) -> Writer:
        """Some id, mostly as it is now: one in eight is a zombie, one in twenty has the id of somebody else."""
        lives = self.lives[self.dice.choice(self.ids)]
        chance = self.dice.random()
        if chance < 0.125:
            return self.dice.choice(lives)
        if chance < 0.175:
            return lives[-1].of(self.lives[self.dice.choice(self.ids)][0].producer)
        if chance < 0.2:
            return lives[-1].of_epoch(lives[-1].epoch + 1)
        return lives[-1]

    def lives_on(self, writer: Writer) -> None:
        """Notes an incarnation."""
        lives = self.lives[writer.id]
        if writer not in lives and writer.producer != -1:
            lives.append(writer)

    def stream(self, writer: Writer, partition: int) -> Stream:
        """What its producer has sent there in this epoch."""
        stream = self.streams.setdefault((str(writer.producer), partition), Stream())
        return stream if stream.epoch == writer.epoch else Stream(writer.epoch)

    def group(self) -> str:
        """Some group."""
        return self.dice.choice(self.groups)

    def partition(self) -> int:
        """Some partition."""
        return self.dice.randrange(PARTITIONS)

    # --- steps ---

    def init(self) -> None:
        """Another incarnation: a new start, or one that goes on."""
        writer, version = self.writer(), self.dice.randint(0, 5)
        resumes = version >= 3 and self.dice.random() < 0.5
        self.lives_on(writer.init(version, resumes))

    def send(self, writer: Writer, version: int, partition: int, sequence: int | None = None) -> None:
        """A batch in order, unless said otherwise."""
        stream, count = self.stream(writer, partition), self.dice.choice((1, 1, 2, 3))
        first = stream.next if sequence is None else sequence
        both = writer.send(self.topic, first, version, partition, count)
        answers = [one for topic in both.kafka.get("responses", ()) for one in topic["partition_responses"]]
        if answers and answers[0]["error_code"] == 0 and first == stream.next:
            self.streams[str(writer.producer), partition] = Stream(writer.epoch, first + count)

    def new_protocol(self) -> None:
        """A batch that brings its partition into the transaction."""
        self.send(self.writer(), self.dice.randint(ADDS_FROM, 13), self.partition())

    def old_protocol(self) -> None:
        """Partitions first, then a batch."""
        writer, partition = self.writer(), self.partition()
        writer.add(self.topic, [partition], self.dice.randint(0, 3))
        self.send(writer, self.dice.randint(3, ABORTABLE_FROM), partition)

    def not_added(self) -> None:
        """A batch by an old version whose partition may not be in the transaction."""
        self.send(self.writer(), self.dice.randint(3, ABORTABLE_FROM), self.partition())

    def out_of_order(self) -> None:
        """A sequence that is not the next."""
        writer, partition = self.writer(), self.partition()
        sequence = max(self.stream(writer, partition).next + self.dice.choice((-2, -1, 1, 5)), 0)
        self.send(writer, self.dice.randint(3, 13), partition, sequence)

    def add(self) -> None:
        """Partitions that are not written to, one of which may not exist."""
        partitions = self.dice.choice(([0], [1], [0, 1], [0, 7]))
        self.writer().add(self.topic, partitions, self.dice.randint(0, 3))

    def not_transactional(self) -> None:
        """A batch of a transactional producer outside of its transaction."""
        writer, partition = self.writer(), self.partition()
        stream = self.stream(writer, partition)
        both = produce(self.pair, self.topic, writer.batch(stream.next, attributes=0), partition, self.dice.randint(3, 13))
        if both.kafka["responses"][0]["partition_responses"][0]["error_code"] == 0:
            self.streams[str(writer.producer), partition] = Stream(writer.epoch, stream.next + 1)

    def others(self) -> None:
        """A batch of somebody without producer id, between those of transactions."""
        produce(self.pair, self.topic, Batch(records(1, "plain"), timestamp=self.pair.past_ms), self.partition())

    def commit(self) -> None:
        """Offsets, in the way of any version."""
        writer, group, version = self.writer(), self.group(), self.dice.randint(0, 5)
        if version < 5 and self.dice.random() < 0.7:
            writer.add_group(group, self.dice.randint(0, 4))
        writer.commit(group, self.topic, {self.partition(): self.dice.randrange(1000)}, version)

    def plain_commit(self) -> None:
        """Offsets outside of any transaction."""
        plain_commit(self.pair, self.group(), self.topic, {self.partition(): self.dice.randrange(1000)})

    def end(self) -> None:
        """The outcome, in any version, sometimes asked twice."""
        writer, version = self.writer(), self.dice.choice((5, 5, 5, 0, 1, 2, 3, 4, 4))
        commits = self.dice.random() < 0.6
        after = writer.end(commits, version)
        self.lives_on(after)
        if self.dice.random() < 0.25:
            again = commits if self.dice.random() < 0.7 else not commits
            self.lives_on(self.dice.choice((writer, after)).end(again, version))

    def whole(self) -> None:
        """A whole transaction as clients make it."""
        writer, is_new = self.lives[self.dice.choice(self.ids)][-1], self.dice.random() < 0.5
        group, commits = self.group(), self.dice.random() < 0.6
        for partition in self.dice.sample(range(PARTITIONS), self.dice.randint(1, PARTITIONS)):
            if not is_new:
                writer.add(self.topic, [partition])
            self.send(writer, 12 if is_new else 11, partition)
        if self.dice.random() < 0.5:
            if not is_new:
                writer.add_group(group)
            writer.commit(group, self.topic, {self.partition(): self.dice.randrange(1000)}, 5 if is_new else 4)
        self.lives_on(writer.end(commits, 5 if is_new else 4))

    def delete_group(self) -> None:
        """A group that may have offsets that wait for a marker."""
        self.pair.ask("DeleteGroups", 2, {"groups_names": [self.group()]})

    def delete_offsets(self) -> None:
        """Offsets, of which some may wait for a marker."""
        topics = [{"name": self.topic, "partitions": [{"partition_index": self.partition()}]}]
        self.pair.ask("OffsetDelete", 0, {"group_id": self.group(), "topics": topics})

    def list_offsets(self) -> None:
        """Ends, for both kinds of readers."""
        special = self.dice.choice((-1, -1, -2, -3, self.pair.past_ms))
        body = offsets_body(self.topic, list(range(PARTITIONS)), special) | {"isolation_level": self.dice.randrange(2)}
        self.pair.ask("ListOffsets", self.dice.randint(7, 10), body)

    def read(self) -> None:
        """From somewhere, as both kinds of readers."""
        body = fetch_body(12, self.topic, {self.partition(): self.dice.choice((0, 0, 1, 3, 8, 20))}, isolation=self.dice.randrange(2))
        self.pair.ask("Fetch", 12, body)

    def look_at_offsets(self) -> None:
        """Offsets of a group, for both kinds of readers."""
        kept(self.pair, self.group(), self.topic, PARTITIONS, self.dice.random() < 0.6)

    def look_at_states(self) -> None:
        """What is told of transactions."""
        describe(self.pair, self.ids)

    # --- the end ---

    def look(self) -> None:
        """Everything that can be seen: states, producers, offsets, logs."""
        describe(self.pair, self.ids)
        if "DescribeProducers" in self.pair.served:
            producers(self.pair, self.topic, PARTITIONS)
        for isolation in (0, 1):
            for timestamp in (-1, -2):
                body = offsets_body(self.topic, list(range(PARTITIONS)), timestamp) | {"isolation_level": isolation}
                self.pair.ask("ListOffsets", 8, body)
            for partition in range(PARTITIONS):
                self.pair.ask("Fetch", 12, fetch_body(12, self.topic, {partition: 0}, isolation=isolation))
        for group in self.groups:
            for stable in (False, True):
                kept(self.pair, group, self.topic, PARTITIONS, stable)


STEPS: list[tuple[Callable[[Sequence], None], int]] = [
    (Sequence.whole, 10),
    (Sequence.new_protocol, 12),
    (Sequence.old_protocol, 10),
    (Sequence.not_added, 4),
    (Sequence.out_of_order, 4),
    (Sequence.add, 4),
    (Sequence.not_transactional, 3),
    (Sequence.others, 4),
    (Sequence.commit, 12),
    (Sequence.plain_commit, 4),
    (Sequence.end, 16),
    (Sequence.init, 5),
    (Sequence.delete_group, 1),
    (Sequence.delete_offsets, 2),
    (Sequence.list_offsets, 4),
    (Sequence.read, 6),
    (Sequence.look_at_offsets, 6),
    (Sequence.look_at_states, 3),
]


def run(pair: Pair, count: int, steps: int, seed: int) -> None:
    """Runs this many sequences; each can be repeated by the seed that its name tells."""
    for number in range(seed, seed + count):
        pair.part(f"transactions {number}", lambda _, number=number: one(pair, f"transactions {number}", steps))


def one(pair: Pair, seed: str, steps: int) -> None:
    """One of them."""
    for api in ("EndTxn", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "DescribeTransactions"):
        pair.need(api)
    Sequence(pair, seed, steps).run()
