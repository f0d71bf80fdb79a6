"""Addresses of a product's rows, columns and steps, and the store of its sums (the epilogue).

Input: a product's operands and the values of the tile's other axes. Output: the values of the
kernel's variables at a row, column and step; statements that add up the partial sums of several
threads; statements that store four neighbouring sums.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, gcd, prod

from tilewright.base.dtypes import F32, I8, I32, U8
from tilewright.base.errors import required
from tilewright.kernel.builder import Builder, Values
from tilewright.kernel.expr import Acc, Bound, Call, Expr, Lane, Lanes, Load, Reg
from tilewright.kernel.form import BlockContraction, Contraction, classify, product
from tilewright.kernel.index import Div, Gathered, Index, Mod, multi_index, unflatten
from tilewright.kernel.loops import Barrier
from tilewright.kernel.roles import Operands
from tilewright.kernel.spec import Kernel
from tilewright.kernel.tree import indices_of, rewrite, walk
from tilewright.targets.gpu.tile.staging import (
    MOST_GAP,
    Floats,
    Integers,
    OperandTile,
    columns,
)
from tilewright.targets.vectors import LANES, begins_whole_vectors

#: Types that are stored as whole vectors.
VECTORS = (F32, I32, U8, I8)


def fixed_product(kernel: Kernel) -> Operands | None:
    """The operands of a product with fixed extents and no traps, or None.

    Its weights are f32, or integers with scales.  A trap would end one thread, and the others would
    wait for it at a barrier.
    """
    form = classify(kernel)
    if not isinstance(form, (Contraction, BlockContraction)) or kernel.extents:
        return None
    return None if may_trap(kernel) else form.operands


def may_trap(kernel: Kernel) -> bool:
    """True if the kernel reads at an index loaded from memory, which may be out of range."""
    return any(isinstance(a, Gathered) for a in _atoms(kernel))


def operands(kernel: Kernel) -> Operands:
    """The operands of a product for which `fixed_product` is known to find them."""
    return required(product(kernel), "its form is not a product", kernel=kernel.name)


def _atoms(kernel: Kernel) -> list[object]:
    values = (kernel.value, *(stage.value for stage in kernel.stages))
    indices = [i for v in values for e in walk(v) for i in indices_of(e)]
    found: list[object] = []
    while indices:
        for atom, _ in indices.pop().terms:
            found.append(atom)
            if isinstance(atom, (Div, Mod)):
                indices.append(atom.value)
    return found


@dataclass(frozen=True)
class Places:
    """Index values of a product.  at: values of the axes that are neither rows, columns nor
    steps"""

    ops: Operands
    at: Values

    def row(self, row: Index, step: Index) -> Values:
        """Values of the variables in the row operand's index."""
        return self.at | self._rows(row) | self._step(step)

    def col(self, col: Index, step: Index) -> Values:
        """Values of the variables in the column operand's index."""
        return self.at | {self.ops.n: col} | self._step(step)

    def rows(self, width: int, start: Index, area: int) -> OperandTile:
        """`width` rows from `start` on, in a shared area."""
        ops = self.ops
        return OperandTile("x", ops.m.extent, ops.steps, width, start, area, self.row)

    def columns(self, width: int, start: Index, area: int) -> OperandTile:
        """`width` columns from `start` on, in a shared area."""
        ops = self.ops
        return OperandTile("y", ops.n.extent, ops.steps, width, start, area, self.col)

    def out(self, row: Index, col: Index) -> Values:
        """Values of the variables in the output's index."""
        return self.at | self._rows(row) | {self.ops.n: col}

    def _rows(self, row: Index) -> Values:
        shape = tuple(v.extent for v in self.ops.rows)
        return dict(zip(self.ops.rows, multi_index(row, shape), strict=True))

    def _step(self, step: Index) -> Values:
        shape = tuple(v.extent for v in self.ops.depth)
        return dict(zip(self.ops.depth, multi_index(step, shape), strict=True))


@dataclass(frozen=True)
class TilePosition:
    """The position of one tile of a product: its first row and column, and the other axes'
    values."""

    b: Builder
    kernel: Kernel
    places: Places
    row0: Index
    col0: Index

    def pieces(self, rows: int, columns: int) -> tuple[OperandTile, OperandTile]:
        """These numbers of rows and columns, in the first two shared areas."""
        first = len(self.kernel.buffers)
        return (
            self.places.rows(rows, self.row0, first),
            self.places.columns(columns, self.col0, first + 1),
        )


def tile_of(kernel: Kernel, x1: int, y1: int, band: int, threads: int) -> TilePosition:
    """Tiles of x1 rows by y1 columns, with `band` rows of tiles visited together
    (`RegisterGemmSchedule`)."""
    ops = operands(kernel)
    rows, cols = ceil(ops.m.extent / x1), ceil(ops.n.extent / y1)
    outer = tuple(v.extent for v in ops.outer)
    b = Builder({}, prod(outer) * rows * cols, kernel, threads)
    *others, flat = unflatten(b.tile, (*outer, rows * cols))
    band = gcd(band, rows)
    strip, col, row = unflatten(flat, (rows // band, cols, band))
    places = Places(ops, dict(zip(ops.outer, others, strict=True)))
    # Written as products, so that index analysis finds that panels and vectors begin here.
    row0 = b.let(strip * band + row, "row") * x1
    return TilePosition(b, kernel, places, row0, b.let(col, "col") * y1)


def sides(
    tile: TilePosition, widths: tuple[int, int], *, apart: bool = False
) -> tuple[Floats, Floats | Integers]:
    """These numbers of rows and columns of a tile, staged in the first two shared areas."""
    ops = tile.places.ops
    rows, cols = tile.pieces(*widths)
    return (
        Floats.of(tile.b, rows, ops.row, apart=apart),
        columns(tile.b, tile.kernel, ops, cols, apart=apart, widest=MOST_GAP),
    )


def add_up(
    b: Builder,
    part: Index,
    slices: int,
    area: int,
    sums: Sequence[Reg],
    place: Callable[[Index, int], Index],
    fan: int = 2,
) -> None:
    """Adds the sums of all parts into those of part 0; one of every `fan` parts adds up the others.

    place: the offset in the area of a part's sum number i
    """
    count = slices
    while count > 1:
        first = count // min(fan, count)
        with b.only_if((Bound(part - first, count - first),)):
            for i, total in enumerate(sums):
                b.store(area, place(part - first, i), total)
        b.add(Barrier())
        with b.only_if((Bound(part, first),)):
            for other in range(0, count - first, first):
                for i, total in enumerate(sums):
                    found = Load(area, place(part + other, i), F32, total.lanes)
                    b.set(total.name, Call("add", (total, found), F32, total.lanes))
        count = first
        if count > 1:
            b.add(Barrier())


class SumStore:
    """Stores four adjacent sums, as a vector where memory allows it.

    output: number of the buffer;  given: registers that replace the kernel's loads from a buffer
    """

    def __init__(
        self,
        b: Builder,
        kernel: Kernel,
        places: Places,
        output: int = 0,
        given: Mapping[int, Reg] | None = None,
    ) -> None:
        self.b, self.kernel, self.places = b, kernel, places
        self.output, self.given = output, given or {}
        n = places.ops.n
        self.rest = n.extent % LANES
        self.vectors = kernel.dtype in VECTORS and begins_whole_vectors(kernel.store, n)

    def put(self, row: Index, col: Index, total: Reg) -> None:
        """Stores four sums; nothing is stored beyond the ends."""
        ops = self.places.ops
        ends = (Bound(row, ops.m.extent), Bound(col, ops.n.extent))
        if self.vectors:
            whole = ops.n.extent - self.rest
            with self.b.only_if((ends[0], Bound(col, whole))):
                self.b.store(self.output, self._at(row, col), self.vector(row, col, total))
            if self.rest:
                with self.b.only_if((ends[0], Bound(col - whole, 1))):
                    value = self.vector(row, col, total, self.rest)
                    self.b.store(self.output, self._at(row, col), value, self.rest)
        elif not self.rest:
            with self.b.only_if(ends):
                for lane in range(LANES):
                    self._put_lane(row, col, total, lane)
        else:
            for lane in range(LANES):
                with self.b.only_if((ends[0], Bound(col + lane, ops.n.extent))):
                    self._put_lane(row, col, total, lane)

    def vector(self, row: Index, col: Index, total: Reg, count: int = LANES) -> Expr:
        """The values to store in four columns, the first `count` of which exist."""
        for lane in range(count):
            self.b.compute(f"o{lane}", self._value(total, lane, row, col))
        lanes = (min(lane, count - 1) for lane in range(LANES))
        return Lanes(tuple(Reg(f"o{lane}", self.kernel.dtype) for lane in lanes))

    def _put_lane(self, row: Index, col: Index, total: Reg, lane: int) -> None:
        self.b.store(self.output, self._at(row, col + lane), self._value(total, lane, row, col))

    def _at(self, row: Index, col: Index) -> Index:
        return self.kernel.store.substitute(self.places.out(row, col))

    def _value(self, total: Reg, lane: int, row: Index, col: Index) -> Expr:
        def known(e: Expr) -> Expr:
            if isinstance(e, Load) and e.buffer in self.given:
                return Lane(self.given[e.buffer], lane)
            return Lane(total, lane) if isinstance(e, Acc) else e

        return rewrite(self.kernel.value, known, self.places.out(row, col + lane))
