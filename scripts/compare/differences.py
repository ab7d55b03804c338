"""The differences between corelane and Apache Kafka 4.4.0 that are meant: each has its reason here.

A difference that no entry explains makes the comparison fail. docs/differences.md is written from this table.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass


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
]
