"""Integer GEMM (u8 by i8) by packed dot products: the tiles of register_gemm.py with words of four
bytes.

Input: a product of u8 by i8 whose depth is packed in groups of four (graph/passes/pack_weights.py),
and a schedule. Output: the loop nest of one tile. A step is a group of four bytes: one instruction
multiplies them and adds the products, exactly, in i32.

The instruction needs both operands signed, so rows become x - 128 when they are staged. Each sum is
then too small by 128 times the sum of its column. The first y1 threads compute this correction
while the blocks are in shared memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, gcd
from typing import Self, TypeVar

from tilewright.base.dtypes import I8, I32, U8
from tilewright.kernel.builder import Builder, Values
from tilewright.kernel.expr import (
    Call,
    Const,
    Dot,
    Expr,
    Join,
    Lanes,
    Load,
    Reg,
    Subvector,
    identity,
)
from tilewright.kernel.index import Index, Var, index, is_multiple
from tilewright.kernel.layout import Groups
from tilewright.kernel.loops import Barrier, Scratch, TileFn
from tilewright.kernel.spec import Kernel
from tilewright.targets.gpu.product.register_gemm import ProductTile, lower_tile
from tilewright.targets.gpu.product.schedule import BYTES_PER_STEP, IntegerGemmSchedule
from tilewright.targets.gpu.tile.addressing import TilePosition
from tilewright.targets.gpu.tile.staging import (
    MOST_STEP_GAP,
    OperandTile,
    StagedOperand,
    StagingLayout,
)
from tilewright.targets.vectors import LANES, guarded

#: Subtracted from each row element when it is staged.
SHIFT = 128


def lower(kernel: Kernel, schedule: IntegerGemmSchedule) -> TileFn:
    """Loops for tiles of x1 rows by y1 columns.  Operands are 0 beyond the ends, and nothing is
    stored there."""
    return lower_tile(kernel, schedule, _Int8Tile)


@dataclass(frozen=True, eq=False)
class Int8Operand(StagedOperand):
    """Stages a byte operand: a thread's unit is one group of each of four rows or columns.

    group: the axis within a group
    """

    load: Load
    group: Var

    @classmethod
    def of(
        cls,
        b: Builder,
        operand_tile: OperandTile,
        load: Load,
        group: Var,
        *,
        padded: bool = False,
        panel: int = 1,
    ) -> Self:
        """padded, panel: as in `FloatOperand`"""
        layout = StagingLayout.of(operand_tile.width, panel)
        padding = (layout.panel or LANES) if padded else 0
        layout = replace(
            layout,
            deep_in_memory=not layout.panel,
            stride=layout.stride + padding,
            dtype=I8,
            group=BYTES_PER_STEP,
        )
        return cls(b, operand_tile, layout, load, group)

    def load_unit(self, n: int, place: Index, step: Index) -> None:
        for i in range(LANES):
            self.b.set(self.reg(n, i, I8).name, self.word(place + i, step))

    def loaded_step(self, n: int, i: int) -> Expr:
        """Four groups as one vector."""
        return Join(tuple(self.reg(n, row, I8) for row in range(LANES)))

    def word(self, place: Index, step: Index) -> Expr:
        """A group of one row or column as signed bytes; 0 beyond the ends."""
        load, ends = self.load, self.tile.ends(place, step)
        values: Values = self.tile.point(place, step) | {self.group: Index()}
        at = load.index.substitute(values)
        if is_multiple(at, BYTES_PER_STEP):
            word: Expr = Load(load.buffer, at, load.dtype, BYTES_PER_STEP)
        else:
            word = Lanes(
                tuple(Load(load.buffer, at + g, load.dtype) for g in range(BYTES_PER_STEP))
            )
        return guarded(_signed(word) if load.dtype == U8 else word, ends)


def _signed(word: Expr) -> Expr:
    """u8 minus `SHIFT`, as i8."""
    less = Call("sub", (word, Const(SHIFT, U8, BYTES_PER_STEP)), U8, BYTES_PER_STEP)
    return Call("cast", (less,), I8, BYTES_PER_STEP)


B = TypeVar("B", bound=Int8Operand)


def int8_operands(
    tile: TilePosition, widths: tuple[int, int], padded: bool, kind: type[B]
) -> tuple[B, B]:
    """This number of rows and of columns of a tile, staged in the first two shared areas."""
    b, kernel, ops = tile.b, tile.kernel, tile.indices.ops
    group = kernel.stages[0].axes[-1]
    layout = kernel.buffers[ops.col.buffer].layout
    panel = layout.width if isinstance(layout, Groups) and ops.n.extent > layout.width else 1
    rows, cols = tile.operand_tiles(*widths)
    panel = panel if panel <= MOST_STEP_GAP else 1
    return (
        kind.of(b, rows, ops.row, group, padded=padded),
        kind.of(b, cols, ops.col, group, padded=padded, panel=panel),
    )


class ColumnSums:
    """Sums each column of a tile, by the first threads, to correct for rows that are less by
    `SHIFT`."""

    def __init__(self, b: Builder, columns: int) -> None:
        self.b, self.columns = b, columns
        self.regs = [Reg(f"count{n}", I32) for n in range(ceil(columns / b.threads))]
        for reg in self.regs:
            b.set(reg.name, identity("sum", I32, 1))

    def add(self, area: int, depth: int, place: Callable[[Index, Index], Index]) -> None:
        """Adds the groups of a block to each column's sum.  place: byte offset of a column and a
        step"""
        b, ones, unrolled = self.b, Const(1, I8, BYTES_PER_STEP), gcd(depth, LANES)
        for n, reg in enumerate(self.regs):
            steps = b.loop("step", Index(), index(depth), unrolled, depth)
            with b.only_below(b.thread + n * b.threads, self.columns) as col, steps as first:
                for step in (first + u for u in range(unrolled)):
                    word = Load(area, place(col, step), I8, BYTES_PER_STEP)
                    b.set(reg.name, Dot(reg, ones, word))

    def put(self, area: int) -> None:
        """Stores SHIFT * the sum of each column in shared memory; ends with a barrier."""
        b = self.b
        for n, reg in enumerate(self.regs):
            with b.only_below(b.thread + n * b.threads, self.columns) as col:
                b.store(area, col, Call("mul", (reg, Const(SHIFT, I32)), I32))
        b.add(Barrier())

    @staticmethod
    def four(area: int, col: Index) -> Expr:
        """Loads the corrections of four columns, one by one: different threads wrote them."""
        return Lanes(tuple(Load(area, col + i, I32) for i in range(LANES)))


class _Int8Tile(ProductTile):
    """One tile whose sums are i32."""

    dtype, operand = I32, I8

    def _stage_operands(self) -> tuple[StagedOperand, StagedOperand]:
        s = self.s
        self.counts = ColumnSums(self.b, s.y1)
        return int8_operands(self.tile, (s.x1, s.y1), s.apart, Int8Operand)

    def _multiply(self) -> None:
        super()._multiply()
        cols = self.operands[1]
        self.counts.add(cols.tile.area, self.s.r1, cols.layout.where)

    def _accumulated(self, i: int, v: int) -> tuple[str, Expr]:
        total, left = self.total(i, v), Reg(f"left{i // LANES}", I8, LANES * BYTES_PER_STEP)
        row = Subvector(left, i % LANES * BYTES_PER_STEP, BYTES_PER_STEP)
        return total.name, Dot(total, row, Reg(f"right{v}", I8, LANES * BYTES_PER_STEP))

    def _before_store(self, area: int) -> list[Scratch]:
        """Adds the corrections to the sums."""
        b, s = self.b, self.s
        self.counts.put(area)
        for v in range(s.y0 // LANES):
            b.set(f"lack{v}", ColumnSums.four(area, self._four(v)))
            for i in range(s.x0):
                total = self.total(i, v)
                b.set(total.name, Call("add", (total, Reg(f"lack{v}", I32, LANES)), I32, LANES))
        return [Scratch(I32, s.y1)]
