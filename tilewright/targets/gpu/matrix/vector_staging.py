"""Stages f16 operands of matrix units without transposing them, eight elements at a time.

Input: an operand of a tile (tile/staging.py). Output: an operand that copies whole vectors of words
where the memory layout allows it. If the operand is contiguous along the reduction, it stays so in
shared memory: each row has a line of steps. Matrix units read row-major and column-major matrices
equally fast.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from tilewright.base.dtypes import F16, F32
from tilewright.kernel.expr import Call, Expr, Join, Lane, Lanes, Reg
from tilewright.kernel.index import Index, Var, are_adjacent, index, is_multiple
from tilewright.kernel.spec import EIGHT, Kernel
from tilewright.targets.gpu.tile.staging import Floats, Integers, StagedOperand
from tilewright.targets.vectors import LANES


def staged_in_vectors(
    side: StagedOperand, kernel: Kernel, part: int, own: int, gap: int
) -> StagedOperand:
    """The same operand as f16, in parts.

    part, own: rows (or columns) and steps of a part;  gap: unused elements between two lines
    """
    if isinstance(side, Integers) and side.each == EIGHT:
        side = _IntegerLines(side.b, side.piece, side.weights, panel=side.panel)
    elif isinstance(side, Floats) and side.deep:
        side = _Lines(side.b, side.piece, side.load)
    elif isinstance(side, Floats):
        side = _Eights(side.b, side.piece, side.load, panel=side.panel)
    side.as_halves(kernel)
    side.in_parts(part, own, gap)
    return side


class _Eights(Floats):
    """Adjacent rows or columns, copied eight at a time where eight of them are one f16 vector."""

    def in_parts(self, part: int, own: int, gap: int) -> None:
        super().in_parts(part, own, gap)
        whole = part % EIGHT == 0 and self.panel % EIGHT == 0
        if whole and self.load.dtype == F16 and self.loads_vectors(self.load, EIGHT):
            self.lanes = EIGHT


class _InLines(StagedOperand):
    """In shared memory each row or column has a line of steps; `stride` is from line to line."""

    along = True

    def in_parts(self, part: int, own: int, gap: int) -> None:
        self.part, self.own, self.stride = part, own, own + gap

    def size(self, depth: int) -> int:
        return self.part * self.stride

    def within(self, place: Index, step: Index) -> Index:
        return place * self.stride + step


class _IntegerLines(_InLines, Integers):
    """Weights of few bits: a word has eight steps of a column, which are adjacent in its line."""

    def write(self, depth: int) -> None:
        for n, place, step in self._units(depth):
            steps = [Reg(f"{self.piece.name}{n}_step{i}", F32, LANES) for i in range(EIGHT)]
            for i, reg in enumerate(steps):
                self.b.set(reg.name, self.vector(n, i))
            for column in range(LANES):
                fours = (steps[:LANES], steps[LANES:])
                parts = (Lanes(tuple(Lane(reg, column) for reg in four)) for four in fours)
                value = Join(tuple(Call("cast", (part,), F16, LANES) for part in parts))
                self.b.store(self.piece.area, self.where(place + column, step), value)


class _Lines(_InLines, Floats):
    """Floats that are contiguous along the reduction: a thread copies eight steps of a row at a
    time."""

    def as_halves(self, kernel: Kernel) -> None:
        super().as_halves(kernel)
        p, load = self.piece, self.load
        q, k = index(Var("q", p.extent)), index(Var("k", ceil(p.steps / EIGHT))) * EIGHT
        run = [load.index.substitute(p.point(q, k + i)) for i in range(EIGHT)]
        whole = p.steps % EIGHT == 0 and are_adjacent(run) and is_multiple(run[0], EIGHT)
        if whole and load.dtype == F16:
            self.lanes = EIGHT

    def take(self, n: int, place: Index, step: Index) -> None:
        for i in range(0, EIGHT, self.lanes):
            steps = self._steps(place, step + i)
            self.b.set(self.reg(n, i, self.load.dtype).name, steps)

    def taken(self, n: int, i: int) -> Expr:
        """All eight steps of unit number `n`."""
        return self.reg(n, i, self.load.dtype)

    def write(self, depth: int) -> None:
        for n, place, step in self._units(depth):
            parts = tuple(self._half(n, i) for i in range(0, EIGHT, self.lanes))
            value = parts[0] if len(parts) == 1 else Join(parts)
            self.b.store(self.piece.area, self.where(place, step), value)

    def _half(self, n: int, i: int) -> Expr:
        reg = self.taken(n, i)
        return reg if self.load.dtype == F16 else Call("cast", (reg,), F16, LANES)

    def _steps(self, place: Index, step: Index) -> Expr:
        if self.wide:
            return self.element(self.load, place, step, self.lanes)
        return Lanes(tuple(self.element(self.load, place, step + i) for i in range(LANES)))

    def _units(self, depth: int) -> Iterator[tuple[int, Index, Index]]:
        """Number, row and first step of each unit; neighbouring threads have neighbouring units."""
        for n, (place, step) in self.b.points_of_thread((self.piece.width, depth // EIGHT)):
            yield n, place, step * EIGHT
