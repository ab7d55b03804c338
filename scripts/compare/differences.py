"""The differences between corelane and Apache Kafka 4.4.0 that are meant: each has its reason here.

A difference that no entry explains makes the comparison fail. docs/differences.md is written from this table.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

# Faults of batches that corelane refuses on purpose and Kafka stores: where one comes, the two logs part ways.
TAKEN_BY_KAFKA_ONLY = {"offset deltas twice", "offset deltas from one", "key length -2"}


@dataclass
class Difference:
    """One place where the two answers differ."""

    step: str
    api: str
    version: int
    path: str
    kafka: object
    ours: object
    tags: frozenset[str]
    request: dict
    kafka_answer: dict
    our_answer: dict

    @property
    def place(self) -> str:
        """API and path without the elements' names: `Produce responses.partition_responses.error_code`."""
        return self.api + " " + re.sub(r"\[.*?\](?=[.\[]|$)", "", self.path)

    def codes(self) -> tuple[list[int], list[int]]:
        """Error codes of all partitions of a Produce: Kafka's, ours."""
        kafka, ours = (
            [part["error_code"] for topic in answer.get("responses", ()) for part in topic["partition_responses"]]
            for answer in (self.kafka_answer, self.our_answer)
        )
        return kafka, ours

    def asked_timestamp(self) -> int | None:
        """The timestamp of a ListOffsets request."""
        return next((part["timestamp"] for topic in self.request.get("topics", ()) for part in topic["partitions"]), None)

    def is_deleted(self) -> bool:
        """Whether our ListOffsets found nothing, or something later, where Kafka found a record."""
        return self.ours == -1 or self.path.endswith("timestamp") or (self.path.endswith("offset") and self.ours > self.kafka)

    def rule(self) -> "Meant | None":
        """The entry of the table that explains it."""
        return next((one for one in DIFFERENCES if one.explains(self)), None)

    def report(self) -> str:
        """What is shown of one that nothing explains."""
        return (
            f"DIFFERENT {self.step}: {self.api} v{self.version} {self.path}: Kafka {shown(self.kafka)}, corelane {shown(self.ours)}\n"
            f"    asked    {shown(self.request, 600)}\n    Kafka    {shown(self.kafka_answer, 600)}\n"
            f"    corelane {shown(self.our_answer, 600)}"
        )


def shown(value: object, width: int = 160) -> str:
    """A value in short."""
    text = repr(value)
    return text if len(text) <= width else text[: width - 1] + "…"


def error_codes(answer: object) -> Iterator[int]:
    """Every error code of an answer."""
    if isinstance(answer, dict):
        for name, value in answer.items():
            if name in ("error_code", "partition_error_code"):
                yield value
            else:
                yield from error_codes(value)
    elif isinstance(answer, list):
        for value in answer:
            yield from error_codes(value)


@dataclass
class Meant:
    """A difference that is meant: where, what each answers, and why."""

    id: str
    place: str
    shown_place: str
    kafka: str
    ours: str
    why: str
    parts: str
    when: Callable[[Difference], bool]

    def explains(self, found: Difference) -> bool:
        """Whether this is the one."""
        return re.fullmatch(self.place, found.place) is not None and self.when(found)


def always(_found: Difference) -> bool:
    """Wherever the place fits."""
    return True


def at(text: str) -> Callable[[Difference], bool]:
    """Where the path, with its elements' names, has this in it."""
    return lambda found: text in found.path


def answers(kafka: object, ours: object) -> Callable[[Difference], bool]:
    """Where the two values are these."""
    return lambda found: found.kafka == kafka and found.ours == ours


DIFFERENCES: list[Meant] = [
    Meant(
        "K1",
        r"(CreateTopics topics\.configs|DescribeConfigs results\.configs)",
        "topic settings in CreateTopics and DescribeConfigs",
        "does not know it",
        "a setting `corelane.durability`",
        "What acks=all waits for can be chosen per topic.",
        "",
        at("[corelane.durability]"),
    ),
    Meant(
        "K2",
        r"(CreateTopics topics\.configs\.config_source|DescribeConfigs results\.configs\.(config_source|synonyms.*))",
        "source of `min.insync.replicas`",
        "3 (default of the cluster)",
        "5 (default)",
        "Kafka writes its default into the cluster's settings when it turns on eligible leader replicas; one broker has none.",
        "",
        at("[min.insync.replicas]"),
    ),
    Meant(
        "K3",
        r"(ListOffsets topics(\.partitions)?|Produce responses(\.partition_responses)?|Metadata topics|ListGroups groups"
        r"|DescribeConfigs results\.configs|DescribeLogDirs results\.topics(\.partitions)?|JoinGroup members|DeleteGroups results|DescribeGroups groups(\.members)?"
        r"|AddPartitionsToTxn .*|DescribeTransactions .*|DescribeProducers .*|WriteTxnMarkers .*)\.order",
        "order of what Kafka keeps in hash tables: in Produce, ListOffsets, Metadata (all topics), ListGroups, DescribeConfigs, "
        "DescribeLogDirs, JoinGroup, DescribeGroups, DeleteGroups, AddPartitionsToTxn, DescribeTransactions, DescribeProducers, WriteTxnMarkers",
        "by hash, or by kind of result",
        "as asked, or sorted",
        "The protocol promises no order; clients look up by name.",
        "",
        always,
    ),
    Meant(
        "K4",
        r"Produce responses\.partition_responses\.(error_code|log_start_offset)",
        "Produce of a batch that cannot be unpacked or walked",
        "-1 (UNKNOWN_SERVER_ERROR)",
        "87 (INVALID_RECORD)",
        "[RULE] eos-semantics §2.1: what is wrong with the batch is the client's fault, and retrying does not mend it.",
        "",
        lambda found: found.codes() == ([-1], [87]),
    ),
    Meant(
        "K5",
        r"(Produce|AlterConfigs|JoinGroup|AddPartitionsToTxn|WriteTxnMarkers) [a-z_]+",
        "Produce with null records, AlterConfigs of the same resource twice, JoinGroup with the same protocol twice, "
        "AddPartitionsToTxn without transactions, WriteTxnMarkers that names a topic or partition twice",
        "no answer at all",
        "87 (INVALID_RECORD), 42 (INVALID_REQUEST), an answer",
        "[RULE] eos-semantics §2.1: every request ends in something that the client notices.",
        "",
        lambda found: found.kafka_answer.get("outcome") == "no answer" and found.our_answer.get("outcome") is None,
    ),
    Meant(
        "K6",
        r"ApiVersions api_keys",
        "keys in ApiVersions",
        "all of its keys",
        "those that are served",
        "Security, share and streams groups, and what concerns several brokers are not served yet.",
        "",
        lambda found: found.ours == "(missing)",
    ),
    Meant(
        "K7",
        r"ApiVersions api_keys\.max_version",
        "last version of ListOffsets, ApiVersions, DescribeLogDirs, TxnOffsetCommit, ListTransactions",
        "11, 5, 5, 6, 2",
        "10, 4, 4, 5, 1",
        "The versions that the protocol library knows; none is needed by a client of one broker. ListTransactions 2 (names by a pattern) is not there yet.",
        "",
        lambda found: (found.kafka, found.ours) in ((11, 10), (5, 4), (6, 5), (2, 1)),
    ),
    Meant(
        "K8",
        r"ApiVersions (finalized_features(_epoch)?|supported_features)",
        "features in ApiVersions",
        "all of its own",
        "`metadata.version`, `transaction.version`",
        "They come with what they stand for.",
        "",
        always,
    ),
    Meant(
        "K9",
        r"Produce responses\.partition_responses\.(error_code|base_offset|log_append_time_ms|log_start_offset|error_message)",
        "Produce of plain records whose offset deltas do not count up, or with a key or value of length -2",
        "stored",
        "87 (INVALID_RECORD)",
        "[RULE] eos-semantics §2.1: what is stored can be read; Kafka checks this only where it unpacks.",
        "faults",
        lambda found: bool(found.tags & TAKEN_BY_KAFKA_ONLY) and found.codes() == ([0], [87]),
    ),
    Meant(
        "K10",
        r"Fetch responses\.partitions\.records",
        "batches of a Fetch that reaches the end of a segment",
        "only those up to the end of the segment",
        "as many as the limits allow",
        "Segments are not seen by clients; what is read next is the same.",
        "sequences faults",
        lambda found: found.kafka == "(missing)" and not found.path.endswith("records[0]"),
    ),
    Meant(
        "K11",
        r"Produce responses\.partition_responses\.(error_code|base_offset|log_append_time_ms)",
        "Produce of a retry after a restart",
        "45 (OUT_OF_ORDER_SEQUENCE_NUMBER) unless it is the newest batch",
        "0 with the original offset, for each of the last five",
        "[RULE] eos-semantics §3.2: the whole window survives; Kafka's snapshot keeps one entry a producer.",
        "statements",
        lambda found: "after restart" in found.tags and found.codes() == ([45], [0]),
    ),
    Meant(
        "K12",
        r"(CreateTopics|DeleteTopics|CreatePartitions) .*",
        "CreateTopics, DeleteTopics, CreatePartitions with a time-out of 0 or less",
        "7 (REQUEST_TIMED_OUT)",
        "0: it is done",
        "There is no controller to wait for; the change is durable when the answer is written.",
        "requests",
        lambda found: "without time" in found.tags,
    ),
    Meant(
        "K13",
        r"CreateTopics topics\.configs\.value",
        "settings in the answer to CreateTopics",
        "as they were sent (`1`, ` 1000 `, `FALSE`)",
        "as they were understood (`1.0`, `1000`, `false`)",
        "Both brokers answer the latter to DescribeConfigs.",
        "requests",
        lambda found: str(found.kafka).strip().lower() in (found.ours, str(found.ours).removesuffix(".0")),
    ),
    Meant(
        "K14",
        r"EndTxn error_code",
        "EndTxn (5) that commits what the coordinator has aborted because it was open for too long",
        "48 (INVALID_TXN_STATE)",
        "90 (PRODUCER_FENCED)",
        "[RULE] eos-semantics §4.6: 48 ends clients for good; after 90 an application begins anew.",
        "requests",
        answers(48, 90),
    ),
    Meant(
        "K15",
        r"DescribeConfigs results\.configs",
        "settings of the broker in DescribeConfigs",
        "all of its settings",
        "those that it has",
        "Settings of what is not there (replicas, controller, security, tiers) would be lies.",
        "requests",
        lambda found: found.ours == "(missing)" or "corelane." in found.path,
    ),
    Meant(
        "K16",
        r"DescribeConfigs results\.configs\..*",
        "listeners, folders and ids of the broker in DescribeConfigs",
        "set in its properties",
        "set on the command line, under the names of its own listener",
        "They are what the two brokers were started with.",
        "requests",
        lambda found: re.search(r"\[(listener.*|advertised.listeners|log.dirs?|node.id|broker.id|controller.*|offsets.topic.replication.factor|transaction.state.log.(replication.factor|min.isr))\]", found.path) is not None,
    ),
    Meant(
        "K17",
        r"(DescribeGroups groups|FindCoordinator coordinators|OffsetFetch (groups\.)?topics(\.partitions)?|OffsetFetch groups\.error_code)",
        "DescribeGroups, FindCoordinator, OffsetFetch that name the same twice",
        "answered twice",
        "answered once; OffsetFetch of a group twice: 42 the second time",
        "An answer is not larger than what exists, whatever the request repeats.",
        "groups",
        lambda found: found.ours in ("(missing)", 42) and any("twice" in tag for tag in found.tags),
    ),
    Meant(
        "K18",
        r"DescribeTopicPartitions topics\.error_code",
        "DescribeTopicPartitions of a topic without a name",
        "-1 (UNKNOWN_SERVER_ERROR)",
        "17 (INVALID_TOPIC_EXCEPTION)",
        "As Metadata answers it; -1 tells a client nothing.",
        "requests",
        answers(-1, 17),
    ),
    Meant(
        "K19",
        r"ListOffsets topics\.partitions\.(timestamp|offset|leader_epoch)",
        "ListOffsets of the largest timestamp after DeleteRecords",
        "may be a record that was deleted",
        "the largest of those that are there, -1 if there is none",
        "What is offered can be read.",
        "sequences",
        lambda found: found.asked_timestamp() == -3 and found.is_deleted(),
    ),
    Meant(
        "K20",
        r"DescribeLogDirs results\.topics\.partitions\.partition_size",
        "size of a partition in DescribeLogDirs whose records were deleted, of a compacted or an internal topic",
        "segments stay until the next look for old ones, and until they are compacted",
        "what is in use",
        "Room is given back when the records go.",
        "requests",
        lambda found: any(one in found.path for one in ("fresh", "compacted", "__consumer_offsets", "__transaction_state")),
    ),
    Meant(
        "K21",
        r"(Fetch|ListOffsets) .*",
        "Fetch with a negative limit, Fetch and ListOffsets with an isolation level that does not exist",
        "-1 (UNKNOWN_SERVER_ERROR)",
        "a negative limit counts as 0, an unknown isolation level as read_uncommitted",
        "Kafka's answer is a failure inside it, which tells a client nothing.",
        "requests",
        lambda found: -1 in error_codes(found.kafka_answer) and any(re.search(r"isolation_level|max_bytes -", tag) for tag in found.tags),
    ),
    Meant(
        "K22",
        r"Produce responses\.partition_responses\.(error_code|log_start_offset|error_message)",
        "Produce of a batch whose length says that it is shorter than its own header",
        "-1 (UNKNOWN_SERVER_ERROR)",
        "2 (CORRUPT_MESSAGE)",
        "[RULE] eos-semantics §0: 2 is the code of a broken batch; Kafka's answer is a failure inside it.",
        "sequences",
        lambda found: set(found.codes()[0]) == {-1} and set(found.codes()[1]) == {2},
    ),
    Meant(
        "K23",
        r"ListOffsets topics\.partitions\.(timestamp|offset|leader_epoch)",
        "ListOffsets for a timestamp in a compacted log",
        "nothing is found (-1) where the first segment that reaches the timestamp does so with a batch that lost its records",
        "the first record that is not older",
        "Whoever asks from when on to read would read nothing.",
        "compaction",
        lambda found: "compacted" in found.tags and found.asked_timestamp() >= 0 and found.kafka == -1,
    ),
    Meant(
        "K24",
        r"(Fetch responses\.partitions\.last_stable_offset|ListOffsets topics\.partitions\.offset)",
        "last stable offset once the log start has passed the beginning of an open transaction",
        "the beginning of the transaction, below the log start",
        "the log start",
        "[RULE] eos-semantics §5.1: nobody can read below the log start.",
        "statements",
        lambda found: "start passed a transaction" in found.tags,
    ),
    Meant(
        "K25",
        r"Produce responses\.partition_responses\.error_message",
        "Produce of a transactional batch that is refused (48)",
        "a sentence",
        "null",
        "Not there yet.",
        "statements",
        lambda found: found.ours is None and set(found.codes()[0]) == {48} == set(found.codes()[1]),
    ),
    Meant(
        "K26",
        r"DescribeProducers topics\.partitions\.active_producers\.last_timestamp",
        "time of a producer in DescribeProducers after a marker",
        "that of the marker",
        "that of its last batch",
        "Not there yet.",
        "statements",
        always,
    ),
    Meant(
        "K27",
        r"(AddPartitionsToTxn|WriteTxnMarkers) .*",
        "AddPartitionsToTxn (from 4 on) and WriteTxnMarkers that name the same twice, or nothing",
        "brought together, or left out",
        "answered as asked",
        "Only brokers and tools send these, and they do not.",
        "requests",
        lambda found: found.kafka == "(missing)" and any(re.search("twice|empty", tag) for tag in found.tags),
    ),
    Meant(
        "K28",
        r"DescribeConfigs results\.configs\.read_only",
        "`transaction.partition.verification.enable` in DescribeConfigs",
        "may be changed while the broker runs",
        "may not",
        "Not there yet.",
        "requests",
        at("[transaction.partition.verification.enable]"),
    ),
    Meant(
        "K29",
        r"DescribeTransactions transaction_states",
        "DescribeTransactions that names the same id twice",
        "answered twice",
        "answered once",
        "An answer is not larger than what exists, whatever the request repeats.",
        "requests",
        lambda found: found.ours == "(missing)" and any("twice" in tag for tag in found.tags),
    ),
]
