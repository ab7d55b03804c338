"""One of the two brokers: its connections, and its answers with what may differ between any two brokers put aside.

Put aside (normalised): producer ids, member ids and session ids become their order of appearance; topic ids the name of
their topic; the node's id, host, port and cluster id the words for them; throttle times 0; times close to now `now`;
messages for people only whether there is one; stored batches lose their leader epoch, and their checksum becomes
whether it fits; markers lose the epoch of their coordinator.
"""

import re
import socket
import struct
import time
import uuid
from collections import deque
from dataclasses import asdict, replace

from compare.batches import CONTROL, LOG_APPEND_TIME, Batch, stored_batches
from compare.wire import Message, WireError, messages, read_answer, request_frame

NEAR_MS = 3_600_000
CLOSED = {"outcome": "connection closed"}
SILENT = {"outcome": "no answer"}


def now_ms() -> int:
    """Milliseconds since 1970."""
    return int(time.time() * 1000)


class Given:
    """In a request: a value that each side gave out itself, kept under a name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<{self.name}>"


class Line:
    """A connection on which requests are written and answers awaited in order."""

    def __init__(self, address: str, client_id: str) -> None:
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=20)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.client_id, self.sent = client_id, 0
        self.pending: deque[tuple[int, Message, int]] = deque()
        self.held = b""

    def send(self, message: Message, version: int, values: dict, is_answered: bool = True) -> None:
        """Writes one request; a broken connection shows when its answer is read."""
        self.sent += 1
        frame = request_frame(message, version, self.sent, self.client_id, values)
        if is_answered:
            self.pending.append((self.sent, message, version))
        try:
            self.socket.sendall(frame)
        except OSError:
            pass

    def take(self, count: int) -> bytes:
        """The next bytes; fewer when the connection ends."""
        while len(self.held) < count:
            part = self.socket.recv(1 << 20)
            if not part:
                return b""
            self.held += part
        taken, self.held = self.held[:count], self.held[count:]
        return taken

    def receive(self, seconds: float) -> dict:
        """The answer to the oldest request, or how the connection ended."""
        wanted, message, version = self.pending.popleft()
        self.socket.settimeout(seconds)
        try:
            head = self.take(4)
            frame = self.take(struct.unpack(">i", head)[0]) if head else b""
        except TimeoutError:
            return dict(SILENT)
        except OSError:
            return dict(CLOSED)
        if not frame:
            return dict(CLOSED)
        try:
            found, answer = read_answer(message, version, frame)
        except (WireError, struct.error, UnicodeDecodeError) as error:
            return {"outcome": f"not readable: {error}", "frame": frame.hex()}
        return answer if found == wanted else {"outcome": f"correlation id {found - wanted:+} off"}

    def close(self) -> None:
        """Ends it."""
        self.socket.close()


class Side:
    """A broker of the comparison."""

    def __init__(self, name: str, address: str) -> None:
        self.name, self.address = name, address
        self.host, port = address.rsplit(":", 1)
        self.port = int(port)
        self.lines: dict[str, Line] = {}
        self.given: dict[str, object] = {}
        self.seen: dict[str, dict] = {}
        self.topics: dict[uuid.UUID, str] = {}
        self.node, self.cluster = -2, ""
        about = self.call("Metadata", 2, {"topics": []})
        self.node, self.cluster = about["brokers"][0]["node_id"], about["cluster_id"]
        self.given["node"], self.given["node name"] = self.node, str(self.node)
        self.given["cluster"] = self.cluster
        self.given["unknown id"] = uuid.UUID("11111111-2222-3333-4444-555555555555")

    # --- asking ---

    def line(self, name: str) -> Line:
        """The connection of this name, opened when it is first used."""
        if name not in self.lines:
            self.lines[name] = Line(self.address, "compare")
        return self.lines[name]

    def send(self, api: str, version: int, body: dict, line: str = "main", is_answered: bool = True) -> None:
        """Writes a request whose Given values and batches are put in for this side."""
        self.line(line).send(messages()[api], version, self.resolve(body), is_answered)

    def receive(self, line: str = "main", seconds: float = 20) -> dict:
        """The next answer; a connection that ended is opened anew at the next use."""
        answer = self.line(line).receive(seconds)
        if "outcome" in answer:
            self.hang_up(line)
        return answer

    def call(self, api: str, version: int, body: dict, line: str = "main") -> dict:
        """Both."""
        self.send(api, version, body, line)
        return self.receive(line)

    def hang_up(self, line: str) -> None:
        """Closes a connection."""
        if line in self.lines:
            self.lines.pop(line).close()

    def resolve(self, value: object) -> object:
        """A request's value for this side: what was given out, batches as bytes, a tuple's parts joined."""
        if isinstance(value, dict):
            return {name: self.resolve(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [self.resolve(inner) for inner in value]
        if isinstance(value, tuple):
            return b"".join(self.resolve(inner) for inner in value)
        if isinstance(value, Given):
            return self.given[value.name]
        if isinstance(value, Batch):
            return replace(value, producer_id=self.resolve(value.producer_id), epoch=self.resolve(value.epoch)).encode()
        return value

    # --- normalising ---

    def normal(self, api: str, answer: dict) -> dict:
        """An answer without what may differ between two brokers."""
        self.learn(answer)
        if api == "JoinGroup" and answer.get("member_id"):
            self.member("member_id", answer["member_id"])
        return self.without_own("", answer)

    def learn(self, value: object) -> None:
        """Notes which topic an id belongs to, wherever an answer says both."""
        if isinstance(value, list):
            for inner in value:
                self.learn(inner)
        elif isinstance(value, dict):
            name = value.get("name") or value.get("topic")
            if name and value.get("topic_id", uuid.UUID(int=0)).int:
                self.topics[value["topic_id"]] = name
            for inner in value.values():
                self.learn(inner)

    def without_own(self, name: str, value: object) -> object:
        """The normal form of a field's value."""
        if isinstance(value, dict):
            return {inner: self.without_own(inner, one) for inner, one in value.items()}
        if name == "records":
            return None if value is None else [self.batch(stored) for stored in stored_batches(value)]
        if isinstance(value, list):
            return [self.without_own(name, one) for one in value]
        rule = NORMAL.get(name)
        return rule(self, name, value) if rule else value

    def batch(self, stored: object) -> dict:
        """A stored batch."""
        fields = asdict(stored)
        del fields["leader_epoch"]
        fields["producer_id"] = self.appearance("producer_id", stored.producer_id)
        if stored.attributes & CONTROL:
            # Written by the broker itself: when, and by which start of its coordinator.
            fields["base_timestamp"] = fields["max_timestamp"] = self.time("", stored.max_timestamp)
            fields["payload"] = stored.payload[:-5] + b"epoch" + stored.payload[-1:]
        if stored.attributes & LOG_APPEND_TIME:
            fields["max_timestamp"] = self.time("", stored.max_timestamp)
        return fields

    def appearance(self, name: str, value: int) -> object:
        """The how many-th different value of this field it is; nothing given out is negative or 0 for sessions."""
        if value < 0 or (name == "session_id" and value == 0):
            return value
        known = self.seen.setdefault(name, {})
        return f"{name} {known.setdefault(value, len(known))}"

    def member(self, _name: str, value: str) -> str:
        """A member's id: what stands in front of its random part, and its order of appearance."""
        if not value:
            return value
        known = self.seen.setdefault("member_id", {})
        front = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", "", value)
        return value if front == value else f"{front}{known.setdefault(value, len(known))}"

    def topic_id(self, _name: str, value: uuid.UUID) -> str:
        """By the topic's name where an answer said it."""
        return f"id of {self.topics[value]}" if value in self.topics else str(value)

    def own(self, name: str, value: object) -> object:
        """A word for what is this broker's own."""
        own = {"host": self.host, "port": self.port, "cluster_id": self.cluster}.get(name, self.node)
        return f"own {name}" if value == own else value

    def resource(self, _name: str, value: str) -> str:
        """The name of a resource, which may be the node's id."""
        return "own node" if value == str(self.node) else value

    def time(self, _name: str, value: int) -> object:
        """Times that the broker took from its clock."""
        return "now" if abs(value - now_ms()) < NEAR_MS else value

    def text(self, _name: str, value: str | None) -> str | None:
        """Words for people are each broker's own."""
        return None if value is None else "words"

    def positive(self, name: str, value: int) -> object:
        """Sizes of the disk and counters of which only the sign is comparable."""
        return f"some {name}" if value > 0 else value

    def leader_epoch(self, _name: str, value: int) -> object:
        """Each broker counts its own starts; that there is none is told apart."""
        return value if value < 0 else "own epoch"

    def nothing(self, _name: str, _value: object) -> int:
        """What is not compared."""
        return 0


NORMAL = {
    "producer_id": Side.appearance,
    "session_id": Side.appearance,
    "member_id": Side.member,
    "leader": Side.member,
    "topic_id": Side.topic_id,
    "cluster_id": Side.own,
    "host": Side.own,
    "port": Side.own,
    "node_id": Side.own,
    "broker_id": Side.own,
    "leader_id": Side.own,
    "controller_id": Side.own,
    "leader_epoch": Side.leader_epoch,
    "committed_leader_epoch": Side.leader_epoch,
    "replica_nodes": Side.own,
    "isr_nodes": Side.own,
    "resource_name": Side.resource,
    "timestamp": Side.time,
    "log_append_time_ms": Side.time,
    "error_message": Side.text,
    "batch_index_error_message": Side.text,
    "documentation": Side.text,
    "log_dir": Side.text,
    "total_bytes": Side.positive,
    "usable_bytes": Side.positive,
    "finalized_features_epoch": Side.positive,
    "coordinator_epoch": Side.leader_epoch,
    "transaction_start_time_ms": Side.time,
    "last_timestamp": Side.time,
    "throttle_time_ms": Side.nothing,
}
