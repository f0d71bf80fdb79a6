"""Converts sections between targets' records and the manifest's.

Input: a target's section, or a manifest's section and its bundle.  Output: the other.  Only the
target knows what its files and facts mean.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.base import sections as made
from tilewright.bundle import kernels
from tilewright.bundle.format import BuildEntry, FileRef, SectionEntry
from tilewright.bundle.owned_files import Buffer
from tilewright.bundle.reader import Bundle
from tilewright.bundle.writer import add


def store(
    section: made.Section, slots: Sequence[kernels.Slot], blobs: dict[str, Buffer]
) -> SectionEntry:
    """The section as the manifest has it; its files go into `blobs`."""

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
        kernels=add(blobs, kernels.pack(slots), "json"),
        facts=dict(section.facts),
    )


def load(bundle: Bundle, section: SectionEntry) -> made.Section:
    """The section as its target made it."""

    def file(ref: FileRef) -> made.File:
        return made.File(bundle.read(ref), ref.file.rpartition(".")[2])

    slots = kernels.unpack_slots(bundle.read(section.kernels))
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
