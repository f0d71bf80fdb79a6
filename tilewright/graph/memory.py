"""The memory plan: fixed offsets in one arena for buffers that live at different times.

Input: buffers with sizes and the steps at which they are first written and last read.
Output: an offset for each and the arena's size.  Two buffers overlap only if their lives do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.base.alignment import align
from tilewright.graph.ops import Array

#: Neighbours in time are looked for in runs of this many buffers, in order of their first step.
RUN = 128


@dataclass(frozen=True)
class Life:
    """A buffer of `size` bytes, alive from step `first` to step `last`, both included."""

    size: int
    first: int
    last: int


def place(lives: Sequence[Life]) -> tuple[tuple[int, ...], int]:
    """(offset of each buffer, bytes of the arena): largest first, each at the lowest free place."""
    if not lives:
        return (), 0
    ranked = sorted(range(len(lives)), key=lambda i: lives[i].first)
    rank = {i: at for at, i in enumerate(ranked)}
    placed = _Placed([lives[i] for i in ranked])
    for i in sorted(rank, key=lambda i: (-lives[i].size, lives[i].first, i)):
        placed.add(rank[i])
    return tuple(placed.start[rank[i]].item() for i in range(len(lives))), placed.total


class _Placed:
    """Buffers in order of their first step; those that have a place lie in [start, end)."""

    def __init__(self, lives: Sequence[Life]) -> None:
        self.size = [align(life.size) for life in lives]
        self.first = np.array([life.first for life in lives])
        self.last = np.array([life.last for life in lives])
        self.start = np.full(len(lives), -1)
        self.end = np.zeros(len(lives), np.int64)
        self.lasts = np.maximum.reduceat(self.last, range(0, len(lives), RUN))  # of each run
        self.total = 0

    def add(self, i: int) -> None:
        """Give a buffer the lowest place that is free all its life."""
        meeting = self._meeting(i)
        starts, ends = self.start[meeting], self.end[meeting]
        order = np.argsort(starts, kind="stable")  # mostly in order already
        tops = np.concatenate(([0], np.maximum.accumulate(ends[order])))
        gaps = np.flatnonzero(tops[:-1] + self.size[i] <= starts[order])
        at = int(tops[gaps[0]] if gaps.size else tops[-1])
        self.start[i], self.end[i] = at, at + self.size[i]
        self.total = max(self.total, at + self.size[i])

    def _meeting(self, i: int) -> Array:
        """The placed buffers that live at some step of buffer `i`."""
        first, last = self.first[i], self.last[i]
        behind = int(np.searchsorted(self.first, last, "right"))
        runs = np.flatnonzero(self.lasts[: -(-behind // RUN)] >= first)
        found: Array = (runs[:, None] * RUN + np.arange(RUN)).ravel()
        found = found[: np.searchsorted(found, behind)]
        meeting: Array = found[(self.last[found] >= first) & (self.start[found] >= 0)]
        return meeting
