"""Counts, in a log of `strace -f -y`, the calls that return only when the disk has the bytes.

synchronous_calls.py LOG PID

Those are fsync and fdatasync, and writes to a file that was opened with O_DSYNC or O_SYNC. Prints the number.
strace names the file behind each descriptor (-y); descriptor and path together tell the openings apart. Files that were opened through an
io_uring are not in the log: the kernel is asked which of the living process's descriptors are synchronous.
"""

import os
import re
import sys
from pathlib import Path

OPENED = re.compile(r"open(?:at)?\(.*?\"[^\"]*\", ([A-Z_|0-9x]+).*\) = (\d+<[^>]*>)")
SYNCED = re.compile(r"(?:fsync|fdatasync)\(")
WRITTEN = re.compile(r"(?:write|writev|pwrite64|pwritev|pwritev2)\((\d+<[^>]*>)")


def synchronous_files(pid: int) -> set[str]:
    """The process's open files as strace writes them that have O_DSYNC (a part of O_SYNC) among their flags."""
    found = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            lines = Path(f"/proc/{pid}/fdinfo/{descriptor.name}").read_text(encoding="utf-8").splitlines()
            flags = next(int(line.split()[1], 8) for line in lines if line.startswith("flags:"))
            if flags & os.O_DSYNC:
                found.add(f"{descriptor.name}<{os.readlink(descriptor)}>")
        except OSError:
            continue  # closed meanwhile
    return found


def main() -> None:
    """Reads the log named on the command line."""
    synchronous = synchronous_files(int(sys.argv[2]))
    count = 0
    with open(sys.argv[1], encoding="utf-8", errors="replace") as log:
        for line in log:
            if " resumed>" in line:
                continue  # its beginning was counted
            if opened := OPENED.search(line):
                if "SYNC" in opened[1]:
                    synchronous.add(opened[2])
                else:
                    synchronous.discard(opened[2])
            elif SYNCED.search(line):
                count += 1
            elif (written := WRITTEN.search(line)) and written[1] in synchronous:
                count += 1
    print(count)


if __name__ == "__main__":
    main()
