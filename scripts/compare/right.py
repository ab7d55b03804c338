"""A minimal request of every key in every version, and a few more that show something of their own.

All are asked of the same prepared state (see Prepared). A function gives one body; versions differ in what they carry.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from compare.batches import Batch
from compare.pair import Pair
from compare.side import Given
from compare.steps import fetch_body, offsets_body, produce, produce_body, records
from compare.writers import new_id

Body = dict[str, object]


@dataclass
class Prepared:
    """What exists on both brokers before a request is asked."""

    pair: Pair
    topic: str = ""
    empty: str = ""
    group: str = ""
    used: list[str] = field(default_factory=list)

    def make(self) -> None:
        """A topic with records in its first partition, an empty one, and offsets of a group."""
        self.topic = self.pair.create("prepared", 3)
        self.empty = self.pair.create("empty", 1, cleanup_policy="compact", message_timestamp_type="LogAppendTime")
        self.group = self.pair.name("group")
        for at in range(3):
            produce(self.pair, self.topic, Batch(records(2), timestamp=self.pair.past_ms + at))
        if "OffsetCommit" in self.pair.served:
            self.pair.ask("OffsetCommit", 8, RIGHT["OffsetCommit"](self, 8))

    def filled(self) -> str:
        """A topic with records whose beginning may be deleted."""
        name = self.fresh()
        produce(self.pair, name, Batch(records(6), timestamp=self.pair.past_ms))
        return name

    def fresh(self) -> str:
        """A topic that may be changed or deleted."""
        return self.pair.create("fresh", 1)

    def stranger(self) -> str:
        """A transactional id that nobody has."""
        return new_id(self.pair, "stranger")

    def named(self, version: int, ids_from: int, name: str = "name") -> Body:
        """The prepared topic as this version names it."""
        return {"topic_id": Given(f"id of {self.topic}")} if version >= ids_from else {name: self.topic}


RIGHT: dict[str, Callable[[Prepared, int], Body]] = {
    "Produce": lambda made, version: {
        **produce_body(version, -1, {(made.fresh(), 0): Batch(timestamp=made.pair.past_ms + 10)}),
        "timeout_ms": 1000,
    },
    "Fetch": lambda made, version: fetch_body(version, made.topic, {0: 0}) | {"max_bytes": 1 << 20},
    "ListOffsets": lambda made, version: offsets_body(made.topic, [0], -1),
    "Metadata": lambda made, version: {
        "topics": [made.named(version, 12) if version >= 12 else {"name": made.topic}],
        "allow_auto_topic_creation": False,
    },
    "OffsetCommit": lambda made, version: {
        "group_id": made.group,
        "topics": [
            made.named(version, 10)
            | {"partitions": [{"partition_index": 0, "committed_offset": 3, "committed_metadata": "note"}]}
        ],
    },
    "OffsetFetch": lambda made, version: {
        "groups": [{"group_id": made.group, "topics": [made.named(version, 10) | {"partition_indexes": [0, 1]}]}]
    }
    if version >= 8
    else {"group_id": made.group, "topics": [{"name": made.topic, "partition_indexes": [0, 1]}]},
    "FindCoordinator": lambda made, version: {"coordinator_keys": [made.group]} if version >= 4 else {"key": made.group},
    "JoinGroup": lambda made, _: {
        "group_id": made.pair.name("joined"),
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 1000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"subscription"}],
    },
    "Heartbeat": lambda made, _: {"group_id": made.group, "generation_id": 1, "member_id": "nobody"},
    "LeaveGroup": lambda made, version: {"group_id": made.group, "members": [{"member_id": "nobody"}]}
    if version >= 3
    else {"group_id": made.group, "member_id": "nobody"},
    "SyncGroup": lambda made, _: {
        "group_id": made.group,
        "generation_id": 1,
        "member_id": "nobody",
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": "nobody", "assignment": b"partitions"}],
    },
    "DescribeGroups": lambda made, _: {"groups": [made.group]},
    "ListGroups": lambda _made, _version: {},
    "ApiVersions": lambda _made, _version: {"client_software_name": "compare", "client_software_version": "1.0"},
    "CreateTopics": lambda made, _: {
        "topics": [{"name": made.pair.name("made"), "num_partitions": 2, "replication_factor": 1,
                    "configs": [{"name": "retention.ms", "value": "1000000"}]}],
        "timeout_ms": 5000,
    },  # fmt: skip
    "DeleteTopics": lambda made, version: {"topics": [{"name": made.fresh()}], "timeout_ms": 5000}
    if version >= 6
    else {"topic_names": [made.fresh()], "timeout_ms": 5000},
    "DeleteRecords": lambda made, _: {
        "topics": [{"name": made.filled(), "partitions": [{"partition_index": 0, "offset": 1}]}],
        "timeout_ms": 5000,
    },
    "InitProducerId": lambda _made, _version: {"transactional_id": None, "transaction_timeout_ms": 60_000},
    "OffsetForLeaderEpoch": lambda made, _: {
        "topics": [{"topic": made.topic, "partitions": [{"partition": 0, "leader_epoch": Given("epoch")}]}]
    },
    "AddPartitionsToTxn": lambda made, version: {
        "v3_and_below_transactional_id": made.stranger(),
        "v3_and_below_producer_id": 7,
        "v3_and_below_topics": [{"name": made.topic, "partitions": [0]}],
    }
    if version <= 3
    else {"transactions": [{"transactional_id": made.stranger(), "producer_id": 7, "verify_only": True,
                            "topics": [{"name": made.topic, "partitions": [0]}]}]},  # fmt: skip
    "AddOffsetsToTxn": lambda made, _: {"transactional_id": made.stranger(), "producer_id": 7, "group_id": made.group},
    "EndTxn": lambda made, _: {"transactional_id": made.stranger(), "producer_id": 7, "committed": True},
    "WriteTxnMarkers": lambda made, _: {
        "markers": [{"producer_id": 987_654_321, "transaction_result": False, "coordinator_epoch": 1_000_000,
                     "topics": [{"name": made.topic, "partition_indexes": [1]}]}]
    },  # fmt: skip
    "TxnOffsetCommit": lambda made, _: {
        "transactional_id": made.stranger(),
        "group_id": made.group,
        "producer_id": 7,
        "topics": [{"name": made.topic, "partitions": [{"partition_index": 0, "committed_offset": 3, "committed_metadata": "note"}]}],
    },
    "DescribeProducers": lambda made, _: {"topics": [{"name": made.topic, "partition_indexes": [0]}]},
    "DescribeTransactions": lambda made, _: {"transactional_ids": [made.stranger()]},
    "ListTransactions": lambda _made, _version: {"state_filters": ["PrepareCommit", "Dead"]},
    "DescribeConfigs": lambda made, _: {
        "resources": [{"resource_type": 2, "resource_name": made.topic, "configuration_keys": ["retention.ms"]}]
    },
    "DescribeLogDirs": lambda made, _: {"topics": [{"topic": made.topic, "partitions": [0, 1]}]},
    "CreatePartitions": lambda made, _: {"topics": [{"name": made.fresh(), "count": 2, "assignments": None}], "timeout_ms": 5000},
    "DeleteGroups": lambda made, _: {"groups_names": [made.pair.name("gone")]},
    "AlterConfigs": lambda made, _: {
        "resources": [{"resource_type": 2, "resource_name": made.fresh(),
                       "configs": [{"name": "retention.ms", "value": "2000000"}]}]
    },  # fmt: skip
    "IncrementalAlterConfigs": lambda made, _: {
        "resources": [{"resource_type": 2, "resource_name": made.empty,
                       "configs": [{"name": "retention.ms", "config_operation": 0, "value": "2000000"}]}]
    },  # fmt: skip
    "OffsetDelete": lambda made, _: {
        "group_id": made.group,
        "topics": [{"name": made.topic, "partitions": [{"partition_index": 2}]}],
    },
    "DescribeCluster": lambda _made, _version: {},
    "DescribeTopicPartitions": lambda made, _: {"topics": [{"name": made.topic}]},
}


def topic(made: Prepared, **changes: object) -> Body:
    """CreateTopics of one topic."""
    return {"topics": [{"name": made.pair.name("made"), "num_partitions": 1, "replication_factor": 1} | changes]}


def config(made: Prepared, name: str, value: str | None) -> Body:
    """CreateTopics with one setting."""
    return topic(made, configs=[{"name": name, "value": value}])


def alter(made: Prepared, name: str, operation: int, value: str | None, **resource: object) -> Body:
    """IncrementalAlterConfigs of one setting."""
    one = {"resource_type": 2, "resource_name": made.empty} | resource
    return {"resources": [one | {"configs": [{"name": name, "config_operation": operation, "value": value}]}]}


def describe(made: Prepared, **resource: object) -> Body:
    """DescribeConfigs of one resource."""
    return {"resources": [{"resource_type": 2, "resource_name": made.topic, "configuration_keys": None} | resource]}


def broker(keys: list[str] | None) -> Body:
    """DescribeConfigs of the node."""
    return {"resources": [{"resource_type": 4, "resource_name": Given("node name"), "configuration_keys": keys}]}


def partitions(made: Prepared, count: int, assignments: list | None = None, name: str | None = None) -> Body:
    """CreatePartitions of the prepared topic."""
    one = {"name": name or made.topic, "count": count, "assignments": assignments}
    return {"topics": [one], "timeout_ms": 5000, "validate_only": True}


NODE = Given("node")
# More that is worth asking, each in the newest version: what it shows → body.
MORE: dict[str, dict[str, Callable[[Prepared], Body]]] = {
    "Metadata": {
        "all topics": lambda _: {"topics": None},
        "no topics": lambda _: {"topics": []},
        "unknown name": lambda made: {"topics": [{"name": made.pair.name("unknown")}], "allow_auto_topic_creation": False},
        "id and name": lambda made: {"topics": [{"name": made.topic, "topic_id": Given(f"id of {made.topic}")}]},
        "operations": lambda made: {"topics": [{"name": made.topic}], "include_topic_authorized_operations": True},
    },
    "CreateTopics": {
        "defaults": lambda made: topic(made, num_partitions=-1, replication_factor=-1),
        "no partitions": lambda made: topic(made, num_partitions=0),
        "three replicas": lambda made: topic(made, replication_factor=3),
        "exists": lambda made: topic(made, name=made.topic),
        "dot": lambda made: topic(made, name="."),
        "two dots": lambda made: topic(made, name=".."),
        "collides": lambda made: topic(made, name=made.topic.replace("-", "_").replace("_", ".", 1)),
        "249 letters": lambda made: topic(made, name=made.pair.name("x" * 200)),
        "250 letters": lambda made: topic(made, name="y" * 250),
        "internal name": lambda made: topic(made, name="__consumer_offsets"),
        "internal transactions": lambda made: topic(made, name="__transaction_state", num_partitions=1) | {"validate_only": True},
        "twice": lambda made: {"topics": [one := topic(made)["topics"][0], one]},
        "only validated": lambda made: topic(made) | {"validate_only": True},
        "assigned": lambda made: topic(made, num_partitions=-1, replication_factor=-1,
                                       assignments=[{"partition_index": 0, "broker_ids": [NODE]}]),
        "assigned and counted": lambda made: topic(made, assignments=[{"partition_index": 0, "broker_ids": [NODE]}]),
        "assigned to nobody": lambda made: topic(made, num_partitions=-1, replication_factor=-1,
                                                 assignments=[{"partition_index": 0, "broker_ids": [77]}]),
        "assigned with a gap": lambda made: topic(made, num_partitions=-1, replication_factor=-1,
                                                  assignments=[{"partition_index": 1, "broker_ids": [NODE]}]),
        "unknown setting": lambda made: config(made, "no.such.setting", "1"),
        "setting of the broker": lambda made: config(made, "log.retention.ms", "1"),
        "setting is no number": lambda made: config(made, "retention.ms", "soon"),
        "setting out of range": lambda made: config(made, "segment.bytes", "-1"),
        "segment of 1 KiB": lambda made: config(made, "segment.bytes", "1024"),
        "setting null": lambda made: config(made, "retention.ms", None),
        "setting empty": lambda made: config(made, "cleanup.policy", ""),
        "setting with spaces": lambda made: config(made, "retention.ms", " 1000 "),
        "list": lambda made: config(made, "cleanup.policy", "compact,delete"),
        "list twice": lambda made: config(made, "cleanup.policy", "delete,delete"),
        "fraction": lambda made: config(made, "min.cleanable.dirty.ratio", "1"),
        "boolean": lambda made: config(made, "preallocate", "FALSE"),
        "two in sync": lambda made: config(made, "min.insync.replicas", "2"),
        "unclean": lambda made: config(made, "unclean.leader.election.enable", "true"),
    },
    "DeleteTopics": {
        "by id": lambda made: {"topics": [{"name": None, "topic_id": Given(f"id of {made.fresh()}")}], "timeout_ms": 5000},
        "by both": lambda made: {"topics": [{"name": (one := made.fresh()), "topic_id": Given(f"id of {one}")}], "timeout_ms": 5000},
        "by neither": lambda _: {"topics": [{"name": None}], "timeout_ms": 5000},
        "twice": lambda made: {"topics": [{"name": (one := made.fresh())}, {"name": one}], "timeout_ms": 5000},
    },
    "CreatePartitions": {
        "fewer": lambda made: partitions(made, 2),
        "as many": lambda made: partitions(made, 3),
        "more": lambda made: partitions(made, 5),
        "assigned": lambda made: partitions(made, 4, [{"broker_ids": [NODE]}]),
        "assigned too few": lambda made: partitions(made, 5, [{"broker_ids": [NODE]}]),
        "assigned to nobody": lambda made: partitions(made, 4, [{"broker_ids": [77]}]),
        "assigned twice": lambda made: partitions(made, 4, [{"broker_ids": [NODE, NODE]}]),
        "unknown topic": lambda made: partitions(made, 4, name="nowhere"),
    },
    "DescribeConfigs": {
        "whole topic": describe,
        "with synonyms": lambda made: describe(made) | {"include_synonyms": True},
        "with documentation": lambda made: describe(made) | {"include_documentation": True},
        "unknown key": lambda made: describe(made, configuration_keys=["no.such.setting"]),
        "no keys": lambda made: describe(made, configuration_keys=[]),
        "settings of its own": lambda made: describe(made, resource_name=made.empty) | {"include_synonyms": True},
        "broker": lambda _: broker(None),
        "broker with synonyms": lambda _: broker(["log.retention.ms", "log.retention.hours", "num.partitions"]) | {"include_synonyms": True},
        "all brokers": lambda made: describe(made, resource_type=4, resource_name=""),
        "other broker": lambda made: describe(made, resource_type=4, resource_name="77"),
        "loggers": lambda made: describe(made, resource_type=8, resource_name="77"),
    },
    "IncrementalAlterConfigs": {
        "delete": lambda made: alter(made, "retention.ms", 1, None),
        "append": lambda made: alter(made, "cleanup.policy", 2, "delete"),
        "subtract": lambda made: alter(made, "cleanup.policy", 3, "delete"),
        "append to a number": lambda made: alter(made, "retention.ms", 2, "1"),
        "unknown operation": lambda made: alter(made, "retention.ms", 9, "1"),
        "unknown setting": lambda made: alter(made, "no.such.setting", 0, "1"),
        "no value": lambda made: alter(made, "retention.ms", 0, None),
        "no number": lambda made: alter(made, "retention.ms", 0, "soon"),
        "only validated": lambda made: alter(made, "retention.ms", 0, "5") | {"validate_only": True},
        "broker": lambda made: alter(made, "log.retention.ms", 0, "900000000", resource_type=4, resource_name=Given("node name")),
        "broker back": lambda made: alter(made, "log.retention.ms", 1, None, resource_type=4, resource_name=Given("node name")),
        "cluster": lambda made: alter(made, "log.retention.ms", 0, "900000000", resource_type=4, resource_name=""),
        "cluster back": lambda made: alter(made, "log.retention.ms", 1, None, resource_type=4, resource_name=""),
        "broker read only": lambda made: alter(made, "node.id", 0, "5", resource_type=4, resource_name=Given("node name")),
        "other broker": lambda made: alter(made, "log.retention.ms", 0, "5", resource_type=4, resource_name="77"),
        "twice": lambda made: {"resources": alter(made, "retention.ms", 0, "1")["resources"] * 2},
    },
    "AlterConfigs": {
        name: lambda made, name=name, value=value: {
            "resources": [{"resource_type": 2, "resource_name": made.fresh(), "configs": [{"name": name, "value": value}]}]
        }
        for name, value in (("no.such.setting", "1"), ("retention.ms", "soon"), ("retention.ms", None), ("cleanup.policy", ""))
    }
    | {
        "other broker": lambda _: {"resources": [{"resource_type": 4, "resource_name": "77", "configs": []}]},
        "loggers": lambda _: {"resources": [{"resource_type": 8, "resource_name": "1", "configs": []}]},
    },
    "DescribeLogDirs": {"all": lambda _: {"topics": None}, "none": lambda _: {"topics": []}},
    "DescribeTopicPartitions": {
        "one at a time": lambda made: {"topics": [{"name": made.topic}, {"name": made.empty}], "response_partition_limit": 1},
        "from a place": lambda made: {"topics": [{"name": made.topic}], "cursor": {"topic_name": made.topic, "partition_index": 1}},
        "from before": lambda made: {"topics": [{"name": made.topic}, {"name": "x"}], "cursor": {"topic_name": "A", "partition_index": 0}},
        "from -1": lambda made: {"topics": [{"name": made.topic}], "cursor": {"topic_name": made.topic, "partition_index": -1}},
        "from behind": lambda made: {"topics": [{"name": made.topic}], "cursor": {"topic_name": made.topic, "partition_index": 9}},
    },
    "DescribeCluster": {
        "operations": lambda _: {"include_cluster_authorized_operations": True},
        "controllers": lambda _: {"endpoint_type": 2},
    },
    "ListOffsets": {
        f"timestamp {one}": lambda made, one=one: offsets_body(made.topic, [0, 1, 2], one) for one in (-2, -3, -4, -5, -6, -7, 0, 1 << 62)
    }
    | {"by time": lambda made: offsets_body(made.topic, [0], made.pair.past_ms + 1)},
    "OffsetForLeaderEpoch": {
        "unknown partition": lambda made: {"topics": [{"topic": made.topic, "partitions": [{"partition": 9, "leader_epoch": 0}]}]},
        "with the epoch": lambda made: {
            "topics": [{"topic": made.topic, "partitions": [{"partition": 0, "current_leader_epoch": Given("epoch"), "leader_epoch": 900}]}]
        },
    },
    "Fetch": {
        "beyond the end": lambda made: fetch_body(18, made.topic, {0: 1000}),
        "several": lambda made: fetch_body(18, made.topic, {0: 3, 1: 0, 2: 0, 9: 0}),
        "committed": lambda made: fetch_body(18, made.topic, {0: 0}, isolation=1),
        "one byte": lambda made: fetch_body(18, made.topic, {0: 0}, max_bytes=1),
    },
}  # fmt: skip
