"""The spaces of matrix products: register tiles of any size, and all loop orders over them.

Input: a product and its roles.  Output: rules as in space_rules.py.  The paper's heuristic 2
allows only powers of two; these spaces also have other sizes, such as tiles of 6 rows and 8
columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import TypeAlias, TypeVar

from tilewright.base.errors import required
from tilewright.kernel.cache_blocks import BlockedReduction, blocks
from tilewright.kernel.form import Contraction, form_as
from tilewright.kernel.loops import TileFn
from tilewright.kernel.product_operands import Operands
from tilewright.kernel.spec import Kernel
from tilewright.targets.lite_space import (
    RELAXATION,
    Core,
    Product,
    Tile,
    lite,
    product_of,
    tile_of,
    traffic,
)
from tilewright.targets.schedule import Schedule
from tilewright.targets.simd import contraction, inner_product
from tilewright.targets.simd.contraction import ContractionSchedule, TiledSchedule, tiled_schedule
from tilewright.targets.simd.inner_product import InnerProductSchedule
from tilewright.targets.simd.machine import TILE_WORK, Machine, aligned, around, unroll, whole
from tilewright.targets.simd.register_tiles import register_tiles, tile_cycles, varied_tiles
from tilewright.targets.simd.space_rules import Rules

#: The number of register tiles whose other settings are varied.
VARIED = 3

#: Rows and columns of dot products, with enough sums to hide latency.
DOTS = ((8, 1), (1, 8), (5, 2), (2, 5), (4, 3), (3, 4), (3, 3), (4, 2), (2, 4))

S = TypeVar("S", bound=Schedule)
W = TypeVar("W", bound=TiledSchedule)


@dataclass(frozen=True)
class ProductRules(Rules[S]):
    """Shared by products of floats and of bytes: the loops over register tiles."""

    roles: Operands

    @cached_property
    def sizes(self) -> tuple[int, int]:
        """The numbers of rows and of columns."""
        return self.roles.m.extent, self.roles.n.extent

    @cached_property
    def product(self) -> Product:
        return required(product_of(self.kernel), "it is not a product", kernel=self.kernel.name)

    def lite(self, core: Core, relaxation: float = RELAXATION) -> Iterator[S]:
        return map(self.made, lite(self.product, core, relaxation))

    def made(self, tile: Tile) -> S:
        """The schedule of a tile of the paper's space."""
        raise NotImplementedError

    def normal_loops(self, s: W) -> W:
        """The schedule with settings that make no difference set to one value, to find
        duplicates."""
        rows, cols = self.sizes
        lanes = self.machine.lanes
        x0, y0 = min(s.x0, rows), min(s.y0, -(-cols // lanes) * lanes)
        inner = self.roles.depth[-1].extent if self.roles.depth else 1
        x1, y1 = whole(s.x1, x0, rows), whole(s.y1, y0, cols)
        s = replace(s, x0=x0, y0=y0, x1=x1, y1=y1, r0=min(s.r0, inner))
        return replace(s, r1=s.r1 if s.r1 and self.split(s).count > 1 else 0)

    def split(self, s: TiledSchedule) -> BlockedReduction:
        return blocks(self.roles.depth, s.r0, s.r1)

    def waiting(self, s: TiledSchedule) -> int:
        """Bytes of scratch for a tile's sums between blocks."""
        row_tiles, panels = self.parts(s)
        return aligned(4 * row_tiles * panels * s.x0 * s.y0) if self.split(s).count > 1 else 0

    def parts(self, s: TiledSchedule) -> tuple[int, int]:
        """Register tiles of rows, and of columns, of one tile."""
        rows, cols = self.sizes
        return min(-(-rows // s.x0), s.x1 // s.x0), min(-(-cols // s.y0), s.y1 // s.y0)

    def count(self, x1: int, y1: int) -> int:
        """The number of tiles of x1 rows and y1 columns."""
        rows, cols = self.sizes
        outer = prod(v.extent for v in self.roles.outer)
        return outer * -(-rows // x1) * -(-cols // y1)

    def words(self, s: S) -> float:
        return traffic(tile_of(s, self.product), self.product)


Either: TypeAlias = ContractionSchedule | InnerProductSchedule


def lower(kernel: Kernel, schedule: Either) -> TileFn:
    """The loop nest of one tile."""
    if isinstance(schedule, InnerProductSchedule):
        return inner_product.lower(kernel, schedule)
    return contraction.lower(kernel, schedule)


def rules(kernel: Kernel, default: Either, machine: Machine) -> ContractionRules:
    return ContractionRules(kernel, default, machine, form_as(kernel, Contraction).operands)


@dataclass(frozen=True)
class ContractionRules(ProductRules[Either]):
    """Products of f32: register tiles of other sizes, and for some of them all other settings."""

    @cached_property
    def _gathered(self) -> bool:
        """True if columns are loaded one by one: they are neither contiguous nor in panels."""
        return self.roles.col_step not in (1, None)

    def made(self, tile: Tile) -> ContractionSchedule:
        return ContractionSchedule(
            x0=tile.x0, y0=tile.y0, r0=tile.r0, x1=tile.x1, y1=tile.y1, r1=tile.r1,
            stage=tile.cache_read, lanes=self.machine.lanes,
        )  # fmt: skip

    def extended(self) -> Iterator[Either]:
        tiles = varied_tiles(*self.sizes, self.machine, self.roles.panel)
        bases = [tiled_schedule(self.kernel, self.roles, tile, self.machine) for tile in tiles]
        yield from bases
        if isinstance(self.normal_default, ContractionSchedule):
            yield from self._varied(self.normal_default)
        # The model does not count the memory traffic of many panels that are read side by side.
        wider = [base for base in bases[VARIED:] if base.y0 > bases[0].y0]
        for base in (*bases[:VARIED], *sorted(wider, key=lambda s: -s.x0 * s.y0)[:1]):
            yield from self._varied(base)
        yield from self._dots()

    def _varied(self, base: ContractionSchedule) -> Iterator[ContractionSchedule]:
        turned = "mn" if base.order == "nm" else "nm"
        yield replace(base, order=turned)
        if self.roles.col_step is not None:
            yield replace(base, stage=not base.stage)
            yield replace(base, order=turned, stage=not base.stage)
        l1 = self.machine.l1 // (4 * base.x0)
        for r1 in (0, 128, 256, 512, l1 // 2, l1 * 3 // 4):
            yield replace(base, r1=r1)
            yield replace(base, r1=r1, order=turned)
        for r0 in (1, 2, 4, 8, 16, unroll(self.roles.steps)):
            yield replace(base, r0=r0)
        for x1 in around(base.x1):
            yield replace(base, x1=x1)
        for y1 in around(base.y1):
            yield replace(base, y1=y1)

    def _dots(self) -> Iterator[InnerProductSchedule]:
        """Dot products: x0*y0 sums, and both operands in registers."""
        rows, cols = self.sizes
        lanes = self.machine.lanes
        if not self.roles.runs_along_depth or self.roles.depth[-1].extent < lanes:
            return
        for x0, y0 in DOTS:
            if x0 <= rows and y0 <= cols:
                tiles = max(1, TILE_WORK // max(1, x0 * y0 * self.roles.steps))
                x1, y1 = (x0 * tiles, y0) if rows > cols else (x0, y0 * tiles)
                for r0 in (1, 2, 4):
                    yield InnerProductSchedule(x0=x0, y0=y0, r0=r0, x1=x1, y1=y1, lanes=lanes)

    def normal(self, s: Either) -> Either:
        if isinstance(s, ContractionSchedule):
            return self.normal_loops(s)
        rows, cols = self.sizes
        x0, y0 = min(s.x0, rows), min(s.y0, cols)
        return replace(s, x0=x0, y0=y0, x1=whole(s.x1, x0, rows), y1=whole(s.y1, y0, cols))

    def tiles(self, s: Either) -> int:
        return self.count(s.x1, s.y1)

    def scratch(self, s: Either) -> int:
        if isinstance(s, InnerProductSchedule):
            return 0
        staged = self.parts(s)[1] * self.split(s).points * s.y0 if s.stage else 0
        return self.waiting(s) + aligned(4 * staged)

    def family(self, s: Either) -> str:
        """A family of schedules with comparable costs: by the width of the register tile, which is
        the number of panels read side by side, and by whether passes have several steps.  Some
        compilers order such passes so that registers run out."""
        return f"{s.tag} {s.y0} {'unrolled' if s.r0 > 1 else 'by steps'}"

    def cost(self, s: Either) -> float:
        """Cycles per vector of products; the constants reproduce the order in measured sweeps."""
        far = super().cost(s) / 50
        rows, cols = self.sizes
        if isinstance(s, InnerProductSchedule):
            best = register_tiles(rows, cols, self.machine)[0][0]
            return (1.0 if isinstance(self.default, InnerProductSchedule) else 4.0) * best + far
        lanes, machine = self.machine.lanes, self.machine
        v = s.y0 // lanes
        step = 4 * (s.r1 or self.roles.steps)
        # The columns of a step come from L1 if they are used again and still there.
        again = s.y0 if s.order == "nm" else s.y1
        near = step * again <= machine.l1 // 2 and rows > s.x0
        cycles, _ = tile_cycles(s.x0, v, rows, cols, machine, 1 if near else self.roles.panel)
        if not near:
            cycles += 0.2 / s.x0
        kept = s.x0 if s.order == "mn" else s.x1
        if step * kept > (machine.l1 * 3 // 4 if s.order == "mn" else machine.l2):
            cycles += 0.4 / v
        spilled = s.x0 * v + min(s.x0, v) + (1 if machine.fma else 2) - machine.registers
        cycles += max(0, spilled) / (s.x0 * v)
        cycles += 0.75 / (s.r0 * s.x0 * v)  # loop overhead
        if s.r1:
            cycles += 3.0 / s.r1  # sums are stored and loaded between blocks
        if s.stage:
            cycles += (11 if self._gathered else 5) / 8 / s.x1
        elif self._gathered:
            cycles += 2.0 / s.x0
        return cycles + far
