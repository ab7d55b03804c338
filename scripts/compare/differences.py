"""The differences between corelane and Apache Kafka 4.4.0 that are meant: each has its reason here.

A difference that no entry explains makes the comparison fail. docs/differences.md is written from this table.
"""

import re
from collections.abc import Callable
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
        "D1",
        r"(CreateTopics topics\.configs|DescribeConfigs results\.configs)",
        "topic settings in CreateTopics and DescribeConfigs",
        "does not know it",
        "a setting `corelane.durability`",
        "What acks=all waits for can be chosen per topic.",
        "",
        at("[corelane.durability]"),
    ),
    Meant(
        "D2",
        r"(CreateTopics topics\.configs\.config_source|DescribeConfigs results\.configs\.(config_source|synonyms.*))",
        "source of `min.insync.replicas`",
        "3 (default of the cluster)",
        "5 (default)",
        "Kafka writes its default into the cluster's settings when it turns on eligible leader replicas; one broker has none.",
        "",
        at("[min.insync.replicas]"),
    ),
    Meant(
        "D3",
        r"(ListOffsets topics(\.partitions)?|Produce responses(\.partition_responses)?|Metadata topics|ListGroups groups"
        r"|DescribeConfigs results\.configs|DescribeLogDirs results\.topics(\.partitions)?|JoinGroup members)\.order",
        "order of what Kafka keeps in hash tables: in Produce, ListOffsets, Metadata (all topics), ListGroups, DescribeConfigs, "
        "DescribeLogDirs, JoinGroup",
        "by hash, or by kind of result",
        "as asked, or sorted",
        "The protocol promises no order; clients look up by name.",
        "",
        always,
    ),
    Meant(
        "D4",
        r"Produce responses\.partition_responses\.error_message",
        "error_message in Produce",
        "null unless single records are to blame",
        "the reason in words",
        "A refused batch says why.",
        "",
        answers(None, "words"),
    ),
    Meant(
        "D5",
        r"Produce responses\.partition_responses\.(error_code|log_start_offset)",
        "Produce of a batch that cannot be unpacked or walked",
        "-1 (UNKNOWN_SERVER_ERROR)",
        "87 (INVALID_RECORD)",
        "[RULE] §2.1: what is wrong with the batch is the client's fault, and retrying does not mend it.",
        "",
        lambda found: found.codes() == ([-1], [87]),
    ),
    Meant(
        "D6",
        r"Produce (outcome|responses|throttle_time_ms|node_endpoints)",
        "Produce with null records",
        "no answer at all",
        "87 (INVALID_RECORD)",
        "[RULE] §2.1: every request ends in something that the client notices.",
        "",
        lambda found: found.kafka_answer.get("outcome") == "no answer" and "null records" in found.tags,
    ),
    Meant(
        "D7",
        r"ApiVersions api_keys",
        "keys in ApiVersions",
        "all of its keys",
        "those that are served",
        "Transactions, security, share and streams groups, and what concerns several brokers are not served yet.",
        "",
        lambda found: found.ours == "(missing)",
    ),
    Meant(
        "D8",
        r"ApiVersions api_keys\.max_version",
        "last version of ListOffsets, ApiVersions, DescribeLogDirs",
        "11, 5, 5",
        "10, 4, 4",
        "The versions that the protocol library knows; none is needed by a client of one broker.",
        "",
        lambda found: (found.kafka, found.ours) in ((11, 10), (5, 4)),
    ),
    Meant(
        "D9",
        r"ApiVersions (finalized_features(_epoch)?|supported_features)",
        "features in ApiVersions",
        "its own, transaction.version among them",
        "none yet",
        "They come with what they stand for.",
        "",
        always,
    ),
    Meant(
        "D10",
        r"Produce responses\.partition_responses\.(error_code|base_offset|log_append_time_ms|log_start_offset|error_message)",
        "Produce of plain records whose offset deltas do not count up, or with a key or value of length -2",
        "stored",
        "87 (INVALID_RECORD)",
        "[RULE] §2.1, D13: what is stored can be read; Kafka checks this only where it unpacks.",
        "faults",
        lambda found: bool(found.tags & TAKEN_BY_KAFKA_ONLY) and found.codes() == ([0], [87]),
    ),
    Meant(
        "D11",
        r"Fetch responses\.partitions\.records",
        "batches of a Fetch that reaches the end of a segment",
        "only those up to the end of the segment",
        "as many as the limits allow",
        "Segments are not seen by clients; what is read next is the same.",
        "sequences faults",
        lambda found: found.kafka == "(missing)" and not found.path.endswith("records[0]"),
    ),
    Meant(
        "D12",
        r"Produce responses\.partition_responses\.(error_code|base_offset|log_append_time_ms)",
        "Produce of a retry after a restart",
        "45 (OUT_OF_ORDER_SEQUENCE_NUMBER) unless it is the newest batch",
        "0 with the original offset, for each of the last five",
        "[RULE] §3.2: the whole window survives; Kafka's snapshot keeps one entry a producer.",
        "statements",
        lambda found: "after restart" in found.tags and found.codes() == ([45], [0]),
    ),
    Meant(
        "D13",
        r"(CreateTopics|DeleteTopics|CreatePartitions) .*",
        "CreateTopics, DeleteTopics, CreatePartitions with a time-out of 0 or less",
        "7 (REQUEST_TIMED_OUT)",
        "0: it is done",
        "There is no controller to wait for; the change is durable when the answer is written.",
        "requests",
        lambda found: any(tag.startswith("timeout_ms") for tag in found.tags),
    ),
    Meant(
        "D14",
        r"CreateTopics topics\.configs\.value",
        "settings in the answer to CreateTopics",
        "as they were sent (`1`, ` 1000 `, `FALSE`)",
        "as they were understood (`1.0`, `1000`, `false`)",
        "Both brokers answer the latter to DescribeConfigs.",
        "requests",
        lambda found: str(found.kafka).strip().lower() in (found.ours, str(found.ours).removesuffix(".0")),
    ),
    Meant(
        "D15",
        r"InitProducerId error_code",
        "InitProducerId with a transactional id",
        "16 until a coordinator was looked for, then an id",
        "53 (TRANSACTIONAL_ID_AUTHORIZATION_FAILED)",
        "Transactions are not served yet.",
        "requests",
        answers(16, 53),
    ),
    Meant(
        "D16",
        r"DescribeConfigs results\.configs",
        "settings of the broker in DescribeConfigs",
        "all of its settings",
        "those that it has",
        "Settings of what is not there (replicas, controller, security, tiers) would be lies.",
        "requests",
        lambda found: found.ours == "(missing)" or "corelane." in found.path,
    ),
    Meant(
        "D17",
        r"DescribeConfigs results\.configs\..*",
        "listeners, folders and ids of the broker in DescribeConfigs",
        "set in its properties",
        "set on the command line, under the names of its own listener",
        "They are what the two brokers were started with.",
        "requests",
        lambda found: re.search(r"\[(listener.*|advertised.listeners|log.dirs?|node.id|broker.id|controller.*)\]", found.path) is not None,
    ),
]
