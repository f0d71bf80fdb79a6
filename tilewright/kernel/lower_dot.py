"""Contractions of 8-bit and 16-bit integers: register tiles whose steps are dot products of groups.

Input: a kernel whose operands are packed in groups of 4 bytes (graph/pack_dot.py), and a schedule.
Output: a `TileFn`.  The row operand is read a group at a time and repeated, the column operand in
vectors of whole groups.  `Schedule.dot` says how bytes meet; every way is exact:

    "pair"  4 products per lane: one instruction per 16 bytes where weights keep to 7 bits
    "wide"  2 products per lane: bytes widened to 16 bits; a column's halves are added at last
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product as combinations
from math import prod

from tilewright.base.dtypes import I8, I16, I32, U8
from tilewright.kernel.blocks import Block
from tilewright.kernel.builder import Builder
from tilewright.kernel.expr import (
    Acc,
    Call,
    Const,
    Dot,
    Expr,
    Join,
    Load,
    Pairs,
    Reg,
    lanes_of,
    rewrite,
    walk,
    zipped,
)
from tilewright.kernel.index import Index, Var, index, unflatten
from tilewright.kernel.loops import Set, TileFn
from tilewright.kernel.lower_contract import tiled
from tilewright.kernel.micro import Micro, Panel, Rows, moved
from tilewright.kernel.reduction import Values
from tilewright.kernel.roles import Operands
from tilewright.kernel.roles_dot import GROUP, byte_windows, dot_operands, pairs_fit
from tilewright.kernel.schedule import Schedule
from tilewright.kernel.spec import Kernel
from tilewright.kernel.vectorize import stride, vector

#: Lanes of an i32 vector, and of a vector of bytes.
LANES, BYTES = 4, 16


def lower_dot(kernel: Kernel, schedule: Schedule) -> TileFn:
    """Tiles of x1 rows by y1 columns; inside, register tiles of x0 by y0, blocks of r1 groups."""
    ops = dot_operands(kernel)
    assert ops is not None
    return tiled(kernel, replace(schedule, stage=False, lanes=LANES), ops, _DotMicro)


class _DotMicro(Micro):
    """Register tiles of i32 sums; "wide" keeps two registers per vector of 4 columns."""

    dtype = I32

    @property
    def _halves(self) -> range:
        return range(2 if self.ops.col.dtype.size == 1 and self.schedule.dot == "wide" else 1)

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
        """(what a sum starts from instead of 0, the value that is then left to compute)"""
        return begun(self.kernel.value) if len(self._halves) == 1 else (None, self.kernel.value)

    def _begin(self, points: Rows, panel: Panel) -> None:
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
        self, rows: Rows, panel: Panel, block: Block, inside: Values, local: Index, count: int
    ) -> None:
        """`count` groups of every row times the same groups of every column."""
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
        small = pairs_fit(self.kernel, self.ops)
        for u in range(count):
            for i, row in enumerate(first):
                splat = moved(row, row_depth * u)
                for (j, h), col in cols.items():
                    acc = self._part(i, j, h)
                    self.b.add(Set(acc.name, Dot(acc, splat, moved(col, col_depth * u), small)))

    def _finish(self, points: Rows, panel: Panel) -> None:
        """Epilogue and store; bytes are stored as many at a time as there are."""
        vectors = self._vectors(panel)
        kernel = replace(self.kernel, value=self._begun[1])
        for i, point in enumerate(points.points):
            sums = [self._part(i, j, 0) for j, _ in vectors]
            if len(self._halves) == 2:
                for j, acc in enumerate(sums):
                    self.b.set(acc.name, Pairs(acc, self._part(i, j, 1)))
            col = panel.number * self.y0
            store_vectors(self.b, kernel, self.ops.n, point, col, sums, vectors[-1][1])


def begun(value: Expr) -> tuple[Expr | None, Expr]:
    """(what the sum may start from instead of 0, the value that is then left to compute)

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
    """Epilogue and store of neighbouring vectors of columns; the last has `valid` (0: all)."""
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


# ---- depthwise -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Taps:
    """Four taps of a window: what each adds to the index of the windows, and their weights."""

    places: tuple[dict[Var, Index] | None, ...]
    weights: Index


def lower_taps(kernel: Kernel, schedule: Schedule) -> TileFn:
    """A window per channel: 16 channels at a time, four taps per dot product.

    Bytes of four taps are zipped until those of one channel lie side by side, as the weights do.
    """
    found = byte_windows(kernel)
    assert found is not None
    n, outer = kernel.axes[-1], kernel.axes[:-1]
    rows = prod(v.extent for v in outer)
    count = Var("rows", rows + 1)
    b = Builder({count: rows}, -(-rows // schedule.x1))
    first = b.let(b.tile * schedule.x1, "first")
    end = b.let_min(first + schedule.x1, index(count))
    with b.loop("row", first, end, extent=rows) as row:
        at = unflatten(row, tuple(v.extent for v in outer))
        values = {v: b.let(i) for v, i in zip(outer, at, strict=True)}
        with b.loop("c", Index(), index(n.extent // BYTES)) as c:
            _channels(b, kernel, found, {**values, n: c * BYTES}, n)
    return b.finish(kernel)


def _channels(b: Builder, kernel: Kernel, ops: Operands, values: Values, n: Var) -> None:
    sums = [Reg(f"s{q}", I32, LANES) for q in range(BYTES // LANES)]
    start, value = begun(kernel.value)
    rest = {v: i for v, i in values.items() if v != n}
    for q, acc in enumerate(sums):
        zero = Const(0, I32, LANES)
        at = values[n] + q * LANES
        b.set(acc.name, zero if start is None else vector(start, n, at, LANES, rest, {}))
    for taps in _groups(kernel, ops, n):
        x = [_tap(b, ops.row, values, place, i) for i, place in enumerate(taps.places)]
        low, high = (
            [_keep(b, f"{name}{i}", zipped(x[i], x[i + 1], 1, upper)) for i in (0, 2)]
            for name, upper in (("lo", False), ("hi", True))
        )
        weights = taps.weights + values[n] * LANES
        for q, acc in enumerate(sums):
            pair = high if q > 1 else low
            row = zipped(pair[0], pair[1], 2, q % 2 == 1)
            load = Load(ops.col.buffer, weights + q * BYTES, I8, BYTES)
            b.set(acc.name, Dot(acc, row, load, pairs_fit(kernel, ops)))
    kernel = replace(kernel, value=value)
    store_vectors(b, kernel, n, rest, values[n], sums, 0)


def _tap(b: Builder, row: Load, values: Values, place: dict[Var, Index] | None, i: int) -> Expr:
    if place is None:
        return Const(0, U8, BYTES)
    at = row.index.substitute({**values, **place})
    return _keep(b, f"x{i}", Load(row.buffer, at, row.dtype, BYTES))


def _keep(b: Builder, name: str, value: Expr) -> Expr:
    if all(isinstance(a, Const) for a in value.args) and value.args:
        return Const(0, U8, lanes_of(value))
    b.set(name, value)
    return Reg(name, U8, lanes_of(value))


def _groups(kernel: Kernel, ops: Operands, n: Var) -> list[_Taps]:
    """The taps in fours, as the weights lie."""
    axes = kernel.stages[0].axes
    slots: dict[int, dict[int, dict[Var, Index]]] = {}
    for point in combinations(*(range(v.extent) for v in axes)):
        place = {v: index(i) for v, i in zip(axes, point, strict=True)}
        at = ops.col.index.substitute({**place, n: Index()}).const
        slots.setdefault(at - at % GROUP, {})[at % GROUP] = place
    return [
        _Taps(tuple(taps.get(i) for i in range(GROUP)), index(at))
        for at, taps in sorted(slots.items())
    ]


