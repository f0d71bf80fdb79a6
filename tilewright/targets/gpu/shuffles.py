"""Products whose rows the threads of a subgroup give each other: no shared memory, no barriers.

Input: a product of f32, a schedule.  Output: `ShuffleSchedule`, its space, the loop nest of one
tile.  It is no default: candidates beside the tiles that shared memory stages (tiles.py).

    tile (x1 rows, y1 columns), x0 rows and y0 columns of each thread; a subgroup has the same rows:
        for block of `width` steps:
            own := of each row one step, that of the thread's number in the subgroup
            for step of the block:
                right := the columns at this step
                for row:  left := what thread number `step` has as own;  sums += left * right
        store sums
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product as every
from math import ceil, gcd

from tilewright.base.dtypes import F32
from tilewright.kernel.expr import Expr, Reg, Sent, Splat
from tilewright.kernel.index import Index, index
from tilewright.kernel.loops import TileFn
from tilewright.kernel.spec import Kernel
from tilewright.targets.gpu import tiles
from tilewright.targets.gpu.features import SIZES, SUBGROUPS, size_of
from tilewright.targets.gpu.integers import sides
from tilewright.targets.gpu.matrices import MOST_SUMS
from tilewright.targets.gpu.places import Placed, tile_of
from tilewright.targets.gpu.schedule import Sizes, beyond
from tilewright.targets.gpu.space import (
    BANDS,
    BEYOND,
    LEAST_THREADS,
    OVERHEAD,
    UNUSUAL,
    Group,
    at_work,
)
from tilewright.targets.gpu.staging import LANES
from tilewright.targets.gpu.tiles import RegisterTile
from tilewright.targets.gpu.tiles import suits as suits
from tilewright.targets.lite import Core
from tilewright.targets.schedule import Schedule

#: Multiply-adds of vectors in a text: with more a driver compiles for long, and pages refuse it.
MOST_UNROLLED = 1024


@dataclass(frozen=True)
class ShuffleSchedule(Schedule):
    """Tiles of x1 by y1, register tiles of x0 by y0; the columns of r0 steps are read together.

    width:    threads of a subgroup, and steps of a block
    band:     as of `GroupSchedule`
    unrolled: the whole block is, so that the text names each thread by a constant: some GPUs then
              read its register, and need no instruction to send it
    """

    form = "shuffle"
    width: int = 32
    x0: int = 8
    y0: int = 4
    r0: int = 4
    x1: int = 16
    y1: int = 128
    band: int = 1
    unrolled: bool = False

    @property
    def threads(self) -> int:
        return (self.x1 // self.x0) * (self.y1 // self.y0)

    @property
    def features(self) -> frozenset[str]:
        return frozenset({SUBGROUPS, size_of(self.width)})

    @property
    def registers(self) -> int:
        """Words that a thread keeps: sums, its own step of each row, and columns."""
        return self.x0 * self.y0 + self.x0 + self.r0 * self.y0 + OVERHEAD

    def objection(self, kernel: Kernel) -> str:
        if found := super().objection(kernel):
            return found
        if self.width not in SIZES:
            return f"width is one of {', '.join(map(str, SIZES))}"
        if self.y0 % LANES or self.x1 % self.x0 or self.y1 % (self.y0 * self.width):
            return f"y0 is a multiple of {LANES}, x1 one of x0, and y1 one of y0 * width"
        together = read_together(kernel)
        if self.width % self.r0 or self.r0 % together:
            return f"r0 divides width, and is a multiple of the {together} steps read at a time"
        if self.x0 * self.y0 > MOST_SUMS:
            return f"a thread has at most {MOST_SUMS} sums"
        steps = self.width if self.unrolled else self.r0
        if steps * self.x0 * self.y0 // LANES > MOST_UNROLLED:
            return f"at most {MOST_UNROLLED} vectors of multiply-adds are unrolled"
        return beyond(self.threads, 0)


@lru_cache(maxsize=1024)
def read_together(kernel: Kernel) -> int:
    """Steps of the columns that come with one read."""
    tile = tile_of(kernel, 1, LANES, 1, 2)
    return sides(tile, (1, LANES))[1].each


def lower(kernel: Kernel, schedule: ShuffleSchedule) -> TileFn:
    """Tiles of x1 rows by y1 columns; what lies beyond the ends is read as 0 and not stored."""
    s = schedule
    return ShuffledTile(tile_of(kernel, s.x1, s.y1, s.band, s.threads), s).emit()


class ShuffledTile(RegisterTile):
    """One tile: what a thread reads, and what it has of others."""

    def __init__(self, tile: Placed, schedule: ShuffleSchedule) -> None:
        super().__init__(tile, schedule)
        self.s, self.lane = schedule, self.b.let(self.b.thread % schedule.width, "lane")

    def emit(self) -> TileFn:
        b, s, rows = self.b, self.s, self.sides[0]
        self._clear()
        blocks = ceil(self.ops.steps / s.width)
        with b.loop("block", Index(), index(blocks), 1, blocks) as block:
            begin = block * s.width
            for i in range(s.x0):
                step = begin + self.lane
                b.set(_own(i).name, rows.element(self.ops.row, self._row(i), step))
            if s.unrolled:
                for first in range(0, s.width, s.r0):
                    self._multiply(begin, index(first))
            else:
                # a number of passes, not of steps, so that the last step is seen to be in the block
                with b.loop("part", Index(), index(s.width // s.r0)) as part:
                    self._multiply(begin, part * s.r0)
        self._store()
        return replace(b.finish(self.kernel), subgroup=s.width)

    def _multiply(self, begin: Index, first: Index) -> None:
        """sums += rows * columns, for r0 steps of the block"""
        b, s, cols = self.b, self.s, self.sides[1]
        vectors = s.y0 // LANES
        for u, v in every(range(0, s.r0, cols.each), range(vectors)):
            cols.take(u * vectors + v, self._col(v), begin + first + u)
        for u in range(s.r0):
            i = u % cols.each
            for v in range(vectors):
                b.set(f"right{v}", cols.vector((u - i) * vectors + v, i))
            for row in range(s.x0):
                b.set(_left(row).name, Sent(_own(row), first + u))
            for row, v in self._sums:
                b.set(*self._more(row, v))

    def _factors(self, i: int, v: int) -> tuple[Expr, Expr]:
        return Splat(_left(i), LANES), Reg(f"right{v}", F32, LANES)


def _own(i: int) -> Reg:
    """The step of row i that this thread has read."""
    return Reg(f"own{i}", F32)


def _left(i: int) -> Reg:
    return Reg(f"left{i}", F32)


#: What is tried: register tiles; rows of them, and subgroups beside each other, in a tile.
REGISTERS = ((4, 4), (8, 4), (16, 4), (4, 8), (8, 8), (16, 8))
DOWN, ALONG = (1, 2, 4, 8), (1, 2)
#: Steps read together, in units of what comes with one read.
TOGETHER = (4, 8)
#: Candidates with subgroups of the class's size; of each other size there is one.
EACH = 8
#: Multiply-adds in the time of a word that another thread gives, and of one from a cache: NVIDIA's
#: cores do four for each.  Nothing here was fitted to runs.
GIVEN, CACHED = 4.0, 4.0


def space(kernel: Kernel, core: Core, group: Group) -> tuple[tuple[ShuffleSchedule, float], ...]:
    """The likely best of each register tile, then the best one with other settings.

    They are tried after all other tiles: nobody knows yet where they win.
    """
    sizes, found = Sizes.of(kernel), list[ShuffleSchedule]()

    def fits(s: ShuffleSchedule) -> bool:
        return LEAST_THREADS <= s.threads <= group.threads and not s.objection(kernel)

    def rank(s: ShuffleSchedule) -> tuple[float, str]:
        return cost(s, sizes, core), str(s)

    for width in sorted(SIZES, key=lambda size: (size != core.warp_width, size)):
        able = list(filter(fits, _shapes(width, sizes, read_together(kernel))))
        best = dict[tuple[int, int], ShuffleSchedule]()
        for s in sorted(able, key=rank):
            best.setdefault((s.x0, s.y0), s)
        first = list(best.values())[:1]
        if width == core.warp_width:
            first = [*best.values(), *(v for s in first for v in _varied(s) if v in able)][:EACH]
        found += first
    costs = [cost(s, sizes, core) for s in found]
    last = UNUSUAL * max(c for _, c in tiles.space(kernel, core, group))
    return tuple((s, last * c / min(costs)) for s, c in zip(found, costs, strict=True))


def _shapes(width: int, sizes: Sizes, together: int) -> Iterator[ShuffleSchedule]:
    """Those not twice as large as the product."""
    for (x0, y0), down, along, r0, unrolled in every(
        REGISTERS, DOWN, ALONG, sorted({max(r, together) for r in TOGETHER}), (True, False)
    ):
        x1, y1 = x0 * down, y0 * width * along
        if x1 < 2 * max(sizes.rows, LANES) and y1 <= 2 * sizes.cols:
            band = gcd(BANDS[-1], ceil(sizes.rows / x1))
            yield ShuffleSchedule(width, x0, y0, r0, x1, y1, band, unrolled)


def _varied(s: ShuffleSchedule) -> Iterator[ShuffleSchedule]:
    """Each with one other setting."""
    yield replace(s, unrolled=not s.unrolled)
    yield from (replace(s, r0=r0) for r0 in TOGETHER if r0 != s.r0)


def cost(s: ShuffleSchedule, sizes: Sizes, core: Core) -> float:
    """In the unit of space.py: multiply-adds with what others give and caches have."""
    count = sizes.tiles(s)
    work = count * s.x1 * s.y1 * ceil(sizes.steps / s.width) * s.width
    each = 1 + GIVEN / s.y0 + CACHED / s.x0 + BEYOND * (1 / s.x1 + 1 / s.y1)
    unusual = (not s.unrolled) + (s.r0 > TOGETHER[0])
    return work * each * UNUSUAL**unusual / at_work(count, s.threads, s.registers, 0, core)


def traffic(kernel: Kernel, schedule: ShuffleSchedule) -> tuple[int, float]:
    """No shared memory; words loaded and stored: each subgroup reads its rows and columns."""
    sizes, s = Sizes.of(kernel), schedule
    subgroups = sizes.tiles(s) * s.threads // s.width
    loads = subgroups * sizes.steps * (s.x0 + s.y0 * s.width)
    return 0, float(loads + sizes.batch * sizes.rows * sizes.cols)
