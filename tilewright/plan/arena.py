"""Memory planning: fixed offsets in one arena, shared by values that live at different times.

Input: buffers with sizes and the steps at which they are first written and last read.  Output: an
offset for each and the arena's size, in bytes.  Buffers overlap only if their lives do not.  Greedy
by size, so the arena is small but not always minimal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.base.alignment import align

#: Steps per bucket of the index by time.
RUN = 64


@dataclass(frozen=True)
class Life:
    """A buffer of `size` bytes, alive from step `first` to step `last`, both included."""

    size: int
    first: int
    last: int

    def meets(self, other: Life) -> bool:
        return self.first <= other.last and other.first <= self.last

    @property
    def runs(self) -> range:
        return range(self.first // RUN, self.last // RUN + 1)


def place(lives: Sequence[Life]) -> tuple[tuple[int, ...], int]:
    """(offset of each buffer, bytes of the arena): largest first, at the lowest free offset."""
    offsets = [0] * len(lives)
    placed: defaultdict[int, list[int]] = defaultdict(list)
    total = 0

    def neighbours(life: Life) -> Iterator[int]:
        """Placed buffers whose life meets this one, each once."""
        for run in life.runs:
            for j in placed[run]:
                if run == max(lives[j].runs.start, life.runs.start) and lives[j].meets(life):
                    yield j

    for i in sorted(range(len(lives)), key=lambda i: (-lives[i].size, lives[i].first, i)):
        size, at = align(lives[i].size), 0
        for start, length in sorted(
            (offsets[j], align(lives[j].size)) for j in neighbours(lives[i])
        ):
            if at + size <= start:
                break
            at = max(at, start + length)
        offsets[i] = at
        for run in lives[i].runs:
            placed[run].append(i)
        total = max(total, at + size)
    return tuple(offsets), total
