"""What the spaces of all kinds of kernels have in common, and the rules of the simplest kinds.

Input: a kernel, its default schedule, a machine.  Output: schedules that may be tried, and what is
known of each without making it: scratch memory, tiles, an expected cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import log2, prod
from typing import Literal

from tilewright.kernel.lower import contiguous_last, runs_along_rows
from tilewright.kernel.lower_transpose import BLOCK, turned_axis
from tilewright.kernel.roles import operands
from tilewright.kernel.roles_dot import dot_operands
from tilewright.kernel.schedule import ENOUGH_TILES, Machine, Schedule
from tilewright.kernel.space import Core, Product, lite
from tilewright.kernel.spec import Kernel


@dataclass(frozen=True)
class _Walk:
    """How tiles cut a kernel without products: `field` of the schedule, in steps of `step`, cuts
    `extent` rows or elements, `times` over."""

    field: Literal["x1", "y1"]
    extent: int
    step: int = 1
    times: int = 1

    def size(self, s: Schedule) -> int:
        return s.x1 if self.field == "x1" else s.y1

    def sized(self, s: Schedule, size: int) -> Schedule:
        return replace(s, x1=size) if self.field == "x1" else replace(s, y1=size)


@dataclass(frozen=True)
class Rules:
    """What may vary, and what to expect: of kernels by elements and by rows, and the base of all.

    normal:   the schedule without what makes no difference, so that equal ones meet
    balanced: whether workers find tiles enough
    cost:     cycles per product where there is a model, then how far it is from the default
    """

    kernel: Kernel
    default: Schedule
    machine: Machine

    @cached_property
    def usual(self) -> Schedule:
        return self.normal(self.default)

    @cached_property
    def product(self) -> Product | None:
        return product_of(self.kernel)

    def lite(self, core: Core, relaxation: float) -> Iterator[Schedule]:
        for tile in lite(self.product, core, relaxation) if self.product is not None else ():
            yield Schedule(
                x0=tile.x0, y0=tile.y0, r0=tile.r0, x1=tile.x1, y1=tile.y1, r1=tile.r1,
                stage=tile.cache_read, lanes=self.machine.lanes,
            )  # fmt: skip

    def extended(self) -> Iterator[Schedule]:
        """Rows or elements of a tile; sums side by side where something is reduced."""
        d = self.usual
        walk = self._walk
        for r0 in (1, 2, 4, 8) if self.kernel.stages else (d.r0,):
            for n in (walk.size(d), *around(walk.size(d))):
                yield walk.sized(replace(d, r0=r0), n)

    @cached_property
    def _walk(self) -> _Walk:
        kernel = self.kernel
        if kernel.stages and runs_along_rows(kernel):
            return _Walk("x1", prod(v.extent for v in kernel.rows))
        turned = turned_axis(kernel, self.machine.lanes)
        if turned is not None:
            others = prod(v.extent for v in kernel.axes[:-1]) // turned.extent
            return _Walk("x1", turned.extent, BLOCK, others)
        kernel = (contiguous_last(kernel) if kernel.cols else None) or kernel
        *outer, last = [v.extent for v in kernel.rows] or [1]
        return _Walk("x1", prod(outer)) if prod(outer) > 1 else _Walk("y1", last)

    def normal(self, s: Schedule) -> Schedule:
        walk = self._walk
        size = -(-walk.size(s) // walk.step) * walk.step
        return walk.sized(s, min(size, walk.extent))

    def tiles(self, s: Schedule) -> int:
        walk = self._walk
        return -(-walk.extent // walk.size(s)) * walk.times

    def balanced(self, s: Schedule) -> bool:
        return self.tiles(s) >= min(ENOUGH_TILES, self.tiles(self.default))

    def scratch(self, s: Schedule) -> int:
        """Bytes of scratch memory per worker, as far as they depend on the schedule."""
        return 0

    def cost(self, s: Schedule) -> float:
        return distance(s, self.usual)

    def words(self, s: Schedule) -> float:
        """Words loaded and stored beyond L1, in all tiles; the same for all where unknown."""
        return self.kernel.bytes / 4


def product_of(kernel: Kernel) -> Product | None:
    """The matrix product that a kernel is, or None.  A step of integers is one word of them."""
    roles = operands(kernel) or dot_operands(kernel)
    if roles is None:
        return None
    batch = prod(v.extent for v in roles.outer)
    return Product(roles.m.extent, roles.steps, roles.n.extent, batch)


def around(size: int) -> tuple[int, ...]:
    """Sizes some times smaller and larger."""
    return tuple(max(1, n) for n in (size // 4, size // 2, 2 * size, 4 * size))


def whole(size: int, part: int, extent: int) -> int:
    """`size` in whole parts: one at least, and no more than `extent` needs."""
    return part * max(1, min(size // part, -(-extent // part)))


def aligned(size: int) -> int:
    return -(-size // 64) * 64


def distance(a: Schedule, b: Schedule) -> float:
    """How many doublings, halvings and other changes lie between two schedules."""
    total = 0.0
    for name, value in vars(a).items():
        other = getattr(b, name)
        if value == other:
            continue
        if isinstance(value, str) or not value or not other:
            total += value != other
        else:
            total += abs(log2(value / other))
    return total
