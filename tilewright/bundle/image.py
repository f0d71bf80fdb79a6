"""Plan images and the memory map: the bytes that a host copies, made from plain numbers.

Input: steps as (slot, addresses, scalars, tiles), region sizes.  Output: image bytes and addresses,
laid out as docs/bundle.md says.  It decides no offset inside the arena.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

CONTROL_BYTES = 1024
_HEADER_WORDS, _STEP_WORDS = 4, 4


@dataclass(frozen=True)
class Call:
    """One step: the table slot, buffer addresses (output first), run-time scalars, tile count."""

    slot: int
    addresses: tuple[int, ...]
    scalars: tuple[int, ...]
    tiles: int


def image_bytes(calls: Sequence[Call]) -> int:
    """How long the image of these steps is."""
    blocks = sum(len(c.addresses) + len(c.scalars) for c in calls)
    return 4 * (_HEADER_WORDS + _STEP_WORDS * len(calls) + blocks)


def image(calls: Sequence[Call], address: int) -> bytes:
    """The plan image for `address`: header, step records, argument blocks."""
    words = [len(calls), 0, 0, 0]
    block = address + 4 * (_HEADER_WORDS + _STEP_WORDS * len(calls))
    blocks: list[int] = []
    for call in calls:
        words += [call.slot, block + 4 * len(blocks), call.tiles, 1]
        blocks += [*call.addresses, *call.scalars]
    words += blocks
    return struct.pack(f"<{len(words)}I", *words)
