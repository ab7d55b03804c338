"""Counts, in a log of `strace -f -y`, the calls that return only when the disk has the bytes.

Those are fsync and fdatasync, and writes to a file descriptor whose file was opened with O_DSYNC or O_SYNC.
Prints the number. strace names the file behind each descriptor (-y), so files are told apart by path.
"""

import re
import sys

OPENED = re.compile(r"open(?:at)?\(.*?\"([^\"]*)\", ([A-Z_|0-9x]+).*\) = \d+<([^>]*)>")
SYNCED = re.compile(r"(?:fsync|fdatasync)\(")
WRITTEN = re.compile(r"(?:write|writev|pwrite64|pwritev|pwritev2)\(\d+<([^>]*)>")


def main() -> None:
    """Reads the log named on the command line."""
    synchronous: set[str] = set()
    count = 0
    with open(sys.argv[1], encoding="utf-8", errors="replace") as log:
        for line in log:
            if " resumed>" in line:
                continue  # its beginning was counted
            if opened := OPENED.search(line):
                path = opened[3]
                if "SYNC" in opened[2]:
                    synchronous.add(path)
                else:
                    synchronous.discard(path)
            elif SYNCED.search(line):
                count += 1
            elif (written := WRITTEN.search(line)) and written[1] in synchronous:
                count += 1
    print(count)


if __name__ == "__main__":
    main()
