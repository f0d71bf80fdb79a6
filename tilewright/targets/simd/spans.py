"""Schedules and spaces of kernels whose tiles are spans of rows or of elements.

Input: a kernel without a register tile: elementwise, row-wise, or another reduction.  Output: rows
of a tile, and the space around a default.  The file of each form makes its loops.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import TypeVar

from tilewright.kernel.index import stride
from tilewright.kernel.spec import Kernel
from tilewright.targets.schedule import Schedule
from tilewright.targets.simd.machine import TILE_ELEMENTS, around
from tilewright.targets.simd.space_rules import Rules


@dataclass(frozen=True)
class SpanSchedule(Schedule):
    """x1: rows of one tile; elements, if there is only one row."""

    x1: int = 1


@dataclass(frozen=True)
class SumsSchedule(SpanSchedule):
    """r0: independent sums, so that an addition need not wait for the one before."""

    r0: int = 4
    lanes: int = 4


P = TypeVar("P", bound=SpanSchedule)


@dataclass(frozen=True)
class SpanRules(Rules[P]):
    """Varies the rows or elements of a tile, and independent sums where something is reduced.

    Tiles divide `extent` rows or elements in multiples of `step`; there are `times` such ranges.
    """

    extent: int
    step: int = 1
    times: int = 1

    def extended(self) -> Iterator[P]:
        d = self.normal_default
        sums = [replace(d, r0=n) for n in (1, 2, 4, 8)] if isinstance(d, SumsSchedule) else [d]
        for s in sums:
            for x1 in (d.x1, *around(d.x1)):
                yield replace(s, x1=x1)

    def normal(self, s: P) -> P:
        return replace(s, x1=min(-(-s.x1 // self.step) * self.step, self.extent))

    def tiles(self, s: P) -> int:
        return -(-self.extent // s.x1) * self.times


def reduced(kernel: Kernel) -> int:
    """Elements of the largest reduction; 1 if there is none."""
    return max((prod(v.extent for v in s.axes) for s in kernel.stages), default=1)


def rows_per_tile(kernel: Kernel) -> int:
    """The number of rows that makes a tile worth a ticket."""
    row = prod(v.extent for v in kernel.axes[len(kernel.axes) - max(kernel.cols, 1) :])
    per_row = max(row, reduced(kernel)) if kernel.stages else row
    if kernel.cols and stride(kernel.store, kernel.axes[-1]) != 1:
        per_row *= kernel.rows[-1].extent if kernel.rows else 1  # vectors run across the rows
    return max(1, TILE_ELEMENTS // max(per_row, 1))
