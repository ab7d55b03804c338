"""Steps that the parts of the comparison have in common: append, read a whole log, ask for offsets."""

from compare.batches import Batch, Record, stored_batches
from compare.pair import Both, Pair
from compare.side import Given

IDS_FROM = {"Produce": 13, "Fetch": 13}
Records = Batch | tuple | bytes | None


def topic_of(api: str, version: int, topic: str) -> dict:
    """How a request of this version names a topic."""
    if version >= IDS_FROM[api]:
        return {"topic_id": Given(f"id of {topic}")}
    return {"name" if api == "Produce" else "topic": topic}


def produce_body(version: int, acks: int, batches: dict[tuple[str, int], Records]) -> dict:
    """A Produce request for one set of records a partition."""
    topics: dict[str, list] = {}
    for (topic, partition), records in batches.items():
        topics.setdefault(topic, []).append({"index": partition, "records": records})
    data = [topic_of("Produce", version, topic) | {"partition_data": parts} for topic, parts in topics.items()]
    return {"acks": acks, "timeout_ms": 10_000, "topic_data": data}


def produce(pair: Pair, topic: str, records: Records, partition: int = 0, version: int = 9, acks: int = -1, **how: object) -> Both:
    """Appends to one partition and awaits the answers."""
    return pair.ask("Produce", version, produce_body(version, acks, {(topic, partition): records}), **how)


def produce_unanswered(pair: Pair, topic: str, records: Records, **how: object) -> None:
    """Appends without acks on a connection of its own, and compares whether the connection lives on."""
    pair.send("Produce", 9, produce_body(9, 0, {(topic, 0): records}), "silent", is_answered=False)
    pair.ask("ListOffsets", 1, offsets_body(topic, [0], -1), line="silent", seconds=5, **how)


def offsets_body(topic: str, partitions: list[int], timestamp: int) -> dict:
    """A ListOffsets request."""
    asked = [{"partition_index": one, "timestamp": timestamp} for one in partitions]
    return {"replica_id": -1, "topics": [{"name": topic, "partitions": asked}]}


def offsets(pair: Pair, topic: str, timestamp: int = -1, partitions: int = 1, version: int = 7) -> Both:
    """The offsets of all partitions for a timestamp: -1 latest, -2 earliest, -3 largest timestamp."""
    return pair.ask("ListOffsets", version, offsets_body(topic, list(range(partitions)), timestamp))


def fetch_body(version: int, topic: str, starts: dict[int, int], max_bytes: int = 1 << 24, isolation: int = 0) -> dict:
    """A Fetch request outside of any session."""
    parts = [{"partition": one, "fetch_offset": start, "partition_max_bytes": max_bytes} for one, start in starts.items()]
    return {
        "max_wait_ms": 0,
        "min_bytes": 0,
        "isolation_level": isolation,
        "topics": [topic_of("Fetch", version, topic) | {"partitions": parts}],
    }


def fetch(pair: Pair, topic: str, start: int = 0, partition: int = 0, version: int = 12, **how: object) -> Both:
    """Reads one partition from an offset."""
    return pair.ask("Fetch", version, fetch_body(version, topic, {partition: start}, **how))


def same_log(pair: Pair, topic: str, partitions: int = 1, version: int = 12) -> None:
    """Both logs hold the same: ends first, then batch by batch."""
    first = offsets(pair, topic, -2, partitions).kafka
    ends = offsets(pair, topic, -1, partitions).kafka
    for index in range(partitions):
        start, end = (one["topics"][0]["partitions"][index]["offset"] for one in (first, ends))
        while start < end:
            found = fetch(pair, topic, start, index, version).kafka
            parts = found["responses"][0]["partitions"][0] if found.get("responses") else {}
            stored = stored_batches(parts.get("records") or b"")
            if not stored:
                break
            start = stored[-1].next_offset


def records(count: int, text: str = "v") -> tuple[Record, ...]:
    """This many small records, all different."""
    return tuple(Record(f"{text}{one}".encode()) for one in range(count))
