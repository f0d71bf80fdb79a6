"""Lists of kernels: what each computes, and for each target what its code was made from.

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


class KernelEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel: its name for people, and its specification (kernel/serial.py)."""

    name: str
    spec: dict[str, Any]


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """What a target made of one kernel: its slot, and by variant what `build_of` gives."""

    slot: int
    builds: dict[str, dict[str, Any]]


def build_of(spec: Data, schedule: Data, variant: str) -> dict[str, Any]:
    """A schedule, and the digest that names the code made from it by this compiler."""
    identity = msgspec.json.encode([spec, schedule, variant, __version__], order="sorted")
    return {"digest": hashlib.sha256(identity).hexdigest(), "schedule": dict(schedule)}


def pack(entries: Sequence[KernelEntry] | Sequence[Slot]) -> bytes:
    return msgspec.json.encode(entries)


def unpack(data: bytes) -> list[KernelEntry]:
    """The bundle's kernels (`Manifest.kernels`), by number."""
    return msgspec.json.decode(data, type=list[KernelEntry])


def unpack_slots(data: bytes) -> list[Slot]:
    """What a target made of each (`Section.kernels`), by number."""
    return msgspec.json.decode(data, type=list[Slot])
