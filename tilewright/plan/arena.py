"""Memory planning: fixed offsets in one arena, shared by values that live at different times.

Input: buffers with sizes and the steps at which they are first written and last read.  Output: an
offset for each and the arena's size, in the unit of the sizes (bytes or words); or of several
arenas, where one may not be as large as all need.  Buffers overlap only if their lives do not.
Greedy by size, so arenas are small but not always minimal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from tilewright.base.abi import align
from tilewright.plan.ir import Plan, Value

#: Steps per bucket of the index by time.
RUN = 64


@dataclass(frozen=True)
class Lifetime:
    """A buffer of `size`, alive from step `first` to step `last`, both included."""

    size: int
    first: int
    last: int

    def overlaps(self, other: Lifetime) -> bool:
        return self.first <= other.last and other.first <= self.last

    @property
    def runs(self) -> range:
        return range(self.first // RUN, self.last // RUN + 1)


class _ArenaOffsets:
    """Offsets of buffers in one memory; buffers whose lives overlap get different places."""

    def __init__(self, lifetimes: Sequence[Lifetime]) -> None:
        self._lives, self._offsets = lifetimes, [0] * len(lifetimes)
        self._placed: defaultdict[int, list[int]] = defaultdict(list)
        self.size = 0

    def fit(self, i: int) -> int:
        """The lowest free offset for buffer i."""
        size, at = align(self._lives[i].size), 0
        for start, length in sorted(
            (self._offsets[j], align(self._lives[j].size)) for j in self._neighbours(self._lives[i])
        ):
            if at + size <= start:
                break
            at = max(at, start + length)
        return at

    def put(self, i: int, at: int) -> None:
        self._offsets[i] = at
        for run in self._lives[i].runs:
            self._placed[run].append(i)
        self.size = max(self.size, at + align(self._lives[i].size))

    def _neighbours(self, lifetime: Lifetime) -> Iterator[int]:
        """Placed buffers whose life meets this one, each once."""
        for run in lifetime.runs:
            for j in self._placed[run]:
                other = self._lives[j]
                if run == max(other.runs.start, lifetime.runs.start) and other.overlaps(lifetime):
                    yield j


def place(lifetimes: Sequence[Lifetime]) -> tuple[tuple[int, ...], int]:
    """(offset of each buffer, size of the arena): largest first, at the lowest free offset."""
    offsets, _, (size,) = place_in_arenas(lifetimes, None)
    return offsets, size


def place_in_arenas(
    lifetimes: Sequence[Lifetime], first: int | None, most: int = 0, kept: Collection[int] = ()
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """(offset of each buffer, its arena, size of each arena), in as many arenas as necessary.

    first: size of the first arena, None if it has no limit;  most: size of each further one
    kept:  buffers that must be in the first arena, even beyond its size A buffer larger than `most`
           gets an arena of its own.
    """
    offsets, arenas = [0] * len(lifetimes), [0] * len(lifetimes)
    rooms = [_ArenaOffsets(lifetimes)]

    def fits(i: int, arena: int, at: int) -> bool:
        room = most if arena else first
        return room is None or at + align(lifetimes[i].size) <= room or (arena == 0 and i in kept)

    for i in sorted(
        range(len(lifetimes)),
        key=lambda i: (i not in kept, -lifetimes[i].size, lifetimes[i].first, i),
    ):
        found = ((n, at) for n, room in enumerate(rooms) if fits(i, n, at := room.fit(i)))
        arena, at = next(found, (len(rooms), 0))
        if arena == len(rooms):
            rooms.append(_ArenaOffsets(lifetimes))
        rooms[arena].put(i, at)
        offsets[i], arenas[i] = at, arena
    return tuple(offsets), tuple(arenas), tuple(room.size for room in rooms)


def arena_of(plan: Plan, size: Callable[[Value], int]) -> tuple[tuple[int, ...], int]:
    """(offset of each value, size of the arena); weights and states are stored elsewhere and have
    the offset 0."""
    inside = arena_values(plan)
    offsets, total = place(lifetimes_of(plan, inside, size))
    found = dict(zip(inside, offsets, strict=True))
    return tuple(found.get(i, 0) for i in range(len(plan.values))), total


def with_joined_lifetimes(plan: Plan, together: Sequence[range]) -> Plan:
    """The plan with longer lifetimes: a value that a step of one of these ranges reads or writes
    keeps its memory during all steps of the range."""
    runs = {step: run for run in together for step in run}
    if not runs:
        return plan

    def first(step: int) -> int:
        return runs[step].start if step in runs else step

    def last(step: int) -> int:
        return runs[step].stop - 1 if step in runs else step

    values = (replace(v, first=first(v.first), last=last(v.last)) for v in plan.values)
    return replace(plan, values=tuple(values))


def arena_values(plan: Plan) -> list[int]:
    """Numbers of the values that are in an arena."""
    return [i for i, v in enumerate(plan.values) if v.kind not in ("weight", "state")]


def lifetimes_of(
    plan: Plan, numbers: Sequence[int], size: Callable[[Value], int]
) -> list[Lifetime]:
    values = (plan.values[i] for i in numbers)
    return [Lifetime(size(v), v.first, v.last) for v in values]


def consecutive(sizes: Sequence[int], at: int) -> tuple[tuple[int, ...], int]:
    """(where regions begin that follow each other from `at` on, the end of the last)"""
    ends = list(accumulate(map(align, sizes), initial=at))
    return tuple(ends[:-1]), ends[-1]
