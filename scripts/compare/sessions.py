"""Fetch sessions and waiting fetches, step by step."""

from collections.abc import Callable

from compare.batches import Batch, Record
from compare.pair import Both, Pair
from compare.side import Given
from compare.steps import fetch_body, produce, records, topic_of

UNKNOWN = 123456


class Session:
    """A fetch session on a topic of its own."""

    def __init__(self, pair: Pair, version: int, partitions: int = 3) -> None:
        self.pair, self.version = pair, version
        self.topic = pair.create("session", partitions)
        self.id: object = 0
        self.epoch = 0

    def ask(self, starts: dict[int, int], forget: tuple[int, ...] = (), **changes: object) -> Both:
        """The next fetch of the session: partitions to add or change, and some to forget."""
        body = fetch_body(self.version, self.topic, starts) if starts else {"max_wait_ms": 0, "min_bytes": 0, "topics": []}
        body |= {"session_id": self.id, "session_epoch": self.epoch}
        if forget:
            body["forgotten_topics_data"] = [topic_of("Fetch", self.version, self.topic) | {"partitions": list(forget)}]
        both = self.pair.ask("Fetch", self.version, body | changes, again=False)
        if self.epoch == 0 and both.kafka.get("session_id"):
            self.id = self.pair.keep(f"session of {self.topic}", both, "session_id")
        self.epoch += 1
        return both

    def append(self, partition: int, count: int = 1) -> None:
        """New records."""
        produce(self.pair, self.topic, Batch(records(count), timestamp=self.pair.past_ms), partition)


def life(pair: Pair, version: int) -> None:
    """Open, nothing new, something new, forget, change, add, close."""
    one = Session(pair, version)
    one.append(0)
    one.ask({0: 0, 1: 0})
    one.ask({})
    one.ask({0: 1})
    one.ask({})
    one.append(1)
    one.ask({})
    one.ask({1: 1, 2: 0})
    one.append(2)
    one.append(0)
    one.ask({}, forget=(0,))
    one.ask({}, forget=(0, 9))
    one.ask({2: 1, 9: 0})
    one.ask({0: 5})
    one.ask({0: 0})
    one.ask({}, session_epoch=-1)
    one.ask({})


def wrong_epochs(pair: Pair, version: int) -> None:
    """Epochs that are not the next one, ids that do not exist."""
    one = Session(pair, version)
    one.ask({0: 0})
    for epoch in (5, 1, 1, 0x7FFFFFFF, -2):
        one.ask({}, session_epoch=epoch)
    for session, epoch in ((UNKNOWN, 1), (UNKNOWN, 0), (UNKNOWN, -1), (-1, 0), (-1, 5), (0, 1), (0, 5)):
        one.ask({0: 0}, session_id=session, session_epoch=epoch)
    one.ask({}, session_epoch=2)


def no_longer_there(pair: Pair, version: int) -> None:
    """A topic that is deleted while a session has it, and one that never was."""
    one = Session(pair, version)
    one.ask({0: 0})
    body = {"topics": [{"name": one.topic}]} if pair.served["DeleteTopics"][-1] >= 6 else {"topic_names": [one.topic]}
    pair.ask("DeleteTopics", pair.served["DeleteTopics"][-1], body | {"timeout_ms": 5000})
    one.ask({})
    one.ask({})
    other = Session(pair, version)
    name = pair.name("nowhere")
    if version >= 13:
        other.ask({}, topics=[{"topic_id": Given("unknown id"), "partitions": [{"partition": 0, "partition_max_bytes": 1}]}])
    else:
        other.ask({}, topics=[{"topic": name, "partitions": [{"partition": 0, "partition_max_bytes": 1}]}])
    other.ask({})


def limits(pair: Pair, version: int) -> None:
    """Few bytes for many partitions: who is served first, and that the first batch always comes."""
    one = Session(pair, version)
    for partition in range(3):
        for _ in range(3):
            produce(pair, one.topic, Batch((Record(b"x" * 300),), timestamp=pair.past_ms), partition)
    for max_bytes in (1, 400, 800, 100_000):
        one.ask({0: 0, 1: 0, 2: 0}, session_id=0, session_epoch=-1, max_bytes=max_bytes)
    one.epoch = 0
    one.ask({0: 0, 1: 0, 2: 0}, max_bytes=400)
    for _ in range(3):
        one.ask({}, max_bytes=400)
    for max_bytes in (0, 1, 500):
        body = fetch_body(version, one.topic, {0: 0, 1: 0}, max_bytes)
        pair.ask("Fetch", version, body)


def waits(pair: Pair, version: int) -> None:
    """A fetch that waits is answered when records come, or when its time is over."""
    one = Session(pair, version)
    body = fetch_body(version, one.topic, {0: 0}) | {"max_wait_ms": 5000, "min_bytes": 1}
    pair.send("Fetch", version, body, line="waiting")
    one.append(0)
    pair.receive("Fetch", version, body, line="waiting", seconds=4)
    short = fetch_body(version, one.topic, {1: 0}) | {"max_wait_ms": 50, "min_bytes": 1}
    pair.ask("Fetch", version, short)
    many = fetch_body(version, one.topic, {0: 0}) | {"max_wait_ms": 50, "min_bytes": 100_000}
    pair.ask("Fetch", version, many)
    error = fetch_body(version, one.topic, {1: 0, 9: 0}) | {"max_wait_ms": 10_000, "min_bytes": 1}
    pair.ask("Fetch", version, error, seconds=3)


SCRIPTS: tuple[Callable[[Pair, int], None], ...] = (life, wrong_epochs, no_longer_there, limits, waits)


def run(pair: Pair) -> None:
    """All scripts in the versions that have sessions; the quick form in three of them."""
    served = [version for version in pair.served["Fetch"] if version >= 7]
    for version in (7, 12, served[-1]) if pair.is_quick else served:
        for one in SCRIPTS:
            pair.part(f"fetch v{version} {one.__name__}", lambda _, one=one, version=version: one(pair, version))
