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

from dataclasses import dataclass
from math import ceil, prod

from tilewright.base.dtypes import F32
from tilewright.kernel.builder import Builder, Values
from tilewright.kernel.expr import Bound, Call, Load, Reg, Splat
from tilewright.kernel.form import Contraction, form_as
from tilewright.kernel.index import Index, index, unflatten
from tilewright.kernel.loops import Barrier, Scratch, TileFn
from tilewright.kernel.reduction import identity
from tilewright.kernel.roles import Operands
from tilewright.kernel.spec import Kernel
from tilewright.targets.gpu.places import Places, Sums, fixed_product
from tilewright.targets.gpu.schedule import MOST_THREADS, WORD, beyond
from tilewright.targets.gpu.staging import LANES, LINE, Side, guarded, inside
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
        shared = WORD * form_as(kernel, Contraction).operands.m.extent * self.y1 * self.slices // 2
        return beyond(self.threads, shared)


def suits(kernel: Kernel) -> bool:
    """True for products of few rows whose columns lie side by side in memory, if they are long."""
    ops = fixed_product(kernel)
    if ops is None or ops.m.extent >= ENOUGH_ROWS or ops.n.extent < LANES:
        return False
    return ops.steps >= LEAST_STEPS * LEAST_SLICES and not _column(kernel, ops).deep


def _column(kernel: Kernel, ops: Operands) -> Side:
    """The column operand, as it lies in memory."""
    own: Values = {v: index(v) for v in ops.outer}
    return _side(Builder({}, 1, kernel), ops, Places(ops, own), LANES)


def _side(b: Builder, ops: Operands, places: Places, width: int) -> Side:
    return Side(
        b, "y", ops.col, ops.n.extent, ops.steps, width, Index(), 0, places.col, panel=ops.panel
    )


def lower(kernel: Kernel, schedule: ThinSchedule) -> TileFn:
    """Tiles of y1 columns and all rows; what lies beyond the ends is read as 0 and not stored."""
    ops, s = form_as(kernel, Contraction).operands, schedule
    outer = tuple(v.extent for v in ops.outer)
    cols, rows = ceil(ops.n.extent / s.y1), range(ops.m.extent)
    b = Builder({}, prod(outer) * cols, kernel, s.threads)
    *others, tile = unflatten(b.tile, (*outer, cols))
    places = Places(ops, dict(zip(ops.outer, others, strict=True)))
    side = _side(b, ops, places, s.y1)
    # neighbouring threads read neighbouring vectors: those of a panel, then its next steps
    run, part, unit = unflatten(b.thread, (s.y1 // LANES // side.run, s.slices, side.run))
    own, part = b.let(run * side.run + unit, "t"), b.let(part, "t")
    col = b.let(tile * s.y1 + own * LANES, "col")
    for i in rows:
        b.set(_sum(i).name, identity("sum", F32, LANES))
    blocks = ceil(ops.steps / (s.slices * s.r0))
    with b.loop("block", Index(), index(blocks), 1, blocks) as block:
        for u in range(s.r0):
            b.set(f"col{u}_", side.unit(col, (block * s.r0 + u) * s.slices + part))
        for u in range(s.r0):
            step = (block * s.r0 + u) * s.slices + part
            for i in rows:
                at = ops.row.index.substitute(places.row(index(i), step))
                row = guarded(Load(ops.row.buffer, at, F32), (Bound(step, ops.steps),))
                b.set("row", row)
                factors = (Splat(Reg("row", F32), LANES), Reg(f"col{u}_", F32, LANES), _sum(i))
                b.set(_sum(i).name, Call("fma", factors, F32, LANES))
    area = len(kernel.buffers)
    _add_up(b, s, part, own, area, len(rows))
    output = Sums(b, kernel, places)
    with inside(b, (Bound(part, 1),)):
        for i in rows:
            output.put(index(i), col, _sum(i))
    scratch = (Scratch(F32, len(rows) * s.slices // 2 * s.y1),) if s.slices > 1 else ()
    return b.finish(kernel, scratch)


def _add_up(b: Builder, s: ThinSchedule, part: Index, own: Index, area: int, rows: int) -> None:
    """sums of part 0 += those of all others"""

    def place(i: int, number: Index) -> Index:
        return (number * rows + i) * s.y1 + own * LANES

    half = s.slices // 2
    while half:
        with inside(b, (Bound(part - half, half),)):
            for i in range(rows):
                b.store(area, place(i, part - half), _sum(i))
        b.add(Barrier())
        with inside(b, (Bound(part, half),)):
            for i in range(rows):
                other = Load(area, place(i, part), F32, LANES)
                b.set(_sum(i).name, Call("add", (_sum(i), other), F32, LANES))
        half //= 2
        if half:
            b.add(Barrier())


def _sum(i: int) -> Reg:
    return Reg(f"sum{i}", F32, LANES)


def default(kernel: Kernel) -> ThinSchedule:
    """Columns of a panel, or of a cache line, and a whole group of threads for them."""
    ops = form_as(kernel, Contraction).operands
    y1 = ops.panel if ops.panel % LANES == 0 else LINE
    slices = MOST_THREADS * LANES // y1
    while slices > 1 and slices * LEAST_STEPS > ops.steps:
        slices //= 2
    return ThinSchedule(y1=y1, slices=slices)
