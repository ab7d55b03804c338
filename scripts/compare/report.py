"""What a run found, for people, and the page that lists every difference that is meant."""

import argparse
import sys
from pathlib import Path

from compare.differences import DIFFERENCES, shown
from compare.pair import Pair


def summary(pair: Pair, arguments: argparse.Namespace) -> int:
    """Prints the entries that occurred and those that did not, and the parts with other differences."""
    print(f"\n{pair.requests} requests to each broker. Differences that are meant:")
    for one in DIFFERENCES:
        if pair.expected[one.id]:
            print(f"  {one.id:4} {pair.expected[one.id]:6} times  {one.ours} (Kafka: {one.kafka}). {one.why}")
    ran = "all" if "all" in arguments.parts else arguments.parts
    absent = [one.id for one in DIFFERENCES if not pair.expected[one.id] and (ran == "all" or set(one.parts.split()) <= set(ran))]
    if absent:
        print(f"Entries that did not occur: {', '.join(absent)}")
    for one in pair.skipped:
        print(f"skipped  {one}")
    for line in kinds(pair):
        print(line)
    if pair.unexpected:
        print(f"{len(pair.unexpected)} differences are NOT meant, in: {', '.join(dict.fromkeys(pair.parts_failed))}")
        return 1
    print("Everything else is the same.")
    return 0


def kinds(pair: Pair) -> list[str]:
    """The differences that are not meant, each kind once with the number of times and the first step."""
    seen: dict[tuple, list[str]] = {}
    for one in pair.unexpected:
        tags = f" ({', '.join(sorted(one.tags))})" if one.tags else ""
        kind = (one.place, shown(one.kafka, 100), shown(one.ours, 100), tags)
        seen.setdefault(kind, []).append(f"{one.step} v{one.version}")
    return [
        f"  {len(steps):5} times {place}{tags}: Kafka {kafka}, corelane {ours}; first in {steps[0]}"
        for (place, kafka, ours, tags), steps in seen.items()
    ]


def page(path: Path, is_check: bool) -> int:
    """Prints the page, or compares it with the file."""
    lines = [
        "# Where corelane answers otherwise than Apache Kafka 4.4.0",
        "",
        "Written by `scripts/compare-with-kafka differences` from the table that the comparison uses, so that it lists",
        "every difference that the comparison knows and no other. Anything else that differs fails the comparison.",
        "",
        "| id | where | corelane | Kafka | why |",
        "|---|---|---|---|---|",
    ]
    for one in DIFFERENCES:
        cells = (one.id, f"`{one.shown_place}`", one.ours, one.kafka, one.why)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    text = "\n".join(lines) + "\n"
    if not is_check:
        sys.stdout.write(text)
        return 0
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return 0
    print(f"{path} is not what the table says: write it anew with scripts/compare-with-kafka differences", file=sys.stderr)
    return 1
