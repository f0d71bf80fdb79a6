"""The positions of a row's smallest integers in sorted order, by a workgroup (top-k).

Input: a kernel of the form `TopK`. Output: the loop nest of one tile, which is one row. Three
parts have barriers between them:

    bound:   finds the largest wanted number, two bits at a time, by counting
    choose:  writes the positions of all smaller numbers, and of equal ones until enough are chosen
    sort:    a bitonic network sorts these positions by their numbers
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product

from tilewright.base.dtypes import BOOL, I32, DType
from tilewright.kernel.builder import Builder, Values
from tilewright.kernel.expr import (
    Bound,
    Call,
    Const,
    Expr,
    Guard,
    IndexValue,
    Load,
    Reg,
    dtype_of,
    identity,
)
from tilewright.kernel.extents import limited_first, points
from tilewright.kernel.form import TopK, form_as
from tilewright.kernel.index import Index, index, unflatten
from tilewright.kernel.loops import Barrier, Scratch, TileFn
from tilewright.kernel.spec import Kernel
from tilewright.targets.gpu.pointwise.reductions import (
    LEAST_ROW_THREADS,
    MOST_ROW_THREADS,
    POINTS_TOGETHER,
    reduce_over_threads,
)
from tilewright.targets.scalar_top_k import before

#: The number of values of two bits.
DIGIT_VALUES = 4


def lower(kernel: Kernel) -> TileFn:
    """Loops with a tile for each row."""
    form = form_as(kernel, TopK)
    length = form.along.extent
    threads = min(MOST_ROW_THREADS, max(LEAST_ROW_THREADS, 1 << (length - 1).bit_length() - 1))
    rows = limited_first(kernel, kernel.rows)
    b = Builder({}, points(kernel, rows), kernel, threads)
    at: Values = dict(zip(rows, unflatten(b.tile, tuple(v.extent for v in rows)), strict=True))
    row = _Row(b, kernel, form, at)
    row.bound()
    row.choose()
    row.sort()
    areas = Scratch(I32, threads), Scratch(I32, threads)
    return replace(b.finish(kernel, areas), shares_output=True)


def _i32(fn: str, *args: Expr | int) -> Call:
    return Call(fn, tuple(Const(a, I32) if isinstance(a, int) else a for a in args), I32)


@dataclass(frozen=True)
class _Row:
    """Builds the loops of one row.  at: index values of the row"""

    b: Builder
    kernel: Kernel
    form: TopK
    at: Values

    @property
    def dtype(self) -> DType:
        return dtype_of(self.form.value)

    @property
    def length(self) -> int:
        return self.form.along.extent

    @property
    def wanted(self) -> int:
        return self.form.first.extent

    @property
    def most(self) -> Reg:
        """The register with the largest wanted number."""
        return Reg("most", self.dtype)

    @property
    def areas(self) -> tuple[int, int]:
        return len(self.kernel.buffers), len(self.kernel.buffers) + 1

    def number(self, at: Index) -> Expr:
        return self.form.value.substitute({**self.at, self.form.along: at})

    def result(self, place: Index) -> Index:
        """The offset in the output of a place in the sorted row."""
        return self.kernel.store.substitute({**self.at, self.form.first: place})

    # ---- the largest wanted number ---------------------------------------------------------------

    def bound(self) -> None:
        """Sets `most` to the smallest number with at least `wanted` numbers up to it, two bits a
        step."""
        b, dtype = self.b, self.dtype
        step, counts = Reg("step", dtype), [Reg(f"reached{n}", I32) for n in range(1, DIGIT_VALUES)]
        b.set(self.most.name, identity("max", dtype, 1))
        b.set(step.name, Const((1 << 8 * dtype.size) // DIGIT_VALUES, dtype))
        with b.loop("digit", Index(), index(8 * dtype.size // (DIGIT_VALUES - 1).bit_length())):
            limits = [Reg(f"limit{n}", dtype) for n in range(1, DIGIT_VALUES)]
            for n, limit in enumerate(limits, 1):  # limit = most + step * n - 1
                last = limits[n - 2] if n > 1 else Call("sub", (self.most, Const(1, dtype)), dtype)
                b.set(limit.name, Call("add", (last, step), dtype))
            self._count(counts, limits)
            for count, limit in zip(counts, limits, strict=True):
                few = Call("lt", (count, Const(self.wanted, I32)), BOOL)
                above = Call("add", (limit, Const(1, dtype)), dtype)
                b.set(self.most.name, Call("where", (few, above, self.most), dtype))
            b.set(step.name, Call("div", (step, Const(DIGIT_VALUES, dtype)), dtype))

    def _count(self, counts: Sequence[Reg], limits: Sequence[Reg]) -> None:
        """Sets each count to how many numbers of the row are at most its limit."""
        b = self.b
        for count in counts:
            b.set(count.name, Const(0, I32))
        with self._numbers(b.thread, index(self.length), b.threads) as numbers:
            for (_, number), (count, limit) in product(numbers, zip(counts, limits, strict=True)):
                fits = Call("le", (number, limit), BOOL)
                b.set(count.name, _i32("add", count, _i32("where", fits, 1, 0)))
        for count in counts:
            reduce_over_threads(b, "sum", count, self.areas[0])
            b.add(Barrier())

    @contextmanager
    def _numbers(
        self, begin: Index, end: Index, apart: int = 1
    ) -> Iterator[list[tuple[Index, Reg]]]:
        """A loop over numbers of the row, several at a time so that their loads overlap.

        Beyond the end of the row a number is the dtype's largest, which exceeds every limit.
        """
        b = self.b
        many = min(POINTS_TOGETHER, -(-self.length // b.threads))
        with b.loop("i", begin, end, apart * many, self.length + apart * many) as first:
            places = [first + n * apart for n in range(many)]
            numbers = [Reg(f"number{n}", self.dtype) for n in range(many)]
            for place, number in zip(places, numbers, strict=True):
                value, bound = self.number(place), Bound(place, self.length)
                most = identity("min", self.dtype, 1)
                b.set(number.name, value if bound.always else Guard((bound,), value, most))
            yield list(zip(places, numbers, strict=True))

    # ---- the positions of the wanted numbers -----------------------------------------------------

    def choose(self) -> None:
        """Writes the positions of the wanted numbers: smaller ones, then equal ones, each in row
        order."""
        b = self.b
        smaller, equal = Reg("smaller", I32), Reg("equal", I32)
        found = {smaller: "lt", equal: "eq"}
        for reg in found:
            b.set(reg.name, Const(0, I32))
        for _, number in self._own():
            for reg, fn in found.items():
                holds = Call(fn, (number, self.most), BOOL)
                b.set(reg.name, _i32("add", reg, _i32("where", holds, 1, 0)))
        for area, reg in zip(self.areas, found, strict=True):
            b.store(area, b.thread, reg)
        b.add(Barrier())
        self._begin(smaller, equal)
        for at, number in self._own():
            goal = Reg("goal", I32)
            b.set(goal.name, Const(self.wanted, I32))
            for reg, fn in found.items():
                holds = Call(fn, (number, self.most), BOOL)
                b.set(goal.name, _i32("where", holds, _i32("min", reg, self.wanted), goal))
                b.set(reg.name, _i32("add", reg, _i32("where", holds, 1, 0)))
            place = b.read(goal, self.wanted + 1, "place")
            with b.only_if((Bound(place, self.wanted),)):
                b.store(0, self.result(place), IndexValue(at, I32))
        b.add(Barrier())

    def _own(self) -> Iterator[tuple[Index, Reg]]:
        """A loop over the numbers of this thread's part of the row, which are contiguous."""
        b, each = self.b, -(-self.length // self.b.threads)
        begin = b.let(b.thread * each, "begin")
        end = b.let_min(begin + each, index(self.length))
        with self._numbers(begin, end) as numbers:
            for at, number in numbers:
                with b.only_if((Bound(end - at - 1, each),)):
                    yield at, number

    def _begin(self, smaller: Reg, equal: Reg) -> None:
        """Sets where this thread writes: after the numbers of the threads before it, and equal
        numbers after all smaller ones."""
        b, total = self.b, Reg("total", I32)
        for reg in (total, smaller, equal):
            b.set(reg.name, Const(0, I32))
        with b.loop("other", Index(), index(b.threads)) as other:
            earlier = Call("lt", (IndexValue(other, I32), IndexValue(b.thread, I32)), BOOL)
            less, same = (Load(area, other, I32) for area in self.areas)
            b.set(total.name, _i32("add", total, less))
            b.set(smaller.name, _i32("add", smaller, _i32("where", earlier, less, 0)))
            b.set(equal.name, _i32("add", equal, _i32("where", earlier, same, 0)))
        b.set(equal.name, _i32("add", equal, total))

    # ---- sorting ---------------------------------------------------------------------------------

    def sort(self) -> None:
        """A bitonic network: merges sorted runs of 1, 2, 4, … elements.

        A merge first compares two runs from their outer ends inwards, then ever nearer neighbours.
        The smaller element always goes first, so elements beyond the end would never move and are
        left out.
        """
        b = self.b
        levels = (self.wanted - 1).bit_length()
        half, span = Reg("half", I32), Reg("span", I32)
        b.set(half.name, Const(1, I32))
        with b.loop("level", Index(), index(levels)) as level:
            b.set(span.name, half)
            self._compare(span, 1 << levels - 1, outer=True)
            with b.loop("nearer", Index(), level, extent=levels):
                b.set(span.name, _i32("div", span, 2))
                self._compare(span, 1 << levels - 1, outer=False)
            b.set(half.name, _i32("mul", half, 2))

    def _compare(self, span: Reg, pairs: int, outer: bool) -> None:
        """Compares pairs at distance `span` (or from the outer ends inwards) and exchanges
        unordered ones."""
        b, block, first, second = self.b, *(Reg(n, I32) for n in ("block", "first", "second"))
        with b.loop("pair", b.thread, index(pairs), b.threads, pairs) as pair:
            number = IndexValue(pair, I32)
            b.set(block.name, _i32("mul", _i32("div", number, span), span))
            b.set(first.name, _i32("add", number, block))
            other = _i32("add", first, span)
            if outer:  # block * 2 + span * 2 - 1 - (number - block)
                ends = _i32("mul", _i32("add", block, span), 2)
                other = _i32("sub", _i32("add", ends, block), _i32("add", number, 1))
            b.set(second.name, _i32("min", other, self.wanted))
            right = b.read(second, self.wanted + 1, "right")
            with b.only_if((Bound(right, self.wanted),)):
                self._exchange(b.read(first, self.wanted, "left"), right)
        b.add(Barrier())

    def _exchange(self, left: Index, right: Index) -> None:
        b, regs = self.b, (Reg("p", I32), Reg("q", I32))
        numbers = []
        for reg, place in zip(regs, (left, right), strict=True):
            b.set(reg.name, Load(0, self.result(place), I32))
            number = Reg(f"number_{reg.name}", self.dtype)
            b.set(number.name, self.number(b.read(reg, self.length, reg.name)))
            numbers.append(number)
        (p, q), (number_p, number_q) = regs, numbers
        wrong = Reg("wrong", BOOL)
        b.set(wrong.name, before(number_q, q, number_p, p))
        b.store(0, self.result(left), _i32("where", wrong, q, p))
        b.store(0, self.result(right), _i32("where", wrong, p, q))
