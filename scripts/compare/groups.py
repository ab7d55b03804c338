"""Scripts of consumer groups: members that join, sync, commit and leave, in order and out of order, step by step.

Each script has a group and connections of its own. A request that waits for another member is sent, and awaited when
Kafka would answer it.
"""

import time
from collections.abc import Callable

from compare.members import NOBODY, RANGE, Group, joined_pair, stable_pair, wait_for_rebalance
from compare.pair import Pair
from compare.side import Given

SCRIPTS: list[Callable[[Pair], None]] = []


def script(run: Callable[[Pair], None]) -> Callable[[Pair], None]:
    """Enters a script."""
    SCRIPTS.append(run)
    return run


def groups_answer(pair: Pair, **filters: object) -> None:
    """ListGroups in every version that has these filters."""
    for version in pair.served["ListGroups"]:
        if version >= (5 if "types_filter" in filters else 4 if filters else 0):
            pair.ask("ListGroups", version, filters)


# --- scripts --------------------------------------------------------------------------------------------------------


@script
def one_member_in_every_version(pair: Pair) -> None:
    """The whole life of a group with one member."""
    topic = pair.create("consumed", 2)
    for version in (0, 4, 9) if pair.is_quick else pair.served["JoinGroup"]:
        group = Group(pair, f"life-v{version}")
        one = group.member("one")
        one.join(version=version)
        group.describe()
        one.heartbeat(version=min(version, 4))
        one.sync({one: b"everything"}, version=min(version, 5))
        one.heartbeat(version=min(version, 4))
        one.commit(topic, version=min(version + 2, 9))
        group.describe(min(version, 6))
        one.sync({one: b"another"}, version=min(version, 5))
        one.leave(version=min(version, 5))
        one.heartbeat(version=min(version, 4))
        group.describe()
        for fetch in (1, 5, 7):
            pair.ask("OffsetFetch", fetch, {"group_id": group.id, "topics": [{"name": topic, "partition_indexes": [0, 1]}]})
        pair.ask("DeleteGroups", min(version, 3), {"groups_names": [group.id]})
        group.describe()


@script
def two_members(pair: Pair) -> None:
    """A second member joins and leaves again."""
    group = Group(pair, "two")
    leader, other = stable_pair(group)
    group.describe()
    leader.heartbeat()
    other.heartbeat()
    other.leave()
    wait_for_rebalance(leader)
    leader.join()
    leader.sync({leader: b"all again"})
    group.describe()
    leader.leave()
    group.describe()


@script
def assignment_comes_late(pair: Pair) -> None:
    """Followers wait for the leader's assignment; meanwhile the state can be seen."""
    group = Group(pair, "late")
    leader, other = joined_pair(group)
    group.describe()
    other.send_sync()
    leader.heartbeat()
    group.describe()
    leader.sync({other: b"only the other"})
    other.synced()
    group.describe()


@script
def rejoin_of_the_stable(pair: Pair) -> None:
    """A follower that joins again with the same metadata changes nothing; with others, or as leader, it does."""
    group = Group(pair, "again")
    leader, other = stable_pair(group)
    other.join()
    other.heartbeat()
    group.describe()
    other.protocols = [{"name": "range", "metadata": b"subscribed to b"}]
    other.send_join()
    wait_for_rebalance(leader)
    leader.join()
    other.joined()
    other.send_sync()
    leader.sync({leader: b"1", other: b"2"})
    other.synced()
    leader.send_join()
    wait_for_rebalance(other)
    other.join()
    leader.joined()
    group.describe()


@script
def sync_is_cut_off(pair: Pair) -> None:
    """A follower waits for its assignment when another rebalance begins."""
    group = Group(pair, "cut")
    leader, other = joined_pair(group)
    other.send_sync()
    leader.send_join()
    other.synced()
    other.join()
    leader.joined()
    group.describe()


@script
def static_members(pair: Pair) -> None:
    """A static member comes back under its name and fences its older self."""
    topic = pair.create("static", 1)
    group = Group(pair, "static")
    one = group.member("one", instance="first")
    one.join()
    one.sync({one: b"all"})
    group.describe()
    again = group.member("again", instance="first")
    again.join()
    one.heartbeat()
    one.commit(topic, group_instance_id="first")
    one.commit(topic, version=6)
    one.sync()
    one.send_join()
    one.joined()
    again.heartbeat()
    again.sync({again: b"mine"})
    again.commit(topic)
    group.describe()
    again.heartbeat(group_instance_id="second")
    again.leave(member_id="")
    again.heartbeat()
    group.describe()


@script
def static_pair(pair: Pair) -> None:
    """Two static members; a follower that returns with the same metadata does not stir the others."""
    group = Group(pair, "static-pair")
    leader, other = group.member("leader", instance="a"), group.member("other", instance="b")
    leader.join()
    other.send_join()
    wait_for_rebalance(leader)
    leader.join()
    other.joined()
    other.send_sync()
    leader.sync({leader: b"1", other: b"2"})
    other.synced()
    back = group.member("back", instance="b")
    back.join()
    leader.heartbeat()
    back.sync()
    group.describe()
    home = group.member("home", instance="a")
    home.join()
    home.heartbeat()
    home.sync({home: b"3", back: b"4"})
    group.describe()
    body = {"group_id": group.id, "members": [
        {"member_id": "", "group_instance_id": "a"}, {"member_id": NOBODY, "group_instance_id": "b"},
        {"member_id": "", "group_instance_id": "c"}, {"member_id": back.id, "group_instance_id": "b"},
    ]}  # fmt: skip
    pair.ask("LeaveGroup", 5, body)
    group.describe()


@script
def wrong_generations(pair: Pair) -> None:
    """What is said of another generation, or by nobody."""
    topic = pair.create("generations", 1)
    group = Group(pair, "generations")
    one = group.member("one")
    one.join()
    one.sync(generation_id=5)
    one.sync({one: b"all"})
    for generation in (0, 2, -1, 7):
        one.heartbeat(generation_id=generation)
        one.sync(generation_id=generation)
        one.commit(topic, generation_id_or_member_epoch=generation)
    for member in (NOBODY, ""):
        one.heartbeat(member_id=member)
        one.sync(member_id=member)
        one.commit(topic, member_id=member)
        one.commit(topic, member_id=member, generation_id_or_member_epoch=-1)
        one.leave(member_id=member)
    for version in (1, 2):
        one.leave(version=version, member_id=NOBODY)
    group.describe()


@script
def groups_that_do_not_exist(pair: Pair) -> None:
    """The same asked of a group that nobody joined, and of the group without a name."""
    topic = pair.create("nobodys", 1)
    for name in ("nobodys", ""):
        group = Group(pair, name)
        if not name:
            group.id = ""
        one = group.member("one")
        one.heartbeat(member_id=NOBODY, generation_id=1)
        one.heartbeat(member_id="", generation_id=-1)
        one.sync(member_id=NOBODY, generation_id=1)
        one.leave(member_id=NOBODY)
        one.send_join(member_id=NOBODY)
        one.joined()
        one.commit(topic, member_id=NOBODY, generation_id_or_member_epoch=1)
        one.commit(topic, member_id="", generation_id_or_member_epoch=-1)
        for version in pair.served["DescribeGroups"]:
            group.describe(version)
        for version in pair.served["DeleteGroups"]:
            pair.ask("DeleteGroups", version, {"groups_names": [group.id]})
        pair.ask("OffsetDelete", 0, {"group_id": group.id, "topics": [{"name": topic, "partitions": [{"partition_index": 0}]}]})


@script
def joins_that_are_refused(pair: Pair) -> None:
    """Time-outs out of bounds, other protocols, no protocols, an id that was not given."""
    group = Group(pair, "refused")
    one = group.member("one")
    for changes in (
        {"session_timeout_ms": 10},
        {"session_timeout_ms": 100_000_000},
        {"rebalance_timeout_ms": -1, "session_timeout_ms": 10},
        {"protocols": []},
        {"protocol_type": ""},
        {"member_id": NOBODY},
        {"group_instance_id": ""},
        {"group_instance_id": "."},
        {"group_instance_id": "not a name/"},
        {"group_instance_id": "x" * 250},
    ):
        one.send_join(**changes)
        one.joined()
        one.id, one.generation = "", -1
    one = group.member("two")
    one.join()
    one.sync({one: b"all"})
    other = group.member("other")
    for changes in ({"protocol_type": "connect"}, {"protocols": [{"name": "unknown", "metadata": b""}]}, {"protocols": []}):
        other.send_join(**changes)
        other.joined()
        other.id = ""
    one.sync(protocol_type="connect")
    one.sync(protocol_name="unknown")
    one.sync(version=5, protocol_type=None, protocol_name=None)
    group.describe()


@script
def the_common_protocol(pair: Pair) -> None:
    """Members with several protocols get the one that most of them like best, of those that all know."""
    group = Group(pair, "protocols")
    both = [{"name": "cooperative-sticky", "metadata": b"c"}, {"name": "range", "metadata": b"r"}]
    leader, other = group.member("leader", protocols=both), group.member("other", protocols=RANGE)
    leader.join()
    leader.sync({leader: b"all"})
    other.send_join_with_id()
    wait_for_rebalance(leader)
    leader.join()
    other.joined()
    group.describe()
    other.send_sync(protocol_name="range")
    leader.sync({leader: b"1", other: b"2"}, protocol_name="range")
    other.synced()
    group.describe()


@script
def somebody_does_not_come_back(pair: Pair) -> None:
    """A rebalance ends without a member that does not join again in time."""
    group = Group(pair, "absent")
    leader, other = group.member("leader"), group.member("other")
    leader.join(rebalance_timeout_ms=1000)
    leader.sync({leader: b"all"})
    other.send_join_with_id(rebalance_timeout_ms=1000)
    other.joined()
    leader.heartbeat()
    other.sync({other: b"all"})
    group.describe()


@script
def the_assignment_does_not_come(pair: Pair) -> None:
    """Members that do not sync within the rebalance time-out are thrown out."""
    group = Group(pair, "no-sync")
    one = group.member("one")
    one.join(rebalance_timeout_ms=1000)
    group.describe()
    time.sleep(2.5)
    group.describe()
    one.heartbeat()


@script
def the_session_ends(pair: Pair) -> None:
    """A member without heartbeats is thrown out."""
    if pair.is_quick:
        return
    group = Group(pair, "session")
    one = group.member("one")
    one.join(session_timeout_ms=6000)
    one.sync({one: b"all"})
    one.hang_up()
    time.sleep(3)
    group.describe()
    time.sleep(5)
    group.describe()
    one.heartbeat()


@script
def commits(pair: Pair) -> None:
    """Commits in every version: unknown topics, large notes, negative offsets, no topics; and by topic id."""
    topic = pair.create("commits", 2)
    group = Group(pair, "commits")
    for version in pair.served["OffsetCommit"]:
        named = {"name": topic} if version < 10 else {"topic_id": Given(f"id of {topic}")}
        stranger = {"name": pair.name("nowhere")} if version < 10 else {"topic_id": Given("node")}
        for part in (
            {"partition_index": 0, "committed_offset": version, "committed_metadata": "note"},
            {"partition_index": 1, "committed_offset": version, "committed_metadata": None},
            {"partition_index": 0, "committed_offset": version, "committed_metadata": "x" * 4097},
            {"partition_index": 0, "committed_offset": version, "committed_metadata": "ä" * 4096},
            {"partition_index": 0, "committed_offset": -5},
            {"partition_index": 9, "committed_offset": 1},
        ):
            pair.ask("OffsetCommit", version, {"group_id": group.id, "topics": [named | {"partitions": [part]}]})
        if version < 10:
            part = {"partition_index": 0, "committed_offset": 1}
            pair.ask("OffsetCommit", version, {"group_id": group.id, "topics": [stranger | {"partitions": [part]}]})
        pair.ask("OffsetCommit", version, {"group_id": group.id, "topics": []})
    fetches(pair, group.id, topic)


def fetches(pair: Pair, group: str, topic: str) -> None:
    """OffsetFetch in all its forms."""
    other = pair.name("unknown")
    for version in pair.served["OffsetFetch"]:
        named = {"name": topic} if version < 10 else {"topic_id": Given(f"id of {topic}")}
        some = [named | {"partition_indexes": [0, 1, 9]}]
        nowhere = [{"name": other, "partition_indexes": [0]}]
        forms = [some, []] + ([nowhere] if version < 10 else []) + ([None] if version >= 2 else [])
        for topics in forms:
            for name in (group, other):
                one = {"group_id": name, "topics": topics}
                pair.ask("OffsetFetch", version, {"groups": [one]} if version >= 8 else one)
        if version >= 7:
            one = {"group_id": group, "topics": some}
            pair.ask("OffsetFetch", version, ({"groups": [one]} if version >= 8 else one) | {"require_stable": True})
        if version >= 8:
            both = [{"group_id": group, "topics": some}, {"group_id": other, "topics": None}]
            pair.ask("OffsetFetch", version, {"groups": both})
            pair.ask("OffsetFetch", version, {"groups": []})
        if version >= 9:
            pair.ask("OffsetFetch", version, {"groups": [{"group_id": group, "topics": some, "member_id": NOBODY, "member_epoch": 1}]})


@script
def deleted_offsets(pair: Pair) -> None:
    """OffsetDelete of what is committed, of what is subscribed to, of what is unknown."""
    topic = pair.create("deleted", 2)
    group = Group(pair, "deleted")
    one = group.member("one")
    one.commit(topic, member_id="", generation_id_or_member_epoch=-1)
    parts = {"name": topic, "partitions": [{"partition_index": index} for index in (0, 1, 9)]}
    nowhere = {"name": pair.name("nowhere"), "partitions": [{"partition_index": 0}]}
    pair.ask("OffsetDelete", 0, {"group_id": group.id, "topics": [parts, nowhere]})
    pair.ask("OffsetFetch", 7, {"group_id": group.id, "topics": [{"name": topic, "partition_indexes": [0]}]})
    subscription = bytes.fromhex("000000000001") + len(topic).to_bytes(2, "big") + topic.encode() + b"\xff\xff\xff\xff"
    one.protocols = [{"name": "range", "metadata": subscription}]
    one.join()
    one.sync({one: b""})
    one.commit(topic)
    pair.ask("OffsetDelete", 0, {"group_id": group.id, "topics": [parts]})
    pair.ask("DeleteGroups", 2, {"groups_names": [group.id, group.id, "never-there"]})
    one.leave()
    pair.ask("OffsetDelete", 0, {"group_id": group.id, "topics": [parts]})
    pair.ask("DeleteGroups", 2, {"groups_names": [group.id]})
    pair.ask("OffsetFetch", 7, {"group_id": group.id, "topics": None})


@script
def lists(pair: Pair) -> None:
    """ListGroups with filters, DescribeGroups of several, FindCoordinator of everything."""
    group = Group(pair, "lists")
    one = group.member("one")
    one.join()
    groups_answer(pair)
    for states in (["Stable"], ["CompletingRebalance"], ["completingrebalance", "Empty"], ["Bogus"], ["Stable", "Bogus"], [""]):
        groups_answer(pair, states_filter=states)
    for types in (["classic"], ["Consumer"], ["bogus"], ["share"]):
        groups_answer(pair, types_filter=types)
    one.sync({one: b"all"})
    groups_answer(pair, states_filter=["Stable"])
    for version in pair.served["DescribeGroups"]:
        body = {"groups": [group.id, "never-there"]} | ({"include_authorized_operations": True} if version >= 3 else {})
        pair.ask("DescribeGroups", version, body)
        pair.ask("DescribeGroups", version, {"groups": [group.id, group.id]}, tags=("group twice",))
    pair.ask("DescribeGroups", 5, {"groups": []})
    for version in pair.served["FindCoordinator"]:
        for key in (group.id, "", "never-there"):
            pair.ask("FindCoordinator", version, {"coordinator_keys": [key]} if version >= 4 else {"key": key})
    pair.ask("FindCoordinator", 4, {"coordinator_keys": [group.id, "never-there"]})
    pair.ask("FindCoordinator", 4, {"coordinator_keys": [group.id, group.id]}, tags=("group twice",))
    pair.ask("FindCoordinator", 4, {"coordinator_keys": []})


@script
def several_leave_at_once(pair: Pair) -> None:
    """LeaveGroup of many members in one request."""
    group = Group(pair, "leave")
    leader, other = stable_pair(group)
    members = [{"member_id": one} for one in (other.id, NOBODY, other.id, leader.id)]
    pair.ask("LeaveGroup", 4, {"group_id": group.id, "members": members})
    group.describe()
    pair.ask("LeaveGroup", 5, {"group_id": group.id, "members": []})


@script
def offsets_of_an_empty_group(pair: Pair) -> None:
    """Who may commit to a group whose members have gone."""
    topic = pair.create("empty-group", 1)
    group = Group(pair, "empty-group")
    one = group.member("one")
    one.join()
    one.sync({one: b"all"})
    one.leave()
    one.commit(topic)
    one.commit(topic, member_id="", generation_id_or_member_epoch=-1)
    one.commit(topic, member_id="", generation_id_or_member_epoch=1)
    one.commit(topic, generation_id_or_member_epoch=-1)
    back = group.member("back")
    back.join()
    group.describe()


def run(pair: Pair) -> None:
    """All scripts; where groups are not served yet, none."""

    def one_script(run_script: Callable[[Pair], None]) -> None:
        pair.need("JoinGroup")
        run_script(pair)

    for one in SCRIPTS:
        pair.part(f"group {one.__name__}", lambda _, one=one: one_script(one))
