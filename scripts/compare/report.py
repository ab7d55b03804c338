"""What a run found, for people, and the page that lists every difference that is meant."""

import argparse
import sys
from pathlib import Path

from compare.differences import DIFFERENCES, Difference, shown
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
    """The differences that are not meant, each place once, with the number of times and the first of them."""
    seen: dict[tuple, list[Difference]] = {}
    for one in pair.unexpected:
        seen.setdefault((one.place, one.tags), []).append(one)
    return [
        f"  {len(found):5} times {place}{f' ({chr(44).join(sorted(tags))})' if tags else ''}: Kafka {shown(found[0].kafka, 100)}, "
        f"corelane {shown(found[0].ours, 100)}; first in {found[0].step} v{found[0].version}"
        for (place, tags), found in seen.items()
    ]


def page(path: Path, is_check: bool) -> int:
    """Prints the page, or compares it with the file."""
    lines = [
        "# Where corelane answers otherwise than Apache Kafka 4.4.0",
        "",
        "Written by `scripts/compare-with-kafka differences` from the table that the comparison uses, so that it lists",
        "every difference that the comparison knows and no other. Anything else that differs fails the comparison.",
        "[RULE] marks a decision of the reference of semantics (eos-semantics) that the tests `eos_…` follow.",
        "",
        "| id | where | corelane | Kafka | why |",
        "|---|---|---|---|---|",
    ]
    for one in DIFFERENCES:
        cells = (one.id, one.shown_place, one.ours, one.kafka, one.why)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    text = "\n".join(lines) + "\n"
    if not is_check:
        sys.stdout.write(text)
        return 0
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return 0
    print(f"{path} is not what the table says: write it anew with scripts/compare-with-kafka differences", file=sys.stderr)
    return 1
