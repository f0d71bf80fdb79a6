"""Sections of a bundle, and its lists of kernels: specifications, slots and schedules per target.

`store` and `load` convert between a target's section and the manifest's entry for it.  The lists of
specifications and schedules are encoded as JSON bytes and decoded again.  Only the target knows
what its files and facts mean.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TypedDict

import msgspec

from tilewright.base import sections as made
from tilewright.base.compiler_digest import compiler_digest
from tilewright.bundle.format import BuildEntry, FileRef, SectionEntry, parse
from tilewright.bundle.owned_files import Buffer
from tilewright.bundle.reader import Bundle
from tilewright.bundle.writer import add

Data = Mapping[str, object]


class KernelEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel: its name for people, and its specification (kernel/serialise.py)."""

    name: str
    spec: dict[str, object]


class SlotBuild(TypedDict):
    """The schedule that a variant uses for a kernel. digest: identifies the resulting code"""

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


def store(section: made.Section, slots: Sequence[Slot], blobs: dict[str, Buffer]) -> SectionEntry:
    """The manifest's entry for a section; the section's files are added to `blobs`."""

    def ref(file: made.File) -> FileRef:
        return add(blobs, file.data, file.extension)

    return SectionEntry(
        builds=tuple(
            BuildEntry(
                variant=b.variant,
                features=b.features,
                code=ref(b.code),
                plans=tuple(map(ref, b.plans)),
                facts=dict(b.facts),
            )
            for b in section.builds
        ),
        slots=section.slots,
        memory=section.memory,
        programs={name: ref(file) for name, file in section.programs.items()},
        plans=tuple(map(dict, section.plans)),
        kernels=add(blobs, pack(slots), "json"),
        facts=dict(section.facts),
    )


def load(bundle: Bundle, section: SectionEntry) -> made.Section:
    """The section as its target made it, read from the bundle's files."""

    def file(ref: FileRef) -> made.File:
        return made.File(bundle.read(ref), ref.file.rpartition(".")[2])

    slots = unpack_slots(bundle.read(section.kernels))
    return made.Section(
        builds=tuple(
            made.Build(b.variant, b.features, file(b.code), tuple(map(file, b.plans)), b.facts)
            for b in section.builds
        ),
        slots=section.slots,
        memory=section.memory,
        programs={name: file(ref) for name, ref in section.programs.items()},
        plans=section.plans,
        kernels=tuple(slot.slot for slot in slots),
        facts=section.facts,
    )
