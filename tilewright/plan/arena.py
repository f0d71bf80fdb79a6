"""Memory planning: fixed offsets in one arena, shared by values that live at different times.

Input: buffers with sizes and the steps at which they are first written and last read.  Output: an
offset for each and the arena's size, in the unit of the sizes (bytes or words).  Buffers overlap
only if their lives do not.  Greedy by size, so the arena is small but not always minimal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from tilewright.base.alignment import align
from tilewright.plan.ir import Plan, Value

#: Steps per bucket of the index by time.
RUN = 64


@dataclass(frozen=True)
class Life:
    """A buffer of `size`, alive from step `first` to step `last`, both included."""

    size: int
    first: int
    last: int

    def meets(self, other: Life) -> bool:
        return self.first <= other.last and other.first <= self.last

    @property
    def runs(self) -> range:
        return range(self.first // RUN, self.last // RUN + 1)


def place(lives: Sequence[Life]) -> tuple[tuple[int, ...], int]:
    """(offset of each buffer, size of the arena): largest first, at the lowest free offset."""
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


def arena_of(plan: Plan, size: Callable[[Value], int]) -> tuple[tuple[int, ...], int]:
    """(offset of each value, size of the arena); weights and states lie elsewhere: their offset is
    0."""
    inside = [i for i, v in enumerate(plan.values) if v.kind not in ("weight", "state")]
    values = (plan.values[i] for i in inside)
    offsets, total = place([Life(size(v), v.first, v.last) for v in values])
    found = dict(zip(inside, offsets, strict=True))
    return tuple(found.get(i, 0) for i in range(len(plan.values))), total


def row(sizes: Sequence[int], at: int) -> tuple[tuple[int, ...], int]:
    """(where regions begin that follow each other from `at` on, the end of the last)"""
    ends = list(accumulate(map(align, sizes), initial=at))
    return tuple(ends[:-1]), ends[-1]
