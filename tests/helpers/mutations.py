"""Random structural damage to model files and to JSON, the same for the same seed.

Input: a message or JSON data, and a random generator.  Output: the same object or bytes, damaged:
fields dropped, doubled, moved, or with values that no honest writer chooses.
"""

from __future__ import annotations

from random import Random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor as Field
from google.protobuf.message import Message

#: Numbers that were promises too large, signs, sentinels, or types and versions that do not exist.
NUMBERS = (0, 1, -1, 2, 3, 7, 64, 99, 255, 4096, 65537, 10**6, 10**9, 2**31, 2**40, 2**62,
           2**63 - 1, -(2**63), -(2**31))  # fmt: skip
FLOATS = (0.0, -1.0, 1e-30, 1e30, float("inf"), float("-inf"), float("nan"))
TEXTS = ("", "x", "y", "\0", "../x", "é" * 10, "9" * 5000, "Relu", "Loop", "If", "Scan", "Concat",
         "Reshape", "Resize", "Einsum", "a" * 3000, "linear", "reflect", "->", "...",
         "i,j->ij")  # fmt: skip


def damaged(proto: Message, rng: Random) -> bytes:
    """The file of a model after one to four mutations; sometimes its bytes are damaged too."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        _mutate(proto, rng)
    try:
        data = bytearray(proto.SerializePartialToString())
    except (ValueError, RecursionError):  # too deep to be written
        return b""
    if data and rng.random() < 0.05:
        del data[rng.randrange(len(data)) :]
    if data and rng.random() < 0.1:
        for _ in range(rng.choice((1, 3, 10))):
            data[rng.randrange(len(data) or 1) % len(data)] = rng.randrange(256) if data else 0
    return bytes(data)


def _messages(root: Message) -> list[Message]:
    """Every message inside, to a depth that mutations themselves can make."""
    found, level = [root], [root]
    for _ in range(24):
        below = [m for one in level for m in _below(one)]
        found += below
        level = below
    return found


def _below(message: Message) -> list[Message]:
    made: list[Message] = []
    for field, value in message.ListFields():
        if field.type == Field.TYPE_MESSAGE:
            made += value if _many(field) else [value]
    return made


def _many(field: Any) -> bool:
    return bool(getattr(field, "is_repeated", False) or getattr(field, "label", 0) == 3)


def _mutate(root: Message, rng: Random) -> None:
    messages = _messages(root)
    target = rng.choice(messages)
    present = [field for field, _ in target.ListFields()]
    fields = list(target.DESCRIPTOR.fields) if rng.random() < 0.2 or not present else present
    field = rng.choice(fields)
    if not _many(field):
        if rng.random() < 0.2:
            target.ClearField(field.name)
        elif field.type == Field.TYPE_MESSAGE:
            _replace(getattr(target, field.name), messages, rng)
        else:
            setattr(target, field.name, _scalar(field, root, rng))
        return
    values = getattr(target, field.name)
    action = rng.choice(("drop", "double", "swap", "change", "change", "change", "add"))
    if not len(values) or action == "add":
        if field.type == Field.TYPE_MESSAGE:
            _replace(values.add(), messages, rng)
        else:
            values.append(_scalar(field, root, rng))
        return
    at = rng.randrange(len(values))
    if action == "drop":
        del values[at]
    elif action == "double":
        values.append(values[at]) if field.type != Field.TYPE_MESSAGE else values.add().CopyFrom(
            type(values[at]).FromString(values[at].SerializePartialToString())
        )
    elif action == "swap" and field.type == Field.TYPE_MESSAGE:
        _replace(values[at], messages, rng)
    elif field.type != Field.TYPE_MESSAGE:
        values[at] = _scalar(field, root, rng)


def _replace(message: Message, messages: list[Message], rng: Random) -> None:
    """Another message of the same kind; it may contain this one."""
    alike = [m for m in messages if m.DESCRIPTOR is message.DESCRIPTOR and m is not message]
    if alike:
        data = rng.choice(alike).SerializePartialToString()
        if len(data) < 100_000:
            message.ParseFromString(data)


def _scalar(field: Any, root: Message, rng: Random) -> Any:
    if field.type == Field.TYPE_STRING:
        names = [n for node in root.graph.node for n in (*node.input, *node.output)]  # type: ignore[attr-defined]
        names = [n for n in names if isinstance(n, str)]  # what is no UTF-8 reads as bytes
        return rng.choice(names) if names and rng.random() < 0.6 else rng.choice(TEXTS)
    if field.type == Field.TYPE_BYTES:
        return rng.choice((rng.choice(TEXTS).encode(), rng.randbytes(rng.choice((1, 4, 8, 100)))))
    if field.type in (Field.TYPE_FLOAT, Field.TYPE_DOUBLE):
        return rng.choice(FLOATS)
    if field.type == Field.TYPE_ENUM:
        return rng.choice(field.enum_type.values).number
    number = rng.choice((*NUMBERS, rng.randrange(-4, 30), rng.randrange(-4, 30)))
    bits = 32 if field.type in (Field.TYPE_INT32, Field.TYPE_UINT32) else 64
    if field.type in (Field.TYPE_UINT32, Field.TYPE_UINT64):
        return number % 2**bits
    return (number + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


def damaged_json(data: Any, rng: Random) -> Any:
    """Plain data after one to four mutations."""
    holder = [data]
    for _ in range(rng.choice((1, 1, 2, 4))):
        spots = _spots(holder)
        place, key = rng.choice(spots)
        action = rng.choice(("drop", "double", "swap", "change", "change", "near"))
        value = place[key]
        if action == "drop" and place is not holder:
            del place[key]
        elif action == "double" and isinstance(place, list) and place is not holder:
            place.insert(key, value)
        elif action == "swap":
            other, at = rng.choice(spots)
            place[key] = other[at] if not _spots([other[at]])[1:] else rng.choice(WRONG)
        elif action == "near" and isinstance(value, int) and not isinstance(value, bool):
            place[key] = value + rng.choice((-1, 1, 64, -64, 2**20))
        else:
            place[key] = rng.choice((*WRONG, *NUMBERS))
    return holder[0]


def _nest(depth: int) -> Any:
    made: Any = []
    for _ in range(depth):
        made = [made]
    return made


WRONG: tuple[Any, ...] = (None, True, "", "x", "9" * 5000, [], {}, [1, 2], {"a": 1}, 0.5, -0.0,
                          1e300, 10**18, 2**64 - 1, _nest(50), "../x", "\0")  # fmt: skip


def _spots(root: Any) -> list[tuple[Any, Any]]:
    """Every place that holds a value."""
    found: list[tuple[Any, Any]] = []
    rest = [root]
    while rest:
        one = rest.pop()
        keys = list(one) if isinstance(one, dict) else range(len(one))
        for key in keys:
            found.append((one, key))
            if isinstance(one[key], (dict, list)):
                rest.append(one[key])
    return found
