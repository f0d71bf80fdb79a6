"""Stages f16 operands of matrix units without transposing them, eight elements at a time.

Input: an operand of a tile (tile/staging.py). Output: an operand that copies whole vectors of words
where the memory layout allows it. If the operand is contiguous along the reduction, it stays so in
shared memory: each row has a line of steps. Matrix units read row-major and column-major matrices
equally fast.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilewright.base.dtypes import F16, F32
from tilewright.kernel.expr import Call, Expr, Join, Lane, Lanes, Reg
from tilewright.kernel.index import Index
from tilewright.kernel.spec import EIGHT, Kernel
from tilewright.targets.gpu.tile.staging import Floats, Integers
from tilewright.targets.vectors import LANES


def staged_in_vectors(
    side: Floats | Integers, kernel: Kernel, part: int, part_steps: int, gap: int
) -> Floats | Integers:
    """The same operand as f16, in parts.

    part, part_steps: places and steps of a part;  gap: unused elements between two lines
    """
    if isinstance(side, Integers):
        lines = side.layout.unit_steps == EIGHT
        layout = side.in_f16(kernel).layout.in_parts(part, part_steps, gap, deep=lines)
        kind = _IntegerLines if lines else Integers
        return kind(side.b, side.piece, layout, side.weights, side.vectors)
    side, piece = side.in_f16(kernel), side.piece
    lines, is_f16 = side.layout.deep_in_memory, side.load.dtype == F16
    layout = side.layout.in_parts(part, part_steps, gap, deep=lines)
    if lines:
        eights = is_f16 and piece.loads_steps(side.load, EIGHT)
    else:
        whole = part % EIGHT == 0 and layout.panel % EIGHT == 0
        eights = is_f16 and whole and piece.loads_places(side.load, EIGHT)
    layout = replace(layout, lanes=EIGHT if eights else LANES)
    return (_FloatLines if lines else Floats)(side.b, piece, layout, side.load, side.vectors)


class _IntegerLines(Integers):
    """Weights of few bits: a word has eight steps of a column, which are adjacent in its line."""

    def write(self, depth: int) -> None:
        for n, place, step in self.units(depth):
            steps = [Reg(f"{self.piece.name}{n}_step{i}", F32, LANES) for i in range(EIGHT)]
            for i, reg in enumerate(steps):
                self.b.set(reg.name, self.vector(n, i))
            for column in range(LANES):
                fours = (steps[:LANES], steps[LANES:])
                parts = (Lanes(tuple(Lane(reg, column) for reg in four)) for four in fours)
                value = Join(tuple(Call("cast", (part,), F16, LANES) for part in parts))
                self.b.store(self.piece.area, self.layout.where(place + column, step), value)


class _FloatLines(Floats):
    """Floats that are contiguous along the reduction: a thread copies eight steps of a row at a
    time, in vectors of `lanes` steps."""

    def units(self, depth: int) -> Iterator[tuple[int, Index, Index]]:
        """Number, row and first step of each unit; neighbouring threads have neighbouring units."""
        for n, (place, step) in self.b.points_of_thread((self.piece.width, depth // EIGHT)):
            yield n, place, step * EIGHT

    def take(self, n: int, place: Index, step: Index) -> None:
        for i in range(0, EIGHT, self.layout.lanes):
            steps = self._steps(place, step + i)
            self.b.set(self.reg(n, i, self.load.dtype).name, steps)

    def taken(self, n: int, i: int) -> Expr:
        """The vector that begins at step i of unit n."""
        return self.reg(n, i, self.load.dtype)

    def write(self, depth: int) -> None:
        for n, place, step in self.units(depth):
            parts = tuple(
                self._converted(self.taken(n, i)) for i in range(0, EIGHT, self.layout.lanes)
            )
            value = parts[0] if len(parts) == 1 else Join(parts)
            self.b.store(self.piece.area, self.layout.where(place, step), value)

    def _steps(self, place: Index, step: Index) -> Expr:
        if self.vectors:
            return self.element(self.load, place, step, self.layout.lanes)
        return Lanes(tuple(self.element(self.load, place, step + i) for i in range(LANES)))
