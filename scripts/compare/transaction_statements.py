"""The numbered statements about transactions, put to both brokers: A06 to A14, C05, D and E."""

import time

from compare.batches import Batch
from compare.pair import Pair
from compare.statement import statement
from compare.steps import fetch, fetch_body, offsets_body, produce, produce_body, records, same_log
from compare.writers import TIMEOUT_MS, Writer, describe, kept, new_id, plain_commit, producers, settle, writer

# The newest versions that do not end a transaction's epoch, and those that do.
OLD, NEW = 4, 5
LAST_EPOCH = 32766


def ends(pair: Pair, topic: str, partitions: int = 1) -> None:
    """The ends of a topic for both kinds of readers."""
    for isolation in (0, 1):
        pair.ask("ListOffsets", 8, offsets_body(topic, list(range(partitions)), -1) | {"isolation_level": isolation})


def read(pair: Pair, topic: str, start: int = 0, partition: int = 0) -> None:
    """What both kinds of readers find from an offset on."""
    for isolation in (0, 1):
        fetch(pair, topic, start, partition, isolation=isolation)


def plain(pair: Pair, topic: str, count: int = 1, partition: int = 0) -> None:
    """Records of nobody's."""
    produce(pair, topic, Batch(records(count, "plain"), timestamp=pair.past_ms), partition)


def member_of(pair: Pair, group: str) -> tuple[object, int]:
    """A member that has its assignment: its id on each side, and its generation."""
    join = {"group_id": group, "session_timeout_ms": 30_000, "rebalance_timeout_ms": 5_000, "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"m"}]}  # fmt: skip
    both = pair.ask("JoinGroup", 3, join, line="member")
    member, generation = pair.keep(f"member of {group}", both, "member_id"), both.kafka["generation_id"]
    assignments = [{"member_id": member, "assignment": b"a"}]
    pair.ask("SyncGroup", 3, {"group_id": group, "generation_id": generation, "member_id": member, "assignments": assignments}, line="member")
    return member, generation


# --- A: producer ids of transactional ids ---------------------------------------------------------------------------


@statement
def a07(pair: Pair) -> None:
    """Time-outs that are allowed and that are not."""
    name = new_id(pair, "a07")
    for version in range(6):
        for timeout in (0, -1, 900_001, 900_000):
            Writer(pair, name).init(version, transaction_timeout_ms=timeout)
        pair.ask("InitProducerId", version, {"transactional_id": None, "transaction_timeout_ms": 0})


@statement
def a08(pair: Pair) -> None:
    """A start, and another one."""
    for version in range(6):
        writer(pair, "a08", version).init(version)


@statement
def a09(pair: Pair) -> None:
    """A producer that goes on, and asks again because the answer was lost."""
    for version in (3, 4, 5):
        one = writer(pair, "a09").init()
        one.init(version, resume=True)
        one.init(version, resume=True)


@statement
def a10(pair: Pair) -> None:
    """A producer that was overtaken twice goes on."""
    one = writer(pair, "a10").init().init()
    for version in (3, 4, 5):
        one.of_epoch(0).init(version, resume=True)
        one.of_epoch(9).init(version, resume=True)


@statement
def a11(pair: Pair) -> None:
    """Somebody else's producer id."""
    one, other = writer(pair, "a11"), writer(pair, "a11-other")
    for version in (3, 4, 5):
        one.of(other.producer).init(version, resume=True)


@statement
def a12(pair: Pair) -> None:
    """An unknown transactional id with a producer id."""
    for version in (3, 4, 5):
        Writer(pair, new_id(pair, "a12"), 12345, 7).init(version, resume=True)


@statement
def a13(pair: Pair) -> None:
    """A start while a transaction is open."""
    for version in (1, 4):
        topic, one = pair.create("a13"), writer(pair, "a13")
        one.send(topic, 0)
        one.init(version)
        settle(pair, [one.id])
        describe(pair, [one.id])
        read(pair, topic)


def at_last_epoch(pair: Pair, stem: str) -> Writer:
    """An id whose next epoch would be one that no client is given."""
    one = writer(pair, stem)
    body = {"transactional_id": one.id, "transaction_timeout_ms": TIMEOUT_MS}
    for side in pair.sides:
        epoch = 0
        while epoch < LAST_EPOCH - 1:
            answer = side.call("InitProducerId", 4, body)
            epoch = answer["producer_epoch"] if answer["error_code"] == 0 else epoch
    return one.init()


@statement
def a14(pair: Pair) -> None:
    """Behind the last epoch another producer id begins."""
    at_last_epoch(pair, "a14").init().init()


# --- C: after a restart ---------------------------------------------------------------------------------------------


@statement
def c05(pair: Pair) -> None:
    """kill -9 under an open transaction that is aborted later."""
    topic, one = pair.create("c05"), writer(pair, "c05")
    one.send(topic, 0, count=3)
    plain(pair, topic)
    restart(pair, [topic], [one.id])
    ends(pair, topic)
    read(pair, topic)
    one.end(False)
    ends(pair, topic)
    read(pair, topic)


def restart(pair: Pair, topics: list[str], ids: list[str]) -> None:
    """kill -9, and a start that has found its topics and its transactions."""
    pair.restart(kill=True)
    for side in pair.sides:
        for topic in topics:
            pair.await_topic(side, topic, 1)
    settle(pair, ids)


# --- D: the coordinator ---------------------------------------------------------------------------------------------


@statement
def d01(pair: Pair) -> None:
    """A batch that brings its partition into the transaction."""
    for version in (12, 13):
        topic, one = pair.create("d01", 2), writer(pair, "d01")
        one.send(topic, 0, version, 1)
        describe(pair, [one.id])
        one.end(True)
        describe(pair, [one.id])


@statement
def d02(pair: Pair) -> None:
    """Batches whose partition is not in the transaction, in every version."""
    topic, one = pair.create("d02"), writer(pair, "d02")
    for version in range(3, 12):
        one.send(topic, 0, version)
    for version in (12, 13):
        one.send(topic, 5, version)
    for version in (9, 12):
        pair.ask("Produce", version, produce_body(version, -1, {(topic, 0): one.batch(0)}))
    describe(pair, [one.id])
    read(pair, topic)


@statement
def d03(pair: Pair) -> None:
    """A batch that is too large has brought its partition into the transaction."""
    topic, one = pair.create("d03", max_message_bytes=200), writer(pair, "d03")
    one.send(topic, 0, count=50)
    describe(pair, [one.id])
    one.end(True)
    read(pair, topic)


@statement
def d04(pair: Pair) -> None:
    """Batches outside of the open transaction."""
    topic, one = pair.create("d04"), writer(pair, "d04")
    one.send(topic, 0)
    for version in (9, 11, 12):
        produce(pair, topic, one.batch(1, attributes=0), version=version)
    plain(pair, topic)
    one.send(topic, 1)
    one.end(True)
    read(pair, topic)


@statement
def d05(pair: Pair) -> None:
    """Partitions of which one is not there: none is added."""
    topic, one = pair.create("d05", 2), writer(pair, "d05")
    for version in range(4):
        one.add(topic, [0, 7], version)
        one.add(topic, [], version, topics=[{"name": topic, "partitions": [0]}, {"name": pair.name("nowhere"), "partitions": [0]}])
        one.add(topic, [], version, topics=[])
    describe(pair, [one.id])
    one.add(topic, [0, 1])
    describe(pair, [one.id])


@statement
def d06(pair: Pair) -> None:
    """Partitions and groups for a zombie, somebody else, and nobody."""
    topic, one, other = pair.create("d06"), writer(pair, "d06").init(), writer(pair, "d06-other")
    for version in range(4):
        for who in (one.of_epoch(one.epoch - 1), one.of_epoch(one.epoch + 1), one.of(other.producer), Writer(pair, "nobody", 7, 0)):
            who.add(topic, [0], version)
            who.add_group("d06", version)
        Writer(pair, "", 7, 0).add(topic, [0], version)
        Writer(pair, "", 7, 0).add_group("d06", version)
    describe(pair, [one.id])


@statement
def d07(pair: Pair) -> None:
    """Outcomes by the old protocol, also those that do not fit."""
    for version in range(OLD + 1):
        topic, one = pair.create("d07"), writer(pair, "d07")
        for commits in (True, False):
            one.end(commits, version)
        for first in (True, False):
            one.add(topic, [0])
            for commits in (first, first, not first):
                one.end(commits, version)
        describe(pair, [one.id])


@statement
def d08(pair: Pair) -> None:
    """By the old protocol sequences go on in the next transaction."""
    topic, one = pair.create("d08"), writer(pair, "d08")
    for sequence, commits in enumerate((True, False, True)):
        one.add(topic, [0])
        one.send(topic, sequence, 11)
        one.end(commits, OLD)
    same_log(pair, topic)
    read(pair, topic)


@statement
def d09(pair: Pair) -> None:
    """Outcomes by the new protocol, asked again and otherwise."""
    for first in (True, False):
        topic, one = pair.create("d09"), writer(pair, "d09")
        one.send(topic, 0)
        after = one.end(first, NEW)
        one.end(first, NEW)
        one.end(not first, NEW)
        after.end(True, NEW)
        after.of_epoch(after.epoch + 1).end(True, NEW)
        describe(pair, [one.id])


@statement
def d10(pair: Pair) -> None:
    """Aborting nothing, by the new protocol."""
    one = writer(pair, "d10").end(False, NEW)
    topic = pair.create("d10")
    one.send(topic, 0)
    one = one.end(True, NEW).end(False, NEW)
    one.send(topic, 0)
    one.end(False, NEW).end(False, NEW)
    describe(pair, [one.id])


@statement
def d11(pair: Pair) -> None:
    """By the new protocol each transaction has an epoch of its own."""
    topic, one = pair.create("d11"), writer(pair, "d11")
    one.send(topic, 0)
    after = one.end(True, NEW)
    one.send(topic, 1)
    after.send(topic, 2)
    after.send(topic, 0)
    after.end(True, NEW)
    same_log(pair, topic)


@statement
def d12(pair: Pair) -> None:
    """The last epoch ends with another producer id."""
    topic, one = pair.create("d12"), at_last_epoch(pair, "d12")
    one.send(topic, 0)
    after = one.end(True, NEW)
    one.end(True, NEW)
    after.send(topic, 0)
    after.end(True, NEW)
    read(pair, topic)


@statement
def d13(pair: Pair) -> None:
    """Two partitions and offsets: all or nothing."""
    topic, group, one = pair.create("d13", 2), pair.name("d13"), writer(pair, "d13")
    for commits in (False, True):
        for partition in range(2):
            one.send(topic, 0, partition=partition)
        one.commit(group, topic, {0: 7, 1: 8})
        one = one.end(commits, NEW)
        ends(pair, topic, 2)
        read(pair, topic)
        kept(pair, group, topic, 2)


@statement
def d14(pair: Pair) -> None:
    """A transaction whose time is over."""
    topic, name = pair.create("d14"), new_id(pair, "d14")
    one = Writer(pair, name).init(transaction_timeout_ms=1000)
    one.send(topic, 0)
    for side in pair.sides:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            told = side.call("DescribeTransactions", 0, {"transactional_ids": [name]})["transaction_states"][0]
            if told["transaction_state"] == "CompleteAbort":
                break
            time.sleep(0.1)
    describe(pair, [name])
    one.send(topic, 1)
    pair.ask("EndTxn", NEW, one.who() | {"committed": True}, tags=("after a time-out",))
    one.end(False, NEW)
    one.end(False, OLD)
    one.init(resume=True)
    read(pair, topic)


@statement
def d15(pair: Pair) -> None:
    """kill -9 right after the outcome was told."""
    topic, group, one = pair.create("d15"), pair.name("d15"), writer(pair, "d15")
    one.send(topic, 0)
    one.commit(group, topic, {0: 5})
    # What Kafka loses here now and then (it leaves partitions without markers) is not asked of it.
    one.end(True, NEW)
    restart(pair, [topic], [one.id])
    describe(pair, [one.id])
    read(pair, topic)
    kept(pair, group, topic)


@statement
def d17(pair: Pair) -> None:
    """kill -9 while a transaction is open."""
    topic, group, one = pair.create("d17"), pair.name("d17"), writer(pair, "d17")
    one.send(topic, 0)
    one.commit(group, topic, {0: 5})
    restart(pair, [topic], [one.id])
    describe(pair, [one.id])
    kept(pair, group, topic)
    kept(pair, group, topic, stable=False)
    one.send(topic, 0)
    one.send(topic, 1)
    one.end(True, NEW)
    read(pair, topic)
    kept(pair, group, topic)


def markers(pair: Pair, one: Writer, topic: str, commits: bool, coordinator_epoch: int, **other: object) -> None:
    """WriteTxnMarkers, as tools send it."""
    for version in (1, 2):
        pair.ask("WriteTxnMarkers", version, {"markers": [marker(one, topic, commits, coordinator_epoch) | other]})


def marker(one: Writer, topic: str, commits: bool, coordinator_epoch: int) -> dict:
    """One marker for the first partition of a topic."""
    who = {"producer_id": one.producer, "producer_epoch": one.epoch}
    topics = [{"name": topic, "partition_indexes": [0]}]
    return who | {"transaction_result": commits, "coordinator_epoch": coordinator_epoch, "topics": topics}


@statement
def d18(pair: Pair) -> None:
    """Markers from outside that are too old, or for a partition that is not there."""
    topic, one = pair.create("d18"), writer(pair, "d18").init()
    one.send(topic, 0)
    markers(pair, one.of_epoch(one.epoch - 1), topic, False, 1_000_000)
    markers(pair, one, topic, False, -5)
    markers(pair, one, pair.name("nowhere"), False, 1_000_000)
    markers(pair, one, topic, False, 1_000_000)
    markers(pair, one, topic, False, 7)
    read(pair, topic)


@statement
def d19(pair: Pair) -> None:
    """Both protocols, one after the other, on one id."""
    topic, one = pair.create("d19"), writer(pair, "d19")
    sequence = 0
    for version, commits in ((NEW, True), (OLD, True), (OLD, False), (NEW, False), (OLD, True), (NEW, True)):
        one.add(topic, [0])
        one.send(topic, sequence, 11)
        after = one.end(commits, version)
        sequence = sequence + 1 if after.epoch == one.epoch else 0
        one = after
    same_log(pair, topic)
    read(pair, topic)
    describe(pair, [one.id])


@statement
def d21(pair: Pair) -> None:
    """A marker of a later epoch from outside does not keep the transaction from its end."""
    topic, one = pair.create("d21", 2), writer(pair, "d21")
    one.send(topic, 0)
    one.send(topic, 0, partition=1)
    body = marker(one.of_epoch(one.epoch + 5), topic, False, 1_000_000)
    pair.ask("WriteTxnMarkers", 1, {"markers": [body]}, tags=("marker from outside",))
    pair.ask("EndTxn", NEW, one.who() | {"committed": True})
    read(pair, topic, partition=1)


# --- E: reading -----------------------------------------------------------------------------------------------------


def open_and_plain(pair: Pair, stem: str) -> tuple[str, Writer]:
    """Three plain records, two of an open transaction, one plain record."""
    topic, one = pair.create(stem), writer(pair, stem)
    plain(pair, topic, 3)
    one.send(topic, 0, count=2)
    plain(pair, topic)
    return topic, one


@statement
def e01(pair: Pair) -> None:
    """Where readers of what is committed stop."""
    topic, _ = open_and_plain(pair, "e01")
    for version in range(2, 11):
        for isolation in (0, 1):
            pair.ask("ListOffsets", version, offsets_body(topic, [0], -1) | {"isolation_level": isolation})
    for version in range(4, 19):
        fetch(pair, topic, 0, version=version, isolation=1)


@statement
def e02(pair: Pair) -> None:
    """From behind that place nothing is given, without an error."""
    topic, _ = open_and_plain(pair, "e02")
    for start in (3, 4, 5, 6, 7):
        fetch(pair, topic, start, isolation=1)


@statement
def e03(pair: Pair) -> None:
    """An aborted transaction is named, also to those who begin in the middle of it."""
    topic, one = open_and_plain(pair, "e03")
    one.end(False, NEW)
    for start in range(8):
        read(pair, topic, start)
    for version in range(4, 19):
        fetch(pair, topic, 0, version=version, isolation=1)


@statement
def e04(pair: Pair) -> None:
    """Of a committed one nothing is said."""
    topic, one = open_and_plain(pair, "e04")
    one.end(True, NEW)
    for start in range(8):
        read(pair, topic, start)


@statement
def e05(pair: Pair) -> None:
    """A marker ends the waiting of a reader."""
    topic, one = open_and_plain(pair, "e05")
    body = fetch_body(12, topic, {0: 3}, isolation=1) | {"max_wait_ms": 20_000, "min_bytes": 1}
    pair.send("Fetch", 12, body, "waits")
    began = time.monotonic()
    one.end(True, NEW)
    pair.receive("Fetch", 12, body, line="waits")
    pair.check("woken by the marker", True, time.monotonic() - began < 15)


@statement
def e06(pair: Pair) -> None:
    """Look-ups by time end there, too."""
    topic, one = pair.create("e06"), writer(pair, "e06")
    produce(pair, topic, Batch(records(1), timestamp=pair.past_ms))
    one.send(topic, 0, timestamp=pair.past_ms + 1000)
    produce(pair, topic, Batch(records(1), timestamp=pair.past_ms + 2000))
    for is_open in (True, False):
        for timestamp in (-3, pair.past_ms, pair.past_ms + 500, pair.past_ms + 1500, pair.past_ms + 5000):
            for isolation in (0, 1):
                pair.ask("ListOffsets", 8, offsets_body(topic, [0], timestamp) | {"isolation_level": isolation})
        if is_open:
            one.end(True, NEW)


@statement
def e07(pair: Pair) -> None:
    """Records of an open transaction are deleted."""
    topic, one = open_and_plain(pair, "e07")
    body = {"timeout_ms": 5000, "topics": [{"name": topic, "partitions": [{"partition_index": 0, "offset": 4}]}]}
    pair.ask("DeleteRecords", 2, body)
    for isolation in (0, 1):
        found = offsets_body(topic, [0], -1) | {"isolation_level": isolation}
        pair.ask("ListOffsets", 8, found, tags=("start passed a transaction",))
        pair.ask("Fetch", 12, fetch_body(12, topic, {0: 4}, isolation=isolation), tags=("start passed a transaction",))
    one.end(False, NEW)
    read(pair, topic, 4)


@statement
def e08(pair: Pair) -> None:
    """Two transactions beside each other, of which one is aborted."""
    topic, left, right = pair.create("e08"), writer(pair, "e08-left"), writer(pair, "e08-right")
    for sequence in range(3):
        left.send(topic, sequence)
        right.send(topic, sequence)
    left.end(False, NEW)
    read(pair, topic)
    ends(pair, topic)
    right.end(True, NEW)
    read(pair, topic)
    ends(pair, topic)


@statement
def e09(pair: Pair) -> None:
    """Offsets count from the marker on."""
    topic, group, one = pair.create("e09", 2), pair.name("e09"), writer(pair, "e09")
    plain_commit(pair, group, topic, {0: 3, 1: 4})
    for commits in (False, True):
        one.commit(group, topic, {0: 9})
        looks(pair, group, topic)
        one = one.end(commits, NEW)
        looks(pair, group, topic)


def looks(pair: Pair, group: str, topic: str) -> None:
    """What is kept, in every way of asking."""
    for stable in (True, False):
        kept(pair, group, topic, 2, stable)
        pair.ask("OffsetFetch", 7, {"group_id": group, "topics": None, "require_stable": stable})
        for version in (8, 9):
            groups = [{"group_id": group, "topics": [{"name": topic, "partition_indexes": [0, 1]}]}]
            pair.ask("OffsetFetch", version, {"groups": groups, "require_stable": stable})


@statement
def e10(pair: Pair) -> None:
    """Who may commit offsets in a transaction."""
    topic, one, other = pair.create("e10", 2), writer(pair, "e10").init(), writer(pair, "e10-other")
    group, members = pair.name("e10"), pair.name("e10-members")
    for version in range(5):
        one.commit(group, topic, {0: 1}, version)
    for version in range(6):
        one.commit("", topic, {0: 1}, version)
        one.commit(group, pair.name("nowhere"), {0: 1}, version)
        one.commit(group, topic, {0: 1, 7: 1, 1: 1}, version, topics=[])
        for who in (one.of_epoch(one.epoch - 1), one.of(other.producer), Writer(pair, "nobody", 7, 0), Writer(pair, "", 7, 0)):
            who.commit(group, topic, {0: 1}, version)
    one.add_group(group)
    for version in range(6):
        one.commit(group, topic, {0: version, 7: 1, 1: version}, version)
        long = [{"partition_index": index, "committed_offset": 1, "committed_metadata": "x" * size} for index, size in ((0, 4097), (1, 4096))]
        one.commit(group, topic, {}, version, topics=[{"name": topic, "partitions": long}])
    member, generation = member_of(pair, members)
    for version in (3, 4, 5):
        own = {"member_id": member, "generation_id_or_member_epoch": generation}
        for wrong in ({}, {"member_id": "stranger"}, {"generation_id_or_member_epoch": generation + 1},
                      {"generation_id_or_member_epoch": -1}, {"group_instance_id": "nobody"}):  # fmt: skip
            if version == NEW:
                one.commit(members, topic, {0: 5}, version, **own | wrong)
        one.commit(pair.name("unknown"), topic, {0: 5}, NEW, member_id="x", generation_id_or_member_epoch=3)
    one.commit(members, topic, {0: 6})
    one.end(True, NEW)
    for name in (group, members):
        kept(pair, name, topic, 2)


@statement
def e11(pair: Pair) -> None:
    """A plain commit behind that of a transaction stays."""
    topic, group, one = pair.create("e11", 2), pair.name("e11"), writer(pair, "e11")
    one.commit(group, topic, {0: 9, 1: 9})
    plain_commit(pair, group, topic, {0: 5})
    looks(pair, group, topic)
    one.end(True, NEW)
    looks(pair, group, topic)


@statement
def e12(pair: Pair) -> None:
    """What is told of the producers of a partition."""
    pair.need("DescribeProducers")
    for version in (OLD, NEW):
        topic, one = pair.create("e12"), writer(pair, "e12")
        producers(pair, topic)
        one.add(topic, [0])
        one.send(topic, 0, 11, count=3)
        producers(pair, topic)
        one.end(True, version)
        producers(pair, topic, 3)


@statement
def e13(pair: Pair) -> None:
    """Lists of transactions, by state and by producer."""
    pair.need("ListTransactions")
    topic, one = pair.create("e13"), writer(pair, "e13")
    one.send(topic, 0)
    own = {"producer_id_filters": [one.producer]}
    for version in pair.served["ListTransactions"]:
        for states in ([], ["Ongoing", "Bogus"], ["Empty"], ["ongoing"]):
            pair.ask("ListTransactions", version, own | {"state_filters": states})
    pair.ask("ListTransactions", 1, own | {"duration_filter": 3_600_000})
    newest = pair.served["ListTransactions"][-1]
    for pattern in (one.id, "nobody.*", ".*e13.*", "") if newest >= 2 else ():
        pair.ask("ListTransactions", newest, own | {"transactional_id_pattern": pattern})
    describe(pair, [one.id, "nobody", ""])
    one.end(True, NEW)
    pair.ask("ListTransactions", newest, own)
