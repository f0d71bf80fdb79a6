"""Products of few rows: a tile is some columns, whose steps are dealt to the threads of a group.

Input: a contraction of fewer rows than a tile has, and a schedule.  Output: the loop nest of one
tile.  Such products are as fast as their columns can be read: each thread has 4 columns, all rows
and every slices-th step; in the end the slices are added up in shared memory, halves to halves.

    tile (y1 columns):
        for every slices-th step:  sums of each row += row * 4 columns
        slices from the middle on:  shared := sums;  barrier;  the others:  sums += shared;  …
        slice 0 stores
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, prod
from typing import ClassVar

from tilewright.base.dtypes import F32
from tilewright.kernel.builder import Builder
from tilewright.kernel.expr import Bound, Call, Expr, Lane, Load, Reg, Splat
from tilewright.kernel.index import Index, index, unflatten
from tilewright.kernel.loops import Scratch, TileFn
from tilewright.kernel.reduction import identity
from tilewright.kernel.spec import Kernel
from tilewright.targets.gpu.integers import Integers, columns, panel_of
from tilewright.targets.gpu.places import Places, Sums, add_up, fixed_product, operands
from tilewright.targets.gpu.schedule import MOST_THREADS, WORD, Sizes, beyond
from tilewright.targets.gpu.space import LEAST_THREADS, Group, nearby
from tilewright.targets.gpu.staging import (
    LANES,
    LINE,
    Side,
    guarded,
    inside,
    multiple,
    side_by_side,
)
from tilewright.targets.lite import Core
from tilewright.targets.schedule import Schedule

#: Steps that a thread must have, so that adding up does not count.
LEAST_STEPS = 2
#: Products with steps for fewer slices are computed by a thread for each sum.
LEAST_SLICES = 16
#: Products of so many rows are tiles (tiles.py).
ENOUGH_ROWS = 4


@dataclass(frozen=True)
class ThinSchedule(Schedule):
    """Tiles of y1 columns; each of `slices` groups of threads has a part of the steps, r0 of which
    are unrolled."""

    form = "thin"
    #: Slices of which one adds up all, at a time.
    fan: ClassVar[int] = 2
    r0: int = 4
    y1: int = 8
    slices: int = 128

    @property
    def threads(self) -> int:
        return self.y1 // LANES * self.slices

    def objection(self, kernel: Kernel) -> str:
        if found := super().objection(kernel):
            return found
        if self.y1 % LANES or self.slices & (self.slices - 1):
            return f"y1 is a multiple of {LANES}, and slices a power of two"
        return beyond(self.threads, self.shared(kernel))

    def shared(self, kernel: Kernel) -> int:
        """Bytes of shared memory."""
        return WORD * self.sums(operands(kernel).m.extent)

    def sums(self, rows: int) -> int:
        """Sums of all slices that come to others to be added up."""
        return rows * self.y1 * (self.slices - self.slices // self.fan)


def suits(kernel: Kernel) -> bool:
    """True for products of few rows whose columns lie side by side in memory, if they are long."""
    ops = fixed_product(kernel)
    if ops is None or ops.m.extent >= ENOUGH_ROWS or ops.n.extent < LANES:
        return False
    side = _alone(kernel)
    return ops.steps >= LEAST_STEPS * LEAST_SLICES * side.each and not side.deep


def _alone(kernel: Kernel) -> Side:
    """The column operand, to ask how it lies in memory."""
    ops = operands(kernel)
    return _columns(Builder({}, 1, kernel), kernel, Places(ops, {v: index(v) for v in ops.outer}))


def _columns(
    b: Builder,
    kernel: Kernel,
    places: Places,
    width: int = LANES,
    kind: type[Integers] = Integers,
) -> Side:
    """The column operand: vectors of `width` columns."""
    ops = places.ops
    piece = places.columns(width, Index(), 0)
    return columns(b, kernel, ops, piece, widest=ops.n.extent, kind=kind)


class ThinTile:
    """One tile: where this thread's columns lie, its sums, and what becomes of them.

    own:  the number of its vector in the tile;  part: its slice;  col: its first column
    """

    def __init__(self, kernel: Kernel, s: ThinSchedule, kind: type[Integers] = Integers) -> None:
        """kind: of columns that are integers"""
        self.kernel, self.s, ops = kernel, s, operands(kernel)
        outer = tuple(v.extent for v in ops.outer)
        cols, self.rows = ceil(ops.n.extent / s.y1), range(ops.m.extent)
        self.b = b = Builder({}, prod(outer) * cols, kernel, s.threads)
        *others, tile = unflatten(b.tile, (*outer, cols))
        self.places = Places(ops, dict(zip(ops.outer, others, strict=True)))
        self.side = _columns(b, kernel, self.places, s.y1, kind)
        # neighbouring threads read neighbouring vectors: those of a panel, then its next steps
        run = self.side.run
        shape = (s.y1 // LANES // run, s.slices, run)
        major, part, unit = unflatten(b.thread, shape)
        self.own, self.part = b.let(major * run + unit, "t"), b.let(part, "t")
        self.col = b.let(tile * s.y1 + self.own * LANES, "col")
        for i in self.rows:
            b.set(total(i).name, identity("sum", F32, LANES))

    def finish(self, *areas: Scratch) -> TileFn:
        """Slices are added up, in an area after these, and slice 0 stores."""
        b, s, count = self.b, self.s, len(self.rows)

        def place(number: Index, i: int) -> Index:
            return (number * count + i) * s.y1 + self.own * LANES

        sums = [total(i) for i in self.rows]
        add_up(b, self.part, s.slices, len(self.kernel.buffers) + len(areas), sums, place, s.fan)
        output = Sums(b, self.kernel, self.places)
        with inside(b, (Bound(self.part, 1),)):
            for i in self.rows:
                output.put(index(i), self.col, total(i))
        more = (Scratch(F32, s.sums(count)),) if s.slices > 1 else ()
        return b.finish(self.kernel, (*areas, *more))


def lower(kernel: Kernel, schedule: ThinSchedule) -> TileFn:
    """Tiles of y1 columns and all rows; what lies beyond the ends is read as 0 and not stored."""
    tile, s = ThinTile(kernel, schedule), schedule
    b, side, steps = tile.b, tile.side, tile.places.ops.steps
    blocks = ceil(steps / (s.slices * s.r0 * side.each))
    with b.loop("block", Index(), index(blocks), 1, blocks, chunk=1) as block:
        firsts = [((block * s.r0 + u) * s.slices + tile.part) * side.each for u in range(s.r0)]
        for u, step in enumerate(firsts):
            side.take(u, tile.col, step)
        for u, step in enumerate(firsts):
            for i in tile.rows:
                _multiply(b, tile.places, side, i, u, step)
    return tile.finish()


def _multiply(b: Builder, places: Places, side: Side, i: int, unit: int, step: Index) -> None:
    """sum of row i += row * columns, for each step of a unit; their factor comes in once"""
    factor = side.factor(unit)
    to = total(i) if factor is None else _part(i)
    if factor is not None:
        b.set(to.name, identity("sum", F32, LANES))
    for j, left in enumerate(_row(b, places, i, step, side.each)):
        factors = (Splat(left, LANES), side.taken(unit, j), to)
        b.set(to.name, Call("fma", factors, F32, LANES))
    if factor is not None:
        b.set(total(i).name, Call("fma", (to, factor, total(i)), F32, LANES))


def _row(b: Builder, places: Places, i: int, step: Index, count: int) -> Iterator[Expr]:
    """Row i at each of `count` steps, read when it is asked for: in vectors where it lies so."""
    row, steps = places.ops.row, places.ops.steps
    ats = [row.index.substitute(places.row(index(i), step + j)) for j in range(count)]
    whole = count % LANES == 0 and side_by_side(ats) and multiple(ats[0])
    lanes = LANES if whole else 1
    for j in range(0, count, lanes):
        left = Reg("row", F32, lanes)
        load = Load(row.buffer, ats[j], F32, lanes)
        b.set(left.name, guarded(load, (Bound(step + j, steps),)))
        yield from (Lane(left, lane) for lane in range(lanes)) if whole else (left,)


def total(i: int) -> Reg:
    """The sums of row i."""
    return Reg(f"sum{i}", F32, LANES)


def _part(i: int) -> Reg:
    return Reg(f"part{i}", F32, LANES)


def default(kernel: Kernel) -> ThinSchedule:
    """Columns of a panel, or of a cache line, and a whole group of threads for them."""
    ops, side = operands(kernel), _alone(kernel)
    panel = panel_of(kernel, ops)
    y1 = panel if panel % LANES == 0 else LINE
    slices = MOST_THREADS * LANES // y1
    while slices > 1 and slices * LEAST_STEPS * side.each > ops.steps:
        slices //= 2
    return ThinSchedule(y1=y1, slices=slices)


#: Steps unrolled, columns of a tile, and slices of the depth that are tried.
SETTINGS = {"r0": (1, 2, 4, 8), "y1": (8, 16, 32, 64), "slices": (8, 16, 32, 64, 128)}


def space(kernel: Kernel, core: Core, group: Group) -> tuple[tuple[ThinSchedule, float], ...]:
    """At most `MOST` schedules: the default, then those nearest to it."""
    del core  # a group has few registers and little shared memory
    ops, usual = operands(kernel), default(kernel)

    def fits(s: ThinSchedule) -> bool:
        within = LEAST_THREADS <= s.threads <= group.threads and s.shared(kernel) <= group.shared
        return within and s.y1 < 2 * ops.n.extent and not s.objection(kernel)

    return nearby(usual, SETTINGS, fits)


def traffic(kernel: Kernel, schedule: ThinSchedule) -> tuple[int, float]:
    """Bytes of shared memory; words loaded and stored beyond it."""
    sizes = Sizes.of(kernel)
    rows = ceil(sizes.cols / schedule.y1) * sizes.rows
    words = sizes.batch * (sizes.steps * (rows + sizes.cols) + sizes.rows * sizes.cols)
    return schedule.shared(kernel), float(words)
