"""The brokers of a comparison: each is started on an empty folder, asked, measured and stopped by its process id."""

import contextlib
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent.parent
TICK = os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    """The first of two free neighbouring loopback ports (Kafka's controller takes the second)."""
    for _ in range(200):
        port = random.randrange(20000, 30000)
        with contextlib.suppress(OSError), socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", port))
            other.bind(("127.0.0.1", port + 1))
            return port
    raise SystemExit("no free port between 20000 and 30000")


def run(*words: object, check: bool = True, env: dict | None = None) -> str:
    """Runs a command to its end and gives its standard output; its errors are shown only when it fails."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, env=env, check=False)
    if check and done.returncode:
        raise RuntimeError(f"{words[0]} {words[1]} ended with {done.returncode}: {(done.stdout + done.stderr)[-600:]}")
    return done.stdout


def tool(name: str, *words: object) -> str:
    """One of Kafka's own tools."""
    return run(SCRIPTS / "kafka", "tool", name, *words)


class Broker:
    """A broker with a name, a data folder, and while it runs a process and an address."""

    def __init__(self, name: str, data: Path) -> None:
        self.name, self.data = name, data
        self.pid, self.address, self.start_ms = 0, "", 0.0
        self.keeps_port = False

    def port(self) -> int:
        """A free port, or at a restart the one it had where `keeps_port` says so."""
        return int(self.address.rsplit(":", 1)[1]) if self.keeps_port and self.address else free_port()

    def kill(self) -> None:
        """Ends it as a crash would; its sockets live until its last thread is gone."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        host, port = self.address.rsplit(":", 1)
        while alive(self.pid) or accepts(host, int(port)):
            time.sleep(0.01)

    def start(self) -> None:
        """Starts it; `start_ms` is the time to the first answered Metadata."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stops it cleanly; does nothing when it does not run."""
        raise NotImplementedError

    def version(self) -> str:
        """What it calls itself."""
        raise NotImplementedError

    def forget(self) -> None:
        """Removes its data."""
        shutil.rmtree(self.data, ignore_errors=True)

    def cpu_seconds(self) -> float:
        """User and system time of the process so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def memory_mb(self, field: str) -> float:
        """VmRSS or VmHWM in megabytes."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) / 1000
        return 0.0


class Corelane(Broker):
    """corelane with the settings of the comparison."""

    def __init__(self, name: str, data: Path, binary: str, settings: list[str]) -> None:
        super().__init__(name, data)
        self.binary, self.settings = binary, settings
        self.note = data.with_suffix(".pid")
        self.patience_seconds = 20

    def start(self) -> None:
        self.address = f"127.0.0.1:{self.port()}"
        self.data.mkdir(parents=True, exist_ok=True)
        log = self.data.with_suffix(".log")
        command = [self.binary, "serve", "--listen", self.address, "--data-dir", self.data]
        for setting in self.settings:
            command += ["--set", setting]
        self.start_ms = float(run(sys.executable, SCRIPTS / "lib/metadata.py", "start", self.address, self.note, log, *command))
        self.pid = int(self.note.read_text())

    def stop(self) -> None:
        if self.note.exists():
            end(int(self.note.read_text()), self.patience_seconds)
            self.note.unlink()

    def version(self) -> str:
        return run(self.binary, "--version").strip()


class Kafka(Broker):
    """Apache Kafka through scripts/kafka."""

    def __init__(self, name: str, data: Path, options: list[str]) -> None:
        super().__init__(name, data)
        self.options = options

    def start(self) -> None:
        port = self.port()
        said = run(SCRIPTS / "kafka", "start", "--port", port, "--data", self.data, *self.options)
        self.start_ms = float(said.split(" after ")[1].split(" ms")[0])
        self.address = f"127.0.0.1:{port}"
        self.pid = int((self.data / "kafka.pid").read_text())

    def stop(self) -> None:
        run(SCRIPTS / "kafka", "stop", "--data", self.data)

    def version(self) -> str:
        return "Apache Kafka 4.4.0 " + " ".join(self.options)


def end(pid: int, seconds: float = 20) -> None:
    """SIGTERM, and SIGKILL when that does not help in time."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + seconds
    while alive(pid):
        if time.monotonic() > deadline:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            raise RuntimeError(f"process {pid} did not stop within {seconds} s and was killed")
        time.sleep(0.02)


def alive(pid: int) -> bool:
    """True unless the process is gone or a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def accepts(host: str, port: int) -> bool:
    """Whether somebody listens there."""
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0 and probe.getsockname() != probe.getpeername()


class Load:
    """What the machine, the broker and our own children did between two moments."""

    def __init__(self, broker: Broker | None, device: Path | None) -> None:
        self.broker, self.device = broker, device
        self.before = self.read()

    def read(self) -> tuple[float, float, float, float, int]:
        """Wall time, busy time of all cores, the broker's, our children's, flushes of the device."""
        fields = [int(x) for x in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
        busy = sum(fields[:3] + fields[5:8]) / TICK
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        broker = self.broker.cpu_seconds() if self.broker else 0.0
        flushes = int((self.device / "stat").read_text().split()[15]) if self.device else 0
        return time.monotonic(), busy, broker, children.ru_utime + children.ru_stime, flushes

    def figures(self) -> dict:
        """The differences since the beginning."""
        wall, busy, broker, client, flushes = (now - then for now, then in zip(self.read(), self.before, strict=True))
        return {
            "wall_s": round(wall, 1),
            "broker_cpu_s": round(broker, 3),
            "client_cpu_s": round(client, 2),
            "others_cores": round(max(0.0, busy - broker - client) / wall, 2),
            "flushes": flushes,
        }


def device_of(folder: Path) -> Path | None:
    """The folder in /sys of the disk that holds `folder`; none where there is no block device."""
    status = folder.stat()
    found = Path(f"/sys/dev/block/{os.major(status.st_dev)}:{os.minor(status.st_dev)}")
    if not found.exists():
        return None
    found = found.resolve()
    return found.parent if (found / "partition").exists() else found
