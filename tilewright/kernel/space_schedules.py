"""The space of one kernel: every schedule that is worth trying on a device, and in which order.

Input: a kernel, the machine that schedules must fit, the core of the lite space.  Output:
`Candidate`s, each once, the default first; equal input gives equal candidates in every process.
Two parts: "lite" are the tiles of kernel/space.py, for matrix products; "extended" are our own:
what a change or two make of the default, and of what it would be with other register tiles.
It lowers nothing.  docs/spaces.md explains what is varied and why.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import log2, prod
from typing import Literal

from tilewright.kernel.blocks import blocks
from tilewright.kernel.roles import Attention, Operands, attention, operands
from tilewright.kernel.roles_dot import byte_windows, dot_operands, pairs_fit
from tilewright.kernel.schedule import (
    ENOUGH_TILES,
    Machine,
    Schedule,
    register_tiles,
    tile_cycles,
    tiled,
    unroll,
)
from tilewright.kernel.space import Core, Product, Tile, lite, traffic
from tilewright.kernel.spec import Kernel
from tilewright.kernel.windows import Windows, windows

Mark = Literal["default", "lite", "extended"]

#: Bytes of scratch memory that a worker has for schedules other than the default one.
SCRATCH = 512 * 1024

#: Register tiles beside the best that the extended space contains, and how many of them vary.
TILES, VARIED = 10, 3

#: A register tile that costs so many times the best one's cycles is not tried.
WORSE = 1.6


@dataclass(frozen=True)
class Candidate:
    """A schedule, where it comes from, and what the model expects of it (smaller is better)."""

    schedule: Schedule
    mark: Mark
    cost: float
    scratch: int
    words: float


def candidates(kernel: Kernel, default: Schedule, machine: Machine, core: Core) -> list[Candidate]:
    """The default and, each once, all others: lite ones in the paper's order, then our own."""
    rules = _rules(kernel, default, machine)
    found: dict[Schedule, Candidate] = {}

    def take(schedules: Iterable[Schedule], mark: Mark) -> None:
        for schedule in schedules:
            normal = rules.normal(schedule)
            scratch = rules.scratch(normal)
            if normal in found or (mark != "default" and scratch > SCRATCH):
                continue
            cost, words = rules.cost(normal), rules.words(normal)
            kept = schedule if mark == "default" else normal
            found[normal] = Candidate(kept, mark, cost, scratch, words)

    take([default], "default")
    take(rules.lite(core), "lite")
    take((s for s in rules.extended() if rules.balanced(s)), "extended")
    return list(found.values())


def product_of(kernel: Kernel) -> Product | None:
    """The matrix product that a kernel is, or None.  A step of integers is one word of them."""
    roles = operands(kernel) or dot_operands(kernel)
    if roles is None:
        return None
    batch = prod(v.extent for v in roles.outer)
    return Product(roles.m.extent, roles.steps, roles.n.extent, batch)


def _rules(kernel: Kernel, default: Schedule, machine: Machine) -> _Rules:
    roles = operands(kernel)
    if roles is not None:
        return _Contraction(kernel, default, machine, roles)
    heads = attention(kernel)
    if heads is not None:
        return _Attention(kernel, default, machine, heads)
    dots = dot_operands(kernel)
    if dots is not None:
        return _Dots(kernel, default, machine, dots)
    across = windows(kernel)
    if across is not None:
        taps = byte_windows(kernel) is not None
        return _Windows(kernel, default, machine, across, taps)
    return _Rules(kernel, default, machine)


@dataclass(frozen=True)
class _Rules:
    """What may vary, and what to expect: of kernels by elements and by rows, and the base of all.

    normal:   the schedule without what makes no difference, so that equal ones meet
    balanced: whether workers find tiles enough
    cost:     cycles per product where there is a model, then how far it is from the default
    """

    kernel: Kernel
    default: Schedule
    machine: Machine

    def lite(self, core: Core) -> Iterator[Schedule]:
        matrix = product_of(self.kernel)
        for tile in lite(matrix, core) if matrix is not None else ():
            yield Schedule(
                x0=tile.x0, y0=tile.y0, r0=tile.r0, x1=tile.x1, y1=tile.y1, r1=tile.r1,
                stage=tile.cache_read, lanes=self.machine.lanes,
            )  # fmt: skip

    def extended(self) -> Iterator[Schedule]:
        """x1 rows or y1 elements of a tile; r0 sums side by side where something is reduced."""
        line = prod(v.extent for v in self.kernel.axes[:-1]) == 1
        sums = (1, 2, 4, 8) if self.kernel.stages else (self.default.r0,)
        sizes = {"y1": self.default.y1} if line else {"x1": self.default.x1}
        for name, size in sizes.items():
            for r0 in sums:
                for n in (size, *_around(size)):
                    yield replace(self.default, r0=r0, **{name: n})  # type: ignore[arg-type]

    def normal(self, s: Schedule) -> Schedule:
        rows = prod(v.extent for v in self.kernel.axes)
        return replace(s, x1=min(s.x1, max(rows, self.default.x1)))

    def tiles(self, s: Schedule) -> int:
        *outer, last = [v.extent for v in self.kernel.axes] or [1]
        return -(-prod(outer) // s.x1) if prod(outer) > 1 else -(-last // s.y1)

    def balanced(self, s: Schedule) -> bool:
        return self.tiles(s) >= min(ENOUGH_TILES, self.tiles(self.default))

    def scratch(self, s: Schedule) -> int:
        """Bytes of scratch memory per worker, as far as they depend on the schedule."""
        return 0

    def cost(self, s: Schedule) -> float:
        return _distance(s, self.default)

    def words(self, s: Schedule) -> float:
        """Words loaded and stored beyond L1, in all tiles; the same for all where unknown."""
        return self.kernel.bytes / 4


@dataclass(frozen=True)
class _Contraction(_Rules):
    """Products of f32: register tiles of other sizes, and of some all that a walk can vary."""

    roles: Operands

    @property
    def _sizes(self) -> tuple[int, int]:
        return self.roles.m.extent, self.roles.n.extent

    def extended(self) -> Iterator[Schedule]:
        bases = list(self._bases())
        yield from bases
        for base in (self.default, *bases[:VARIED]):
            yield from self._varied(base)
        yield from self._along_depth()

    def _bases(self) -> Iterator[Schedule]:
        """The usual walk over each register tile that is not much worse than the best."""
        tiles = register_tiles(*self._sizes, self.machine, self.roles.panel)
        for cycles, x0, y0 in tiles[:TILES]:
            if cycles <= WORSE * tiles[0][0]:
                yield tiled(self.kernel, self.roles, (x0, y0), self.machine)

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
        for x1 in _around(base.x1):
            yield replace(base, x1=x1)
        for y1 in _around(base.y1):
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
                s, x0=x0, y0=y0, x1=_whole(s.x1, x0, rows), y1=_whole(s.y1, y0, cols), order="nm"
            )
        lanes = self.machine.lanes
        x0, y0 = min(s.x0, rows), min(s.y0, -(-cols // lanes) * lanes)
        inner = self.roles.depth[-1].extent if self.roles.depth else 1
        s = replace(
            s, x0=x0, y0=y0, x1=_whole(s.x1, x0, rows), y1=_whole(s.y1, y0, cols),
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
        return _aligned(4 * partial) + _aligned(4 * staged)

    def cost(self, s: Schedule) -> float:
        far = _distance(s, self.default) / 100
        rows, cols = self._sizes
        if s.along == "k":
            best = register_tiles(rows, cols, self.machine)[0][0]
            return (1.0 if self.default.along == "k" else 4.0) * best + far
        lanes, machine = self.machine.lanes, self.machine
        v = s.y0 // lanes
        step = 4 * (s.r1 or self.roles.steps)
        # where the columns of a step come from: L1, if they stay there from one use to the next
        again = s.y0 if s.order == "nm" else s.y1
        near = step * again <= machine.l1 * 3 // 4
        cycles, _ = tile_cycles(s.x0, v, rows, cols, machine, 1 if near else self.roles.panel)
        if not near:
            cycles += 0.4 / s.x0
        kept = s.x0 if s.order == "mn" else s.x1
        if step * kept > (machine.l1 * 3 // 4 if s.order == "mn" else machine.l2):
            cycles += 0.4 / v
        spilled = s.x0 * v + min(s.x0, v) + (1 if machine.fma else 2) - machine.registers
        cycles += max(0, spilled) / (s.x0 * v)
        cycles += 0.75 / (s.r0 * s.x0 * v)  # the loop itself
        if s.r1:
            cycles += 3.0 / s.r1  # sums wait between blocks
        gathered = self.roles.col_step not in (1, None)
        if s.stage:
            cycles += (11 if gathered else 5) / 8 / s.x1
        elif gathered:
            cycles += 2.0 / s.x0
        return cycles + far

    def words(self, s: Schedule) -> float:
        matrix = product_of(self.kernel)
        assert matrix is not None
        tile = Tile(s.x0, s.r0, s.y0, s.x1, s.r1 or matrix.k, s.y1)
        return traffic(tile, matrix)


@dataclass(frozen=True)
class _Dots(_Contraction):
    """Products of bytes: a sum takes one register, or two where products do not fit 16 bits."""

    def extended(self) -> Iterator[Schedule]:
        d, lanes = self.default, self.machine.lanes
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
            for x1 in _around(d.x1):
                yield replace(s, x1=x1)
            for y1 in _around(d.y1):
                yield replace(s, y1=y1)
            for r1 in (64, 128, 256):
                yield replace(s, r1=r1)

    def normal(self, s: Schedule) -> Schedule:
        return replace(super().normal(s), stage=False)

    def cost(self, s: Schedule) -> float:
        return _distance(s, self.default)


@dataclass(frozen=True)
class _Windows(_Rules):
    """Windows: pixels and channels in registers, units and channels of a tile."""

    across: Windows
    taps: bool

    def extended(self) -> Iterator[Schedule]:
        d, lanes = self.default, self.machine.lanes
        widths = (d.y0,) if self.taps else (lanes, 2 * lanes, 4 * lanes)
        for x0 in range(1, min(8, self.across.pixel.extent) + 1):
            for y0 in widths:
                yield replace(d, x0=x0, y0=y0)
        for x1 in _around(d.x1):
            yield replace(d, x1=x1)
        for y1 in _around(d.y1):
            yield replace(d, y1=y1)
        for r0 in () if self.taps else (1, 2, self.across.taps):
            yield replace(d, r0=r0)

    def normal(self, s: Schedule) -> Schedule:
        x0 = min(s.x0, self.across.pixel.extent)
        units = prod(v.extent for v in self.across.rows) * -(-self.across.pixel.extent // x0)
        y1 = _whole(s.y1, s.y0, self.across.channel.extent)
        return replace(s, x0=x0, x1=min(s.x1, units), y1=y1)

    def tiles(self, s: Schedule) -> int:
        s = self.normal(s)
        units = prod(v.extent for v in self.across.rows) * -(-self.across.pixel.extent // s.x0)
        return -(-units // s.x1) * -(-self.across.channel.extent // s.y1)


@dataclass(frozen=True)
class _Attention(_Rules):
    """Register tiles of both products, query rows of a tile, keys of a block, what is copied."""

    heads: Attention

    def extended(self) -> Iterator[Schedule]:
        d = self.default
        rows, keys = self.heads.m.extent, self.heads.keys.extent
        for _, x0, y0 in register_tiles(rows, keys, self.machine)[:TILES]:
            yield replace(d, x0=x0, y0=y0, x1=max(1, d.x1 // x0) * x0)
        for cache in ("", "k", "v", "kv"):
            yield replace(d, cache=cache)
        for x1 in (d.x1 // 4, d.x1 // 2, d.x1 * 2):
            for y1 in (d.y1, 64, 128, 256):
                yield replace(d, x1=max(d.x0, x1), y1=y1)
        for y1 in (64, 128, 256, keys):
            yield replace(d, y1=y1)
        for r0 in (2, 4, 16):
            yield replace(d, r0=r0)

    def normal(self, s: Schedule) -> Schedule:
        rows = self.heads.m.extent
        x0 = min(s.x0, rows)
        return replace(s, x0=x0, x1=_whole(s.x1, x0, rows), y1=min(s.y1, self.heads.keys.extent))

    def tiles(self, s: Schedule) -> int:
        return prod(v.extent for v in self.heads.outer) * -(-self.heads.m.extent // s.x1)

    def scratch(self, s: Schedule) -> int:
        at, wide = self.heads, 16
        most, keys = min(s.x1, at.m.extent), min(s.y1, at.keys.extent)
        words = most * (-(-keys // wide) * wide + 4 + at.n.extent) + at.depth.extent * s.y0
        if "v" in s.cache:
            words += keys * -(-at.n.extent // s.y0) * s.y0
        return _aligned(4 * words)


def _around(size: int) -> tuple[int, ...]:
    """Sizes some times smaller and larger."""
    return tuple(max(1, n) for n in (size // 4, size // 2, 2 * size, 4 * size))


def _whole(size: int, part: int, extent: int) -> int:
    """`size` in whole parts: one at least, and no more than `extent` needs."""
    return part * max(1, min(size // part, -(-extent // part)))


def _aligned(size: int) -> int:
    return -(-size // 64) * 64


def _distance(a: Schedule, b: Schedule) -> float:
    """How many doublings, halvings and other changes lie between two schedules."""
    total = 0.0
    for name, value in a.to_json().items():
        other = getattr(b, name)
        if isinstance(value, str) or not value or not other:
            total += value != other
        else:
            total += abs(log2(value / other))
    return total
