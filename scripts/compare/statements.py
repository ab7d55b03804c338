"""The numbered statements about producers and transactions (tests/broker_semantics has them as tests), put to both brokers.

Each function is one statement and is named after it; what it compares are the answers of the two brokers with each
other. Left out are those about the inside of a broker (A15, B13, C03, C04, C06, D16). Those about transactions are in
compare/transaction_statements.py.
"""

import time
from collections.abc import Callable

from compare.batches import CONTROL, Batch, Record
from compare import transaction_statements  # noqa: F401 - enters its own
from compare.pair import Pair
from compare.side import Given, Side
from compare.statement import STATEMENTS, statement
from compare.steps import produce, produce_body, produce_unanswered, records, same_log

INIT = {"transactional_id": None, "transaction_timeout_ms": 60_000}
LAST = 0x7FFFFFFF
# Left out in the quick form.
SLOW = ("A03", "C01", "A14", "D12", "D14", "D17")
# These change settings or restart.
LAST_ONES = ("B19", "A03", "C01", "C02", "C05", "D15", "D17", "D20")


class Idempotent:
    """A producer on a topic of its own."""

    def __init__(self, pair: Pair, stem: str, partitions: int = 1, **configs: object) -> None:
        self.pair = pair
        self.topic = pair.create(stem, partitions, **configs)
        self.id = pair.producer(f"producer of {self.topic}")

    def batch(self, sequence: int, count: int = 1, epoch: int = 0, **other: object) -> Batch:
        """Its batch with this first sequence; the same arguments give the same bytes."""
        text = f"{epoch}-{sequence}-"
        made = Batch(records(count, text), self.id, epoch, sequence, timestamp=self.pair.past_ms + sequence % 1000)
        return made.but(**other)

    def send(self, sequence: int, count: int = 1, epoch: int = 0, **how: object) -> None:
        """Sends it and compares the answers."""
        produce(self.pair, self.topic, self.batch(sequence, count, epoch), **how)

    def same_log(self, partitions: int = 1) -> None:
        """The logs are the same."""
        same_log(self.pair, self.topic, partitions)


# --- A: producer ids ------------------------------------------------------------------------------------------------


@statement
def a01(pair: Pair) -> None:
    """Two fresh ids differ, epoch 0, in every version."""
    for version in range(6):
        for _ in range(2):
            pair.ask("InitProducerId", version, INIT)


@statement
def a02(pair: Pair) -> None:
    """Ids given to eight connections at once are all different."""
    rounds, lines = pair.scale(1250), [f"a02-{one}" for one in range(8)]
    seen: dict[str, list[int]] = {side.name: [] for side in pair.sides}
    for line in lines:
        for side in pair.sides:
            side.call("InitProducerId", 4, INIT, line)
    for side in pair.sides:
        for _ in range(rounds):
            for line in lines:
                side.send("InitProducerId", 4, INIT, line)
            answers = [side.receive(line) for line in lines]
            # Kafka says 14 while it waits for its next block of ids.
            seen[side.name] += [one["producer_id"] for one in answers if one["error_code"] == 0]
    for line in lines:
        pair.hang_up(line)
    again = [len(ids) - len(set(ids)) for ids in seen.values()]
    pair.check("ids given out more than once", *again)
    pair.check("at least half of the answers have an id", *(len(ids) > 4 * rounds for ids in seen.values()))


@statement
def a03(pair: Pair) -> None:
    """After kill -9 no id is given out again."""
    before = [set(ids_of(side, 20)) for side in pair.sides]
    pair.restart(kill=True)
    after = [set(ids_of(side, pair.scale(1000))) for side in pair.sides]
    again = [len(old & new) for old, new in zip(before, after, strict=True)]
    pair.check("ids given out before and after", again[0], again[1])


def ids_of(side: Side, count: int) -> list[int]:
    """This many ids, waiting while the broker is not ready for it."""
    found: list[int] = []
    while len(found) < count:
        answer = side.call("InitProducerId", 4, INIT)
        if answer["error_code"] == 0:
            found.append(answer["producer_id"])
        else:
            time.sleep(0.02)
    return found


@statement
def a04(pair: Pair) -> None:
    """Only one of id and epoch given."""
    for version in (3, 4, 5):
        pair.ask("InitProducerId", version, INIT | {"producer_id": 7})
        pair.ask("InitProducerId", version, INIT | {"producer_epoch": 0})


@statement
def a05(pair: Pair) -> None:
    """A given id and epoch without transactional id: a new id."""
    given = pair.producer("a05")
    for version in (3, 4, 5):
        pair.ask("InitProducerId", version, INIT | {"producer_id": given, "producer_epoch": 0})


@statement
def a06(pair: Pair) -> None:
    """An empty transactional id."""
    for version in range(6):
        pair.ask("InitProducerId", version, INIT | {"transactional_id": ""})


# --- B: appends -----------------------------------------------------------------------------------------------------


@statement
def b01(pair: Pair) -> None:
    """Batches in order get offsets in order."""
    one = Idempotent(pair, "b01")
    one.send(0, 3)
    one.send(3)
    one.same_log()


@statement
def b02(pair: Pair) -> None:
    """A retry is answered with the first offset and written once."""
    one = Idempotent(pair, "b02")
    one.send(0, 3)
    one.send(3)
    one.send(0, 3)
    one.same_log()


@statement
def b03(pair: Pair) -> None:
    """Five batches can be retried, the sixth last cannot."""
    one = Idempotent(pair, "b03")
    for sequence in (*range(6), *range(1, 6), 0):
        one.send(sequence)
    one.same_log()


@statement
def b04(pair: Pair) -> None:
    """A gap is refused and changes nothing."""
    one = Idempotent(pair, "b04")
    for sequence in (0, 3, 1):
        one.send(sequence)
    one.same_log()


@statement
def b05(pair: Pair) -> None:
    """Parts of a known batch, or more than it."""
    one = Idempotent(pair, "b05")
    for sequence, count in ((0, 3), (0, 2), (1, 2), (0, 4), (3, 1)):
        one.send(sequence, count)
    one.same_log()


@statement
def b06(pair: Pair) -> None:
    """A newer epoch starts at 0 and fences the older one."""
    one = Idempotent(pair, "b06")
    for sequence, epoch in ((0, 0), (5, 1), (0, 1), (1, 0), (0, 0), (1, 1)):
        one.send(sequence, epoch=epoch)
    one.same_log()


@statement
def b07(pair: Pair) -> None:
    """An unknown producer may begin anywhere."""
    one = Idempotent(pair, "b07")
    for sequence in (7, 8, 0):
        one.send(sequence)
    one.same_log()


@statement
def b08(pair: Pair) -> None:
    """After the last sequence comes 0."""
    one = Idempotent(pair, "b08")
    for sequence in (LAST, 0, 1):
        one.send(sequence)
    one.same_log()


@statement
def b09(pair: Pair) -> None:
    """A batch across the wrap, retried."""
    one = Idempotent(pair, "b09")
    for sequence, count in ((LAST - 1, 4), (LAST - 1, 4), (2, 1)):
        one.send(sequence, count)
    one.same_log()


@statement
def b10(pair: Pair) -> None:
    """The time in the answer to a retry."""
    create = Idempotent(pair, "b10")
    append = Idempotent(pair, "b10-append-time", message_timestamp_type="LogAppendTime")
    for one in (create, append):
        first = [produce(pair, one.topic, one.batch(0, 2)), produce(pair, one.topic, one.batch(0, 2))]
        times = [[both_time(both) for both in first] for both_time in (kafka_time, our_time)]
        if one is append:
            pair.check("the retry has the time of the original", len(set(times[0])), len(set(times[1])))
        one.same_log()


def kafka_time(both: object) -> int:
    """log_append_time_ms of Kafka's answer."""
    return both.kafka["responses"][0]["partition_responses"][0]["log_append_time_ms"]


def our_time(both: object) -> int:
    """log_append_time_ms of our answer."""
    return both.ours["responses"][0]["partition_responses"][0]["log_append_time_ms"]


@statement
def b11(pair: Pair) -> None:
    """Five in flight on one connection."""
    one = Idempotent(pair, "b11")
    for start in range(0, 25, 5):
        bodies = [produce_body(9, -1, {(one.topic, 0): one.batch(start + at)}) for at in range(5)]
        for body in bodies:
            pair.send("Produce", 9, body)
        for body in bodies:
            pair.receive("Produce", 9, body)
    one.same_log()


@statement
def b12(pair: Pair) -> None:
    """The same batch on two connections at the same time is written once, and both get its offset."""
    one, lines = Idempotent(pair, "b12"), ("b12-left", "b12-right")
    found: dict[str, list] = {side.name: [] for side in pair.sides}
    for side in pair.sides:
        for sequence in range(pair.scale(1000)):
            body = produce_body(9, -1, {(one.topic, 0): one.batch(sequence)})
            for line in lines:
                side.send("Produce", 9, body, line)
            answers = [side.receive(line)["responses"][0]["partition_responses"][0] for line in lines]
            found[side.name].append(sorted((answer["error_code"], answer["base_offset"]) for answer in answers))
    pair.check("error codes and offsets", *found.values())
    one.same_log()


@statement
def b14(pair: Pair) -> None:
    """Without acks: a retry is dropped in silence, a gap closes the connection."""
    one = Idempotent(pair, "b14")
    for sequence in (0, 0, 1, 5):
        produce_unanswered(pair, one.topic, one.batch(sequence))
    one.send(2)
    one.same_log()


@statement
def b15(pair: Pair) -> None:
    """Acks that do not exist."""
    one = Idempotent(pair, "b15", 2)
    for acks in (2, -2, 32767):
        body = produce_body(9, acks, {(one.topic, 0): one.batch(0), (one.topic, 1): one.batch(0)})
        pair.ask("Produce", 9, body)
    one.same_log(2)


@statement
def b16(pair: Pair) -> None:
    """Without a producer id everything is written."""
    topic = pair.create("b16")
    for _ in range(3):
        produce(pair, topic, Batch(records(2), timestamp=pair.past_ms))
    same_log(pair, topic)


@statement
def b17(pair: Pair) -> None:
    """Each partition has its own sequences."""
    one = Idempotent(pair, "b17", 2)
    for partition, sequence in ((0, 0), (1, 0), (0, 1), (1, 1)):
        produce(pair, one.topic, one.batch(sequence), partition)
    one.same_log(2)


@statement
def b18(pair: Pair) -> None:
    """Deleted records are still known to their producer."""
    pair.need("DeleteRecords")
    one = Idempotent(pair, "b18")
    for sequence in range(3):
        one.send(sequence)
    body = {"timeout_ms": 5000, "topics": [{"name": one.topic, "partitions": [{"partition_index": 0, "offset": -1}]}]}
    pair.ask("DeleteRecords", 2, body)
    for sequence in (2, 5, 3):
        one.send(sequence)
    one.same_log()


@statement
def b19(pair: Pair) -> None:
    """An entry that is idle for too long is forgotten."""
    setting = "producer.id.expiration.ms"
    alter_broker(pair, setting, "2000")
    one = Idempotent(pair, "b19")
    recent = {"timestamp": int(time.time() * 1000) - 1000}
    produce(pair, one.topic, one.batch(0, **recent))
    time.sleep(5)
    produce(pair, one.topic, one.batch(9, **recent))
    alter_broker(pair, setting, None)


def alter_broker(pair: Pair, name: str, value: str | None) -> None:
    """Sets a setting of the broker, or takes it back."""
    config = {"name": name, "config_operation": 0 if value else 1, "value": value}
    pair.ask("IncrementalAlterConfigs", 1, {"resources": [{"resource_type": 4, "resource_name": Given("node name"), "configs": [config]}]})


@statement
def b20(pair: Pair) -> None:
    """Too large and of a stale epoch: the size is what counts."""
    one = Idempotent(pair, "b20", max_message_bytes=1000)
    one.send(0, epoch=1)
    large = one.batch(1, records=(Record(b"x" * 2000),))
    produce(pair, one.topic, large.but(epoch=0))
    produce(pair, one.topic, large.but(epoch=1))
    one.send(1, epoch=1)
    one.same_log()


@statement
def b21(pair: Pair) -> None:
    """Batches that are not one whole batch."""
    one = Idempotent(pair, "b21")
    good = one.batch(0)
    broken = {
        "crc": good.but(crc=1),
        "magic 3": good.but(magic=3),
        "magic -1": good.but(magic=-1),
        "base offset": good.but(base_offset=5),
        "two batches": (good, one.batch(1)),
        "no batch": b"",
        "garbage gzip": good.but(codec="gzip", payload=b"garbage"),
        "codec 5": good.but(attributes=5),
        "codec 7": good.but(attributes=7),
        "null records": None,
    }
    for name, batch in broken.items():
        for version in (7, 8, 9, 13):
            produce(pair, one.topic, batch, version=version, seconds=3, tags=(name,))
    one.send(0)
    one.same_log()


@statement
def b22(pair: Pair) -> None:
    """Counts and sequences that cannot be."""
    one = Idempotent(pair, "b22")
    good = one.batch(0, 2)
    for batch in (
        good.but(count=0, last_delta=-1, records=()),
        good.but(count=0),
        good.but(count=3),
        good.but(last_delta=2),
        good.but(count=3, last_delta=2),
        good.but(count=1, last_delta=0),
        good.but(last_delta=-1),
        good.but(count=-1),
        good.but(sequence=-1),
        good.but(sequence=-2),
    ):
        produce(pair, one.topic, batch, tags=("count",))
    one.send(0)
    one.same_log()


@statement
def b23(pair: Pair) -> None:
    """A control batch of a client."""
    one = Idempotent(pair, "b23")
    produce(pair, one.topic, one.batch(0, attributes=CONTROL))
    produce(pair, one.topic, Batch(attributes=CONTROL, timestamp=pair.past_ms))
    one.send(0)
    one.same_log()


@statement
def b24(pair: Pair) -> None:
    """A compacted topic wants keys."""
    one = Idempotent(pair, "b24", cleanup_policy="compact", min_compaction_lag_ms=9 * 10**15)
    bad = one.batch(0, records=(Record(), Record(key=b"k"), Record()))
    for version in (7, 8, 9):
        produce(pair, one.topic, bad, version=version)
    produce(pair, one.topic, one.batch(0, records=(Record(key=b"k"),)))
    one.same_log()


@statement
def b25(pair: Pair) -> None:
    """A timestamp that is two hours ahead."""
    one = Idempotent(pair, "b25", 1, message_timestamp_before_max_ms=86_400_000)
    ahead = one.batch(0, 2, timestamp=pair.start_ms + 2 * 3_600_000)
    behind = one.batch(0, 2, timestamp=pair.start_ms - 48 * 3_600_000)
    for batch in (ahead, behind, ahead.but(codec="gzip"), one.batch(0, timestamp=-1)):
        for version in (7, 9):
            produce(pair, one.topic, batch, version=version)
    one.same_log()


@statement
def b26(pair: Pair) -> None:
    """zstd before version 7."""
    one = Idempotent(pair, "b26")
    for sequence, version in enumerate((6, 7, 13)):
        produce(pair, one.topic, one.batch(max(sequence - 1, 0), codec="zstd"), version=version)
    one.same_log()


@statement
def b27(pair: Pair) -> None:
    """What is unknown does not keep the rest from being written."""
    one = Idempotent(pair, "b27")
    batches = {(one.topic, 7): one.batch(0), (one.topic, 0): one.batch(0), (pair.name("nowhere"), 0): one.batch(0)}
    pair.ask("Produce", 9, produce_body(9, -1, batches))
    one.same_log()


# --- C: after a restart ---------------------------------------------------------------------------------------------


@statement
def c01(pair: Pair) -> None:
    """Five batches can be retried after a clean restart."""
    after_restart(pair, "c01", kill=False)


@statement
def c02(pair: Pair) -> None:
    """Five batches can be retried after kill -9, and the next one follows."""
    after_restart(pair, "c02", kill=True)


def after_restart(pair: Pair, stem: str, kill: bool) -> None:
    """Writes, restarts, retries."""
    one = Idempotent(pair, stem)
    for sequence in range(5):
        one.send(sequence)
    # Kafka flushes nothing by itself; killing the process loses nothing that the kernel has.
    pair.restart(kill)
    for side in pair.sides:
        pair.await_topic(side, one.topic, 1)
    for sequence in (4, 3, 2, 1, 0):
        one.send(sequence, tags=("after restart",))
    one.send(5)
    one.same_log()


# --- E: what is advertised ------------------------------------------------------------------------------------------


@statement
def e14(pair: Pair) -> None:
    """Features and the first version of Produce."""
    for version in (3, 4):
        both = pair.ask("ApiVersions", version, {"client_software_name": "compare", "client_software_version": "1"})
        lowest = [one["min_version"] for answer in (both.kafka, both.ours) for one in answer["api_keys"] if one["api_key"] == 0]
        pair.check("first version of Produce", *lowest)


def run(pair: Pair, only: list[str]) -> None:
    """Runs all statements, or those that are named; the ones with a restart last, of which the quick form has one."""
    unknown = set(only) - set(STATEMENTS)
    if unknown:
        raise SystemExit(f"there is no statement {', '.join(sorted(unknown))}; there are {', '.join(STATEMENTS)}")
    chosen = [name for name in STATEMENTS if (name in only if only else not (pair.is_quick and name in SLOW))]
    for name in sorted(chosen, key=lambda one: (one in LAST_ONES, one)):
        pair.part(f"statement {name}", STATEMENTS[name])
