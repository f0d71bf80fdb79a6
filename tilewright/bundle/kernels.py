"""A bundle's lists of kernels: their specifications, and for each target slots and schedules.

Input: specifications and schedules as plain data.  Output: JSON bytes, and back.  It does not
interpret them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TypedDict

import msgspec

from tilewright.base.compiler_digest import compiler_digest
from tilewright.bundle.format import parse

Data = Mapping[str, object]


class KernelEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel: its name for people, and its specification (kernel/serial.py)."""

    name: str
    spec: dict[str, object]


class SlotBuild(TypedDict):
    """What a variant runs for a kernel; digest: of what decides about its code"""

    digest: str
    schedule: dict[str, object]


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """A target's record of one kernel: its slot, and by variant the result of `build_of`."""

    slot: int
    builds: dict[str, SlotBuild]


def build_of(spec: Data, schedule: Data, variant: str) -> SlotBuild:
    """A schedule, and a digest that identifies the code made from it by this compiler."""
    identity = msgspec.json.encode([spec, schedule, variant, compiler_digest()], order="sorted")
    return {"digest": hashlib.sha256(identity).hexdigest(), "schedule": dict(schedule)}


def pack(entries: Sequence[KernelEntry] | Sequence[Slot]) -> bytes:
    return msgspec.json.encode(entries)


def unpack(data: bytes) -> list[KernelEntry]:
    """The bundle's kernels (`Manifest.kernels`), by number."""
    made: list[KernelEntry] = parse(data, list[KernelEntry], "the list of kernels")
    return made


def unpack_slots(data: bytes) -> list[Slot]:
    """A target's record of each kernel (`Section.kernels`), by number."""
    made: list[Slot] = parse(data, list[Slot], "a list of slots")
    return made
