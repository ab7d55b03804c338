"""Wrong requests, derived from a right one by what messages.txt says of each field.

Each field of the request is bent by itself: null where null is not allowed, empty, unknown, too long, negative, as large
as can be, twice.
"""

import copy
import uuid
from collections.abc import Iterator

from compare.wire import Field, Message

LARGEST = {"i8": 0x7F, "i16": 0x7FFF, "i32": 0x7FFFFFFF, "i64": 0x7FFFFFFFFFFFFFFF}
NOT_A_NAME = "no name: a/b?"
UNKNOWN = "nowhere"
UNKNOWN_ID = uuid.UUID("11111111-2222-3333-4444-555555555555")


def values_of(one: Field, version: int, now: object) -> Iterator[tuple[str, object]]:
    """What may stand in a field instead of what is right."""
    if one.nullable is None or version not in one.nullable:
        if one.is_array or one.type in ("str", "bytes"):
            yield "null", None
    elif now is not None:
        yield "null", None
    if one.is_array:
        yield "empty", []
        if now:
            yield "twice", now + copy.deepcopy(now[:1])
    elif isinstance(one.type, list):
        return
    elif one.type == "str":
        yield from (("empty", ""), ("not a name", NOT_A_NAME), ("unknown", UNKNOWN), ("too long", "x" * 300))
    elif one.type == "bytes":
        yield from (("empty", b""), ("garbage", b"\xff\x00garbage"))
    elif one.type == "uuid":
        yield from (("zero", uuid.UUID(int=0)), ("unknown", UNKNOWN_ID))
    elif one.type == "bool":
        yield ("the other", not now)
    elif one.type in LARGEST:
        yield from (("-1", -1), ("-2", -2), ("0", 0), ("largest", LARGEST[one.type]))


def bent(fields: list[Field], version: int, body: dict, path: str = "") -> Iterator[tuple[str, dict]]:
    """Every request that differs from `body` in one field, with a name for the difference."""
    for one in fields:
        if version not in one.versions:
            continue
        place = f"{path}{one.name}"
        now = body.get(one.name, one.empty())
        for name, value in values_of(one, version, now):
            if value != now:
                yield f"{place} {name}", body | {one.name: value}
        if isinstance(one.type, list) and now:
            first = now[0] if one.is_array else now
            for name, inner in bent(one.type, version, first, f"{place}."):
                yield name, body | {one.name: [inner, *now[1:]] if one.is_array else inner}


def wrong_requests(message: Message, version: int, body: dict) -> Iterator[tuple[str, dict]]:
    """All of them, each with its name."""
    yield from bent(message.request, version, body)
