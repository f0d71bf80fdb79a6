"""GEMM by subgroup broadcasts: threads of a subgroup exchange rows, without shared memory or
barriers.

Input: an f32 product and a schedule. Output: the loop nest of one tile. It is never a default; it
adds candidates to the tiles of register_gemm.py.

    tile (x1 rows, y1 columns), x0 rows and y0 columns of each thread; a subgroup has the same rows:
        for block of `width` steps:
            own := one step of each row: the step with the thread's number in the subgroup
            for step of the block:
                right := the columns at this step
                for row:  left := `own` of thread number `step`;  sums += left * right
        store sums
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product as every
from math import ceil

from tilewright.base.dtypes import F32
from tilewright.kernel.expr import Expr, Reg, Splat, SubgroupBroadcast
from tilewright.kernel.index import Index, index
from tilewright.kernel.loops import TileFn
from tilewright.kernel.spec import Kernel
from tilewright.targets.gpu.product.register_gemm import RegisterTile
from tilewright.targets.gpu.product.schedule import SubgroupGemmSchedule
from tilewright.targets.gpu.tile.addressing import TilePosition, tile_of
from tilewright.targets.vectors import LANES


def lower(kernel: Kernel, schedule: SubgroupGemmSchedule) -> TileFn:
    """Loops for tiles of x1 rows by y1 columns.  Operands are 0 beyond the ends, and nothing is
    stored there."""
    s = schedule
    return SubgroupTile(tile_of(kernel, s.x1, s.y1, s.band, s.threads), s).emit()


class SubgroupTile(RegisterTile):
    """One tile: what a thread loads itself, and what it gets from other threads."""

    def __init__(self, tile: TilePosition, schedule: SubgroupGemmSchedule) -> None:
        super().__init__(tile, schedule)
        self.s, self.lane = schedule, self.b.let(self.b.thread % schedule.width, "lane")

    def emit(self) -> TileFn:
        b, s, rows = self.b, self.s, self.operands[0]
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
                # The loop counts passes, not steps: index bounds then prove that the last step is
                # in the block.
                with b.loop("part", Index(), index(s.width // s.r0)) as part:
                    self._multiply(begin, part * s.r0)
        self._store()
        return replace(b.finish(self.kernel), subgroup=s.width)

    def _multiply(self, begin: Index, first: Index) -> None:
        """Adds rows * columns to the sums, for r0 steps of the block."""
        b, s, cols = self.b, self.s, self.operands[1]
        vectors = s.y0 // LANES
        for u, v in every(range(0, s.r0, cols.layout.unit_steps), range(vectors)):
            cols.load_unit(u * vectors + v, self._col(v), begin + first + u)
        for u in range(s.r0):
            i = u % cols.layout.unit_steps
            for v in range(vectors):
                b.set(f"right{v}", cols.vector((u - i) * vectors + v, i))
            for row in range(s.x0):
                b.set(_left(row).name, SubgroupBroadcast(_own(row), first + u))
            for row, v in self._sums:
                b.set(*self._accumulated(row, v))

    def _factors(self, i: int, v: int) -> tuple[Expr, Expr]:
        return Splat(_left(i), LANES), Reg(f"right{v}", F32, LANES)


def _own(i: int) -> Reg:
    """The step of row i that this thread has loaded."""
    return Reg(f"own{i}", F32)


def _left(i: int) -> Reg:
    return Reg(f"left{i}", F32)
