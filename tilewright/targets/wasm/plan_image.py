"""Plan images: the bytes that a host copies into memory for each plan.

Input: steps as `StepCall`s.  Output: image bytes in the layout of docs/bundle-wasm.md.  Other
modules decide the offsets in the arena, and which steps workers share.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from tilewright.base.abi import BACK, ENTRY, HEADER, RECORD, TABLE, TILES, WAITS
from tilewright.kernel.extents import RuntimeNumber

HEADER_WORDS, STEP_WORDS, ENTRY_WORDS = HEADER // 4, RECORD // 4, ENTRY // 4


@dataclass(frozen=True)
class StepCall:
    """One step: the table slot, buffer addresses (output first), run-time scalars, tile count.

    counts:  how the tile count, then each scalar, depends on an extent (`TileFn.counts`); or empty
    moves:   how each address depends on where states that grow begin; or empty
    grain:   tiles per ticket; 0: all of them, so the step is serial and one worker runs it
    waits:   True if all steps before must have finished first
    chained: True for a serial step that belongs to the ticket of the serial step before it
    back:    True if tickets go from the last tile to the first
    """

    slot: int
    addresses: tuple[int, ...]
    scalars: tuple[int, ...]
    tiles: int
    counts: tuple[RuntimeNumber | None, ...] = ()
    moves: tuple[RuntimeNumber | None, ...] = ()
    grain: int = 0
    waits: bool = True
    chained: bool = False
    back: bool = False

    @property
    def tickets(self) -> int:
        return -(-self.tiles // self.grain) if self.grain else 1


def image_bytes(calls: Sequence[StepCall]) -> int:
    """Bytes of the image of these steps."""
    blocks = sum(len(c.addresses) + len(c.scalars) for c in calls)
    entries = sum(count is not None for c in calls for count in (*c.counts, *c.moves))
    table = 1 + ENTRY_WORDS * entries if entries else 0
    return 4 * (HEADER_WORDS + STEP_WORDS * (len(calls) + 1) + blocks + table)


def image(calls: Sequence[StepCall], address: int) -> bytes:
    """The plan image for `address`: a header, a record for each step, an end record, and arguments.

    If something depends on an extent, a table follows: the number of entries, then the entries,
    each with the address of its word.
    """
    words = [len(calls), max((c.tickets for c in calls), default=0), 0, 0]
    table: list[int] = []
    block = address + 4 * (HEADER_WORDS + STEP_WORDS * (len(calls) + 1))
    before = [0, *accumulate(c.tickets for c in calls)]
    together = _together(calls)
    blocks: list[int] = []
    for number, call in enumerate(calls):
        words += [call.slot, block + 4 * len(blocks), call.tiles, call.grain or call.tiles]
        flags = WAITS * call.waits + BACK * call.back
        words += [call.tickets, before[number], together[number], flags]
        places = (
            HEADER + RECORD * number + TILES,
            *(
                block - address + 4 * (len(blocks) + len(call.addresses) + i)
                for i in range(len(call.scalars))
            ),
        )
        first = block - address + 4 * len(blocks)
        moving = [(first + 4 * i, count) for i, count in enumerate(call.moves)]
        for place, count in (*zip(places, call.counts, strict=False), *moving):
            table += [place, *count.to_data()] if count is not None else []
        blocks += [*call.addresses, *call.scalars]
    words += [0, 0, 0, 0, 0, before[-1], 0, WAITS]
    words += blocks
    if table:
        words[TABLE // 4] = 4 * len(words)
        words += [len(table) // ENTRY_WORDS, *table]
    return struct.pack(f"<{len(words)}I", *words)


def _together(calls: Sequence[StepCall]) -> list[int]:
    """The number of steps that one ticket of each step runs: the step and the chain after it."""
    counts = [1] * len(calls)
    for number, call in reversed([*enumerate(calls)][1:]):
        if call.chained:
            counts[number - 1] += counts[number]
    return counts
