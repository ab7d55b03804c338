"""A producer with a transactional id, as the comparison drives it: every call in any version, also as a zombie."""

import time
from dataclasses import dataclass, replace

from compare.batches import TRANSACTIONAL, Batch
from compare.pair import Both, Pair
from compare.side import Given
from compare.steps import produce_body, records

TIMEOUT_MS = 60_000
SETTLE_SECONDS = 15
NOBODY = -1


@dataclass(frozen=True)
class Writer:
    """One incarnation: who it is for its coordinator."""

    pair: Pair
    id: str
    producer: Given | int = NOBODY
    epoch: int = NOBODY

    # --- the life of a transaction ---

    def init(self, version: int = 4, resume: bool = False, **other: object) -> "Writer":
        """InitProducerId; the incarnation that follows, or this one when it was refused."""
        body = {"transactional_id": self.id, "transaction_timeout_ms": TIMEOUT_MS}
        if resume:
            body |= {"producer_id": self.producer, "producer_epoch": self.epoch}
        return self.after(self.pair.ask("InitProducerId", version, body | other))

    def add(self, topic: str, partitions: list[int], version: int = 3, **other: object) -> Both:
        """AddPartitionsToTxn as clients send it."""
        body = {f"v3_and_below_{name}": value for name, value in self.who().items()}
        body["v3_and_below_topics"] = other.pop("topics", [{"name": topic, "partitions": partitions}])
        return self.pair.ask("AddPartitionsToTxn", version, body | other)

    def add_group(self, group: str, version: int = 3) -> Both:
        """AddOffsetsToTxn."""
        return self.pair.ask("AddOffsetsToTxn", version, self.who() | {"group_id": group})

    def send(self, topic: str, sequence: int, version: int = 12, partition: int = 0, count: int = 1, **other: object) -> Both:
        """Produce of one transactional batch."""
        body = produce_body(version, -1, {(topic, partition): self.batch(sequence, count, **other)})
        return self.pair.ask("Produce", version, body | {"transactional_id": self.id})

    def batch(self, sequence: int, count: int = 1, **other: object) -> Batch:
        """A batch of this incarnation; the same arguments give the same bytes."""
        made = Batch(records(count, f"{self.id}-{self.epoch}-{sequence}-"), self.producer, self.epoch, sequence)
        return made.but(**{"timestamp": self.pair.past_ms + sequence % 1000, "attributes": TRANSACTIONAL} | other)

    def commit(self, group: str, topic: str, offsets: dict[int, int], version: int = 5, **other: object) -> Both:
        """TxnOffsetCommit."""
        partitions = [{"partition_index": index, "committed_offset": one, "committed_metadata": ""} for index, one in offsets.items()]
        body = self.who() | {"group_id": group, "topics": [{"name": topic, "partitions": partitions}]}
        return self.pair.ask("TxnOffsetCommit", version, body | other)

    def end(self, commits: bool, version: int = 5) -> "Writer":
        """EndTxn; from version 5 on another incarnation may follow. What was to be written is written then."""
        after = self.after(self.pair.ask("EndTxn", version, self.who() | {"committed": commits}))
        settle(self.pair, [self.id])
        return after

    # --- who it is ---

    def who(self) -> dict:
        """As most requests say it."""
        return {"transactional_id": self.id, "producer_id": self.producer, "producer_epoch": self.epoch}

    def of_epoch(self, epoch: int) -> "Writer":
        """The same id with another epoch."""
        return replace(self, epoch=epoch)

    def of(self, other: Given | int) -> "Writer":
        """The same epoch with another id."""
        return replace(self, producer=other)

    def after(self, both: Both) -> "Writer":
        """The incarnation that an answer gives out."""
        if both.kafka.get("error_code") != 0 or both.kafka.get("producer_id", NOBODY) < 0:
            return self
        name = f"{self.id} {both.kafka['producer_id']}"
        return replace(self, producer=self.pair.keep(name, both, "producer_id"), epoch=both.kafka["producer_epoch"])


def writer(pair: Pair, stem: str = "writer", version: int = 4) -> Writer:
    """A new transactional id whose first incarnation is known."""
    for api in ("EndTxn", "DescribeTransactions"):
        pair.need(api)
    return Writer(pair, new_id(pair, stem)).init(version)


def new_id(pair: Pair, stem: str = "writer") -> str:
    """A transactional id that nobody has; its coordinator is there."""
    name = pair.name(stem)
    for side in pair.sides:
        deadline = time.monotonic() + SETTLE_SECONDS
        while side.call("FindCoordinator", 3, {"key": name, "key_type": 1})["error_code"] and time.monotonic() < deadline:
            time.sleep(0.05)
    return name


def settle(pair: Pair, ids: list[str]) -> None:
    """Waits until no transaction of these ids is between its outcome and its markers."""
    for side in pair.sides:
        deadline = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < deadline:
            told = side.call("DescribeTransactions", 0, {"transactional_ids": ids}).get("transaction_states", [])
            if told and not any(one["error_code"] in (14, 15, 16) or one["transaction_state"].startswith("Prepare") for one in told):
                break
            time.sleep(0.005)


def describe(pair: Pair, ids: list[str]) -> Both:
    """DescribeTransactions."""
    return pair.ask("DescribeTransactions", 0, {"transactional_ids": ids})


def producers(pair: Pair, topic: str, partitions: int = 1) -> Both:
    """DescribeProducers."""
    return pair.ask("DescribeProducers", 0, {"topics": [{"name": topic, "partition_indexes": list(range(partitions))}]})


def plain_commit(pair: Pair, group: str, topic: str, offsets: dict[int, int]) -> Both:
    """OffsetCommit of somebody outside of any transaction."""
    partitions = [{"partition_index": index, "committed_offset": one, "committed_metadata": ""} for index, one in offsets.items()]
    return pair.ask("OffsetCommit", 8, {"group_id": group, "topics": [{"name": topic, "partitions": partitions}]})


def kept(pair: Pair, group: str, topic: str, partitions: int = 1, stable: bool = True) -> Both:
    """OffsetFetch of one group."""
    wanted = [{"name": topic, "partition_indexes": list(range(partitions))}]
    return pair.ask("OffsetFetch", 7, {"group_id": group, "topics": wanted, "require_stable": stable})
