"""Walks the segments named on the command line from batch to batch, by their lengths alone.

Prints a line for each that has a byte behind its last whole batch, that does not begin at the offset of its name or
whose offsets go back. Files that are not segments are passed over. Exit status 1 if a line was printed.
"""

import os
import struct
import sys

HEADER_BYTES = 61


def faults(path: str) -> list[str]:
    """What is wrong with one segment."""
    with open(path, "rb") as file:
        content = file.read()
    position, next_offset, found = 0, int(os.path.basename(path).split(".")[0]), []
    while len(content) - position >= HEADER_BYTES:
        base_offset, length = struct.unpack_from(">qi", content, position)
        (last_delta,) = struct.unpack_from(">i", content, position + 23)
        end = position + 12 + length
        if length < HEADER_BYTES - 12 or end > len(content):
            break
        if base_offset < next_offset:
            found.append(f"{path}: offset {base_offset} at {position}, {next_offset} was next")
        next_offset = base_offset + last_delta + 1
        position = end
    if position != len(content):
        found.append(f"{path}: {len(content) - position} bytes behind the last batch")
    return found


def main() -> int:
    """All files."""
    found = [fault for path in sys.argv[1:] if path.endswith(".log") for fault in faults(path)]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
