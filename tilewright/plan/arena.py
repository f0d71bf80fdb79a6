"""The memory plan: fixed offsets in one arena for buffers that live at different times.

Input: buffers with sizes and the steps at which they are first written and last read.
Output: an offset for each and the arena's size.  Two buffers overlap only if their lives do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.base.alignment import align


@dataclass(frozen=True)
class Life:
    """A buffer of `size` bytes, alive from step `first` to step `last`, both included."""

    size: int
    first: int
    last: int

    def meets(self, other: Life) -> bool:
        return self.first <= other.last and other.first <= self.last


def place(lives: Sequence[Life]) -> tuple[tuple[int, ...], int]:
    """(offset of each buffer, bytes of the arena): largest first, each at the lowest free place."""
    offsets = [0] * len(lives)
    placed: list[int] = []
    total = 0
    for i in sorted(range(len(lives)), key=lambda i: (-lives[i].size, lives[i].first, i)):
        size, at = align(lives[i].size), 0
        neighbours = sorted(
            (offsets[j], align(lives[j].size)) for j in placed if lives[j].meets(lives[i])
        )
        for start, length in neighbours:
            if at + size <= start:
                break
            at = max(at, start + length)
        offsets[i] = at
        placed.append(i)
        total = max(total, at + size)
    return tuple(offsets), total
