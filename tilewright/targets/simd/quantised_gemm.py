"""Products with block-quantised weights: register tiles of f32, columns of integers in memory.

Input: a kernel whose column operand is (quantum - zero) * scale (kernel/quantised_operands.py), a
schedule.
Output: a `TileFn`.  The schedule's `stage` selects one of two methods:

    staged:  a block of columns is converted to f32 in scratch memory once, for all rows of a tile;
             its register tiles are those of any product
    direct:  integers are used as loaded, for few rows.  Each block of steps has its own sums, which
             are scaled once, and the zero point is applied once per block:
                 sum += (sum over block of a * f32(q)  -  zero * sum over block of a) * scale

If an activation is infinite, the direct method may give NaN where the specification gives an
infinity, so trials use no infinities (web/tune/trial/specs.js).  Subtracting the zero point from
each integer instead makes products of one row about a fifth slower.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from math import gcd

from tilewright.base.dtypes import F32
from tilewright.base.errors import of_kind, required
from tilewright.kernel.builder import Values
from tilewright.kernel.cache_blocks import CacheBlock
from tilewright.kernel.expr import Call, Const, Expr, Load, Reg, Splat, dtype_of, lanes_of
from tilewright.kernel.form import QuantisedContraction, form_as
from tilewright.kernel.index import Index, index
from tilewright.kernel.loops import Set, TileFn
from tilewright.kernel.quantised_operands import QuantisedProduct
from tilewright.kernel.spec import Kernel
from tilewright.kernel.tree import rewrite
from tilewright.targets.lite_space import Tile
from tilewright.targets.simd.contraction import COLUMNS, TiledSchedule, tiled
from tilewright.targets.simd.machine import TILE_WORK, Machine, aligned, around, even
from tilewright.targets.simd.microkernel import Microkernel, Panel, TileRows, shifted
from tilewright.targets.simd.product_space import VARIED, ProductRules
from tilewright.targets.simd.register_tiles import register_tiles
from tilewright.targets.simd.vectorize import LANES, across_lanes, vector

#: Up to this number of rows integers are used directly; more rows share the cost of converting
#: them.
FEW_ROWS = 4

#: The least rows of a tile for which converted columns pay: a column costs about 6 vectors of a
#: row.
MANY_ROWS = 192

#: Vectors of columns of a register tile: whole panels, or half of one.
VECTORS = (1, 2, 4)

#: Steps per pass, if a block has that many.
STEPS = 8


@dataclass(frozen=True)
class QuantisedSchedule(TiledSchedule):
    """Register tiles of f32 sums; `stage` converts columns to f32 in scratch memory first."""

    tag = "blocks"
    stage: bool = True
    lanes: int = 4


def _fitting(s: QuantisedSchedule, weights: QuantisedProduct) -> QuantisedSchedule:
    """The schedule with passes that end where words and blocks end, and `stage` set where it must
    be.

    8-bit weights are always staged: `sum(a * q) - zero * sum(a)` loses digits where the zero points
    are much larger than the result.
    """
    stage = s.stage or weights.size % LANES > 0 or weights.word == 1
    # The direct method adds up activations a vector at a time.
    part = weights.word if stage else max(weights.word, LANES)
    most = max(part, s.r0 // part * part)
    one_block = part == 1 and weights.size >= weights.k.extent
    r0 = min(most, weights.size) if one_block else gcd(most, weights.size)
    return replace(s, r0=r0, stage=stage, r1=s.r1 if stage else 0)


def default(kernel: Kernel, machine: Machine) -> QuantisedSchedule:
    weights = form_as(kernel, QuantisedContraction).weights
    rows, cols, depth = weights.operands.m.extent, weights.operands.n.extent, weights.k.extent
    common = _fitting(QuantisedSchedule(r0=STEPS, lanes=machine.lanes), weights)
    if rows <= FEW_ROWS and weights.size % LANES == 0 and weights.word > 1:
        y0 = machine.lanes * (4 if rows <= 2 else 2)
        span = even(-(-cols // y0), max(1, TILE_WORK // (rows * depth * y0)))
        few = replace(common, x0=rows, y0=y0, x1=rows, y1=y0 * span, order="mn", stage=False)
        return _fitting(few, weights)
    # Whole panels: other widths would load words column by column.
    _, x0, y0 = register_tiles(rows, cols, machine, vectors=VECTORS)[0]
    x1 = x0 * even(-(-rows // x0), max(1, MANY_ROWS // x0))
    r1 = max(1, machine.l1 // 4 // (4 * y0) // common.r0) * common.r0
    return replace(
        common, x0=x0, y0=y0, x1=x1, y1=y0 * max(1, COLUMNS // y0), order="nm",
        r1=r1 if depth > r1 else 0,
    )  # fmt: skip


def rules(kernel: Kernel, default: QuantisedSchedule, machine: Machine) -> QuantisedRules:
    weights = form_as(kernel, QuantisedContraction).weights
    return QuantisedRules(kernel, default, machine, weights.operands, weights)


@dataclass(frozen=True)
class QuantisedRules(ProductRules[QuantisedSchedule]):
    """Varies the method, the size of register tiles and the loops over them."""

    weights: QuantisedProduct

    def made(self, tile: Tile) -> QuantisedSchedule:
        return QuantisedSchedule(
            tile.x0, tile.y0, tile.r0, tile.x1, tile.y1, tile.r1, lanes=self.machine.lanes
        )

    def extended(self) -> Iterator[QuantisedSchedule]:
        d, rows = self.normal_default, self.sizes[0]
        tiles = register_tiles(*self.sizes, self.machine, vectors=VECTORS)
        for _, x0, y0 in tiles[:VARIED]:
            s = replace(d, x0=x0, y0=y0, stage=True)
            for order in ("nm", "mn"):
                for r1 in (128, 256, 512):
                    yield replace(s, r1=r1, order=order)
        for x0 in range(1, min(rows, FEW_ROWS) + 1):
            for v in VECTORS:
                yield replace(d, x0=x0, y0=v * self.machine.lanes, stage=False)
        for r0 in (8, 16, 32):
            yield replace(d, r0=r0)
        for x1 in around(d.x1):
            yield replace(d, x1=x1)
        for y1 in around(d.y1):
            yield replace(d, y1=y1)

    def normal(self, s: QuantisedSchedule) -> QuantisedSchedule:
        return self.normal_loops(_fitting(s, self.weights))

    def tiles(self, s: QuantisedSchedule) -> int:
        return self.count(s.x1, s.y1)

    def scratch(self, s: QuantisedSchedule) -> int:
        staged = self.parts(s)[1] * self.split(s).points * s.y0 if s.stage else 0
        return self.waiting(s) + aligned(4 * staged)


def lower(kernel: Kernel, schedule: QuantisedSchedule) -> TileFn:
    """Tiles of x1 rows by y1 columns; inside, register tiles of x0 by y0."""
    weights = form_as(kernel, QuantisedContraction).weights
    s = _fitting(schedule, weights)
    make = partial(_QuantisedMicrokernel, weights=weights)
    return tiled(kernel, s, weights.operands, s.lanes, make, s.stage)


@dataclass
class _QuantisedMicrokernel(Microkernel):
    """Register tiles whose columns are integers; `weights` describes their conversion to f32."""

    weights: QuantisedProduct = field(kw_only=True)

    # ---- staged ----------------------------------------------------------------------------------

    def _copy(
        self,
        first: Index,
        count: Index,
        block: CacheBlock,
        inside: Values,
        local: Index,
        steps: int,
    ) -> None:
        """Converts `steps` steps of every panel to f32 in scratch memory."""
        start = block.start + local
        staged = required(self.staged, "no columns are staged", kernel=self.kernel.name)

        def copy(panel: Panel) -> None:
            for j, _ in self._vectors(panel):
                zero, scale = self._of_block(panel, j, inside, start)
                for u, quantum in enumerate(self._quanta(panel, j, inside, start, steps)):
                    if not self.weights.centred:
                        quantum = self._f32("sub", quantum, zero)
                    at = self._staged(panel, inside, local + u, j)
                    self.b.store(staged, at, self._f32("mul", quantum, scale))

        with self.b.loop("np", Index(), count) as panel:
            self._each_width(first, panel, copy)

    def _of_block(self, panel: Panel, vec: int, values: Values, step: Index) -> tuple[Expr, Expr]:
        """Zero points and scales of one vector of columns, at a step of the block."""
        parts = (("z", self.weights.zero), ("c", self.weights.scale))
        zero, scale = (
            self._named(f"{stem}{vec}", self._columns_of(e, panel, vec, values, step))
            for stem, e in parts
        )
        return zero, scale

    def _quanta(
        self, panel: Panel, vec: int, values: Values, start: Index, steps: int
    ) -> Iterator[Expr]:
        """One vector of columns as f32 at each step from `start` on; each word is loaded once."""
        known: dict[Expr, Expr] = {}

        def once(e: Expr) -> Expr:
            if isinstance(e, Load) and e not in known:
                known[e] = self._named(f"w{vec}", e)
            return known.get(e, e)

        for u in range(steps):
            value = self._columns_of(self.weights.quantum, panel, vec, values, start + u)
            yield rewrite(value, once)

    def _columns_of(self, e: Expr, panel: Panel, vec: int, values: Values, step: Index) -> Expr:
        """A part of the weight for one vector of columns; panels are whole in memory."""
        first = panel.number * self.y0 + vec * self.lanes
        known = self.weights.at(e, step)
        return self.b.resolve(vector(known, self.ops.n, first, self.lanes, values, {}))

    def _named(self, stem: str, e: Expr) -> Expr:
        if isinstance(e, Const):
            return e
        reg = Reg(f"{stem}{dtype_of(e)}", dtype_of(e), lanes_of(e))
        self.b.add(Set(reg.name, e))
        return reg

    def _f32(self, fn: str, *operands: Expr) -> Expr:
        return Call(fn, operands, F32, self.lanes)

    # ---- direct ----------------------------------------------------------------------------------

    def _reduce(self, rows: TileRows, panel: Panel, block: CacheBlock) -> None:
        if self.staged is not None:
            super()._reduce(rows, panel, block)
            return
        b, size, unroll = self.b, self.weights.size, self.blocks.unroll
        count, vectors = len(rows.points), self._vectors(panel)
        sums = [Reg(f"x{i}", F32, self.lanes) for i in range(count)]
        with b.loop("blk", Index(), index(self.weights.k.extent // size)) as number:
            for i in range(count):
                if not self.weights.centred:
                    b.set(sums[i].name, Const(0.0, F32, self.lanes))
                for j, _ in vectors:
                    b.set(self._part(i, j).name, Const(0.0, F32, self.lanes))
            with b.loop("k", Index(), index(size // unroll)) as k:
                self._products(rows, panel, block.values, number * size + k * unroll, sums)
            self._scaled(rows, panel, block.values, number * size, sums)

    def _part(self, row: int, vec: int) -> Reg:
        """The register of a block's own sum."""
        return Reg(f"p{row}_{vec}", F32, self.lanes)

    def _products(
        self, rows: TileRows, panel: Panel, values: Values, start: Index, sums: list[Reg]
    ) -> None:
        """A pass of steps: each row's splat times each vector of integers, and the sums of the
        rows."""
        steps, lanes = self.blocks.unroll, self.lanes
        first = rows.loads(self.b, {**values, self.weights.k: start})
        vectors = self._vectors(panel)
        quanta = [self._quanta(panel, j, values, start, steps) for j, _ in vectors]
        for u, columns in enumerate(zip(*quanta, strict=True)):
            down = [Splat(shifted(row, u), lanes) for row in first]
            for (j, _), column in zip(vectors, columns, strict=True):
                if len(down) > 1:
                    column = self._named("q", column)
                for i, row in enumerate(down):
                    part = self._part(i, j)
                    self.b.add(Set(part.name, self._f32("fma", row, column, part)))
        if self.weights.centred:
            return
        for total, value in zip(sums, first, strict=True):
            load = of_kind(value, Load, "a row does not lie in memory", kernel=self.kernel.name)
            for u in range(0, steps, lanes):
                several = replace(load, index=load.index + u, lanes=lanes)
                self.b.add(Set(total.name, self._f32("add", total, several)))

    def _scaled(
        self, rows: TileRows, panel: Panel, values: Values, start: Index, sums: list[Reg]
    ) -> None:
        """Scales a block's sums and adds them to the register tile's sums."""
        lines = [
            None if self.weights.centred else self._total(i, sums[i])
            for i in range(len(rows.points))
        ]
        for j, _ in self._vectors(panel):
            zero, scale = self._of_block(panel, j, values, start)
            for i, line in enumerate(lines):
                part: Expr = self._part(i, j)
                if line is not None:
                    if isinstance(zero, Const):
                        zero = replace(zero, lanes=self.lanes)
                    part = self._f32("sub", part, self._f32("mul", zero, line))
                acc = self._sum(i, j)
                self.b.add(Set(acc.name, self._f32("fma", part, scale, acc)))

    def _total(self, row: int, lanes: Reg) -> Expr:
        """The sum of a row's activations over the block, in every lane."""
        total = Reg(f"t{row}", F32)
        self.b.set(total.name, across_lanes("sum", lanes))
        return Splat(total, self.lanes)
