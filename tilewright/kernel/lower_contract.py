"""Contractions: matmul, batched matmul and convolution as one register-tiled loop nest.

Input: a kernel that sums products of two loads.  Output: a `TileFn`.  One operand (the "row"
operand) is read as splats, the other (the "column" operand) as vectors; a tile keeps x0 * y0 sums
in registers.  Which of the two is a weight, and how it is packed, is only in its index.

The rows of a convolution are its output pixels, all of them in one line; where the image's width
does not divide a register tile, each of its rows has an address of its own (`_Rows`).

Rows are split evenly: 128 rows in register tiles of at most 6 become 18 tiles of 6 and 4 of 5, so
that no tile is left with one lonely row.  At most two bodies exist per kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from math import prod

from tilewright.base.dtypes import F32
from tilewright.kernel.builder import Builder
from tilewright.kernel.expr import (
    Bound,
    Call,
    Const,
    Expr,
    Load,
    Reg,
    Splat,
    rewrite,
    walk,
)
from tilewright.kernel.index import Index, Var, index, unflatten
from tilewright.kernel.loops import Set, TileFn
from tilewright.kernel.reduction import Values, nest
from tilewright.kernel.roles import Operands, operands
from tilewright.kernel.schedule import Schedule
from tilewright.kernel.spec import Kernel
from tilewright.kernel.vectorize import stride, vector


def lower_contraction(kernel: Kernel, schedule: Schedule) -> TileFn:
    """Tiles of x1 rows by y1 columns; inside, register tiles of x0 by y0."""
    ops = operands(kernel)
    assert ops is not None
    outer_extents = tuple(v.extent for v in ops.outer)
    rows, cols = ops.m.extent, ops.n.extent
    x0, y0 = min(schedule.x0, rows), schedule.y0
    row_tiles, panels = -(-rows // x0), -(-cols // y0)
    group = max(1, schedule.x1 // x0)
    span = max(1, min(schedule.y1 // y0, panels))
    col_tiles, row_groups = -(-panels // span), -(-row_tiles // group)
    count = Var("rows", rows + 1)
    grid = (*outer_extents, row_groups, col_tiles)
    b = Builder({count: rows}, prod(grid))
    all_row_tiles = b.let((index(count) + (x0 - 1)) // x0, "row_tiles")
    *outer_at, group_at, col_at = (b.let(i) for i in unflatten(b.tile, grid))
    values = dict(zip(ops.outer, outer_at, strict=True))
    first_row, first_panel = b.let(group_at * group), b.let(col_at * span)
    end_row = b.let_min(first_row + group, all_row_tiles)
    end_panel = b.let_min(first_panel + span, index(panels))
    micro = _Micro(b, kernel, ops, schedule, x0, y0, count, all_row_tiles)
    rows_of = _Span(first_row, end_row, row_tiles)
    cols_of = _Span(first_panel, end_panel, panels)
    with _walk(b, schedule.order, rows_of, cols_of) as (row_tile, panel):
        micro.emit(row_tile, panel, values)
    return b.finish(kernel)


@dataclass(frozen=True)
class _Span:
    """Register tiles from `first` to `end`, of `count` in the whole kernel."""

    first: Index
    end: Index
    count: int


@contextmanager
def _walk(b: Builder, order: str, rows: _Span, cols: _Span) -> Iterator[tuple[Index, Index]]:
    """The two loops over register tiles, in the schedule's order (outer first)."""
    with ExitStack() as loops:

        def walk(stem: str, span: _Span) -> Index:
            loop = b.loop(stem, span.first, span.end, extent=span.count)
            return loops.enter_context(loop)

        if order == "nm":
            panel = walk("nt", cols)
            yield walk("mt", rows), panel
        else:
            row = walk("mt", rows)
            yield row, walk("nt", cols)


class _Rows:
    """The rows of one register tile, from `first` on: which points they are and where they lie.

    Several row axes: each row's axes and its offset in the row operand are named here, once, before
    the loops over the reduction.
    """

    def __init__(self, b: Builder, ops: Operands, first: Index, count: int, values: Values) -> None:
        self._ops = ops
        self.points = [values | _point(b, ops, first + i) for i in range(count)]
        moving = ops.row.index.terms
        self._own = Index(tuple((atom, c) for atom, c in moving if atom in ops.rows))
        self._offsets = [b.let(self._own.substitute(p), "x") for p in self.points]

    def loads(self, b: Builder, values: Values) -> list[Expr]:
        """The row operand at the reduction step of `values`, for each row."""
        step = self._ops.row_step
        if step is None:
            rest = (self._ops.row.index - self._own).substitute(values)
            at = [offset + rest for offset in self._offsets]
            return [b.resolve(replace(self._ops.row, index=i)) for i in at]
        first = b.resolve(self._ops.row.substitute({**values, **self.points[0]}))
        return [_moved(first, step * i) for i in range(len(self.points))]


def _point(b: Builder, ops: Operands, row: Index) -> Values:
    """The row axes at row number `row`.

    The inner axis stays `row - outer * extent`, so that with it an offset takes one division and
    one multiplication.
    """
    axes = ops.rows or (ops.m,)
    point: Values = {}
    for axis in reversed(axes[1:]):
        outer = b.let(row // axis.extent, "q")
        point[axis] = row - outer * axis.extent
        row = outer
    return {**point, axes[0]: row}


@dataclass
class _Micro:
    """Emits register tiles: sums in registers over the whole reduction, then the store."""

    b: Builder
    kernel: Kernel
    ops: Operands
    schedule: Schedule
    x0: int
    y0: int
    count: Var
    row_tiles: Index

    def emit(self, row_tile: Index, panel: Index, values: Values) -> None:
        """The register tile number (row_tile, panel), with as many rows as its even share."""
        rows = self.ops.m.extent
        tiles = -(-rows // self.x0)
        small, larger = divmod(rows, tiles)
        if not larger:
            self._columns(row_tile * small, small, panel, values)
            return
        # the first `larger` tiles have one row more; both bodies begin at the same row
        more = self.b.let(Index(((self.count, 1),)) - self.row_tiles * small, "larger")
        first = row_tile * small + self.b.let_min(row_tile, more, "before")
        is_larger = Bound(more - row_tile - 1, larger + 1)
        with self.b.branch() as then:
            self._columns(first, small + 1, panel, values)
        with self.b.branch() as orelse:
            self._columns(first, small, panel, values)
        self.b.choose((is_larger,), then, orelse)

    def _columns(self, first: Index, rows: int, panel: Index, values: Values) -> None:
        """All columns of the panel; the last panel may hold fewer."""
        base = self.b.let(first, "m")
        cols = self.ops.n.extent
        panels, rest = -(-cols // self.y0), cols % self.y0
        if not rest or panels == 1:
            self._tile(base, rows, panel, values, rest or self.y0)
            return
        with self.b.branch() as full:
            self._tile(base, rows, panel, values, self.y0)
        with self.b.branch() as edge:
            self._tile(base, rows, index(panels - 1), values, rest)
        self.b.choose((Bound(panel, panels - 1),), full, edge)

    def _tile(self, base: Index, rows: int, panel: Index, values: Values, cols: int) -> None:
        """Sums, epilogue and store of `rows` rows and the first `cols` columns of a panel."""
        lanes = self.schedule.lanes
        vectors = [(j, min(cols - j * lanes, lanes) % lanes) for j in range(-(-cols // lanes))]
        pixels = _Rows(self.b, self.ops, base, rows, values)
        for i in range(rows):
            for j, _ in vectors:
                self.b.set(self._sum(i, j).name, Const(0.0, F32, lanes))
        *outer, inner = self.kernel.stages[0].axes or (Var("one", 1),)
        unroll = max(1, min(self.schedule.r0, inner.extent))
        passes, rest = divmod(inner.extent, unroll)
        with nest(self.b, tuple(outer), values) as inside:
            with self.b.loop("k", Index(), index(passes)) as k:
                at = {**inside, inner: k * unroll}
                self._steps(pixels, panel, vectors, at, inner, unroll)
            if rest:
                at = {**inside, inner: index(passes * unroll)}
                self._steps(pixels, panel, vectors, at, inner, rest)
        for i, at in enumerate(pixels.points):
            for j, valid in vectors:
                self._store(at, panel * self.y0 + j * lanes, self._sum(i, j), valid)

    def _sum(self, row: int, vec: int) -> Reg:
        return Reg(f"s{row}_{vec}", F32, self.schedule.lanes)

    def _steps(
        self,
        pixels: _Rows,
        panel: Index,
        vectors: list[tuple[int, int]],
        values: Values,
        inner: Var,
        count: int,
    ) -> None:
        """`count` reduction steps: every row's splat times every vector of columns."""
        lanes = self.schedule.lanes
        rows = pixels.loads(self.b, values)
        cols = [self._column(panel, j, valid, values) for j, valid in vectors]
        row_depth = stride(self.ops.row.index, inner) or 0
        col_depth = stride(self.ops.col.index, inner) or 0
        for u in range(count):
            across = [_moved(col, col_depth * u) for col in cols]
            for i, row in enumerate(rows):
                splat = Splat(_moved(row, row_depth * u), lanes)
                for (j, _), col in zip(vectors, across, strict=True):
                    acc = self._sum(i, j)
                    self.b.add(Set(acc.name, Call("fma", (splat, col, acc), F32, lanes)))

    def _column(self, panel: Index, vec: int, valid: int, values: Values) -> Expr:
        """One vector of columns at the first step."""
        lanes = self.schedule.lanes
        start = panel * self.y0 + vec * lanes
        read = valid if self._overruns(vec, valid) else 0
        return self.b.resolve(vector(self.ops.col, self.ops.n, start, lanes, values, {}, read))

    def _overruns(self, vec: int, valid: int) -> bool:
        """True if a whole vector at the last columns would leave the buffer (no padding)."""
        if not valid:
            return False
        if any(isinstance(node, Load) for node in walk(self.ops.col) if node is not self.ops.col):
            return True  # a table of indices holds no more of them than there are columns
        start = self.ops.n.extent // self.y0 * self.y0 + vec * self.schedule.lanes
        last = self.ops.col.index.substitute({self.ops.n: index(start + self.schedule.lanes - 1)})
        low, high = last.bounds
        return low < 0 or high >= self.kernel.buffers[self.ops.col.buffer].size

    def _store(self, at: Values, col: Index, acc: Reg, valid: int) -> None:
        """Epilogue and store of one vector (its first `valid` columns)."""
        lanes = self.schedule.lanes
        value = vector(self.kernel.value, self.ops.n, col, lanes, at, {0: acc}, valid)
        self.b.store(0, self.kernel.store.substitute({**at, self.ops.n: col}), value, valid)


def _moved(e: Expr, by: int) -> Expr:
    """The same loads, `by` elements further on."""
    if not by:
        return e
    return rewrite(e, lambda n: replace(n, index=n.index + by) if isinstance(n, Load) else n)
