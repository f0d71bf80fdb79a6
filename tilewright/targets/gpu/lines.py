"""An operand that lies along the depth, and in shared memory, too: a line of steps for each row.

Input: a load whose neighbouring steps lie side by side.  Output: a side of a tile (staging.py) for
matrix units, which read rows as well as steps; nothing is transposed on the way.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from tilewright.kernel.expr import Expr, Lanes
from tilewright.kernel.index import Index, unflatten
from tilewright.targets.gpu.staging import LANES, Floats, own


class Lines(Floats):
    """A unit is LANES steps of one row; `stride` is from row to row, with a gap between them."""

    along = True

    def in_parts(self, part: int, gap: int, depth: int) -> None:
        self.part, self.stride = part, depth + gap

    def size(self, depth: int) -> int:
        return self.part * self.stride

    def where(self, place: Index, step: Index, depth: int) -> Index:
        return place * self.stride + step

    def take(self, n: int, place: Index, step: Index) -> None:
        value = (
            self.element(self.load, place, step, LANES) if self.wide else self._steps(place, step)
        )
        self.b.set(self.reg(n, 0, self.load.dtype).name, value)

    def taken(self, n: int, i: int) -> Expr:
        return self.reg(n, 0, self.load.dtype)

    def write(self, depth: int) -> None:
        for n, place, step in self._units(depth):
            self.b.store(self.piece.area, self.where(place, step, depth), self.kept(n, 0))

    def _steps(self, place: Index, step: Index) -> Expr:
        return Lanes(tuple(self.element(self.load, place, step + i) for i in range(LANES)))

    def _units(self, depth: int) -> Iterator[tuple[int, Index, Index]]:
        """Number, row and first step of each; neighbours read neighbours."""
        along = depth // LANES
        for n in range(ceil(self.piece.width * along / self.b.threads)):
            number = self.b.thread + n * self.b.threads
            with own(self.b, number, self.piece.width * along) as flat:
                place, step = unflatten(flat, (self.piece.width, along))
                yield n, place, step * LANES
