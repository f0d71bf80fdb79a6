"""The facts of a section whose target uses one linear memory, as records.

Input: the plain facts of a `Section`.  Output: records, checked.  docs/bundle.md has the map.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from tilewright.bundle.format import SectionEntry, reading

Record = TypeVar("Record")


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Total size of the memory and the address of each region, in bytes."""

    bytes: int
    control: int
    weights: int
    arena: int
    arena_bytes: int
    scratch: int
    scratch_bytes: int


class LinearFacts(msgspec.Struct, frozen=True, kw_only=True):
    """states: the address of each state"""

    memory: Memory
    states: tuple[int, ...] = ()


class PlanPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a plan's image goes, and where its inputs and outputs are, in the model's order."""

    address: int
    arena_bytes: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def facts_of(section: SectionEntry) -> LinearFacts:
    return _convert(section.facts, LinearFacts)


def places_of(section: SectionEntry) -> tuple[PlanPlace, ...]:
    return _convert(section.plans, tuple[PlanPlace, ...])


def _convert(data: object, kind: type[Record]) -> Record:
    with reading("a section of the manifest"):
        return msgspec.convert(data, kind)
