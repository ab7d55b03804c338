"""Asks a Kafka-compatible broker for Metadata until it answers with at least one broker in it.

metadata.py wait HOST:PORT [--seconds S] [--process PID]
    Exit status 0 at the first such answer, 1 after S seconds or when the process is gone.
metadata.py start HOST:PORT PID_FILE LOG_FILE COMMAND...
    Starts the command, prints the milliseconds from just before its start to the first such answer, notes its
    process id in PID_FILE and leaves it running.
"""

import argparse
import os
import socket
import struct
import subprocess
import sys
import time

METADATA_KEY = 3
VERSION = 1


def request() -> bytes:
    """Metadata v1 for no topic at all, without a client id."""
    body = struct.pack(">hhih", METADATA_KEY, VERSION, 1, -1) + struct.pack(">i", 0)
    return struct.pack(">i", len(body)) + body


def brokers_named(address: tuple[str, int]) -> int:
    """How many brokers the answer names; 0 when there is no answer."""
    try:
        with socket.create_connection(address, timeout=2) as stream:
            if stream.getsockname() == stream.getpeername():
                return 0  # nobody listens, and the kernel connected the socket to itself
            stream.sendall(request())
            answer = b""
            while len(answer) < 12:
                part = stream.recv(4096)
                if not part:
                    return 0
                answer += part
            return struct.unpack_from(">i", answer, 8)[0]
    except OSError:
        return 0


def alive(process: int | None) -> bool:
    """True unless the process is gone or a zombie."""
    if process is None:
        return True
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait(address: tuple[str, int], seconds: float, process: int | None, pause: float) -> bool:
    """Asks again and again; false when the time is over or the process gone."""
    deadline = time.monotonic() + seconds
    while brokers_named(address) < 1:
        if time.monotonic() > deadline or not alive(process):
            return False
        time.sleep(pause)
    return True


def start(address: tuple[str, int], pid_file: str, log_file: str, command: list[str]) -> int:
    """Runs `start` of the file's head."""
    with open(log_file, "ab") as log:
        began = time.monotonic()
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        with open(pid_file, "w", encoding="utf-8") as note:
            note.write(f"{child.pid}\n")
        answered = wait(address, 90, child.pid, 0.001)
        took = time.monotonic() - began
    if not answered:
        if child.poll() is None:
            child.kill()
        print(f"no answer from {command[0]}, see {log_file}", file=sys.stderr)
        return 1
    print(f"{took * 1000:.1f}")
    sys.stdout.flush()
    os._exit(0)  # without waiting for the child, which goes on


def parse() -> argparse.Namespace:
    """Reads the arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ways = parser.add_subparsers(dest="what", required=True)
    one = ways.add_parser("wait")
    one.add_argument("address")
    one.add_argument("--seconds", type=float, default=60)
    one.add_argument("--process", type=int)
    other = ways.add_parser("start")
    for name in ("address", "pid_file", "log_file"):
        other.add_argument(name)
    other.add_argument("command", nargs=argparse.REMAINDER)
    return parser.parse_args()


def main() -> int:
    """Chooses between the two ways."""
    arguments = parse()
    host, port = arguments.address.rsplit(":", 1)
    address = (host, int(port))
    if arguments.what == "start":
        return start(address, arguments.pid_file, arguments.log_file, arguments.command)
    return 0 if wait(address, arguments.seconds, arguments.process, 0.02) else 1


if __name__ == "__main__":
    sys.exit(main())
