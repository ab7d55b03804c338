"""Kafka's protocol, driven by messages.txt: any served key in any version, requests written and answers read whole.

Shares no code with corelane or with a client library, so that a fault in one of those cannot hide here. Nothing is
checked on the way out: a request may be wrong on purpose (null where null is not allowed, negative numbers).
"""

import re
import struct
import uuid
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

NUMBERS = {"i8": ">b", "i16": ">h", "i32": ">i", "i64": ">q"}
EMPTY = {"bool": False, "uuid": uuid.UUID(int=0), "str": "", "bytes": b""}
API_VERSIONS = 18


class WireError(Exception):
    """Bytes of an answer that are not what messages.txt says."""


@dataclass
class Field:
    """One field of a message: `type` is a primitive's name or the list of a structure's fields."""

    name: str
    type: "str | list[Field]"
    is_array: bool = False
    nullable: range | None = None
    tag: int | None = None
    versions: range = range(0, 100)
    default: object = None

    def empty(self) -> object:
        """What stands for the field when it is left out."""
        if self.default is not None:
            return None if self.default == "null" else self.default
        if self.is_array:
            return []
        if isinstance(self.type, list):
            return {one.name: one.empty() for one in self.type}
        return EMPTY.get(self.type, 0)


@dataclass
class Message:
    """A key of the protocol with its two forms."""

    key: int
    name: str
    versions: range
    flexible_from: int
    request: list[Field] = field(default_factory=list)
    answer: list[Field] = field(default_factory=list)

    def is_flexible(self, version: int) -> bool:
        """True where lengths are compact and structures end in tagged fields."""
        return version >= self.flexible_from

    def nearest(self, version: int) -> int:
        """The closest version that is described."""
        return min(max(version, self.versions[0]), self.versions[-1])


# --- the description ------------------------------------------------------------------------------------------------

HEAD = re.compile(r"(\d+) (\w+) (\d+)-(\d+)(?: flexible (\d+))?$")
SUFFIX = r"(?:(\?)([\d+-]*))?(?:#(\d+))?(?:@([\d+-]+))?(?:=(\S+))?$"
WHOLE = re.compile(r"(\w+):(\[)?(\w+)\]?" + SUFFIX)
CLOSED = re.compile(r"([\]}])" + SUFFIX)


def versions_of(text: str | None) -> range:
    """`3`, `3-12`, `9+`, or nothing for all."""
    if not text:
        return range(0, 100)
    if text.endswith("+"):
        return range(int(text[:-1]), 100)
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def suffixed(made: Field, found: tuple) -> Field:
    """Gives a field what follows its type."""
    may_be_null, null_versions, tag, versions, default = found
    made.nullable = versions_of(null_versions) if may_be_null else None
    made.tag = int(tag) if tag else None
    made.versions = versions_of(versions)
    if default is not None:
        made.default = {"true": True, "null": "null"}.get(default) or int(default)
    return made


def fields_of(tokens: list[str]) -> list[Field]:
    """Reads fields up to the end or to the bracket that closes them, which stays in `tokens`."""
    found = []
    while tokens and tokens[0][0] not in "]}":
        token = tokens.pop(0)
        if token.endswith((":[", ":{")):
            inner = fields_of(tokens)
            suffix = CLOSED.match(tokens.pop(0))
            made = Field(token[:-2], inner, is_array=token[-1] == "[")
            found.append(suffixed(made, suffix.groups()[1:]))
        else:
            one = WHOLE.match(token)
            if one is None:
                raise WireError(f"messages.txt: {token!r} is not a field")
            found.append(suffixed(Field(one[1], one[3], is_array=bool(one[2])), one.groups()[3:]))
    return found


@cache
def messages() -> dict[str, Message]:
    """Every described message by its name."""
    text = (Path(__file__).parent / "messages.txt").read_text(encoding="utf-8")
    found = {}
    for paragraph in re.sub(r"(?m)^#.*\n", "", text).strip().split("\n\n"):
        head, _, body = paragraph.partition("\n")
        key, name, first, last, flexible = HEAD.match(head).groups()
        request, answer = re.match(r"\s*>(.*?)\n\s*<(.*)$", "\n" + body, re.S).groups()
        message = Message(int(key), name, range(int(first), int(last) + 1), int(flexible or 100))
        message.request, message.answer = fields_of(request.split()), fields_of(answer.split())
        found[name] = message
    return found


@cache
def by_key() -> dict[int, Message]:
    """The same by key."""
    return {message.key: message for message in messages().values()}


# --- writing --------------------------------------------------------------------------------------------------------


def varint(number: int) -> bytes:
    """Unsigned, seven bits a byte, the low ones first."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


class Writer:
    """Writes one request body."""

    def __init__(self, version: int, is_flexible: bool) -> None:
        self.version, self.is_flexible = version, is_flexible

    def structure(self, fields: list[Field], values: dict) -> bytes:
        """The fields of this version, then the tagged ones; a name that is not described is a mistake of the caller."""
        unknown = set(values) - {one.name for one in fields}
        if unknown:
            raise KeyError(f"no field {sorted(unknown)} among {[one.name for one in fields]}")
        out, tagged = bytearray(), {}
        for one in fields:
            if self.version not in one.versions:
                continue
            value = values.get(one.name, one.empty())
            if one.tag is None:
                out += self.value(one, value)
            elif value != one.empty():
                tagged[one.tag] = self.value(one, value)
        if self.is_flexible:
            out += varint(len(tagged))
            for tag, body in sorted(tagged.items()):
                out += varint(tag) + varint(len(body)) + body
        return bytes(out)

    def value(self, one: Field, value: object) -> bytes:
        """A field's value."""
        if one.is_array:
            items = b"".join(self.single(one.type, item) for item in value or ())
            return self.length(value, ">i") + items
        if isinstance(one.type, list) and one.nullable is not None:
            return b"\xff" if value is None else b"\x01" + self.structure(one.type, value)
        return self.single(one.type, value)

    def single(self, kind: str | list[Field], value: object) -> bytes:
        """A value that is no array."""
        if isinstance(kind, list):
            return self.structure(kind, value)
        if kind in NUMBERS:
            return struct.pack(NUMBERS[kind], value)
        if kind == "bool":
            return b"\x01" if value else b"\x00"
        if kind == "uuid":
            return value.bytes
        if isinstance(value, str):
            value = value.encode()
        return self.length(value, ">h" if kind == "str" else ">i") + (value or b"")

    def length(self, value: object, form: str) -> bytes:
        """How many follow; null has a mark of its own."""
        if self.is_flexible:
            return varint(0 if value is None else len(value) + 1)
        return struct.pack(form, -1 if value is None else len(value))


def request_frame(message: Message, version: int, correlation_id: int, client_id: str, values: dict) -> bytes:
    """A whole request with its length in front. A version that is not described gets the body of the nearest one."""
    written = message.nearest(version)
    head = struct.pack(">hhi", message.key, version, correlation_id) + struct.pack(">h", len(client_id)) + client_id.encode()
    if message.is_flexible(version):
        head += b"\x00"
    body = Writer(written, message.is_flexible(written)).structure(message.request, values)
    return struct.pack(">i", len(head) + len(body)) + head + body


# --- reading --------------------------------------------------------------------------------------------------------


class Reader:
    """Takes values from bytes."""

    def __init__(self, data: bytes, version: int = 0, is_flexible: bool = False) -> None:
        self.data, self.position = data, 0
        self.version, self.is_flexible = version, is_flexible

    def take(self, count: int) -> bytes:
        """The next bytes."""
        end = self.position + count
        if count < 0 or end > len(self.data):
            raise WireError(f"{count} bytes wanted at {self.position} of {len(self.data)}")
        taken = self.data[self.position : end]
        self.position = end
        return taken

    def number(self, form: str) -> int:
        """A number of fixed size."""
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def varint(self) -> int:
        """The inverse of `varint`."""
        number = shift = 0
        while True:
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number

    def signed(self) -> int:
        """A zigzag number, as records use it."""
        number = self.varint()
        return number >> 1 ^ -(number & 1)

    def structure(self, fields: list[Field]) -> dict:
        """All fields; those that are not in this version are left out, tagged ones that did not come are empty."""
        found, tagged = {}, {}
        for one in fields:
            if self.version not in one.versions:
                continue
            if one.tag is None:
                found[one.name] = self.value(one)
            else:
                tagged[one.tag] = one
                found[one.name] = one.empty()
        if self.is_flexible:
            self.tags(found, tagged)
        return found

    def tags(self, found: dict, tagged: dict[int, Field]) -> None:
        """The tagged fields; one that is not described is kept by its number, so that it is compared."""
        for _ in range(self.varint()):
            tag = self.varint()
            inner = Reader(self.take(self.varint()), self.version, self.is_flexible)
            if tag in tagged:
                found[tagged[tag].name] = inner.value(tagged[tag])
            else:
                found[f"tag {tag}"] = inner.data

    def value(self, one: Field) -> object:
        """A field's value."""
        if one.is_array:
            count = self.length(">i")
            return None if count is None else [self.single(one.type) for _ in range(count)]
        if isinstance(one.type, list) and one.nullable is not None and self.number(">b") < 0:
            return None
        return self.single(one.type)

    def single(self, kind: str | list[Field]) -> object:
        """A value that is no array."""
        if isinstance(kind, list):
            return self.structure(kind)
        if kind in NUMBERS:
            return self.number(NUMBERS[kind])
        if kind == "bool":
            return self.take(1) != b"\x00"
        if kind == "uuid":
            return uuid.UUID(bytes=self.take(16))
        count = self.length(">h" if kind == "str" else ">i")
        taken = None if count is None else self.take(count)
        return taken.decode() if kind == "str" and taken is not None else taken

    def length(self, form: str) -> int | None:
        """How many follow, none for null."""
        count = self.varint() - 1 if self.is_flexible else self.number(form)
        return None if count < 0 else count


def read_answer(message: Message, version: int, frame: bytes) -> tuple[int, dict]:
    """Correlation id and fields of an answer; bytes left over are an error."""
    if message.key == API_VERSIONS and frame[4:6] == struct.pack(">h", 35):
        version = 0  # the one answer that every client can read
    version = message.nearest(version)
    reader = Reader(frame, version, message.is_flexible(version))
    correlation_id = reader.number(">i")
    # ApiVersions answers with the old header: a client cannot know yet which one the broker would use.
    if reader.is_flexible and message.key != API_VERSIONS:
        reader.tags({}, {})
    fields = reader.structure(message.answer)
    if reader.position != len(frame):
        raise WireError(f"{message.name} v{version}: {len(frame) - reader.position} bytes are left over")
    return correlation_id, fields
