"""Products of few rows by packed dot products: rows are rounded to bytes where they are used.

Input: a product of thin.py whose weights have 4 bits, and whose other operand may be rounded to i8
(docs/decisions/0025-products-of-rounded-rows.md); a schedule.  Output: the loop nest of one tile.
Weights are read as they lie.  One instruction multiplies and adds four of them:

    for block of r1 steps:
        rows := 16 steps at a time:  bytes, 127 for the largest;  its size;  minus their sum
        barrier
        for every slices-th 16 steps:
            part := (lower nibbles * even bytes + upper nibbles * odd bytes) - zero * sum of bytes
            sums of each row += part * (scale of the weights * size of a byte)
    slices are added up as in thin.py, eight at a time
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from math import ceil
from typing import ClassVar

from tilewright.base.dtypes import F32, I8, I32
from tilewright.kernel.builder import Builder
from tilewright.kernel.expr import (
    Bound,
    Call,
    Const,
    Dot,
    Expr,
    Join,
    Lane,
    Lanes,
    Load,
    Nibbles,
    Reg,
    Splat,
    Subvector,
    dtype_of,
    lanes_of,
)
from tilewright.kernel.form import BlockContraction, classify, form_as
from tilewright.kernel.index import Index, index
from tilewright.kernel.loops import Barrier, Scratch, TileFn
from tilewright.kernel.quantised import Quantised
from tilewright.kernel.spec import Kernel
from tilewright.kernel.tree import walk
from tilewright.targets.gpu import thin
from tilewright.targets.gpu.features import PACKED
from tilewright.targets.gpu.integers import Integers
from tilewright.targets.gpu.places import operands
from tilewright.targets.gpu.schedule import MOST_SHARED, MOST_THREADS, WORD
from tilewright.targets.gpu.space import LEAST_THREADS, Group, nearby
from tilewright.targets.gpu.staging import (
    LANES,
    Piece,
    guarded,
    inside,
    multiple,
    own,
    side_by_side,
)
from tilewright.targets.gpu.thin import LEAST_STEPS, ThinSchedule, ThinTile, total
from tilewright.targets.lite import Core

#: Integers of a word, words of a unit; so many steps are rounded together.
WEIGHTS, WORDS = 8, 2
UNIT = WEIGHTS * WORDS
#: What is shared of a unit of a row: its bytes, and two numbers.
SHARED = UNIT + 2 * WORD
#: The largest byte, and the least size of what it stands for.
LARGEST, TINY = 127.0, 2.0**-100


@dataclass(frozen=True)
class RoundedSchedule(ThinSchedule):
    """Tiles of y1 columns; each of `slices` groups of threads has a part of the units of 16 steps,
    r0 of which are read together; r1 steps of the rows lie in shared memory at a time (0: all).

    ahead: the first units are read before the rows are rounded
    """

    form = "rounded"
    fan: ClassVar[int] = 8
    r0: int = 4
    y1: int = 32
    slices: int = 32
    r1: int = 0
    ahead: bool = True

    @property
    def features(self) -> frozenset[str]:
        return frozenset({PACKED})

    def units(self, kernel: Kernel) -> int:
        """Units of 16 steps that lie in shared memory at a time."""
        return min(self.r1 or MOST_SHARED, operands(kernel).steps) // UNIT

    def shared(self, kernel: Kernel) -> int:
        """Bytes of shared memory."""
        rows = operands(kernel).m.extent
        return super().shared(kernel) + SHARED * rows * self.units(kernel)

    def objection(self, kernel: Kernel) -> str:
        if not may_round(kernel):
            return f"the rows of {kernel.name} may not be rounded to bytes"
        if self.r1 % UNIT:
            return f"r1 is a multiple of {UNIT}"
        return super().objection(kernel)


def may_round(kernel: Kernel) -> bool:
    """True for products with weights of 4 bits whose other operand may be i8."""
    form = classify(kernel)
    if not isinstance(form, BlockContraction):
        return False
    weights = form.weights
    scales = [kernel.buffers[x.buffer] for x in walk(weights.scale) if isinstance(x, Load)]
    loose = bool(scales) and all(b.loose == "i8" for b in scales)
    return loose and weights.word == WEIGHTS and weights.size % UNIT == 0


def suits(kernel: Kernel) -> bool:
    """True for such products of few rows."""
    return thin.suits(kernel) and may_round(kernel)


def default(kernel: Kernel) -> RoundedSchedule:
    """A whole group of threads; more columns for each where there are many."""
    ops = operands(kernel)
    y1 = next((y for y in (32, 16) if ops.n.extent >= MANY_COLUMNS * y), 8)
    slices = MOST_THREADS * LANES // y1
    while slices > 1 and slices * LEAST_STEPS * UNIT > ops.steps:
        slices //= 2
    made = RoundedSchedule(y1=y1, slices=slices)
    parts = 1
    while made.shared(kernel) > MOST_SHARED:
        parts += 1
        made = replace(made, r1=UNIT * ceil(ops.steps / UNIT / parts))
    return made


#: With so many times as many columns as a tile has, there are tiles for every core.
MANY_COLUMNS = 256
#: Settings that are tried, and how many candidates there are.
SETTINGS = {"r0": (2, 4, 8), "y1": (8, 16, 32, 64), "slices": (8, 16, 32, 64, 128)}
EACH = 16
#: How much faster than products of f32 they are expected to be.
PACE = 2.0


def usual(kernel: Kernel) -> tuple[RoundedSchedule, ...]:
    """What is tried first where nothing was tuned."""
    return (default(kernel),) if suits(kernel) else ()


def space(kernel: Kernel, core: Core, group: Group) -> tuple[tuple[RoundedSchedule, float], ...]:
    """The likely best, then those nearest to it."""
    del core
    ops, first = operands(kernel), default(kernel)

    def fits(s: RoundedSchedule) -> bool:
        within = LEAST_THREADS <= s.threads <= group.threads and s.shared(kernel) <= group.shared
        return within and s.y1 < 2 * ops.n.extent and not s.objection(kernel)

    found = nearby(first, SETTINGS, fits)
    return tuple((s, cost / PACE) for s, cost in found[:EACH])


def traffic(kernel: Kernel, schedule: RoundedSchedule) -> tuple[int, float]:
    """Bytes of shared memory; words loaded and stored beyond it."""
    return thin.traffic(kernel, schedule)


def lower(kernel: Kernel, schedule: RoundedSchedule) -> TileFn:
    """Tiles of y1 columns and all rows; what lies beyond the ends is read as 0 and not stored."""
    return _Tile(kernel, schedule).emit()


class _Words(Integers):
    """Registers of a unit: the words of four columns, then their scales and zeros."""

    def __init__(
        self, b: Builder, piece: Piece, weights: Quantised, *, apart: bool = False, panel: int = 1
    ) -> None:
        super().__init__(b, piece, weights, apart=apart, panel=panel)
        self.each = UNIT

    def take(self, n: int, place: Index, step: Index) -> None:
        col = self.weights.operands.col
        for j in range(WORDS):
            words = self.neighbours(col, place, step + j * WEIGHTS, self.whole[col])
            self.b.set(self.reg(n, j, col.dtype).name, words)
        self.b.set(self.reg(n, WORDS).name, self.across(self.weights.scale, place, step))
        if not isinstance(self.weights.zero, Const):
            self.b.set(self.reg(n, WORDS + 1).name, self.across(self.weights.zero, place, step))

    def zero(self, n: int) -> Expr:
        """The zero points of unit n."""
        zero = self.weights.zero
        return Const(zero.value, F32, LANES) if isinstance(zero, Const) else self.reg(n, WORDS + 1)


class _Tile:
    """One tile: its parts in their order."""

    def __init__(self, kernel: Kernel, s: RoundedSchedule) -> None:
        self.tile, self.s = ThinTile(kernel, s, _Words), s
        self.b, self.places, self.rows = self.tile.b, self.tile.places, self.tile.rows
        side = self.tile.side
        assert isinstance(side, _Words)
        self.side, self.centred = side, form_as(kernel, BlockContraction).weights.centred
        self.units, self.steps = s.units(kernel), self.places.ops.steps
        #: Numbers of the shared areas: bytes, and sizes with sums.
        self.bytes, self.numbers = len(kernel.buffers), len(kernel.buffers) + 1

    def emit(self) -> TileFn:
        b, s, blocks = self.b, self.s, ceil(self.steps / UNIT / self.units)
        each, rest = divmod(self.units, s.slices)
        together = min(s.r0, max(1, each))
        whole, left = divmod(each, together)
        early = s.ahead and whole > 0
        with b.loop("block", Index(), index(blocks), 1, blocks) as block:
            first = block * self.units
            if early:
                self._take(first, Index(), together)
            self._round(first)
            b.add(Barrier())
            last = whole - 1 if early else whole
            with b.loop("pass", Index(), index(last), 1, max(1, last)) as number:
                if not early:
                    self._take(first, number * together, together)
                self._multiply(number * together, together)
                if early:
                    self._take(first, (number + 1) * together, together)
            if early:
                self._multiply(index(last * together), together)
            if left:
                self._take(first, index(whole * together), left)
                self._multiply(index(whole * together), left)
            if rest:
                with inside(b, (Bound(self.tile.part, rest),)):
                    self._take(first, index(each), 1)
                    self._multiply(index(each), 1)
            if blocks > 1:
                b.add(Barrier())
        count = len(self.rows) * self.units
        return self.tile.finish(Scratch(I8, count * UNIT), Scratch(F32, count * 2))

    def _own(self, number: Index, u: int) -> Index:
        """The place in a block of this thread's unit number + u."""
        return (number + u) * self.s.slices + self.tile.part

    # ---- rows ------------------------------------------------------------------------------------

    def _round(self, first: Index) -> None:
        """Shared memory := the units of a block, rounded; 0 beyond the end."""
        for i in self.rows:
            for n in range(ceil(self.units / self.b.threads)):
                number = self.b.thread + n * self.b.threads
                with own(self.b, number, self.units) as unit:
                    self._round_unit(i, unit, (first + unit) * UNIT)

    def _round_unit(self, i: int, unit: Index, step: Index) -> None:
        b, place = self.b, unit + i * self.units
        fours = [Reg(f"row{n}", F32, LANES) for n in range(UNIT // LANES)]
        for n, four in enumerate(fours):
            b.set(four.name, self._four(i, step + n * LANES))
        high, size = Reg("high", F32, LANES), Reg("size", F32)
        b.set(high.name, reduce(_larger, map(_abs, fours)))
        b.set(size.name, reduce(_larger, [_abs(Lane(high, n)) for n in range(LANES)]))
        # of what is 0 everywhere, too, bytes are 0
        b.set(size.name, _larger(_abs(size), Const(TINY, F32)))
        b.set("times", Call("div", (Const(LARGEST, F32), size), F32))
        packed = Reg("packed", I8, UNIT)
        b.set(
            packed.name, Join(tuple(_bytes(a, c, odd) for a, c in _pairs(fours) for odd in (0, 1)))
        )
        b.store(self.bytes, place * UNIT, packed)
        counts = Reg("counts", I32, LANES)
        b.set(counts.name, Dot(Const(0, I32, LANES), Const(1, I8, LANES), packed))
        lanes: list[Expr] = [Lane(counts, n) for n in range(LANES)]
        count = reduce(_plus, lanes)
        minus = Call("neg", (Call("cast", (count,), F32),), F32)
        b.store(self.numbers, place * 2, Call("mul", (size, Const(1 / LARGEST, F32)), F32))
        b.store(self.numbers, place * 2 + 1, minus)

    def _four(self, i: int, step: Index) -> Expr:
        """Row i at four steps."""
        row = self.places.ops.row
        ats = [row.index.substitute(self.places.row(index(i), step + j)) for j in range(LANES)]
        ends = [(Bound(step + j, self.steps),) for j in range(LANES)]
        if side_by_side(ats) and multiple(ats[0]):
            return guarded(Load(row.buffer, ats[0], F32, LANES), ends[0])
        return Lanes(tuple(guarded(row.at(at), end) for at, end in zip(ats, ends, strict=True)))

    # ---- products --------------------------------------------------------------------------------

    def _take(self, first: Index, number: Index, count: int) -> None:
        """Registers := this thread's units from a number on."""
        for u in range(count):
            self.side.take(u, self.tile.col, (first + self._own(number, u)) * UNIT)

    def _multiply(self, number: Index, count: int) -> None:
        """sums of each row += products of the units that were taken"""
        for u in range(count):
            for j in range(WORDS):
                words = self.side.reg(u, j, I32)
                for upper in (False, True):
                    self.b.set(_nibbles(j, upper).name, Nibbles(words, upper))
            for i in self.rows:
                self._add(i, u, self._own(number, u) + i * self.units)

    def _add(self, i: int, u: int, place: Index) -> None:
        b, row = self.b, Reg("row", I8, UNIT)
        b.set(row.name, Load(self.bytes, place * UNIT, I8, UNIT))
        dots: Expr = Const(0, I32, LANES)
        for n in range(UNIT // LANES):
            j, upper = divmod(n, 2)
            dots = Dot(dots, Subvector(row, n * LANES, LANES), _nibbles(j, bool(upper)))
        part: Expr = Call("cast", (dots,), F32, LANES)
        if not self.centred:
            minus = Splat(Load(self.numbers, place * 2 + 1, F32), LANES)
            part = Call("fma", (minus, self.side.zero(u), part), F32, LANES)
        size = Splat(Load(self.numbers, place * 2, F32), LANES)
        factor = Call("mul", (self.side.reg(u, WORDS), size), F32, LANES)
        b.set(total(i).name, Call("fma", (part, factor, total(i)), F32, LANES))


def _nibbles(j: int, upper: bool) -> Reg:
    return Reg(f"{'upper' if upper else 'lower'}{j}", I8, UNIT)


def _pairs(fours: list[Reg]) -> list[tuple[Reg, Reg]]:
    """The vectors of each word."""
    return list(zip(fours[::2], fours[1::2], strict=True))


def _bytes(a: Reg, c: Reg, odd: int) -> Expr:
    """The bytes that meet the lower nibbles of a word, or the upper ones: every other step."""
    lanes = Lanes((Lane(a, odd), Lane(a, 2 + odd), Lane(c, odd), Lane(c, 2 + odd)))
    scaled = Call("mul", (lanes, Splat(Reg("times", F32), LANES)), F32, LANES)
    return Call("cast", (Call("round", (scaled,), F32, LANES),), I8, LANES)


def _abs(e: Expr) -> Expr:
    return Call("abs", (e,), F32, lanes_of(e))


def _larger(a: Expr, c: Expr) -> Expr:
    return Call("max", (a, c), F32, lanes_of(a))


def _plus(a: Expr, c: Expr) -> Expr:
    return Call("add", (a, c), dtype_of(a))
