"""What the spaces of all kinds of kernels have in common, and the rules of the simplest kinds.

Input: a kernel, its default schedule, a machine.  Output: schedules that may be tried, and what is
known of each without making it: scratch memory, tiles, an expected cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import log2, prod

from tilewright.kernel.roles import operands
from tilewright.kernel.roles_dot import dot_operands
from tilewright.kernel.schedule import ENOUGH_TILES, Machine, Schedule
from tilewright.kernel.space import Core, Product, lite
from tilewright.kernel.spec import Kernel


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
        """x1 rows or y1 elements of a tile; r0 sums side by side where something is reduced."""
        line = prod(v.extent for v in self.kernel.axes[:-1]) == 1
        sums = (1, 2, 4, 8) if self.kernel.stages else (self.default.r0,)
        sizes = {"y1": self.default.y1} if line else {"x1": self.default.x1}
        for name, size in sizes.items():
            for r0 in sums:
                for n in (size, *around(size)):
                    yield replace(self.default, r0=r0, **{name: n})  # type: ignore[arg-type]

    def normal(self, s: Schedule) -> Schedule:
        rows = prod(v.extent for v in self.kernel.axes)
        return replace(s, x1=min(s.x1, max(rows, self.default.x1)))

    def tiles(self, s: Schedule) -> int:
        *outer, last = [v.extent for v in self.kernel.axes] or [1]
        return -(-prod(outer) // s.x1) if prod(outer) > 1 else -(-last // s.y1)

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
