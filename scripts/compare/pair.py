"""Both brokers at once: the same request to each, and every field of the two answers beside each other."""

import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from compare.differences import Difference, error_codes
from compare.side import Given, Side, now_ms
from compare.wire import by_key
from lib.brokers import Broker

# Loading, no coordinator yet, not the coordinator, a transition in progress: asked again, as every client does.
UNSETTLED = {14, 15, 16, 51}
SETTLE_SECONDS = 15
WARM_UP = (
    ("InitProducerId", 4, {"transactional_id": None, "transaction_timeout_ms": 60_000}),
    ("FindCoordinator", 3, {"key": "warm-up"}),
    *(("OffsetCommit", 8, {"group_id": f"warm-up {one}", "topics": [{"name": "nowhere", "partitions": [{"partition_index": 0}]}]})
      for one in range(20)),
)  # fmt: skip
# Requests that change nothing: asked again when the answers differ, since both brokers finish some things later.
READS = {"Fetch", "ListOffsets", "Metadata", "DescribeConfigs", "DescribeLogDirs", "DescribeGroups", "ListGroups",
         "OffsetFetch", "OffsetForLeaderEpoch", "DescribeTransactions", "DescribeProducers", "ListTransactions", "DescribeTopicPartitions", "DescribeCluster", "FindCoordinator"}  # fmt: skip
READ_AGAIN_SECONDS = 0.5
IDENTITY = ("resource_type", "name", "topic", "topic_id", "topic_name", "partition_index", "index", "partition", "group_id",
            "member_id", "api_key", "key", "node_id", "broker_id", "resource_name", "batch_index")  # fmt: skip
MISSING = "(missing)"


class Skipped(Exception):
    """A part that corelane cannot take part in yet."""


@dataclass
class Both:
    """The answers of the two sides as they came."""

    kafka: dict
    ours: dict


class Pair:
    """Two brokers, and what was found between them."""

    def __init__(self, kafka: Side, ours: Side, seed: int) -> None:
        self.kafka, self.ours = kafka, ours
        self.sides = (kafka, ours)
        self.random = random.Random(seed)
        self.start_ms = now_ms()
        # Timestamps that the requests carry: far enough from now to be told from what a broker took from its clock.
        self.past_ms = self.start_ms - 6 * 3_600_000
        self.requests = 0
        self.expected: Counter[str] = Counter()
        self.unexpected: list[Difference] = []
        self.step = ""
        self.names = 0
        self.name_salt = f"{self.start_ms % 10**9:x}"
        self.brokers: tuple[Broker, Broker] | None = None
        self.is_quick = False
        self.skipped: list[str] = []
        self.parts_failed: list[str] = []
        self.served = self.read_served()

    def read_served(self) -> dict[str, range]:
        """The keys that corelane serves and messages.txt describes, with the versions that both brokers have."""
        told = [side.call("ApiVersions", 3, {"client_software_name": "compare", "client_software_version": "1"}) for side in self.sides]
        ranges = [{one["api_key"]: range(one["min_version"], one["max_version"] + 1) for one in answer["api_keys"]} for answer in told]
        found = {}
        for key, own in ranges[1].items():
            message, kafkas = by_key().get(key), ranges[0].get(key, range(0))
            if message is None:
                raise SystemExit(f"corelane serves key {key}: messages.txt has to describe it")
            both = [version for version in own if version in kafkas and version in message.versions]
            found[message.name] = range(both[0], both[-1] + 1)
        return found

    def warm_up(self) -> None:
        """Kafka makes the topic of the offsets when a coordinator is first looked for, and is not ready for a while."""
        for side in self.sides:
            deadline = time.monotonic() + 60
            for api, version, body in WARM_UP:
                while UNSETTLED & set(error_codes(side.call(api, version, body))) and time.monotonic() < deadline:
                    time.sleep(0.1)

    # --- running ---

    def part(self, name: str, run: Callable[["Pair"], None]) -> None:
        """Runs one part under a name; what goes wrong in it is a finding and does not keep the others from running."""
        self.step = name
        before = len(self.unexpected)
        try:
            run(self)
        except Skipped as missing:
            self.skipped.append(f"{name}: corelane does not serve {missing} yet")
        except Exception as error:  # noqa: BLE001 - the next part may still find something
            self.unexpected.append(Difference(name, "-", 0, "part ended", "", repr(error), frozenset(), {}, {}, {}))
            print(f"BROKEN {name}: {traceback.format_exc(limit=-4)}", file=sys.stderr, flush=True)
        if len(self.unexpected) > before:
            self.parts_failed.append(name)

    def need(self, api: str, version: int = 0) -> None:
        """Ends a part that asks what corelane does not serve (yet)."""
        if api not in self.served or version > self.served[api][-1]:
            raise Skipped(api)

    def forget(self) -> None:
        """Begins anew with the order of appearance of ids, for requests that have nothing to do with earlier ones."""
        for side in self.sides:
            side.seen.clear()

    def scale(self, count: int) -> int:
        """How often something is repeated: less in the quick form."""
        return max(count // 10, 1) if self.is_quick else count

    def restart(self, kill: bool) -> None:
        """Ends both brokers, cleanly or as a crash would, and starts them on what they left."""
        if self.brokers is None:
            raise Skipped("a restart by this script (it was given running brokers)")
        for side, broker in zip(self.sides, self.brokers, strict=True):
            for line in list(side.lines):
                side.hang_up(line)
            broker.kill() if kill else broker.stop()
            broker.start()
        self.warm_up()

    # --- the parts of a comparison ---

    def ask(self, api: str, version: int, body: dict, **how: object) -> Both:
        """Sends, awaits, compares. `how`: line, tags, seconds (until an answer counts as none), settle (seconds),
        again (whether it is asked once more when the answers differ)."""
        line = how.get("line", "main")
        tags = frozenset(how.get("tags", ()))
        self.send(api, version, body, line)
        both = Both(*(self.settled(side, api, version, body, how) for side in self.sides))
        found = self.differences(api, version, body, both, tags)
        deadline = time.monotonic() + READ_AGAIN_SECONDS
        while how.get("again", api in READS) and any(one.rule() is None for one in found) and time.monotonic() < deadline:
            time.sleep(0.05)
            both = Both(*(side.call(api, version, body, line) for side in self.sides))
            found = self.differences(api, version, body, both, tags)
        self.note(found)
        return both

    def settled(self, side: Side, api: str, version: int, body: dict, how: dict) -> dict:
        """The answer to a request that was sent, asked again while it says that the broker is not ready yet."""
        line, seconds = how.get("line", "main"), how.get("seconds", 20)
        deadline = time.monotonic() + how.get("settle", SETTLE_SECONDS)
        answer = side.receive(line, seconds)
        while UNSETTLED & set(error_codes(answer)) and time.monotonic() < deadline:
            time.sleep(0.02)
            answer = side.call(api, version, body, line)
        return answer

    def send(self, api: str, version: int, body: dict, line: str = "main", is_answered: bool = True) -> None:
        """Only writes, for requests in flight together or such as wait for each other."""
        self.requests += 1
        for side in self.sides:
            side.send(api, version, body, line, is_answered)

    def receive(self, api: str, version: int, body: dict, **how: object) -> Both:
        """Awaits and compares the answers to what was sent earlier."""
        both = Both(*(side.receive(how.get("line", "main"), how.get("seconds", 20)) for side in self.sides))
        self.note(self.differences(api, version, body, both, frozenset(how.get("tags", ()))))
        return both

    def hang_up(self, line: str = "main") -> None:
        """Closes a connection to both."""
        for side in self.sides:
            side.hang_up(line)

    def keep(self, name: str, both: Both, *way: str | int) -> Given:
        """Keeps what each side gave out in a field of its answer, for later requests."""
        for side, value in zip(self.sides, (both.kafka, both.ours), strict=True):
            for step in way:
                value = value[step]
            side.given[name] = value
        return Given(name)

    # --- comparing ---

    def differences(self, api: str, version: int, body: dict, both: Both, tags: frozenset[str]) -> list[Difference]:
        """All between two answers."""
        kafka, ours = self.kafka.normal(api, both.kafka), self.ours.normal(api, both.ours)
        found = [
            Difference(self.step, api, version, path, kafkas, own, tags, body, kafka, ours)
            for path, kafkas, own in between(kafka, ours)
        ]
        return found

    def note(self, found: list[Difference]) -> None:
        """Counts what has a rule and says what has none."""
        for one in found:
            rule = one.rule()
            if rule is not None:
                self.expected[rule.id] += 1
                continue
            self.unexpected.append(one)
            print(one.report(), file=sys.stderr, flush=True)

    def check(self, what: str, kafka: object, ours: object, tags: tuple[str, ...] = ()) -> None:
        """Compares two values that a script took together from several answers."""
        if kafka != ours:
            self.note([Difference(self.step, "-", 0, what, kafka, ours, frozenset(tags), {}, {}, {})])

    # --- what every part needs ---

    def name(self, stem: str) -> str:
        """A name that no earlier topic or group of these brokers has."""
        self.names += 1
        return f"{stem}-{self.name_salt}-{self.names}"

    def create(self, stem: str, partitions: int = 1, **configs: object) -> str:
        """A new topic on both sides, ready to be used; its id is kept under `id of NAME`."""
        name = self.name(stem)
        # Records of long ago must not be old enough to be deleted.
        configs = {"retention_ms": -1, **configs}
        settings = [{"name": key.replace("_", "."), "value": str(value)} for key, value in configs.items()]
        topic = {"name": name, "num_partitions": partitions, "replication_factor": 1, "configs": settings}
        self.ask("CreateTopics", 7, {"topics": [topic]})
        for side in self.sides:
            self.await_topic(side, name, partitions)
        return name

    def await_topic(self, side: Side, name: str, partitions: int) -> None:
        """A topic is usable once each partition has a leader that answers."""
        body = {"topics": [{"name": name, "partitions": [{"partition_index": one, "timestamp": -1} for one in range(partitions)]}]}
        deadline = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < deadline:
            about = side.call("Metadata", 12, {"topics": [{"name": name}], "allow_auto_topic_creation": False})["topics"][0]
            if about["error_code"] == 0 and len(about["partitions"]) == partitions:
                side.given[f"id of {name}"] = about["topic_id"]
                offsets = side.call("ListOffsets", 7, body)["topics"][0]["partitions"]
                if all(one["error_code"] == 0 for one in offsets):
                    side.given["epoch"] = offsets[0]["leader_epoch"]
                    return
            time.sleep(0.02)
        raise RuntimeError(f"{side.name}: topic {name} did not become usable")

    def producer(self, name: str) -> Given:
        """A producer id of each side."""
        both = self.ask("InitProducerId", 4, {"transactional_id": None, "transaction_timeout_ms": 60000})
        return self.keep(name, both, "producer_id")


def identity(value: object) -> tuple | None:
    """By what an element of a list is found again, if it has something like a name."""
    if not isinstance(value, dict):
        return None
    return tuple((key, str(value[key])) for key in IDENTITY if key in value) or None


def between(kafka: object, ours: object, path: str = "") -> Iterator[tuple[str, object, object]]:
    """The places where two values differ, as path, Kafka's, ours."""
    if isinstance(kafka, dict) and isinstance(ours, dict):
        for name in dict.fromkeys((*kafka, *ours)):
            yield from between(kafka.get(name, MISSING), ours.get(name, MISSING), f"{path}.{name}" if path else name)
    elif isinstance(kafka, list) and isinstance(ours, list):
        yield from between_lists(kafka, ours, path)
    elif kafka != ours:
        yield path, kafka, ours


def between_lists(kafka: list, ours: list, path: str) -> Iterator[tuple[str, object, object]]:
    """The same for lists: elements with a name are compared with their namesakes, and the order by itself."""
    names = [[identity(one) for one in kafka], [identity(one) for one in ours]]
    if names[0] == names[1] or None in names[0] + names[1] or any(len(set(one)) < len(one) for one in names):
        if not (kafka and isinstance(kafka[0], dict)) and sorted(map(repr, kafka)) == sorted(map(repr, ours)) and kafka != ours:
            yield f"{path}.order", kafka, ours
            return
        for at in range(max(len(kafka), len(ours))):
            kafkas = kafka[at] if at < len(kafka) else MISSING
            own = ours[at] if at < len(ours) else MISSING
            yield from between(kafkas, own, f"{path}[{at}]")
        return
    by_name = [dict(zip(one, elements, strict=True)) for one, elements in zip(names, (kafka, ours), strict=True)]
    common = [[name for name in one if name in by_name[0] and name in by_name[1]] for one in names]
    if common[0] != common[1]:
        yield f"{path}.order", [last(name) for name in common[0]], [last(name) for name in common[1]]
    for name in dict.fromkeys((*names[0], *names[1])):
        yield from between(by_name[0].get(name, MISSING), by_name[1].get(name, MISSING), f"{path}[{last(name)}]")


def last(name: tuple) -> str:
    """An identity in short."""
    return "/".join(value for _, value in name)
