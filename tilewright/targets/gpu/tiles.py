"""Matrix products and convolutions by groups of threads: a tile each, staged in shared memory.

Input: a contraction and a schedule.  Output: the loop nest of one tile, which x1/x0 * y1/y0 threads
compute together; each has a register tile of x0 rows and y0 columns.

    tile (x1 rows, y1 columns):
        for block of r1 steps:
            copy the block's rows and columns to shared memory, steps outermost;  barrier
            for step:  x0 rows and y0 columns to registers;  sums += rows * columns
            barrier
        store sums

What a thread copies are units of 4 rows (or columns): so it writes whole vectors, even where the
operand lies along the depth and is transposed on the way.  Columns of a thread lie in vectors of 4
that are side by side with those of its neighbours, so that shared memory is read without conflicts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import gcd, prod

from tilewright.base.dtypes import F32
from tilewright.kernel.builder import Builder, Values
from tilewright.kernel.expr import (
    Acc,
    Bound,
    Call,
    Const,
    Expr,
    Guard,
    Lane,
    Lanes,
    Load,
    Reg,
    Splat,
)
from tilewright.kernel.form import Contraction, classify, form_as
from tilewright.kernel.index import Div, Gathered, Index, Mod, Var, index, unflatten
from tilewright.kernel.loops import Barrier, Scratch, TileFn
from tilewright.kernel.reduction import identity
from tilewright.kernel.roles import Operands
from tilewright.kernel.spec import Kernel
from tilewright.kernel.tree import indices_of, rewrite, walk
from tilewright.targets.schedule import Schedule

#: Elements of a vector.
LANES = 4
WORD = 4

#: WebGPU's default limits: threads of a group, and bytes that they share.
MOST_THREADS = 256
MOST_SHARED = 16384


@dataclass(frozen=True)
class GroupSchedule(Schedule):
    """Tiles of x1 by y1 in blocks of r1 steps, register tiles of x0 by y0, r0 steps unrolled.

    band:  rows of tiles that are walked together, column by column, so that what they read is
           still in the cache ("swizzle"); the largest part that divides their number
    ahead: a block is read into registers while the one before is computed ("prefetch")
    """

    form = "group"
    x0: int = 8
    y0: int = 8
    r0: int = 4
    x1: int = 64
    y1: int = 64
    r1: int = 16
    band: int = 1
    ahead: bool = False

    @property
    def threads(self) -> int:
        return (self.x1 // self.x0) * (self.y1 // self.y0)

    @property
    def shared(self) -> int:
        """Bytes of shared memory."""
        return WORD * self.r1 * (self.x1 + self.y1)

    def objection(self, kernel: Kernel) -> str:
        if found := super().objection(kernel):
            return found
        if self.x0 % LANES or self.y0 % LANES or self.r1 % LANES:
            return f"x0, y0 and r1 are multiples of {LANES}"
        if self.x1 % self.x0 or self.y1 % self.y0 or self.r1 % self.r0:
            return "x1, y1 and r1 are multiples of x0, y0 and r0"
        if self.threads > MOST_THREADS:
            return f"a group has at most {MOST_THREADS} threads, not {self.threads}"
        if self.shared > MOST_SHARED:
            return f"a group shares at most {MOST_SHARED} bytes, not {self.shared}"
        return ""


#: Schedules that products start with, the largest tiles first.
SHAPES = (
    GroupSchedule(8, 8, 4, 128, 128, 16, 8),
    GroupSchedule(8, 8, 4, 64, 128, 16, 8),
    GroupSchedule(4, 8, 4, 64, 64, 16, 4),
    GroupSchedule(4, 4, 4, 32, 64, 32, 1),
    GroupSchedule(4, 4, 4, 32, 32, 32, 1),
    GroupSchedule(4, 4, 2, 16, 16, 16, 1),
)
#: Tiles that keep every core of a large GPU at work.
ENOUGH_TILES = 256


def suits(kernel: Kernel) -> bool:
    """True for products with rows and columns enough, whose extents are fixed and which cannot
    trap: a trap ends one thread, and the others would wait for it."""
    form = classify(kernel)
    if not isinstance(form, Contraction) or kernel.extents:
        return False
    ops = form.operands
    gathered = any(isinstance(a, Gathered) for a in _atoms(kernel))
    return not gathered and ops.m.extent >= LANES and ops.n.extent >= LANES


def _atoms(kernel: Kernel) -> list[object]:
    values = (kernel.value, *(stage.value for stage in kernel.stages))
    indices = [i for v in values for e in walk(v) for i in indices_of(e)]
    found: list[object] = []
    while indices:
        for atom, _ in indices.pop().terms:
            found.append(atom)
            if isinstance(atom, (Div, Mod)):
                indices.append(atom.value)
    return found


def lower(kernel: Kernel, schedule: GroupSchedule) -> TileFn:
    """Tiles of x1 rows by y1 columns; what lies beyond the ends is read as 0 and not stored."""
    ops = form_as(kernel, Contraction).operands
    rows, cols = -(-ops.m.extent // schedule.x1), -(-ops.n.extent // schedule.y1)
    outer = tuple(v.extent for v in ops.outer)
    b = Builder({}, prod(outer) * rows * cols, kernel, schedule.threads)
    *others, flat = unflatten(b.tile, (*outer, rows * cols))
    band = gcd(schedule.band, rows)
    strip, col, row = unflatten(flat, (rows // band, cols, band))
    at: Values = dict(zip(ops.outer, others, strict=True))
    row0 = b.let((strip * band + row) * schedule.x1, "row")
    col0 = b.let(col * schedule.y1, "col")
    return _Tile(b, kernel, schedule, ops, at, row0, col0).emit()


class _Tile:
    """One tile: where it is, and the copies, the product and the stores of one thread."""

    def __init__(
        self,
        b: Builder,
        kernel: Kernel,
        schedule: GroupSchedule,
        ops: Operands,
        at: Values,
        row0: Index,
        col0: Index,
    ) -> None:
        self.b, self.kernel, self.s, self.ops, self.at = b, kernel, schedule, ops, at
        first, n, steps = len(kernel.buffers), ops.n.extent, ops.steps
        self.sides = (
            _Side(b, "x", ops.row, ops.m.extent, steps, schedule.x1, row0, first, self._row_point),
            _Side(b, "y", ops.col, n, steps, schedule.y1, col0, first + 1, self._col_point),
        )
        self.row0, self.col0 = row0, col0
        shape = (schedule.x1 // schedule.x0, schedule.y1 // schedule.y0)
        self.down, self.along = (b.let(i, "t") for i in unflatten(b.thread, shape))

    def _row_point(self, row: Index, step: Index) -> Values:
        return self.at | self._rows(row) | self._step(step)

    def _col_point(self, col: Index, step: Index) -> Values:
        return self.at | {self.ops.n: col} | self._step(step)

    def _rows(self, row: Index) -> Values:
        shape = tuple(v.extent for v in self.ops.rows)
        return dict(zip(self.ops.rows, spread(row, shape), strict=True))

    def _step(self, step: Index) -> Values:
        shape = tuple(v.extent for v in self.ops.depth)
        return dict(zip(self.ops.depth, spread(step, shape), strict=True))

    def emit(self) -> TileFn:
        b, s, steps = self.b, self.s, self.ops.steps
        for i in range(s.x0):
            for v in range(s.y0 // LANES):
                b.set(_sum(i, v), identity("sum", F32, LANES))
        if s.ahead:
            self._read(Index())
        with b.loop("block", Index(), index(steps), s.r1, steps) as block:
            if not s.ahead:
                self._read(block)
            for side in self.sides:
                side.write(s.r1)
            b.add(Barrier())
            if s.ahead:
                self._read(block + s.r1)
            self._multiply()
            b.add(Barrier())
        self._store()
        areas = tuple(Scratch(F32, s.r1 * side.width) for side in self.sides)
        return b.finish(self.kernel, areas)

    def _read(self, block: Index) -> None:
        for side in self.sides:
            side.read(block, self.s.r1)

    def _multiply(self) -> None:
        """sums += rows * columns, for each step of the block in shared memory"""
        b, s = self.b, self.s
        (rows, cols), across = self.sides, s.y1 // s.y0 * LANES
        with b.loop("step", Index(), index(s.r1), s.r0, s.r1) as first:
            for step in (first + u for u in range(s.r0)):
                for i in range(0, s.x0, LANES):
                    at = step * s.x1 + self.down * s.x0 + i
                    b.set(f"left{i // LANES}", Load(rows.area, at, F32, LANES))
                for v in range(s.y0 // LANES):
                    at = step * s.y1 + self.along * LANES + v * across
                    b.set(f"right{v}", Load(cols.area, at, F32, LANES))
                for i in range(s.x0):
                    a = Splat(Lane(Reg(f"left{i // LANES}", F32, LANES), i % LANES), LANES)
                    for v in range(s.y0 // LANES):
                        factors = (a, Reg(f"right{v}", F32, LANES), Reg(_sum(i, v), F32, LANES))
                        b.set(_sum(i, v), Call("fma", factors, F32, LANES))

    def _store(self) -> None:
        b, s = self.b, self.s
        rows, n = self.ops.m, self.ops.n
        across = s.y1 // s.y0 * LANES
        whole = n.extent % LANES == 0
        q = index(Var("q", -(-n.extent // LANES))) * LANES
        vectors = whole and multiple(self.kernel.store.substitute({n: q}))
        for i in range(s.x0):
            row = b.let(self.row0 + self.down * s.x0 + i, "row")
            for v in range(s.y0 // LANES):
                col = b.let(self.col0 + self.along * LANES + v * across, "col")
                ends = (Bound(row, rows.extent), Bound(col, n.extent))
                if whole:
                    with inside(self.b, ends):
                        self._put(i, v, row, col, vectors)
                    continue
                for lane in range(LANES):
                    with inside(self.b, (ends[0], Bound(col + lane, n.extent))):
                        self._put_lane(i, v, lane, row, col)

    def _put(self, i: int, v: int, row: Index, col: Index, vectors: bool) -> None:
        if not vectors:
            for lane in range(LANES):
                self._put_lane(i, v, lane, row, col)
            return
        for lane in range(LANES):
            self.b.compute(f"o{lane}", self._value(i, v, lane, row, col))
        lanes = Lanes(tuple(Reg(f"o{lane}", F32) for lane in range(LANES)))
        self.b.store(0, self.kernel.store.substitute(self._point(row, col)), lanes)

    def _put_lane(self, i: int, v: int, lane: int, row: Index, col: Index) -> None:
        at = self._point(row, col + lane)
        self.b.store(0, self.kernel.store.substitute(at), self._value(i, v, lane, row, col))

    def _point(self, row: Index, col: Index) -> Values:
        return self.at | self._rows(row) | {self.ops.n: col}

    def _value(self, i: int, v: int, lane: int, row: Index, col: Index) -> Expr:
        total = Lane(Reg(_sum(i, v), F32, LANES), lane)
        at = self._point(row, col + lane)
        return rewrite(self.kernel.value, lambda e: total if isinstance(e, Acc) else e, at)


class _Side:
    """One operand: how its block comes to shared memory, `width` rows or columns for each step.

    deep: it does not lie along its rows or columns: neighbouring threads copy neighbouring steps
    wide: it is read in vectors; of a deep one, a unit then is 4 steps of 4 rows
    """

    def __init__(
        self,
        b: Builder,
        name: str,
        load: Load,
        extent: int,
        steps: int,
        width: int,
        start: Index,
        area: int,
        point: Callable[[Index, Index], Values],
    ) -> None:
        self.b, self.name, self.load, self.extent, self.steps = b, name, load, extent, steps
        self.width, self.start, self.area, self.point = width, start, area, point
        q, k = index(Var("q", -(-extent // LANES))), index(Var("k", steps))
        self.deep = not _side_by_side([self._index(q * LANES + i, k) for i in range(LANES)])
        if self.deep:
            k = index(Var("k", -(-steps // LANES))) * LANES
            run = [self._index(index(Var("q", extent)), k + i) for i in range(LANES)]
            self.wide = steps % LANES == 0 and _side_by_side(run) and multiple(run[0])
        else:
            self.wide = extent % LANES == 0 and multiple(self._index(q * LANES, k))

    def _index(self, place: Index, step: Index) -> Index:
        return self.load.index.substitute(self.point(place, step))

    def read(self, block: Index, depth: int) -> None:
        """Registers := this thread's units of the block, 0 beyond the ends."""
        for n, _, place, step in self._units(depth):
            place, step = self.start + place, block + step
            if self.deep and self.wide:
                for i in range(LANES):
                    self.b.set(self._reg(n, i).name, self._element(place + i, step, LANES))
            elif self.wide:
                self.b.set(self._reg(n).name, self._element(place, step, LANES))
            else:
                parts = tuple(self._element(place + i, step, 1) for i in range(LANES))
                self.b.set(self._reg(n).name, Lanes(parts))

    def write(self, depth: int) -> None:
        """Shared memory := the registers, steps outermost."""
        for n, flat, place, step in self._units(depth):
            with inside(self.b, (Bound(flat, prod(self._shape(depth))),)):
                self._put(n, place, step)

    def _put(self, n: int, place: Index, step: Index) -> None:
        if not (self.deep and self.wide):
            self.b.store(self.area, step * self.width + place, self._reg(n))
            return
        for lane in range(LANES):
            parts = tuple(Lane(self._reg(n, i), lane) for i in range(LANES))
            self.b.store(self.area, (step + lane) * self.width + place, Lanes(parts))

    def _element(self, place: Index, step: Index, lanes: int) -> Expr:
        load = Load(self.load.buffer, self._index(place, step), F32, lanes)
        ends = (Bound(place, self.extent), Bound(step, self.steps))
        open_ = tuple(end for end in ends if not end.always)
        return Guard(open_, load, Const(0.0, F32, lanes)) if open_ else load

    def _shape(self, depth: int) -> tuple[int, int]:
        """Units across and along the depth."""
        return self.width // LANES, depth // (LANES if self.deep and self.wide else 1)

    def _units(self, depth: int) -> Iterator[tuple[int, Index, Index, Index]]:
        """Number, number among all threads' units, first place and first step."""
        across, along = self._shape(depth)
        for n in range(-(-across * along // self.b.threads)):
            flat = self.b.thread + n * self.b.threads
            major, minor = spread(flat, (across, along) if self.deep else (along, across))
            place, step = (major, minor) if self.deep else (minor, major)
            yield n, flat, place * LANES, step * (LANES if self.deep and self.wide else 1)

    def _reg(self, n: int, part: int = 0) -> Reg:
        return Reg(f"{self.name}{n}_{part}", F32, LANES)


@contextmanager
def inside(b: Builder, ends: tuple[Bound, ...]) -> Iterator[None]:
    """What is added happens where all bounds hold; no question where that is certain."""
    unsure = tuple(end for end in ends if not end.always)
    if not unsure:
        yield
        return
    with b.branch() as then:
        yield
    b.choose(unsure, then)


def _sum(i: int, v: int) -> str:
    return f"sum{i}_{v}"


def spread(flat: Index, shape: tuple[int, ...]) -> tuple[Index, ...]:
    """The multi-index of an offset that may lie beyond the end: only the first part grows."""
    inner = prod(shape[1:])
    return (flat // inner, *unflatten(flat % inner, shape[1:])) if shape else ()


def multiple(at: Index) -> bool:
    """True if an index is certainly a multiple of LANES."""
    return at.const % LANES == 0 and all(
        c % LANES == 0 or (isinstance(atom, Mod) and atom.by % LANES == 0 and multiple(atom.value))
        for atom, c in at.terms
    )


def _side_by_side(run: Sequence[Index]) -> bool:
    return all(at == run[0] + i for i, at in enumerate(run))


def default(kernel: Kernel) -> GroupSchedule:
    """The largest tile of which there are enough for every core of a large GPU."""
    ops = form_as(kernel, Contraction).operands
    batch = prod(v.extent for v in ops.outer)
    for schedule in SHAPES:
        tiles = batch * -(-ops.m.extent // schedule.x1) * -(-ops.n.extent // schedule.y1)
        if tiles >= ENOUGH_TILES:
            return schedule
    return SHAPES[-1]
