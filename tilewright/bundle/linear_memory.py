"""Sections whose target uses one linear memory: their facts as records, and checks of plan images.

Input: the plain facts of a `Section`; the bytes of an image, where it goes, and what the manifest
says of steps, slots and extents.  Output: records, checked; or BundleCorrupt.  The driver trusts
what it reads, so a host checks an image before it copies it into memory.  The addresses in argument
blocks are not checked: kernels cannot leave the memory.  docs/bundle-wasm.md has the map.
"""

from __future__ import annotations

import struct
from typing import TypeVar

import msgspec

from tilewright.base import abi
from tilewright.base.errors import BundleCorrupt
from tilewright.bundle.format import REBUILD, Manifest, SectionEntry, reading

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
    """A target's facts about its memory.

    states:  the address of each state; of states that grow, the place in a block
    compact: whether states of f32 are f16 in memory
    block:   bytes of a block of all states; 0: they have a fixed size
    """

    memory: Memory
    states: tuple[int, ...] = ()
    compact: bool = False
    block: int = 0


class PlanPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a plan's image goes, and where its inputs and outputs are, in the model's order."""

    address: int
    arena_bytes: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def facts_of(section: SectionEntry) -> LinearFacts:
    return _convert(section.facts, LinearFacts)


def memory_parts(manifest: Manifest) -> dict[str, int]:
    """Bytes of the largest linear memory of a bundle by what they are for, with one worker and
    states that have grown as far as they can; empty if no target has such a memory."""
    found = [facts_of(s) for s in manifest.targets.values() if "arena" in s.facts.get("memory", {})]
    if not found:
        return {}
    largest = max(found, key=lambda facts: facts.memory.bytes)
    memory = largest.memory
    weights = manifest.weights.memory or manifest.weights.bytes
    fixed = 0 if largest.block else memory.arena - min((*largest.states, memory.arena))
    states = fixed + manifest.blocks * largest.block
    return {"weights": weights, "states": states, "rest": memory.bytes - weights - fixed}


def memory_at_start(manifest: Manifest, section: SectionEntry) -> int:
    """Bytes that a host with one worker needs at first; `section.memory` is the most."""
    block = int(section.facts.get("block", 0))
    return section.memory - max(manifest.blocks - 1, 0) * block


def places_of(section: SectionEntry) -> tuple[PlanPlace, ...]:
    return _convert(section.plans, tuple[PlanPlace, ...])


def _convert(data: object, kind: type[Record]) -> Record:
    with reading("a section of the manifest"):
        return msgspec.convert(data, kind)


def check_image(data: bytes, address: int, steps: int, slots: int, extents: int) -> None:
    """Raises BundleCorrupt if a driver that follows the image could run forever or read outside
    it."""
    ends = abi.HEADER + abi.RECORD * (steps + 1)
    _need(len(data) % 4 == 0 and len(data) >= ends, "its size")
    words = struct.unpack(f"<{len(data) // 4}I", data)
    _need(words[abi.COUNT // 4] == steps, "the number of steps")
    before = 0
    for number in range(steps):
        at = (abi.HEADER + abi.RECORD * number) // 4
        slot, args, tiles, grain, tickets, earlier, together, flags = words[at : at + 8]
        _need(slot < slots, f"the slot of step {number}")
        inside = args % 4 == 0 and address + ends <= args <= address + len(data)
        _need(inside, f"the arguments of step {number}")
        # `grain` may exceed `tiles` of a step that follows an extent
        _need(grain > 0 and tiles < 2**31, f"the tiles of step {number}")
        _need(tickets == max(1, -(-tiles // grain)), f"the tickets of step {number}")
        _need(earlier == before, f"the tickets before step {number}")
        _need(1 <= together <= steps - number, f"the chain of step {number}")
        _need(flags <= abi.WAITS | abi.BACK, f"the flags of step {number}")
        before += tickets
    end = words[(ends - abi.RECORD) // 4 : ends // 4]
    _need(before < 2**31 and end[abi.BEFORE // 4] == before, "the end")
    _check_table(words, ends, extents)


def _check_table(words: tuple[int, ...], ends: int, extents: int) -> None:
    """Raises BundleCorrupt if the table of extents changes words other than numbers of tiles and
    scalars."""
    table = words[abi.TABLE // 4]
    if not table:
        return
    _need(table % 4 == 0 and ends <= table < 4 * len(words), "the table of extents")
    first, each = table // 4 + 1, abi.ENTRY // 4
    entries = words[table // 4]
    _need(first + entries * each <= len(words), "the table of extents")
    for at in range(first, first + entries * each, each):
        place, number, _, _, by, *_ = words[at : at + each]
        tiles = place < ends and (place - abi.HEADER) % abi.RECORD == abi.TILES
        _need(place % 4 == 0 and (tiles or ends <= place < table), "a place in the table")
        _need(number < extents and by > 0, "an entry of the table")


def _need(holds: bool, what: str) -> None:
    if not holds:
        raise BundleCorrupt(f"a plan image is not valid: {what}", hint=REBUILD)
