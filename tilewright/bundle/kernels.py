"""kernels.json: the specification of every kernel, and per variant what its code was made from.

Input: specifications and schedules as plain data.  Output: the bytes, and back.  It knows nothing
of kernels beyond that they are data.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tilewright import __version__

Data = Mapping[str, Any]


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel; `builds` holds what `build_of` gives, by variant."""

    name: str
    slot: int
    spec: dict[str, Any]
    builds: dict[str, dict[str, Any]]


def build_of(spec: Data, schedule: Data, variant: str) -> dict[str, Any]:
    """A schedule, and the digest that names the code made from it by this compiler."""
    identity = msgspec.json.encode([spec, schedule, variant, __version__], order="sorted")
    return {"digest": hashlib.sha256(identity).hexdigest(), "schedule": dict(schedule)}


def pack(entries: Sequence[Entry]) -> bytes:
    return msgspec.json.encode(entries)


def unpack(data: bytes) -> list[Entry]:
    return msgspec.json.decode(data, type=list[Entry])
