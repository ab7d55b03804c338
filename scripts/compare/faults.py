"""Every way to break a batch, by itself: on topics of each kind, packed and plain, with and without a producer.

Where one broker takes what the other refuses, the logs part ways; so each fault has a partition of its own, and what
follows it there is compared only while both agree.
"""

import itertools

from compare import broken
from compare.batches import Batch, Record
from compare.differences import error_codes
from compare.pair import Pair
from compare.steps import produce, same_log

KINDS: dict[str, dict[str, object]] = {
    "create time": {"max_message_bytes": 4000},
    "append time": {"message_timestamp_type": "LogAppendTime", "max_message_bytes": 4000},
    "compact": {"cleanup_policy": "compact", "min_compaction_lag_ms": 9 * 10**15, "max_message_bytes": 4000},
}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS = (Record(b"one", b"k"), Record(b"two", b"k", ((b"h", b"1"),), 5), Record(b"three", b"l", (), 9))


def tags_of(name: str) -> tuple[str, ...]:
    """A fault and its family, to which an entry of the differences may refer."""
    families = {"header": broken.HEADER, "payload": broken.PAYLOAD, "odd": broken.ODD}
    return (name, *(family for family, faults in families.items() if name in faults))


def one_fault(pair: Pair, name: str, kind: str) -> None:
    """A fault in all its forms, each in a partition of its own."""
    forms = list(itertools.product((CODECS[0], pair.random.choice(CODECS[1:])) if pair.is_quick else CODECS, (True, False)))
    topic = pair.create("fault", len(forms), **KINDS[kind])
    producer = pair.producer(f"producer of {topic}")
    stem, agreed = pair.step, True
    for partition, (codec, is_idempotent) in enumerate(forms):
        pair.step = f"{stem}, {codec}{', idempotent' if is_idempotent else ''}"
        good = Batch(RECORDS, timestamp=pair.past_ms, codec=codec)
        if is_idempotent:
            good = good.but(producer_id=producer, epoch=0, sequence=0)
        version = pair.random.randint(3, 13)
        both = produce(pair, topic, broken.ALL[name](pair, good), partition, version, tags=tags_of(name), seconds=3)
        if any(error_codes(both.kafka)) == any(error_codes(both.ours)):
            follow = good.but(sequence=3) if is_idempotent and not any(error_codes(both.kafka)) else good
            produce(pair, topic, follow, partition, version)
        else:
            agreed = False
    if agreed:
        pair.step = f"{stem} log"
        same_log(pair, topic, len(forms))


def run(pair: Pair, seed: int) -> None:
    """All faults on all kinds of topics; the quick form takes one kind for each fault."""
    pair.random.seed(f"faults {seed}")
    for at, name in enumerate(broken.ALL):
        kinds = [list(KINDS)[(at + seed) % len(KINDS)]] if pair.is_quick else list(KINDS)
        for kind in kinds:
            pair.part(f"fault {name}, {kind}", lambda _, name=name, kind=kind: one_fault(pair, name, kind))
