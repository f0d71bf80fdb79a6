"""Building blocks of attention's loops: rows and keys of a tile, scratch memory, register tiles.

Input: a kernel and its schedule. Output: statements added to a `Builder`. attention_loops.py calls
these blocks in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod

from tilewright.base.dtypes import F32
from tilewright.kernel.builder import Builder, Values
from tilewright.kernel.cache_blocks import CacheBlock, blocks
from tilewright.kernel.expr import Bound, Call, Expr, Load
from tilewright.kernel.extents import (
    Number,
    bound_of,
    ceil_parts,
    limited_first,
    points,
    scaled,
)
from tilewright.kernel.form import Attention, form_as
from tilewright.kernel.index import Index, Var, index, stride, unflatten
from tilewright.kernel.loops import Scratch
from tilewright.kernel.product_operands import Operands
from tilewright.kernel.spec import Buffer, Kernel, Stage
from tilewright.targets.simd.attention import AttentionSchedule
from tilewright.targets.simd.microkernel import Microkernel, Panel
from tilewright.targets.simd.vectorize import LANES

#: Vectors of scores per pass of a softmax loop; rows in scratch are padded to whole passes.
VECTORS = 4


class AttentionTile:
    """Shared by all parts of the lowering: rows and keys of a tile, and its scratch memory."""

    def __init__(self, kernel: Kernel, schedule: AttentionSchedule) -> None:
        roles = form_as(kernel, Attention)
        self.kernel, self.schedule, self.at = kernel, schedule, roles
        self.lanes = LANES
        rows, self.even = roles.m.extent, kernel.limit(roles.m) is None
        x0 = min(schedule.x0, rows)
        self.row_tiles = -(-rows // x0)
        # With a run-time length all register tiles have the same size; the bound cuts the last one.
        self.small, self.larger = divmod(rows, self.row_tiles) if self.even else (x0, 0)
        self.group = max(1, min(schedule.x1 // max(schedule.x0, 1), self.row_tiles))
        self.most = min(rows, self.group * (self.small + (self.larger > 0)))
        self.block = min(schedule.y1, roles.keys.extent)
        self.online = self.block < roles.keys.extent
        step = VECTORS * self.lanes
        self.width = -(-self.block // step) * step
        heads = limited_first(kernel, roles.outer)
        sizes: list[tuple[str, Number]] = [(v.name, points(kernel, (v,))) for v in heads]
        sizes += [("rows", ceil_parts(points(kernel, (roles.m,)), x0 * self.group))]
        # The axis that ends at run time is outermost, so that whole tiles are skipped.
        (_, first), *others = sizes = sorted(sizes, key=lambda pair: isinstance(pair[1], int))
        tiles = scaled(first, prod(bound_of(size) for _, size in others))
        self.b = Builder({}, tiles, kernel)
        places = unflatten(self.b.tile, tuple(bound_of(size) for _, size in sizes))
        at = dict(zip((name for name, _ in sizes), map(self.b.let, places), strict=True))
        self.values = {v: at[v.name] for v in heads}
        self._rows(at["rows"])
        self.scratch: list[Scratch] = []
        self.local, self.key = Var("local", self.most), Var("key", self.block)
        self.scores = self._area(self.most * self.width)
        self.sums = self._area(self.most)
        if self.online:
            self.tops, self.factors = self._area(self.most), self._area(self.most)
            self.sofar = self._area(self.most * roles.n.extent)
        if self._staged("k"):
            self.k_panel = self._area(roles.depth.extent * schedule.y0)
        if self._staged("v"):
            self.v_width = -(-roles.n.extent // schedule.y0) * schedule.y0
            self.v_copy = self._area(self.block * self.v_width)

    def _rows(self, group: Index) -> None:
        """Divides rows evenly over register tiles: the first `larger` tiles have one row more."""
        b, rows = self.b, self.at.m.extent
        all_tiles = index(self.row_tiles)
        if not self.even:
            all_tiles = b.let((b.end(self.at.m) + (self.small - 1)) // self.small, "row_tiles")
        self.first_tile = b.let(group * self.group)
        self.end_tile = b.let_min(self.first_tile + self.group, all_tiles)

        def start(tile: Index) -> Index:
            if not self.even:
                return b.let_min(tile * self.small, index(rows))
            extra = b.let_min(tile, index(self.larger)) if self.larger else Index()
            return tile * self.small + extra

        self.first = b.let(start(self.first_tile))
        self.count = b.within(start(self.end_tile) - self.first, self.most + 1, "count")

    def _area(self, size: int) -> int:
        self.scratch.append(Scratch(F32, size))
        return len(self.kernel.buffers) + len(self.scratch) - 1

    def _staged(self, operand: str) -> bool:
        """True if blocks of this operand are copied to scratch memory."""
        if operand == "v":
            return "v" in self.schedule.cache
        if stride(self.at.k.index, self.at.keys) == 1:
            return False
        return "k" in self.schedule.cache or not self._along_depth()

    def _along_depth(self) -> bool:
        """True if rows of q and of k are contiguous, so that scores can be dot products."""
        loads = (self.at.q, self.at.k)
        return all(stride(x.index, self.at.depth) == 1 for x in loads)

    @contextmanager
    def _each_row(self) -> Iterator[Index]:
        with self.b.loop("row", Index(), self.count, extent=self.most) as row:
            yield row

    # ---- register tiles --------------------------------------------------------------------------

    def _tile(
        self, row: Load, col: Load, n: Var, depth: Var, value: Expr, store: Index, out: int
    ) -> Microkernel:
        """A register tile for the sum over `depth` of row * col, then `value`, stored at
        `store`."""
        product = Stage("sum", (depth,), Call("mul", (row, col), F32))
        areas = tuple(Buffer(s.dtype, s.size) for s in self.scratch)
        axes = (*self.at.outer, self.local, n)
        buffers = (*self.kernel.buffers, *areas)
        kernel = Kernel(self.kernel.name, axes, (product,), value, store, buffers)
        ops = Operands(row, col, (self.local,), n, self.at.outer, (depth,))
        steps = blocks(ops.depth, self.schedule.r0, 0)
        x0, y0 = self.schedule.x0, self.schedule.y0
        count, tiles = Var("rows", self.most + 1), index(self.row_tiles)
        return Microkernel(self.b, kernel, ops, self.lanes, steps, x0, y0, count, tiles, out=out)

    def _emit(
        self,
        tile: Microkernel,
        base: Index,
        rows: int,
        panel: Index,
        values: Values,
        cols: int,
        end: Index | None = None,
    ) -> None:
        """Emits a register tile over the whole reduction; over keys, up to their run-time end."""
        if end is None:
            whole = CacheBlock(values, Index(), index(tile.blocks.whole), Index(), Index())
        else:
            whole = tile.blocks.whole_of(values, end, self.b)
        tile.tile(base, rows, Panel(panel, panel, cols), Index(), whole)

    def _panels(self, extent: int, end: Index | None = None) -> Iterator[tuple[Index, int]]:
        """(number, columns) of each panel: a loop over the full ones, then the last.

        end: the number of columns that exist, where it is known only at run time
        """
        b, y0 = self.b, self.schedule.y0
        full, rest = divmod(extent, y0)
        if full:
            last = (
                index(full)
                if end is None
                else b.let_min(index(full), b.let((end + (y0 - 1)) // y0))
            )
            with b.loop("panel", Index(), last) as panel:
                yield panel, y0
        if rest and end is None:
            yield index(full), rest
        elif rest and end is not None:
            with b.branch() as then:
                yield index(full), rest
            b.choose((Bound(end - (full * y0 + 1), extent),), then)

    def _row_tiles(self) -> Iterator[tuple[Index, int]]:
        """(first row in the tile, rows) of each register tile, in a loop."""
        b = self.b
        with b.loop("rt", self.first_tile, self.end_tile, extent=self.row_tiles) as tile:
            rest = self.at.m.extent - (self.row_tiles - 1) * self.small
            if not self.even and rest < self.small:
                with b.branch() as then:
                    yield b.within(tile * self.small - self.first, self.most, "m"), self.small
                with b.branch() as orelse:
                    yield b.within(tile * self.small - self.first, self.most, "m"), rest
                b.choose((Bound(tile, self.row_tiles - 1),), then, orelse)
                return
            if not self.larger:
                yield b.within(tile * self.small - self.first, self.most, "m"), self.small
                return
            with b.branch() as then:
                more = tile * (self.small + 1) - self.first
                yield b.within(more, self.most, "m"), self.small + 1
            with b.branch() as orelse:
                less = tile * self.small + self.larger - self.first
                yield b.within(less, self.most, "m"), self.small
            b.choose((Bound(tile, self.larger),), then, orelse)
