"""A consumer group and its members, as the scripts of groups move them."""

import time

from compare.pair import Both, Pair

RANGE = [{"name": "range", "metadata": b"subscribed to a"}]
NOBODY = "nobody-00000000-0000-0000-0000-000000000000"


class Group:
    """A group of a script."""

    def __init__(self, pair: Pair, stem: str) -> None:
        self.pair, self.id = pair, pair.name(stem)

    def describe(self, version: int | None = None) -> None:
        """How the group stands."""
        version = self.pair.served["DescribeGroups"][-1] if version is None else version
        self.pair.ask("DescribeGroups", version, {"groups": [self.id]})

    def member(self, name: str, **how: object) -> "Member":
        """Somebody who may join."""
        return Member(self, name, **how)


class Member:
    """A member with its own connection; `id` and `generation` are what it was told last."""

    def __init__(self, group: Group, name: str, instance: str | None = None, protocols: list | None = None) -> None:
        self.group, self.pair = group, group.pair
        self.line = f"{group.id} {name}"
        self.instance, self.protocols = instance, protocols or RANGE
        self.id: object = ""
        self.generation: object = -1
        self.joining: tuple[int, dict] = (0, {})
        self.syncing: tuple[int, dict] = (0, {})

    def newest(self, api: str) -> int:
        """The newest version that both serve."""
        return self.pair.served[api][-1]

    def who(self, **changes: object) -> dict:
        """How it names itself."""
        return {"group_id": self.group.id, "member_id": self.id, "group_instance_id": self.instance} | changes

    # --- join ---

    def send_join(self, version: int | None = None, **changes: object) -> None:
        """Asks to join, without awaiting the answer."""
        version = self.newest("JoinGroup") if version is None else version
        body = self.who() | {
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": 5000,
            "protocol_type": "consumer",
            "protocols": self.protocols,
        }
        self.joining = version, body | changes
        self.pair.send("JoinGroup", *self.joining, line=self.line)

    def joined(self) -> Both:
        """Awaits the answer and remembers what it says; once more with the id where the broker wants that first."""
        both = self.pair.receive("JoinGroup", *self.joining, line=self.line)
        for field, name in (("member_id", "id"), ("generation_id", "generation")):
            if field in both.kafka and field in both.ours and both.kafka.get("member_id"):
                setattr(self, name, self.pair.keep(f"{self.line} {field}", both, field))
        return both

    def send_join_with_id(self, **changes: object) -> None:
        """A first join: gets an id, then asks again with it."""
        self.send_join(**changes)
        if self.instance is None and self.joining[0] >= 4:
            self.joined()
            self.send_join(**changes)

    def join(self, **changes: object) -> Both:
        """Joins and awaits it."""
        if self.id == "":
            self.send_join_with_id(**changes)
        else:
            self.send_join(**changes)
        return self.joined()

    # --- the rest ---

    def send_sync(self, assignments: dict | None = None, version: int | None = None, **changes: object) -> None:
        """Asks for its assignment, as leader with everybody's."""
        given = [{"member_id": member.id, "assignment": data} for member, data in (assignments or {}).items()]
        version = self.newest("SyncGroup") if version is None else version
        body = self.who(generation_id=self.generation, assignments=given)
        body |= {"protocol_type": "consumer", "protocol_name": self.protocols[0]["name"]} if version >= 5 else {}
        self.syncing = version, body | changes
        self.pair.send("SyncGroup", *self.syncing, line=self.line)

    def synced(self) -> Both:
        """Awaits the answer."""
        return self.pair.receive("SyncGroup", *self.syncing, line=self.line)

    def sync(self, assignments: dict | None = None, **how: object) -> Both:
        """Both."""
        self.send_sync(assignments, **how)
        return self.synced()

    def heartbeat(self, version: int | None = None, **changes: object) -> Both:
        """Says that it lives."""
        version = self.newest("Heartbeat") if version is None else version
        return self.pair.ask("Heartbeat", version, self.who(generation_id=self.generation) | changes, line=self.line)

    def commit(self, topic: str, offset: int = 5, version: int = 9, **changes: object) -> Both:
        """Commits an offset of partition 0."""
        part = {"partition_index": 0, "committed_offset": offset, "committed_metadata": "note"}
        body = self.who(generation_id_or_member_epoch=self.generation, topics=[{"name": topic, "partitions": [part]}])
        return self.pair.ask("OffsetCommit", version, body | changes, line=self.line)

    def leave(self, version: int | None = None, **changes: object) -> Both:
        """Leaves."""
        version = self.newest("LeaveGroup") if version is None else version
        if version >= 3:
            one = {"member_id": self.id, "group_instance_id": self.instance} | changes
            body = {"group_id": self.group.id, "members": [one]}
        else:
            body = {"group_id": self.group.id, "member_id": self.id} | changes
        return self.pair.ask("LeaveGroup", version, body, line=self.line)

    def hang_up(self) -> None:
        """Closes its connection without a word."""
        self.pair.hang_up(self.line)


def join_beside(leader: Member, other: Member) -> None:
    """The other one joins, which the leader notices and joins again; both hear of the new round."""
    other.send_join_with_id()
    wait_for_rebalance(leader)
    leader.send_join()
    leader.joined()
    other.joined()


def joined_pair(group: Group) -> tuple[Member, Member]:
    """Two members of one round, the first is the leader; nobody has an assignment."""
    leader, other = group.member("leader"), group.member("other")
    leader.join()
    join_beside(leader, other)
    return leader, other


def stable_pair(group: Group) -> tuple[Member, Member]:
    """Two members, the first is the leader, both with their assignment."""
    leader, other = group.member("leader"), group.member("other")
    leader.join()
    leader.sync({leader: b"all"})
    join_beside(leader, other)
    other.send_sync()
    leader.sync({leader: b"left", other: b"right"})
    other.synced()
    return leader, other


def wait_for_rebalance(member: Member) -> None:
    """Beats until both brokers say that the others wait (27); a join travels on another connection."""
    deadline = time.monotonic() + 5
    body = member.who(generation_id=member.generation)
    while time.monotonic() < deadline:
        if all(side.call("Heartbeat", 3, body, member.line).get("error_code") == 27 for side in member.pair.sides):
            return
        time.sleep(0.01)
    member.pair.check("a heartbeat says that a rebalance has begun", "27 on both", "not on both")
