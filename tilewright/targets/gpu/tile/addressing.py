"""The position of a product's tile, and the index values at its rows, columns and steps.

Input: a product. Output: whether its tiles may be computed by workgroups; the first row and column
of a tile; the values of the kernel's variables at a row, column and step; both operands, staged.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, gcd, prod

from tilewright.base.errors import required
from tilewright.kernel.builder import Builder, Values
from tilewright.kernel.form import Contraction, QuantisedContraction, classify, product
from tilewright.kernel.gathers import may_trap
from tilewright.kernel.index import Index, multi_index, unflatten
from tilewright.kernel.product_operands import Operands
from tilewright.kernel.spec import Kernel
from tilewright.targets.gpu.tile.staging import (
    MOST_STEP_GAP,
    FloatOperand,
    OperandTile,
    QuantisedOperand,
    column_operand,
)


def fixed_product(kernel: Kernel) -> Operands | None:
    """The operands of a product with fixed extents and no traps, or None.

    Its weights are f32, or integers with scales.  A trap would end one thread, and the others would
    wait for it at a barrier.
    """
    form = classify(kernel)
    if not isinstance(form, (Contraction, QuantisedContraction)) or kernel.extents:
        return None
    return None if may_trap(kernel) else form.operands


def operands(kernel: Kernel) -> Operands:
    """The operands of a product for which `fixed_product` is known to find them."""
    return required(product(kernel), "its form is not a product", kernel=kernel.name)


@dataclass(frozen=True)
class ProductIndices:
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
    indices: ProductIndices
    row0: Index
    col0: Index

    def operand_tiles(self, rows: int, columns: int) -> tuple[OperandTile, OperandTile]:
        """These numbers of rows and columns, in the first two shared areas."""
        first = len(self.kernel.buffers)
        return (
            self.indices.rows(rows, self.row0, first),
            self.indices.columns(columns, self.col0, first + 1),
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
    indices = ProductIndices(ops, dict(zip(ops.outer, others, strict=True)))
    # Written as products, so that index analysis finds that panels and vectors begin here.
    row0 = b.let(strip * band + row, "row") * x1
    return TilePosition(b, kernel, indices, row0, b.let(col, "col") * y1)


def stage_operands(
    tile: TilePosition, widths: tuple[int, int], *, padded: bool = False
) -> tuple[FloatOperand, FloatOperand | QuantisedOperand]:
    """These numbers of rows and columns of a tile, staged in the first two shared areas."""
    ops = tile.indices.ops
    rows, cols = tile.operand_tiles(*widths)
    return (
        FloatOperand.of(tile.b, rows, ops.row, padded=padded),
        column_operand(tile.b, tile.kernel, ops, cols, padded=padded, widest=MOST_STEP_GAP),
    )
