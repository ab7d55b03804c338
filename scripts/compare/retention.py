"""Retention: the same log under the same limits begins and ends at the same offsets on both sides once old segments have gone.

The log is written first and the limits come then, so that both sides decide on the same segments.
"""

import time

from compare.batches import Batch, Record
from compare.pair import Pair
from compare.side import Side
from compare.steps import offsets, offsets_body, produce

# The brokers look for old segments this often, see compare-with-kafka.
LOOKS_SECONDS = 0.3
# Nothing takes longer than some looks.
PATIENCE_SECONDS = 20
# Two batches of VALUE fill a segment.
SEGMENT_BYTES = 1000
VALUE = b"x" * 400
TOPIC = 2
SET = 0
HOUR_MS = 3_600_000
NO_TIMESTAMP = -1


def create(pair: Pair, **configs: object) -> str:
    """A new topic; not compared, since Kafka names internal settings in its answer where they are set."""
    name = pair.name("retained")
    settings = [{"name": key.replace("_", "."), "value": str(value)} for key, value in configs.items()]
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1, "configs": settings}
    for side in pair.sides:
        side.call("CreateTopics", 7, {"topics": [topic]})
        pair.await_topic(side, name, 1)
    return name


def write(pair: Pair, ages_ms: list[int], **configs: object) -> str:
    """A log of one batch for each age; NO_TIMESTAMP stands for none."""
    topic = create(pair, internal_segment_bytes=SEGMENT_BYTES, file_delete_delay_ms=0, retention_ms=-1, **configs)
    for at, age_ms in enumerate(ages_ms):
        timestamp = NO_TIMESTAMP if age_ms == NO_TIMESTAMP else pair.start_ms - age_ms
        produce(pair, topic, Batch((Record(VALUE, key=b"%d" % at),), timestamp=timestamp))
    return topic


def limit(pair: Pair, topic: str, **configs: object) -> None:
    """Sets the limits."""
    changes = [{"name": name.replace("_", "."), "config_operation": SET, "value": str(value)} for name, value in configs.items()]
    pair.ask("IncrementalAlterConfigs", 1, {"resources": [{"resource_type": TOPIC, "resource_name": topic, "configs": changes}]})


def start_of(side: Side, topic: str) -> int:
    """Where the log begins now."""
    return side.call("ListOffsets", 7, offsets_body(topic, [0], -2))["topics"][0]["partitions"][0]["offset"]


def settle(pair: Pair, topic: str, moves: bool) -> None:
    """Until both logs begin where they stay: where something is to go, it must go."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    before = None
    while time.monotonic() < deadline:
        now = [start_of(side, topic) for side in pair.sides]
        if now == before and (not moves or all(start > 0 for start in now)):
            return
        before = now
        time.sleep(3 * LOOKS_SECONDS)


def compare(pair: Pair, topic: str, moves: bool = True) -> None:
    """Beginning, end, and what a record that follows is given."""
    settle(pair, topic, moves)
    pair.check("the log begins", *(start_of(side, topic) for side in pair.sides))
    offsets(pair, topic, -2)
    offsets(pair, topic, -1)
    produce(pair, topic, Batch(timestamp=pair.past_ms))


def of_ages(pair: Pair, ages_ms: list[int], moves: bool = True, policy: str = "delete", **limits: object) -> None:
    """A log of these ages under these limits."""
    topic = write(pair, ages_ms, cleanup_policy=policy)
    limit(pair, topic, **limits)
    compare(pair, topic, moves)


def behind_deleted_records(pair: Pair) -> None:
    """A size limit counts what DeleteRecords has left."""
    topic = write(pair, [0] * 9)
    part = {"partition_index": 0, "offset": 5}
    pair.ask("DeleteRecords", 2, {"topics": [{"name": topic, "partitions": [part]}], "timeout_ms": 10_000})
    limit(pair, topic, retention_bytes=2 * SEGMENT_BYTES)
    compare(pair, topic)


def at_random(pair: Pair) -> None:
    """Any ages, any limits."""
    ages = [pair.random.choice((0, HOUR_MS, 2 * HOUR_MS)) for _ in range(pair.random.randint(1, 12))]
    limits = {"retention_ms": pair.random.choice((-1, HOUR_MS // 2)), "retention_bytes": pair.random.choice((-1, 0, 900, 2500))}
    of_ages(pair, ages, False, **limits)


CASES = {
    "nothing": lambda pair: of_ages(pair, [HOUR_MS] * 5, False, retention_ms=-1, retention_bytes=-1),
    "size": lambda pair: of_ages(pair, [0] * 9, retention_bytes=2 * SEGMENT_BYTES),
    "size 0": lambda pair: of_ages(pair, [0] * 5, retention_bytes=0),
    "age of all": lambda pair: of_ages(pair, [HOUR_MS] * 5, retention_ms=60_000),
    "a young one between": lambda pair: of_ages(pair, [*[HOUR_MS] * 5, 0, *[HOUR_MS] * 4], retention_ms=600_000),
    "age and size": lambda pair: of_ages(pair, [HOUR_MS] * 3 + [0] * 8, retention_ms=600_000, retention_bytes=1500),
    "no timestamps": lambda pair: of_ages(pair, [NO_TIMESTAMP] * 5, retention_ms=1000),
    "ahead": lambda pair: of_ages(pair, [HOUR_MS, HOUR_MS, -HOUR_MS // 2, HOUR_MS], retention_ms=1000),
    "compact": lambda pair: of_ages(pair, [HOUR_MS] * 5, False, "compact", retention_ms=1, retention_bytes=1),
    "compact and delete": lambda pair: of_ages(pair, [HOUR_MS] * 5, True, "compact,delete", retention_ms=60_000),
    "DeleteRecords before": behind_deleted_records,
}


def run(pair: Pair) -> None:
    """Each case, and some at random."""
    for name, case in CASES.items():
        pair.part(f"retention {name}", case)
    for number in range(pair.scale(20)):
        pair.part(f"retention at random {number}", at_random)
