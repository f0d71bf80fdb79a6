"""Products of few rows with 4-bit weights, by packed dot products: rows are rounded to i8.

Input: a product of few_rows.py whose weights have 4 bits, and whose other operand may be rounded to
i8 (docs/decisions/0025-products-of-rounded-rows.md); a schedule. Output: the loop nest of one tile.
It reads the weights in their stored layout. One instruction multiplies and adds four of them:

    for block of r1 steps:
        for each unit of 8 or 16 steps of a row:
            bytes := the unit, scaled so that the largest is 127;  the scale;  minus the bytes' sum
        barrier
        for every slices-th unit:
            part := (lower nibbles * even bytes + upper nibbles * odd bytes) - zero * sum of bytes
            sums of each row += part * (scale of the weights * scale of the bytes)
    slices are added up as in few_rows.py, eight at a time
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from math import ceil

from tilewright.base.dtypes import F32, I8, I32
from tilewright.base.errors import of_kind
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
    Reciprocal,
    Reg,
    Splat,
    Subvector,
    lanes_of,
)
from tilewright.kernel.form import QuantisedContraction, form_as
from tilewright.kernel.index import Index, index
from tilewright.kernel.loops import Barrier, Scratch, TileFn
from tilewright.kernel.spec import Kernel
from tilewright.targets.gpu.product.chains import Chain
from tilewright.targets.gpu.product.fast_division import fast_division
from tilewright.targets.gpu.product.few_rows import FewRowsTile, total
from tilewright.targets.gpu.product.row_sources import scaled_rows_of
from tilewright.targets.gpu.product.schedule import (
    NUMBERS_PER_UNIT,
    VECTOR_BYTES,
    FewRowsInt8Schedule,
)
from tilewright.targets.gpu.tile.staging import QuantisedOperand
from tilewright.targets.vectors import LANES, guarded

#: The largest byte; the least scale of a unit.
LARGEST, TINY = 127.0, 2.0**-100


def lower(kernel: Kernel, schedule: FewRowsInt8Schedule) -> TileFn:
    """Loops for tiles of y1 columns and all rows.  Operands are 0 beyond the ends, and nothing is
    stored there."""
    return lower_chain(Chain((kernel,)), schedule)


def lower_chain(chain: Chain, schedule: FewRowsInt8Schedule) -> TileFn:
    """The same loops for a chain; its products have equal parts of the columns."""
    products = tuple(map(fast_division, chain.products))
    return _RoundedRowsTile(replace(chain, products=products), schedule).emit()


class _RoundedRowsTile:
    """Builds the loops of one tile; its methods each build one part."""

    def __init__(self, chain: Chain, s: FewRowsInt8Schedule) -> None:
        self.tile, self.s = FewRowsTile(chain, s, scaled_rows_of), s
        self.b, self.rows = self.tile.b, self.tile.rows
        self.centred = form_as(chain.last, QuantisedContraction).weights.centred
        self.units, self.steps = s.units(chain.last), self.tile.indices[0].ops.steps
        #: Numbers of the shared areas: of bytes, and of scales and sums.
        self.bytes, self.numbers = range(chain.area, chain.area + 2)

    def emit(self) -> TileFn:
        b, each, blocks = self.b, self.s.unit, ceil(self.steps / self.s.unit / self.units)
        if blocks > 1:
            self.tile.input.prepare_rows(b)
        with b.loop("block", Index(), index(blocks), 1, blocks) as block:
            self._block(block * self.units, alone=blocks == 1)
            if blocks > 1:
                b.add(Barrier())
        count = len(self.rows) * self.units
        bytes_, numbers = Scratch(I8, count * each), Scratch(F32, count * NUMBERS_PER_UNIT)
        return self.tile.finish(bytes_, numbers)

    def by_product(self) -> Iterator[QuantisedOperand]:
        """The columns of each product, as in `FewRowsTile`."""
        for columns in self.tile.by_product():
            own = of_kind(columns, QuantisedOperand, "its columns are not integers")
            yield own.with_unit_steps(self.s.unit)

    def _block(self, first: Index, alone: bool) -> None:
        """Adds the products of a block's units, from `first` on; loads run `r0` units ahead."""
        b, each, rest = self.b, *divmod(self.units, self.s.slices)
        ring = min(self.s.r0, max(1, each))
        whole, left = divmod(each, ring)
        start = ring if whole else 0
        if self.s.ahead:
            self._take_rings(first, start)
        if alone:
            self.tile.input.prepare_rows(b)
        self._round(first)
        b.add(Barrier())
        if not self.s.ahead:
            self._take_rings(first, start)
        for columns in self.by_product():
            with b.loop("pass", Index(), index(whole - 1), 1, max(1, whole - 1)) as number:
                for u in range(ring):
                    self._multiply(columns, u, number * ring + u)
                    self._take(columns, u, first, (number + 1) * ring + u)
            done = (whole - 1) * ring if whole else 0
            for u in range(start):
                self._multiply(columns, u, index(done + u))
                if u < left:
                    self._take(columns, u, first, index(done + ring + u))
            for u in range(left):
                self._multiply(columns, u, index(done + ring + u))
            if rest:
                with b.only_if((Bound(self.tile.part, rest),)):
                    self._take(columns, 0, first, index(each))
                    self._multiply(columns, 0, index(each))

    def _own(self, number: Index) -> Index:
        """The position in a block of this thread's unit number `number`."""
        return number * self.s.slices + self.tile.part

    # ---- rows ------------------------------------------------------------------------------------

    def _round(self, first: Index) -> None:
        """Rounds the units of a block to shared memory; 0 beyond the end."""
        for i in self.rows:
            for n in range(ceil(self.units / self.b.threads)):
                number = self.b.thread + n * self.b.threads
                with self.b.only_below(number, self.units) as unit:
                    self._round_unit(i, unit, (first + unit) * self.s.unit)
        self.tile.input.store_terms(self.b)

    def _round_unit(self, i: int, unit: Index, step: Index) -> None:
        b, place, each = self.b, unit + i * self.units, self.s.unit
        fours = [Reg(f"row{n}", F32, LANES) for n in range(each // LANES)]
        for n, four in enumerate(fours):
            b.set(four.name, self._four(i, step + n * LANES))
            self.tile.input.note_read(b, i, step + n * LANES)
        high, size = Reg("high", F32, LANES), Reg("size", F32)
        b.set(high.name, reduce(_larger, map(_abs, fours)))
        b.set(size.name, reduce(_larger, [_abs(Lane(high, n)) for n in range(LANES)]))
        # A unit of zeros gets this scale, too, so that its bytes are 0.
        b.set(size.name, _larger(_abs(size), Const(TINY, F32)))
        b.set("times", Call("mul", (Const(LARGEST, F32), Reciprocal(size)), F32))
        count, words = Reg("sum_of_bytes", I32), list[Reg]()
        b.set(count.name, Const(0, I32))
        for n, (a, c) in enumerate(zip(fours[::2], fours[1::2], strict=True)):
            for odd in (0, 1):
                words.append(Reg(f"bytes{2 * n + odd}", I8, LANES))
                b.set(words[-1].name, _bytes(a, c, odd))
                b.set(count.name, Dot(count, Const(1, I8, LANES), words[-1]))
        if each == VECTOR_BYTES:
            b.store(self.bytes, place * each, Join(tuple(words)))
        else:
            for n, word in enumerate(words):
                b.store(self.bytes, place * each + n * LANES, word)
        scaled = Call("mul", (size, Const(1 / LARGEST, F32)), F32)
        b.store(self.numbers, place * NUMBERS_PER_UNIT, scaled)
        minus = Call("neg", (Call("cast", (count,), F32),), F32)
        b.store(self.numbers, place * NUMBERS_PER_UNIT + 1, minus)

    def _four(self, i: int, step: Index) -> Expr:
        """Row i at four steps."""
        rows, ends = self.tile.input, [(Bound(step + j, self.steps),) for j in range(LANES)]
        if rows.loads_vector(index(i), step):
            return guarded(rows.read(i, step, LANES), ends[0])
        each = [guarded(rows.read(i, step + j), end) for j, end in enumerate(ends)]
        return Lanes(tuple(each))

    # ---- products --------------------------------------------------------------------------------

    def _take_rings(self, first: Index, count: int) -> None:
        """Loads the first `count` of this thread's units of a block."""
        for columns in self.by_product() if count else ():
            for u in range(count):
                self._take(columns, u, first, index(u))

    def _take(self, columns: QuantisedOperand, u: int, first: Index, number: Index) -> None:
        """Loads this thread's unit number `number` to registers `u`."""
        columns.load_unit(u, self.tile.col, (first + self._own(number)) * self.s.unit)

    def _multiply(self, columns: QuantisedOperand, u: int, number: Index) -> None:
        """Adds the products of the unit in registers `u` to the sums of each row."""
        for j in range(columns.words):
            words = columns.reg(u, j, I32)
            for upper in (False, True):
                self.b.set(_nibbles(j, upper).name, Nibbles(words, upper))
        for i in self.rows:
            self._add(columns, i, u, self._own(number) + i * self.units)

    def _add(self, columns: QuantisedOperand, i: int, u: int, place: Index) -> None:
        b, row, each = self.b, Reg("row", I8, VECTOR_BYTES), self.s.unit
        if each == VECTOR_BYTES:
            b.set(row.name, Load(self.bytes, place * each, I8, VECTOR_BYTES))
        dots: Expr = Const(0, I32, LANES)
        for n in range(each // LANES):
            j, upper = divmod(n, 2)
            part: Expr = Subvector(row, n * LANES, LANES)
            if each != VECTOR_BYTES:
                part = Load(self.bytes, place * each + n * LANES, I8, LANES)
            dots = Dot(dots, part, _nibbles(j, bool(upper)))
        whole: Expr = Call("cast", (dots,), F32, LANES)
        if not self.centred:
            minus = Splat(Load(self.numbers, place * NUMBERS_PER_UNIT + 1, F32), LANES)
            whole = Call("fma", (minus, columns.zero(u), whole), F32, LANES)
        size = Splat(Load(self.numbers, place * NUMBERS_PER_UNIT, F32), LANES)
        factor = Call("mul", (columns.scale(u), size), F32, LANES)
        b.set(total(i).name, Call("fma", (whole, factor, total(i)), F32, LANES))


def _nibbles(j: int, upper: bool) -> Reg:
    return Reg(f"{'upper' if upper else 'lower'}{j}", I8, VECTOR_BYTES)


def _bytes(a: Reg, c: Reg, odd: int) -> Expr:
    """Every other byte of a unit: those that the lower, or upper, nibbles of a word are multiplied
    by."""
    lanes = Lanes((Lane(a, odd), Lane(a, 2 + odd), Lane(c, odd), Lane(c, 2 + odd)))
    scaled = Call("mul", (lanes, Splat(Reg("times", F32), LANES)), F32, LANES)
    return Call("cast", (Call("round", (scaled,), F32, LANES),), I8, LANES)


def _abs(e: Expr) -> Expr:
    return Call("abs", (e,), F32, lanes_of(e))


def _larger(a: Expr, c: Expr) -> Expr:
    return Call("max", (a, c), F32, lanes_of(a))
