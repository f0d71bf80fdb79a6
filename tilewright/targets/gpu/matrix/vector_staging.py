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
from tilewright.kernel.spec import F16_VECTOR, Kernel
from tilewright.targets.gpu.tile.staging import FloatOperand, QuantisedOperand
from tilewright.targets.vectors import LANES


def staged_in_vectors(
    operand: FloatOperand | QuantisedOperand, kernel: Kernel, part: int, part_steps: int, gap: int
) -> FloatOperand | QuantisedOperand:
    """The same operand as f16, in parts.

    part, part_steps: places and steps of a part;  gap: unused elements between two lines
    """
    if isinstance(operand, QuantisedOperand):
        lines = operand.layout.unit_steps == F16_VECTOR
        layout = operand.in_f16(kernel).layout.in_parts(part, part_steps, gap, deep=lines)
        kind = _QuantisedLines if lines else QuantisedOperand
        return kind(operand.b, operand.tile, layout, operand.weights, operand.vectors)
    operand, operand_tile = operand.in_f16(kernel), operand.tile
    lines, is_f16 = operand.layout.deep_in_memory, operand.load.dtype == F16
    layout = operand.layout.in_parts(part, part_steps, gap, deep=lines)
    if lines:
        eights = is_f16 and operand_tile.loads_steps(operand.load, F16_VECTOR)
    else:
        whole = part % F16_VECTOR == 0 and layout.panel % F16_VECTOR == 0
        eights = is_f16 and whole and operand_tile.loads_places(operand.load, F16_VECTOR)
    layout = replace(layout, lanes=F16_VECTOR if eights else LANES)
    return (_FloatLines if lines else FloatOperand)(
        operand.b, operand_tile, layout, operand.load, operand.vectors
    )


class _QuantisedLines(QuantisedOperand):
    """Weights of few bits: a word has eight steps of a column, which are adjacent in its line."""

    def store_block(self, depth: int) -> None:
        for n, place, step in self.units(depth):
            steps = [Reg(f"{self.tile.name}{n}_step{i}", F32, LANES) for i in range(F16_VECTOR)]
            for i, reg in enumerate(steps):
                self.b.set(reg.name, self.vector(n, i))
            for column in range(LANES):
                fours = (steps[:LANES], steps[LANES:])
                parts = (Lanes(tuple(Lane(reg, column) for reg in four)) for four in fours)
                value = Join(tuple(Call("cast", (part,), F16, LANES) for part in parts))
                self.b.store(self.tile.area, self.layout.where(place + column, step), value)


class _FloatLines(FloatOperand):
    """Floats that are contiguous along the reduction: a thread copies eight steps of a row at a
    time, in vectors of `lanes` steps."""

    def units(self, depth: int) -> Iterator[tuple[int, Index, Index]]:
        """Number, row and first step of each unit; neighbouring threads have neighbouring units."""
        for n, (place, step) in self.b.points_of_thread((self.tile.width, depth // F16_VECTOR)):
            yield n, place, step * F16_VECTOR

    def load_unit(self, n: int, place: Index, step: Index) -> None:
        for i in range(0, F16_VECTOR, self.layout.lanes):
            steps = self._steps(place, step + i)
            self.b.set(self.reg(n, i, self.load.dtype).name, steps)

    def loaded_step(self, n: int, i: int) -> Expr:
        """The vector that begins at step i of unit n."""
        return self.reg(n, i, self.load.dtype)

    def store_block(self, depth: int) -> None:
        for n, place, step in self.units(depth):
            parts = tuple(
                self._converted(self.loaded_step(n, i))
                for i in range(0, F16_VECTOR, self.layout.lanes)
            )
            value = parts[0] if len(parts) == 1 else Join(parts)
            self.b.store(self.tile.area, self.layout.where(place, step), value)

    def _steps(self, place: Index, step: Index) -> Expr:
        if self.vectors:
            return self.element(self.load, place, step, self.layout.lanes)
        return Lanes(tuple(self.element(self.load, place, step + i) for i in range(LANES)))
