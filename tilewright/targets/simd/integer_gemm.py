"""Contractions of 8-bit and 16-bit integers: register tiles whose steps are dot products of groups.

Input: a kernel whose operands are packed in groups of 4 bytes (graph/passes/pack_weights.py), and a
schedule.  Output: a `TileFn`.  A group of the row operand is loaded and repeated over the lanes;
the column operand is loaded as vectors of whole groups.  The schedule's `dot` says how bytes are
multiplied; both methods are exact:

    "pair"  4 products per lane: one instruction per 16 bytes if weights have at most 7 bits
    "wide"  2 products per lane: bytes are widened to 16 bits; a column's halves are added last
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from tilewright.base.dtypes import I16, I32
from tilewright.kernel.builder import Builder, Values
from tilewright.kernel.cache_blocks import CacheBlock
from tilewright.kernel.expr import Acc, Call, Const, Dot, Expr, Join, Load, PairSums, Reg
from tilewright.kernel.extents import reduces
from tilewright.kernel.form import IntegerContraction, form_as
from tilewright.kernel.index import Index, Var, stride
from tilewright.kernel.loops import Set, TileFn
from tilewright.kernel.spec import Kernel
from tilewright.kernel.tree import rewrite, walk
from tilewright.targets.lite_space import Tile
from tilewright.targets.simd.contraction import TiledSchedule, tiled
from tilewright.targets.simd.machine import TILE_WORK, Machine, around
from tilewright.targets.simd.microkernel import Microkernel, Panel, TileRows, shifted
from tilewright.targets.simd.product_space import ProductRules
from tilewright.targets.simd.vectorize import BYTES, LANES, storable, vector

#: The number of dot products per result below which the epilogue costs more than they do.
SHALLOW = 9


@dataclass(frozen=True)
class IntegerSchedule(TiledSchedule):
    """Register tiles of i32 sums; a step is one group."""

    tag = "bytes"
    dot: str = "wide"


def suits(kernel: Kernel) -> bool:
    """True if results can be stored as vectors and the reduction has a fixed length."""
    return storable(kernel.dtype) and not reduces(kernel)


def default(kernel: Kernel, machine: Machine) -> IntegerSchedule:
    """As for f32, but a dot product needs a register for its parts, and "wide" two per vector."""
    form = form_as(kernel, IntegerContraction)
    roles, pair = form.operands, form.narrow
    per_vector = 2 if roles.col.dtype.size == 1 and not pair else 1
    rows, cols = roles.m.extent, roles.n.extent
    depth = roles.steps * form.group
    room = machine.registers - 2  # minus one row value and one product
    x0 = max(1, min(rows, 8, (room - 2 * per_vector) // (2 * per_vector)))
    vectors = 2 if x0 > 2 or per_vector == 2 else 4
    if pair and roles.steps <= SHALLOW and cols >= 4 * machine.lanes:
        # Stores cost more than loads here, so take whole vectors of bytes.
        x0, vectors = max(1, min(rows, (room - 4) // 4)), 4
    y0 = vectors * machine.lanes
    x1 = x0 * max(4, min(16, machine.l2 // 2 // (roles.row.dtype.size * depth * x0)))
    y1 = y0 * max(1, min(-(-cols // y0), 2 * TILE_WORK // max(1, x1 * y0 * depth)))
    dot = "pair" if pair else "wide"
    return IntegerSchedule(x0=x0, y0=y0, r0=4, x1=x1, y1=y1, order="mn", dot=dot)


def rules(kernel: Kernel, default: IntegerSchedule, machine: Machine) -> IntegerRules:
    form = form_as(kernel, IntegerContraction)
    return IntegerRules(kernel, default, machine, form.operands, form.narrow)


@dataclass(frozen=True)
class IntegerRules(ProductRules[IntegerSchedule]):
    """A sum takes one register, or two if products do not fit 16 bits."""

    narrow: bool

    def made(self, tile: Tile) -> IntegerSchedule:
        return IntegerSchedule(tile.x0, tile.y0, tile.r0, tile.x1, tile.y1, tile.r1)

    def extended(self) -> Iterator[IntegerSchedule]:
        d, lanes = self.normal_default, self.machine.lanes
        rows, _ = self.sizes
        kinds = ("pair", "wide") if self.narrow else (d.dot,)
        for x0 in range(1, min(rows, 8) + 1):
            for v in (1, 2, 4):
                if 2 <= x0 * v <= self.machine.registers - 3:
                    yield replace(d, x0=x0, y0=v * lanes, x1=max(1, d.x1 // d.x0) * x0)
        for s in (d, replace(d, order="nm" if d.order == "mn" else "mn")):
            for dot in kinds:
                for r0 in (1, 2, 4, 8):
                    yield replace(s, r0=r0, dot=dot)
            for x1 in around(d.x1):
                yield replace(s, x1=x1)
            for y1 in around(d.y1):
                yield replace(s, y1=y1)
            for r1 in (64, 128, 256):
                yield replace(s, r1=r1)

    def normal(self, s: IntegerSchedule) -> IntegerSchedule:
        return self.normal_loops(s)

    def tiles(self, s: IntegerSchedule) -> int:
        return self.count(s.x1, s.y1)

    def scratch(self, s: IntegerSchedule) -> int:
        return self.waiting(s)


def lower(kernel: Kernel, schedule: IntegerSchedule) -> TileFn:
    """Tiles of x1 rows by y1 columns; inside, register tiles of x0 by y0, blocks of r1 groups."""
    form = form_as(kernel, IntegerContraction)
    make = partial(_DotMicrokernel, narrow=form.narrow, dot=schedule.dot)
    group = replace(form.operands.row, lanes=form.group)
    return tiled(kernel, schedule, replace(form.operands, row=group), LANES, make)


@dataclass
class _DotMicrokernel(Microkernel):
    """Register tiles of i32 sums; "wide" uses two registers per vector of 4 columns."""

    dtype = I32

    narrow: bool = False
    dot: str = "wide"

    @property
    def _halves(self) -> range:
        return range(2 if self.ops.col.dtype.size == 1 and self.dot == "wide" else 1)

    @property
    def size(self) -> int:
        return self.x0 * self.y0 * len(self._halves)

    def _sums(self, rows: int, panel: Panel) -> list[tuple[Reg, int]]:
        vectors, halves = range(len(self._vectors(panel))), self._halves
        parts = [self._part(i, j, h) for i in range(rows) for j in vectors for h in halves]
        return [(part, n * LANES) for n, part in enumerate(parts)]

    def _part(self, row: int, vec: int, half: int) -> Reg:
        return Reg(f"s{row}_{vec}{'ab'[half]}", I32, LANES)

    @property
    def _begun(self) -> tuple[Expr | None, Expr]:
        """The start value of a sum (None: 0), and the value that remains to be computed from the
        sum."""
        return begun(self.kernel.value) if len(self._halves) == 1 else (None, self.kernel.value)

    def _begin(self, points: TileRows, panel: Panel) -> None:
        start, _ = self._begun
        for i, point in enumerate(points.points):
            for j, valid in self._vectors(panel):
                first: Expr = Const(0, I32, LANES)
                if start is not None:
                    col = panel.number * self.y0 + j * LANES
                    first = vector(start, self.ops.n, col, LANES, point, {}, valid)
                for h in self._halves:
                    self.b.set(self._part(i, j, h).name, first)

    def _steps(
        self,
        rows: TileRows,
        panel: Panel,
        block: CacheBlock,
        inside: Values,
        local: Index,
        count: int,
    ) -> None:
        """Multiplies `count` groups of every row with the same groups of every column."""
        inner, col_load = self.blocks.inner, self.ops.col
        group = self.kernel.stages[0].axes[-1]
        values = {**inside, inner: block.start + local, group: Index()}
        first = rows.loads(self.b, values)
        width = LANES // len(self._halves)
        cols: dict[tuple[int, int], Expr] = {}
        for j, _ in self._vectors(panel):
            for h in self._halves:
                start = panel.number * self.y0 + j * LANES + h * width
                where = col_load.index.substitute({**values, self.ops.n: start})
                load = Load(col_load.buffer, where, col_load.dtype, group.extent * width)
                cols[j, h] = self.b.resolve(load)
        row_depth, col_depth = (stride(x.index, inner) or 0 for x in (self.ops.row, col_load))
        for u in range(count):
            for i, row in enumerate(first):
                splat = shifted(row, row_depth * u)
                for (j, h), col in cols.items():
                    acc = self._part(i, j, h)
                    self.b.add(
                        Set(acc.name, Dot(acc, splat, shifted(col, col_depth * u), self.narrow))
                    )

    def _finish(self, points: TileRows, panel: Panel) -> None:
        """Epilogue and store; bytes are stored several vectors at a time where possible."""
        vectors = self._vectors(panel)
        kernel = replace(self.kernel, value=self._begun[1])
        for i, point in enumerate(points.points):
            sums = [self._part(i, j, 0) for j, _ in vectors]
            if len(self._halves) == 2:
                for j, acc in enumerate(sums):
                    self.b.set(acc.name, PairSums(acc, self._part(i, j, 1)))
            col = panel.number * self.y0
            store_vectors(self.b, kernel, self.ops.n, point, col, sums, vectors[-1][1])


def begun(value: Expr) -> tuple[Expr | None, Expr]:
    """The start value of a sum (None: 0), and the value that remains to be computed from the sum.

    round(f32(r0 + b[n]) * s)   ->   b[n],  round(f32(r0) * s)
    """
    sums = [e for e in walk(value) if isinstance(e, Call) and e.fn == "add" and e.dtype == I32]
    adds = [e for e in sums if isinstance(e.operands[0], Acc)]
    accs = sum(isinstance(e, Acc) for e in walk(value))
    if len(adds) != 1 or accs != 1:
        return None, value
    acc, start = adds[0].operands
    return start, rewrite(value, lambda e: acc if e == adds[0] else e)


def store_vectors(
    b: Builder, kernel: Kernel, n: Var, at: Values, start: Index, sums: list[Reg], valid: int
) -> None:
    """Epilogue and store of adjacent vectors of columns; the last has `valid` columns (0: all)."""
    values = []
    for j, acc in enumerate(sums):
        first = valid if acc is sums[-1] else 0
        values.append(vector(kernel.value, n, start + j * LANES, LANES, at, {0: acc}, first))
    j = 0
    while j < len(values):
        most = BYTES // LANES if kernel.dtype.size == 1 else 2 if kernel.dtype == I16 else 1
        whole = len(values) - j - bool(valid)
        count = max((c for c in (4, 2, 1) if c <= min(most, whole)), default=1)
        value = values[j] if count == 1 else Join(tuple(values[j : j + count]))
        to = kernel.store.substitute({**at, n: start + j * LANES})
        last = j + count == len(values)
        b.store(0, to, value, valid if last else 0)
        j += count
