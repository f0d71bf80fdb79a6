"""GEMM and convolution (implicit im2col) with register tiles, operands staged in shared memory.

Input: a contraction and a schedule. Output: the loop nest of one tile, which x1/x0 * y1/y0 threads
compute together. Each thread has a register tile of x0 rows and y0 columns.

    tile (x1 rows, y1 columns):
        for block of r1 steps:
            copy the block's rows and columns to shared memory (tile/staging.py);  barrier
            for step:  x0 rows and y0 columns to registers;  sums += rows * columns
            barrier
        store sums

The columns of a thread form vectors of 4, adjacent to those of its neighbours, so shared memory is
read without bank conflicts.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product as every

from tilewright.base.dtypes import F32
from tilewright.kernel.expr import Bound, Call, Expr, Lane, Load, Reg, Splat, identity
from tilewright.kernel.index import Index, index, unflatten
from tilewright.kernel.loops import Barrier, Scratch, TileFn
from tilewright.kernel.spec import Kernel
from tilewright.targets.gpu.product.schedule import RegisterGemmSchedule, RegisterTiled
from tilewright.targets.gpu.tile.addressing import TilePosition, stage_operands, tile_of
from tilewright.targets.gpu.tile.epilogue import EpilogueStore
from tilewright.targets.gpu.tile.staging import StagedOperand, staged_blocks
from tilewright.targets.vectors import LANES


def lower(kernel: Kernel, schedule: RegisterGemmSchedule) -> TileFn:
    """Loops for tiles of x1 rows by y1 columns.  Operands are 0 beyond the ends, and nothing is
    stored there."""
    return lower_tile(kernel, schedule, ProductTile)


def lower_tile(kernel: Kernel, schedule: RegisterGemmSchedule, tile: type[ProductTile]) -> TileFn:
    """The same loops, with the element types of the class `tile`."""
    s = schedule
    return tile(tile_of(kernel, s.x1, s.y1, s.band, s.threads), s).emit()


class RegisterTile:
    """One tile: its position, this thread's rows and columns, and their sums.

    dtype: type of the sums;  operand: type of the factors
    slice: this thread's part of the steps;  down, along: the numbers of its register tile
    """

    dtype = operand = F32

    def __init__(self, tile: TilePosition, sizes: RegisterTiled, slices: int = 1) -> None:
        self.tile, self.b, self.kernel, self.indices = tile, tile.b, tile.kernel, tile.indices
        self.row0, self.col0 = tile.row0, tile.col0
        b, self.sizes, self.ops = self.b, sizes, self.indices.ops
        self.operands = self._stage_operands()
        shape = (slices, sizes.x1 // sizes.x0, sizes.y1 // sizes.y0)
        self.slice, self.down, self.along = (b.let(i, "t") for i in unflatten(b.thread, shape))

    def _stage_operands(self) -> tuple[StagedOperand, StagedOperand]:
        """Both operands."""
        return stage_operands(self.tile, (self.sizes.x1, self.sizes.y1))

    def _clear(self) -> None:
        """Sets the sums to 0."""
        for i, v in self._sums:
            self.b.set(self.total(i, v).name, identity("sum", self.dtype, LANES))

    def _accumulated(self, i: int, v: int) -> tuple[str, Expr]:
        """Name of the sums of row i and four columns, and their value with one more product
        added."""
        total = self.total(i, v)
        return total.name, Call("fma", (*self._factors(i, v), total), total.dtype, LANES)

    def _factors(self, i: int, v: int) -> tuple[Expr, Expr]:
        """Row i, repeated in each lane, and four columns."""
        left = Lane(Reg(f"left{i // LANES}", self.operand, LANES), i % LANES)
        return Splat(left, LANES), Reg(f"right{v}", self.operand, LANES)

    @property
    def _sums(self) -> Iterator[tuple[int, int]]:
        """Row number and column vector of each of this thread's sums."""
        return every(range(self.sizes.x0), range(self.sizes.y0 // LANES))

    def total(self, i: int, v: int) -> Reg:
        """The sums of row i and four columns."""
        return Reg(f"sum{i}_{v}", self.dtype, LANES)

    def _row(self, i: int) -> Index:
        return self.b.let(self.row0 + self.down * self.sizes.x0 + i, "row")

    def _col(self, v: int) -> Index:
        """The first of four columns."""
        return self.b.let(self.col0 + self._four(v), "col")

    def _four(self, v: int) -> Index:
        """The first of four columns, counted from the tile's first; neighbours' vectors are
        adjacent."""
        return self.along * LANES + v * (self.sizes.y1 // self.sizes.y0 * LANES)

    def _store(self) -> None:
        output = EpilogueStore(self.b, self.kernel, self.indices)
        for i in range(self.sizes.x0):
            row = self._row(i)
            for v in range(self.sizes.y0 // LANES):
                output.put(row, self._col(v), self.total(i, v))


class ProductTile(RegisterTile):
    """One tile staged in shared memory: the copies, the product and the stores of one thread."""

    def __init__(self, tile: TilePosition, schedule: RegisterGemmSchedule) -> None:
        self.s = schedule
        super().__init__(tile, schedule, schedule.slices)

    def _stage_operands(self) -> tuple[StagedOperand, StagedOperand]:
        return stage_operands(self.tile, (self.s.x1, self.s.y1), padded=self.s.apart)

    def emit(self) -> TileFn:
        b, s = self.b, self.s
        self._clear()
        with staged_blocks(b, self.operands, self.ops.steps, s.r1, s.ahead, s.early):
            self._multiply()
        areas = [operand.scratch(s.r1) for operand in self.operands]
        if s.slices > 1:
            areas.append(Scratch(self.dtype, (s.slices - 1) * s.x1 // s.x0 * s.y1))
            self._add_up(self.operands[-1].tile.area + 1)
        areas += self._before_store(self.operands[0].tile.area + len(areas))
        with b.only_if((Bound(self.slice, 1),)):
            self._store()
        return b.finish(self.kernel, tuple(areas))

    def _before_store(self, area: int) -> list[Scratch]:
        """Adds the work before sums are stored; returns its shared areas, numbered from `area`
        on."""
        return []

    def _multiply(self) -> None:
        """Adds rows * columns to the sums, over this slice's steps of the block in shared
        memory."""
        b, s = self.b, self.s
        (rows, cols), own = self.operands, s.r1 // s.slices
        with b.loop("step", Index(), index(own), s.r0, own) as first:
            for step in (self.slice * own + first + u for u in range(s.r0)):
                for i in range(0, s.x0, LANES):
                    b.set(f"left{i // LANES}", self._load_shared(rows, self.down * s.x0 + i, step))
                for v in range(s.y0 // LANES):
                    b.set(f"right{v}", self._load_shared(cols, self._four(v), step))
                for i, v in self._sums:
                    name, value = self._accumulated(i, v)
                    b.set(name, value)

    def _load_shared(self, operand: StagedOperand, place: Index, step: Index) -> Load:
        """Loads four rows or columns of a step from shared memory."""
        layout = operand.layout
        return Load(
            operand.tile.area, layout.where(place, step), self.operand, LANES * layout.group
        )

    def _add_up(self, area: int) -> None:
        """Adds the sums of all slices into those of slice 0, one row of each thread at a time."""
        b, s = self.b, self.s
        others = s.slices - 1

        def place(number: Index, v: int) -> Index:
            row = number * (s.x1 // s.x0) + self.down
            return row * s.y1 + self._four(v)

        for i in range(s.x0):
            with b.only_if((Bound(self.slice - 1, others),)):
                for v in range(s.y0 // LANES):
                    b.store(area, place(self.slice - 1, v), self.total(i, v))
            b.add(Barrier())
            with b.only_if((Bound(self.slice, 1),)):
                for v in range(s.y0 // LANES):
                    for other in range(others):
                        part = Load(area, place(index(other), v), self.dtype, LANES)
                        total = self.total(i, v)
                        b.set(total.name, Call("add", (total, part), self.dtype, LANES))
            if i + 1 < s.x0:
                b.add(Barrier())
