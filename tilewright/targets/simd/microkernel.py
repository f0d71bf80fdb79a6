"""The register tile of a contraction: x0 rows by y0 columns of sums, kept in registers.

Input: rows, a panel of columns, and a block of the reduction.  Output: statements added to a
`Builder`.  One operand (the "row" operand) is loaded as splats, the other (the "column" operand) as
vectors, from memory or from a staged panel.  The caller has the loops over tiles.

Between two blocks of the reduction the sums are kept in scratch memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from tilewright.base.dtypes import F32, DType
from tilewright.base.errors import required
from tilewright.kernel.builder import Builder, Values, nest
from tilewright.kernel.cache_blocks import BlockedReduction, CacheBlock
from tilewright.kernel.expr import Bound, Call, Const, Expr, Load, Reg, Splat
from tilewright.kernel.index import Index, Var, flatten, index, stride
from tilewright.kernel.loops import Set
from tilewright.kernel.product_operands import Operands
from tilewright.kernel.spec import Kernel
from tilewright.kernel.tree import rewrite, walk
from tilewright.targets.simd.vectorize import vector


@dataclass(frozen=True)
class Panel:
    """The columns of one register tile: the panel's number in the kernel and in the tile, and how
    many of its columns exist."""

    number: Index
    local: Index
    cols: int


class TileRows:
    """The rows of one register tile, from `first` on, and their offsets in the row operand.

    With several row axes, each row's index values and offset are computed here once, before the
    loops over the reduction.
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
            return [b.resolve(self._ops.row.at(i)) for i in at]
        first = b.resolve(self._ops.row.substitute({**values, **self.points[0]}))
        return [shifted(first, step * i) for i in range(len(self.points))]


def _point(b: Builder, ops: Operands, row: Index) -> Values:
    """Index values of the row axes at row number `row`.

    The inner axis is written as `row - outer * extent`, so that an offset takes one division and
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
class Microkernel:
    """Emits register tiles.

    lanes:            elements per vector
    count, row_tiles: rows, and register tiles of rows, of the whole kernel
    staged, partial:  numbers of scratch buffers: a block of columns; sums between blocks
    out:              number of the output buffer
    even:             True if rows are split evenly; False: a run-time number of rows is split into
        whole register tiles, and the bound cuts the last one

    A subclass defines what a step is, where sums start, and how they are stored.
    """

    dtype: ClassVar[DType] = F32

    b: Builder
    kernel: Kernel
    ops: Operands
    lanes: int
    blocks: BlockedReduction
    x0: int
    y0: int
    count: Var
    row_tiles: Index
    staged: int | None = None
    partial: int | None = None
    out: int = 0
    even: bool = True

    # ---- rows and columns of a register tile -----------------------------------------------------

    def emit(
        self,
        first_row: Index,
        row: Index,
        first_panel: Index,
        panel: Index,
        slot: Index,
        block: CacheBlock,
    ) -> None:
        """Emits the register tile (row, panel) of a tile, with its even share of the rows.

        slot: the place of its sums between blocks
        """
        row_tile = self.b.let(first_row + row)
        rows = self.ops.m.extent
        at = first_panel, panel
        tiles = -(-rows // self.x0)
        if not self.even:
            rest = rows - (tiles - 1) * self.x0
            self.b.either(
                Bound(row_tile, tiles if rest == self.x0 else tiles - 1),
                lambda: self._columns(row_tile * self.x0, self.x0, at, slot, block),
                lambda: self._columns(index(rows - rest), rest, at, slot, block),
            )
            return
        small, larger = divmod(rows, tiles)
        if not larger:
            self._columns(row_tile * small, small, at, slot, block)
            return
        # The first `larger` tiles have one row more; both loop bodies begin at the same row.
        more = self.b.let(Index(((self.count, 1),)) - self.row_tiles * small, "larger")
        first = row_tile * small + self.b.let_min(row_tile, more, "before")
        is_larger = Bound(more - row_tile - 1, larger + 1)
        with self.b.branch() as then:
            self._columns(first, small + 1, at, slot, block)
        with self.b.branch() as orelse:
            self._columns(first, small, at, slot, block)
        self.b.choose((is_larger,), then, orelse)

    def _columns(
        self, first: Index, rows: int, at: tuple[Index, Index], slot: Index, block: CacheBlock
    ) -> None:
        base = self.b.let(first, "m")
        self._each_width(*at, lambda panel: self.tile(base, rows, panel, slot, block))

    def _each_width(self, first: Index, local: Index, emit: Callable[[Panel], None]) -> None:
        """Panel `local` of a tile that starts at panel `first`; the last may hold fewer columns."""
        number = self.b.let(first + local)
        cols, y0 = self.ops.n.extent, self.y0
        panels, rest = -(-cols // y0), cols % y0
        if not rest or panels == 1:
            emit(Panel(number, local, rest or y0))
            return
        self.b.either(
            Bound(number, panels - 1),
            lambda: emit(Panel(number, local, y0)),
            lambda: emit(Panel(index(panels - 1), local, rest)),
        )

    def _vectors(self, panel: Panel) -> list[tuple[int, int]]:
        """(number, existing lanes; 0: all) of each vector of the panel."""
        lanes = self.lanes
        count = -(-panel.cols // lanes)
        return [(j, min(panel.cols - j * lanes, lanes) % lanes) for j in range(count)]

    # ---- one register tile -----------------------------------------------------------------------

    def tile(self, base: Index, rows: int, panel: Panel, slot: Index, block: CacheBlock) -> None:
        """Sums over the block, from zero or from the sums of the last block; then the store."""
        b, points = self.b, TileRows(self.b, self.ops, base, rows, block.values)
        if self.partial is None:
            self._begin(points, panel)
            self._reduce(points, panel, block)
            self._finish(points, panel)
            return
        partial = self.partial
        waiting = [(r, slot * self.size + at) for r, at in self._sums(rows, panel)]

        def again() -> None:
            for reg, at in waiting:
                b.set(reg.name, Load(partial, at, reg.dtype, reg.lanes))

        def keep() -> None:
            for reg, at in waiting:
                b.store(partial, at, reg)

        b.either(self.blocks.is_first(block), lambda: self._begin(points, panel), again)
        self._reduce(points, panel, block)
        b.either(self.blocks.is_last(block), lambda: self._finish(points, panel), keep)

    @property
    def size(self) -> int:
        """The number of elements in all sums of a register tile."""
        return self.x0 * self.y0

    def _sums(self, rows: int, panel: Panel) -> list[tuple[Reg, int]]:
        """The registers of sums, and the offset of each in scratch memory between blocks."""
        lanes = self.lanes
        pairs = [(i, j) for i in range(rows) for j, _ in self._vectors(panel)]
        return [(self._sum(i, j), i * self.y0 + j * lanes) for i, j in pairs]

    def _begin(self, points: TileRows, panel: Panel) -> None:
        for reg, _ in self._sums(len(points.points), panel):
            self.b.set(reg.name, Const(0.0, F32, reg.lanes))

    def _finish(self, points: TileRows, panel: Panel) -> None:
        for i, point in enumerate(points.points):
            for j, valid in self._vectors(panel):
                col = panel.number * self.y0 + j * self.lanes
                self._store(point, col, self._sum(i, j), valid)

    def _sum(self, row: int, vec: int) -> Reg:
        return Reg(f"s{row}_{vec}", F32, self.lanes)

    def _reduce(self, rows: TileRows, panel: Panel, block: CacheBlock) -> None:
        self._each_step(
            block,
            lambda inside, local, steps: self._steps(rows, panel, block, inside, local, steps),
        )

    def _each_step(self, block: CacheBlock, emit: Callable[[Values, Index, int], None]) -> None:
        """The loops inside a block: emit(outer axes' values, first step, number of steps)."""
        split = self.blocks
        with nest(self.b, split.inside, block.values) as inside:
            with self.b.loop("k", Index(), block.passes) as k:
                emit(inside, k * split.unroll, split.unroll)
            if block.end is not None:
                with self.b.loop("k", self.b.let(block.passes * split.unroll), block.end) as k:
                    emit(inside, k, 1)
                return
            if not split.rest:
                return
            at = block.passes * split.unroll
            if split.pieces == 1:
                emit(inside, at, split.rest)
            else:
                self.b.either(split.is_last_piece(block), lambda: emit(inside, at, split.rest))

    def _steps(
        self,
        rows: TileRows,
        panel: Panel,
        block: CacheBlock,
        inside: Values,
        local: Index,
        count: int,
    ) -> None:
        """Multiplies, for `count` steps from step `local` of the block, each row with each
        vector."""
        lanes, inner = self.lanes, self.blocks.inner
        vectors = self._vectors(panel)
        values = {**inside, inner: block.start + local}
        first = rows.loads(self.b, values)
        row_depth = stride(self.ops.row.index, inner) or 0
        if self.staged is None:
            cols = [self._column(panel.number, j, valid, values) for j, valid in vectors]
            col_depth = stride(self.ops.col.index, inner) or 0
        else:
            at = [self._staged(panel, inside, local, j) for j, _ in vectors]
            cols = [self.b.resolve(Load(self.staged, i, F32, lanes)) for i in at]
            col_depth = self.y0
        # The smaller set of operands stays in registers.
        pairs = [(i, j) for i in range(len(first)) for j in range(len(vectors))]
        if len(first) < len(vectors):
            pairs.sort(key=lambda pair: pair[1])
        sums = [(i, j, self._sum(i, j)) for i, j in pairs]
        for u in range(count):
            across = [shifted(col, col_depth * u) for col in cols]
            down = [Splat(shifted(row, row_depth * u), lanes) for row in first]
            for i, j, acc in sums:
                self.b.add(Set(acc.name, Call("fma", (down[i], across[j], acc), F32, lanes)))

    def _store(self, at: Values, col: Index, acc: Reg, valid: int) -> None:
        """Epilogue and store of one vector (its first `valid` columns)."""
        lanes = self.lanes
        value = vector(self.kernel.value, self.ops.n, col, lanes, at, {0: acc}, valid)
        self.b.store(self.out, self.kernel.store.substitute({**at, self.ops.n: col}), value, valid)

    # ---- the column operand ----------------------------------------------------------------------

    def stage(self, first: Index, count: Index, block: CacheBlock) -> None:
        """Copies the block's columns, `count` panels, into scratch memory, panel after panel.

        The reduction is the outer loop, since rows of B are contiguous in memory.
        """
        self._each_step(
            block,
            lambda inside, local, steps: self._copy(first, count, block, inside, local, steps),
        )

    def _copy(
        self,
        first: Index,
        count: Index,
        block: CacheBlock,
        inside: Values,
        local: Index,
        steps: int,
    ) -> None:
        values = {**inside, self.blocks.inner: block.start + local}
        depth = stride(self.ops.col.index, self.blocks.inner) or 0
        staged = required(self.staged, "no columns are staged", kernel=self.kernel.name)

        def copy(panel: Panel) -> None:
            for j, valid in self._vectors(panel):
                col = self._column(panel.number, j, valid, values)
                for u in range(steps):
                    at = self._staged(panel, inside, local + u, j)
                    self.b.store(staged, at, shifted(col, depth * u))

        with self.b.loop("np", Index(), count) as panel:
            self._each_width(first, panel, copy)

    def _staged(self, panel: Panel, inside: Values, local: Index, vec: int) -> Index:
        """The offset of a step's vector in the staged block."""
        outer = self.blocks.inside
        shape = (*(v.extent for v in outer), self.blocks.steps)
        step = flatten((*(inside[v] for v in outer), local), shape)
        place = panel.local * self.blocks.points + step
        return place * self.y0 + vec * self.lanes

    def _column(self, panel: Index, vec: int, valid: int, values: Values) -> Expr:
        """Loads one vector of columns at the first step from the operand's own memory."""
        lanes = self.lanes
        start = panel * self.y0 + vec * lanes
        read = valid if self._overruns(vec, valid) else 0
        return self.b.resolve(vector(self.ops.col, self.ops.n, start, lanes, values, {}, read))

    def _overruns(self, vec: int, valid: int) -> bool:
        """True if a whole vector at the last columns would read past the buffer, which has no
        padding."""
        if not valid:
            return False
        if any(isinstance(node, Load) for node in walk(self.ops.col) if node is not self.ops.col):
            return True  # a table of indices has no more entries than there are columns
        start = self.ops.n.extent // self.y0 * self.y0 + vec * self.lanes
        last = self.ops.col.index.substitute({self.ops.n: index(start + self.lanes - 1)})
        low, high = last.bounds
        return low < 0 or high >= self.kernel.buffers[self.ops.col.buffer].size


def shifted(e: Expr, by: int) -> Expr:
    """The same expression with all loads moved by `by` elements."""
    if not by:
        return e
    if isinstance(e, Load):
        return e.at(e.index + by)
    return rewrite(e, lambda n: n.at(n.index + by) if isinstance(n, Load) else n)
