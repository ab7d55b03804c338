"""A right request and many wrong ones for every served key and version, on the same prepared state."""

from compare.pair import Pair
from compare.right import MORE, RIGHT, Prepared
from compare.wire import messages
from compare.wrong import wrong_requests

# Fields that are not bent, or not to these values, because of what would happen on both brokers alike.
LEFT_ALONE = {
    "Fetch max_wait_ms largest": "waits for a month",
    **{f"{api} timeout_ms {value}": "see `impatient`"
       for api in ("CreateTopics", "DeleteTopics", "CreatePartitions") for value in ("-1", "-2", "0")},
    "CreateTopics topics.num_partitions largest": "too many files",
    "CreatePartitions topics.count largest": "too many files",
    "JoinGroup protocols twice": "see `half_a_join`",
    "JoinGroup rebalance_timeout_ms largest": "waits for a month",
    "Fetch topics.partitions.current_leader_epoch 0": "each broker counts its own starts",
    "ListOffsets topics.partitions.current_leader_epoch 0": "each broker counts its own starts",
    "OffsetForLeaderEpoch topics.partitions.leader_epoch 0": "each broker counts its own starts",
    "Fetch session_id largest": "Kafka looks for it beyond the end of its table",
    "OffsetForLeaderEpoch topics.partitions.current_leader_epoch 0": "each broker counts its own starts",
}  # fmt: skip


def run(pair: Pair) -> None:
    """Every served key."""
    made = Prepared(pair)
    pair.part("prepared state", lambda _: made.make())
    for api in pair.served:
        if api not in RIGHT:
            pair.check(f"a request for {api} in scripts/compare/right.py", "there", "missing")
            continue
        for version in versions_of(pair, api):
            pair.part(f"request {api} v{version}", lambda _, api=api, version=version: one_version(pair, made, api, version))
        for name, body in MORE.get(api, {}).items():
            pair.part(f"request {api} {name}", lambda _, api=api, body=body: pair.ask(api, pair.served[api][-1], body(made), seconds=3))
        pair.part(f"request {api} of versions that are not served", lambda _, api=api: not_served(pair, made, api))
    pair.part("auto-creation", lambda _: auto_creation(pair))
    # Last, since it leaves the brokers with different topics and groups.
    if "JoinGroup" in pair.served:
        pair.part("request JoinGroup protocols twice", lambda _: half_a_join(pair, made))
    for api in ("CreateTopics", "DeleteTopics", "CreatePartitions"):
        pair.part(f"request {api} without time", lambda _, api=api: impatient(pair, made, api))


def versions_of(pair: Pair, api: str) -> list[int]:
    """All versions; the quick form takes one by chance and the last."""
    served = list(pair.served[api])
    return sorted({pair.random.choice(served), served[-1]}) if pair.is_quick else served


def one_version(pair: Pair, made: Prepared, api: str, version: int) -> None:
    """The right request, then each wrong one, each from a fresh right one."""
    stem = pair.step
    pair.ask(api, version, RIGHT[api](made, version), seconds=3)
    names = [name for name, _ in wrong_requests(messages()[api], version, RIGHT[api](made, version))]
    for at, name in enumerate(names):
        if f"{api} {name}" in LEFT_ALONE:
            continue
        if pair.is_quick and version != pair.served[api][-1] and pair.random.random() < 0.7:
            continue
        pair.step = f"{stem} {name}"
        pair.forget()
        body = list(wrong_requests(messages()[api], version, RIGHT[api](made, version)))[at][1]
        pair.ask(api, version, body, seconds=3, settle=0.2, tags=(name,))


def not_served(pair: Pair, made: Prepared, api: str) -> None:
    """Versions before the first and behind the last, where both brokers do not serve them."""
    served = pair.served[api]
    for version in (-1, served[0] - 1, max(messages()[api].versions[-1], served[-1]) + 1, 99):
        if version >= -1:
            pair.ask(api, version, RIGHT[api](made, served[-1]), seconds=5, line="not served", tags=("version",))


def impatient(pair: Pair, made: Prepared, api: str) -> None:
    """A time-out that is over before anything can be done."""
    version = pair.served[api][-1]
    for timeout in (0, -1):
        pair.ask(api, version, RIGHT[api](made, version) | {"timeout_ms": timeout}, tags=("without time",))


def half_a_join(pair: Pair, made: Prepared) -> None:
    """A protocol that is named twice: Kafka adds the member, fails, and never answers."""
    for version in versions_of(pair, "JoinGroup"):
        body = RIGHT["JoinGroup"](made, version)
        pair.ask("JoinGroup", version, body | {"protocols": body["protocols"] * 2}, seconds=3)
        pair.forget()


def auto_creation(pair: Pair) -> None:
    """Metadata makes topics where it may."""
    for version in (1, 4, 9, 13):
        name = pair.name("auto")
        body = {"topics": [{"name": name}], "allow_auto_topic_creation": True}
        pair.ask("Metadata", version, body, tags=("auto-creation",))
        for side in pair.sides:
            pair.await_topic(side, name, 1)
        pair.ask("Metadata", version, body)
