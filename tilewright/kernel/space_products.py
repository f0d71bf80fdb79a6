"""The extended space of matrix products: register tiles of any size, and every way to walk them.

Input: a contraction, its roles.  Output: rules as in space_rules.py.  What the paper's heuristic 2
forbids is here: tiles that are no powers of two, such as 6 rows of 8 columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from tilewright.kernel.blocks import blocks
from tilewright.kernel.roles import Operands
from tilewright.kernel.roles_dot import pairs_fit
from tilewright.kernel.schedule import Machine, Schedule, register_tiles, tile_cycles, tiled, unroll
from tilewright.kernel.space import Tile, traffic
from tilewright.kernel.space_rules import Rules, aligned, around, distance, whole

#: Widths of register tiles in vectors, how many tiles of each width are tried, and of how many of
#: all tiles the walk varies.
WIDTHS, PER_WIDTH, VARIED = (1, 2, 3, 4, 5, 6, 8), 3, 3

#: A register tile that costs so many times the best one's cycles is not tried.
WORSE = 1.6


@dataclass(frozen=True)
class Contraction(Rules):
    """Products of f32: register tiles of other sizes, and of some all that a walk can vary."""

    roles: Operands

    @cached_property
    def _sizes(self) -> tuple[int, int]:
        return self.roles.m.extent, self.roles.n.extent

    @cached_property
    def _gathered(self) -> bool:
        """Whether columns are read one by one: they lie neither side by side nor in panels."""
        return self.roles.col_step not in (1, None)

    @cached_property
    def _panel(self) -> int:
        return self.roles.panel

    def extended(self) -> Iterator[Schedule]:
        bases = list(self._bases())
        yield from bases
        for base in (self.usual, *bases[:VARIED]):
            yield from self._varied(base)
        yield from self._along_depth()

    def _bases(self) -> Iterator[Schedule]:
        """The usual walk over each register tile that is not much worse than the best."""
        tiles = usual_tiles(*self._sizes, self.machine, self._panel)
        return (tiled(self.kernel, self.roles, tile, self.machine) for tile in tiles)

    def _varied(self, base: Schedule) -> Iterator[Schedule]:
        if base.along == "k":
            return
        turned = "mn" if base.order == "nm" else "nm"
        yield replace(base, order=turned)
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

    def _along_depth(self) -> Iterator[Schedule]:
        """Dot products: x0*y0 sums, and both operands in registers."""
        rows, cols = self._sizes
        lanes = self.machine.lanes
        if not self.roles.runs_along_depth or self.roles.depth[-1].extent < lanes:
            return
        base = replace(self.default, along="k", r1=0, stage=False)
        for x0, y0 in ((8, 1), (1, 8), (5, 2), (2, 5), (4, 3), (3, 4), (3, 3), (4, 2), (2, 4)):
            if x0 <= rows and y0 <= cols:
                tile = 2**17 // max(1, x0 * y0 * self.roles.steps)
                for r0 in (1, 2, 4):
                    x1, y1 = (x0 * max(1, tile), y0) if rows > cols else (x0, y0 * max(1, tile))
                    yield replace(base, x0=x0, y0=y0, r0=r0, x1=x1, y1=y1)

    def normal(self, s: Schedule) -> Schedule:
        rows, cols = self._sizes
        if s.along == "k":
            x0, y0 = min(s.x0, rows), min(s.y0, cols)
            return replace(
                s, x0=x0, y0=y0, x1=whole(s.x1, x0, rows), y1=whole(s.y1, y0, cols), order="nm"
            )
        lanes = self.machine.lanes
        x0, y0 = min(s.x0, rows), min(s.y0, -(-cols // lanes) * lanes)
        inner = self.roles.depth[-1].extent if self.roles.depth else 1
        s = replace(
            s, x0=x0, y0=y0, x1=whole(s.x1, x0, rows), y1=whole(s.y1, y0, cols),
            r0=min(s.r0, inner),
        )  # fmt: skip
        return replace(s, r1=s.r1 if s.r1 and self._blocks(s) > 1 else 0)

    def _blocks(self, s: Schedule) -> int:
        return blocks(self.roles.depth, s.r0, s.r1).count

    def tiles(self, s: Schedule) -> int:
        rows, cols = self._sizes
        outer = prod(v.extent for v in self.roles.outer)
        return outer * -(-rows // s.x1) * -(-cols // s.y1)

    def scratch(self, s: Schedule) -> int:
        if s.along == "k":
            return 0
        rows, cols = self._sizes
        split = blocks(self.roles.depth, s.r0, s.r1)
        row_tiles, panels = min(-(-rows // s.x0), s.x1 // s.x0), min(-(-cols // s.y0), s.y1 // s.y0)
        partial = row_tiles * panels * s.x0 * s.y0 if split.count > 1 else 0
        staged = panels * split.points * s.y0 if s.stage else 0
        return aligned(4 * partial) + aligned(4 * staged)

    def cost(self, s: Schedule) -> float:
        """Cycles per vector of products, by constants that keep the order of measured sweeps."""
        far = super().cost(s) / 50
        rows, cols = self._sizes
        if s.along == "k":
            best = register_tiles(rows, cols, self.machine)[0][0]
            return (1.0 if self.default.along == "k" else 4.0) * best + far
        lanes, machine = self.machine.lanes, self.machine
        v = s.y0 // lanes
        step = 4 * (s.r1 or self.roles.steps)
        # where the columns of a step come from: L1, if they stay there from one use to the next
        again = s.y0 if s.order == "nm" else s.y1
        near = step * again <= machine.l1 // 2
        cycles, _ = tile_cycles(s.x0, v, rows, cols, machine, 1 if near else self._panel)
        if not near:
            cycles += 0.2 / s.x0
        kept = s.x0 if s.order == "mn" else s.x1
        if step * kept > (machine.l1 * 3 // 4 if s.order == "mn" else machine.l2):
            cycles += 0.4 / v
        spilled = s.x0 * v + min(s.x0, v) + (1 if machine.fma else 2) - machine.registers
        cycles += max(0, spilled) / (s.x0 * v)
        cycles += 0.75 / (s.r0 * s.x0 * v)  # the loop itself
        if s.r1:
            cycles += 3.0 / s.r1  # sums wait between blocks
        if s.stage:
            cycles += (11 if self._gathered else 5) / 8 / s.x1
        elif self._gathered:
            cycles += 2.0 / s.x0
        return cycles + far

    def words(self, s: Schedule) -> float:
        assert self.product is not None
        return traffic(Tile(s.x0, s.r0, s.y0, s.x1, s.r1 or self.product.k, s.y1), self.product)


def usual_tiles(rows: int, cols: int, machine: Machine, panel: int = 1) -> list[tuple[int, int]]:
    """(x0, y0) of register tiles worth trying, the best first: some of each width."""
    tiles = register_tiles(rows, cols, machine, panel, WIDTHS)
    seen: Counter[int] = Counter()
    found = []
    for cycles, x0, y0 in tiles:
        seen[y0] += 1
        if seen[y0] <= PER_WIDTH and cycles <= WORSE * tiles[0][0]:
            found.append((x0, y0))
    return found


@dataclass(frozen=True)
class Dots(Contraction):
    """Products of bytes: a sum takes one register, or two where products do not fit 16 bits."""

    def extended(self) -> Iterator[Schedule]:
        d, lanes = self.usual, self.machine.lanes
        rows, _ = self._sizes
        kinds = ("pair", "wide") if pairs_fit(self.kernel, self.roles) else (d.dot,)
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

    def normal(self, s: Schedule) -> Schedule:
        return replace(super().normal(s), stage=False)

    def cost(self, s: Schedule) -> float:
        return distance(s, self.usual)
