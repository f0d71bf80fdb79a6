"""Columns of a product that lie in memory as integers with scales: of 4 bits, eight in a word, or
bytes.

Input: a product with block-quantised weights (kernel/quantised.py).  Output: a side of a tile, with
units of 4 columns and the steps of a word, or of four bytes.  Integers become f32 in registers,
where they are used.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.base.dtypes import F32
from tilewright.base.errors import CompilerBug
from tilewright.kernel.builder import Builder
from tilewright.kernel.expr import Call, Const, Expr, Load, Reg, Splat
from tilewright.kernel.form import BlockContraction, classify
from tilewright.kernel.index import Index, index
from tilewright.kernel.layout import Blocks
from tilewright.kernel.quantised import Quantised
from tilewright.kernel.roles import Operands
from tilewright.kernel.spec import Kernel
from tilewright.kernel.tree import walk
from tilewright.targets.gpu.places import Placed
from tilewright.targets.gpu.schedule import MOST_GAP
from tilewright.targets.gpu.staging import LANES, Floats, Piece, Side


class Integers(Side):
    """Registers of a unit: a word of each column, or of each step; the columns' scales and, where
    there are any, zeros."""

    def __init__(
        self, b: Builder, piece: Piece, weights: Quantised, *, apart: bool = False, panel: int = 1
    ) -> None:
        """apart: words lie so that neighbouring threads write to other banks"""
        ops = weights.operands
        super().__init__(b, piece, panel)
        self.weights, self.each = weights, weights.together
        self.gap = self.run * LANES if apart and self.run * LANES < piece.width else 0
        whole = {x: self.in_vectors(x) for e in (weights.scale, weights.zero) for x in _loads(e)}
        self.whole = whole | {ops.col: self.in_vectors(ops.col)}

    @property
    def words(self) -> int:
        """Elements of memory of a column in a unit."""
        return self.each // self.weights.word

    def take(self, n: int, place: Index, step: Index) -> None:
        col = self.weights.operands.col
        for j in range(self.words):
            words = self.neighbours(col, place, step + j * self.weights.word, self.whole[col])
            self.b.set(self.reg(n, j, col.dtype).name, words)
        self.b.set(self.scale(n).name, self.across(self.weights.scale, place, step))
        zero = self.zero(n)
        if isinstance(zero, Reg):
            self.b.set(zero.name, self.across(self.weights.zero, place, step))

    def taken(self, n: int, i: int) -> Expr:
        """quantum - zero"""
        w, (j, i) = self.weights, divmod(i, self.weights.word)
        words = self.reg(n, j, w.operands.col.dtype)
        whole = in_lanes(w.at(w.quantum, index(i)), lambda _: words)
        return whole if w.centred else Call("sub", (whole, self.zero(n)), F32, LANES)

    def factor(self, n: int) -> Expr:
        return self.scale(n)

    def scale(self, n: int) -> Reg:
        """The scales of unit n."""
        return self.reg(n, self.words)

    def zero(self, n: int) -> Reg | Const:
        """The zero points of unit n."""
        zero = self.weights.zero
        if isinstance(zero, Const):
            return Const(zero.value, F32, LANES)
        return self.reg(n, self.words + 1)

    def across(self, e: Expr, place: Index, step: Index) -> Expr:
        """A scale or a zero point of each of LANES neighbouring columns."""
        return in_lanes(e, lambda x: self.neighbours(x, place, step, self.whole[x]))


def columns(
    b: Builder,
    kernel: Kernel,
    ops: Operands,
    piece: Piece,
    *,
    apart: bool = False,
    widest: int,
) -> Side:
    """The column operand, as it lies in memory; panels of more than `widest` columns count as
    rows."""
    form, panel = classify(kernel), panel_of(kernel, ops)
    panel = panel if panel <= widest else 1
    if isinstance(form, BlockContraction):
        return Integers(b, piece, form.weights, apart=apart, panel=panel)
    return Floats(b, piece, ops.col, apart=apart, panel=panel)


def sides(tile: Placed, widths: tuple[int, int], *, apart: bool = False) -> tuple[Side, Side]:
    """So many rows and columns of a tile, in the first two shared areas."""
    ops = tile.places.ops
    rows, cols = tile.pieces(*widths)
    return (
        Floats(tile.b, rows, ops.row, apart=apart),
        columns(tile.b, tile.kernel, ops, cols, apart=apart, widest=MOST_GAP),
    )


def panel_of(kernel: Kernel, ops: Operands) -> int:
    """Columns that lie together in memory; 1 if these are not several panels."""
    layout = kernel.buffers[ops.col.buffer].layout
    return layout.width if isinstance(layout, Blocks) else ops.panel


def _loads(e: Expr) -> list[Load]:
    return [x for x in walk(e) if isinstance(x, Load)]


def in_lanes(e: Expr, of_load: Callable[[Load], Expr]) -> Expr:
    """The expression on LANES neighbours, given each of its loads; registers are the same for
    all."""
    match e:
        case Const(value, dtype, _):
            return Const(value, dtype, LANES)
        case Load():
            return of_load(e)
        case Reg():
            return Splat(e, LANES)
        case Call(fn, operands, dtype, _):
            return Call(fn, tuple(in_lanes(x, of_load) for x in operands), dtype, LANES)
    raise CompilerBug(f"no vector of {type(e).__name__}")
