"""The few requests that a measurement of scale makes itself: topics made and removed, Metadata and DescribeConfigs of all."""

import socket
import struct
import time

METADATA, CREATE_TOPICS, DELETE_TOPICS, DESCRIBE_CONFIGS, ALTER_CONFIGS = 3, 19, 20, 32, 44
TOPIC_RESOURCE = 2


def text(value: str) -> bytes:
    """A string with its length in two bytes."""
    raw = value.encode()
    return struct.pack(">h", len(raw)) + raw


class Admin:
    """One connection; every call waits for its answer and raises on an error code that it looks at."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self.stream = socket.create_connection((host, int(port)), timeout=300)
        self.correlation = 0

    def close(self) -> None:
        """Ends the connection."""
        self.stream.close()

    def ask(self, key: int, version: int, body: bytes) -> bytes:
        """Sends one request with a header of version 1; the answer behind the correlation id."""
        self.correlation += 1
        frame = struct.pack(">hhih", key, version, self.correlation, -1) + body
        self.stream.sendall(struct.pack(">i", len(frame)) + frame)
        size = struct.unpack(">i", self.read(4))[0]
        answer = self.read(size)
        if struct.unpack_from(">i", answer)[0] != self.correlation:
            raise RuntimeError("another request was answered")
        return answer[4:]

    def read(self, count: int) -> bytes:
        """Exactly so many bytes."""
        parts = bytearray()
        while len(parts) < count:
            part = self.stream.recv(min(count - len(parts), 1 << 20))
            if not part:
                raise RuntimeError("the broker closed the connection")
            parts += part
        return bytes(parts)

    def create(self, names: list[str], partitions: int, configs: dict[str, str] | None = None) -> None:
        """One CreateTopics (v2) of all the names."""
        settings = b"".join(text(name) + text(value) for name, value in (configs or {}).items())
        tail = struct.pack(">ihi", partitions, 1, 0) + struct.pack(">i", len(configs or {})) + settings
        topics = b"".join(text(name) + tail for name in names)
        body = struct.pack(">i", len(names)) + topics + struct.pack(">ib", 300_000, 0)
        self.check_topics(self.ask(CREATE_TOPICS, 2, body), with_message=True)

    def delete(self, names: list[str]) -> None:
        """One DeleteTopics (v1) of all the names."""
        body = struct.pack(">i", len(names)) + b"".join(map(text, names)) + struct.pack(">i", 300_000)
        self.check_topics(self.ask(DELETE_TOPICS, 1, body), with_message=False)

    def alter_topic(self, name: str, configs: dict[str, str]) -> None:
        """One IncrementalAlterConfigs (v0) that sets these."""
        settings = b"".join(text(key) + b"\0" + text(value) for key, value in configs.items())
        resource = struct.pack(">b", TOPIC_RESOURCE) + text(name) + struct.pack(">i", len(configs)) + settings
        answer = self.ask(ALTER_CONFIGS, 0, struct.pack(">i", 1) + resource + b"\0")
        if error := struct.unpack_from(">h", answer, 8)[0]:
            raise RuntimeError(f"{name}: error {error}")

    @staticmethod
    def check_topics(answer: bytes, with_message: bool) -> None:
        """Throttle time, then name, error and perhaps a message of each topic."""
        at = 8
        for _ in range(struct.unpack_from(">i", answer, 4)[0]):
            length = struct.unpack_from(">h", answer, at)[0]
            name = answer[at + 2 : at + 2 + length].decode()
            at += 2 + length
            error = struct.unpack_from(">h", answer, at)[0]
            at += 2
            if with_message:
                at += 2 + max(0, struct.unpack_from(">h", answer, at)[0])
            if error:
                raise RuntimeError(f"{name}: error {error}")

    def metadata_of_all(self) -> tuple[float, int]:
        """Milliseconds and bytes of a Metadata (v4) of every topic."""
        return self.timed(METADATA, 4, struct.pack(">ib", -1, 0))

    def describe_topics(self, names: list[str]) -> tuple[float, int]:
        """Milliseconds and bytes of a DescribeConfigs (v1) of these topics, one setting of each."""
        one = struct.pack(">i", 1) + text("retention.ms")
        resources = b"".join(struct.pack(">b", TOPIC_RESOURCE) + text(name) + one for name in names)
        return self.timed(DESCRIBE_CONFIGS, 1, struct.pack(">i", len(names)) + resources + b"\0")

    def timed(self, key: int, version: int, body: bytes) -> tuple[float, int]:
        """How long a request took, and how much came back."""
        began = time.monotonic()
        answer = self.ask(key, version, body)
        return (time.monotonic() - began) * 1000, len(answer)
