"""GEMM with operands in f16: the tiles of register_gemm.py.

Input: a product that may be computed in f16, and a schedule. Output: the loop nest of one tile. A
device does twice as many f16 multiply-adds, and reads half as many bytes of shared memory. Sums are
f16 only within a block of steps, and f32 from block to block, so neither their size nor their error
grows with the depth.
"""

from __future__ import annotations

from tilewright.base.dtypes import F16, F32
from tilewright.kernel.expr import Call, Expr, Reg, identity
from tilewright.kernel.loops import TileFn
from tilewright.kernel.spec import Kernel
from tilewright.targets.gpu.product.fast_division import fast_division
from tilewright.targets.gpu.product.register_gemm import ProductTile, lower_tile
from tilewright.targets.gpu.product.schedule import F16GemmSchedule
from tilewright.targets.gpu.tile.staging import StagedOperand
from tilewright.targets.vectors import LANES


def lower(kernel: Kernel, schedule: F16GemmSchedule) -> TileFn:
    """Loops for tiles of x1 rows by y1 columns.  Operands are 0 beyond the ends, and nothing is
    stored there."""
    return lower_tile(fast_division(kernel), schedule, _F16Tile)


class _F16Tile(ProductTile):
    """One tile whose operands are f16."""

    operand = F16

    def _stage_operands(self) -> tuple[StagedOperand, StagedOperand]:
        rows, columns = super()._stage_operands()
        return rows.in_f16(self.kernel), columns.in_f16(self.kernel)

    def _multiply(self) -> None:
        for i, v in self._sums:
            self.b.set(_part(i, v).name, identity("sum", F16, LANES))
        super()._multiply()
        for i, v in self._sums:
            total, part = self.total(i, v), Call("cast", (_part(i, v),), F32, LANES)
            self.b.set(total.name, Call("add", (total, part), F32, LANES))

    def _accumulated(self, i: int, v: int) -> tuple[str, Expr]:
        factors = (*self._factors(i, v), _part(i, v))
        return _part(i, v).name, Call("fma", factors, F16, LANES)


def _part(i: int, v: int) -> Reg:
    return Reg(f"part{i}_{v}", F16, LANES)
