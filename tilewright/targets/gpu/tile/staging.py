"""Stages an operand of a tile in shared memory; all threads of the workgroup copy.

Input: a load, and the first of the tile's rows or columns. Output: statements that read a block of
reduction steps into registers, and statements that write these registers to shared memory with the
steps as the outermost axis. Weights of few bits are integers in memory: 4-bit weights eight to a
word, others as bytes. They are dequantised to f32 in registers, where they are used.

A thread copies units of 4 rows (or columns). It therefore writes whole vectors, even where the
operand is contiguous along the reduction and the copy transposes it. Neighbouring threads read
neighbouring units, so reads are coalesced. This file does not choose tile sizes and does not
multiply.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from math import ceil, gcd

from tilewright.base.dtypes import F16, F32, DType
from tilewright.kernel.builder import Builder, Values
from tilewright.kernel.expr import (
    Bound,
    Call,
    Const,
    Expr,
    Lane,
    Lanes,
    Load,
    Reg,
    Swapped,
    dtype_of,
)
from tilewright.kernel.form import BlockContraction, classify
from tilewright.kernel.index import Index, Var, are_adjacent, index, is_multiple
from tilewright.kernel.layout import Blocks
from tilewright.kernel.loops import Barrier, Scratch
from tilewright.kernel.quantised import Quantised
from tilewright.kernel.roles import Operands
from tilewright.kernel.spec import Kernel
from tilewright.kernel.tree import walk
from tilewright.targets.lite_space import LINE_BYTES, WORD
from tilewright.targets.vectors import LANES, guarded, in_lanes

#: Gives the values of a kernel's variables at a row (or column) and a step.
IndexValues = Callable[[Index, Index], Values]

#: Elements of a row that neighbouring threads read: a cache line.  A longer run would make more
#: threads write to the same banks.
LINE_ELEMENTS = LINE_BYTES // WORD


@dataclass(frozen=True)
class OperandTile:
    """A tile's part of an operand.

    extent, steps: sizes of the whole operand;  width, start: the tile's rows or columns, and the
        first
    area:          number of the shared area;  point: the index values of an element
    """

    name: str
    extent: int
    steps: int
    width: int
    start: Index
    area: int
    point: IndexValues


class StagedOperand(ABC):
    """One operand: stages a block of it in shared memory, `width` rows or columns for each step.

    each:   steps of a unit;  lanes: its rows or columns
    run:    units that are adjacent at one step: those of a panel, or all
    deep:   the operand is contiguous along the depth, not along its rows or columns
    stride: elements from step to step in shared memory;  gap: further elements from unit to unit
    dtype:  of elements in shared memory, f32 or f16
    part, own: rows or columns, and steps, of each part of shared memory (`Scratch.part`), one slice
        of the steps after another; 0: there is only one part
    along:  shared memory is contiguous along the depth (matrix/vector_staging.py)
    """

    each = 1
    lanes = LANES
    deep = False
    gap = 0
    dtype = F32
    part = own = 0
    along = False

    def __init__(self, b: Builder, piece: OperandTile, panel: int = 1) -> None:
        """panel: columns that are adjacent in memory"""
        self.b, self.piece, self.stride = b, piece, piece.width
        in_panels = panel > 1 and panel % LANES == 0 and piece.width % panel == 0
        self.panel = panel if in_panels else 0

    @property
    def run(self) -> int:
        return (self.panel or self.piece.width) // self.lanes

    @abstractmethod
    def take(self, n: int, place: Index, step: Index) -> None:
        """Loads unit `n`, which begins at a place and a step, to registers; 0 beyond the ends."""

    @abstractmethod
    def taken(self, n: int, i: int) -> Expr:
        """Step i of unit n as a vector, before it is multiplied by `factor`."""

    def factor(self, n: int) -> Expr | None:
        """The factor that all steps of unit n share; None if there is none."""
        return None

    def vector(self, n: int, i: int) -> Expr:
        """Step i of unit n, as a vector."""
        taken, factor = self.taken(n, i), self.factor(n)
        return taken if factor is None else Call("mul", (taken, factor), F32, LANES)

    def as_halves(self, kernel: Kernel) -> None:
        """Stages elements as f16."""
        self.dtype = F16

    def in_parts(self, part: int, own: int, gap: int) -> None:
        """Divides shared memory into parts of `part` rows or columns and `own` steps.

        gap: unused elements from line to line
        """
        self.part, self.own, self.stride = part, own, part + gap

    def offset(self, step: Index) -> Index:
        """The offset of a block's step in shared memory, or in each part of it."""
        return step * self.stride + step // self.each * self.gap

    def within(self, place: Index, step: Index) -> Index:
        """The offset of an element in shared memory, or in a part of it."""
        return self.offset(step) + place

    def where(self, place: Index, step: Index) -> Index:
        """The offset of an element of the block in shared memory."""
        if not self.part:
            return self.within(place, step)
        number = step // self.own * (self.piece.width // self.part) + place // self.part
        inside = self.within(place % self.part, step % self.own)
        return number * self.size(self.own) + inside

    def size(self, depth: int) -> int:
        """Elements of shared memory, or of a part of it, for `depth` steps."""
        return depth * self.stride + ceil(depth / self.each) * self.gap

    def scratch(self, depth: int) -> Scratch:
        """The shared area for `depth` steps."""
        if not self.part:
            return Scratch(self.dtype, self.size(depth))
        size, parts = self.size(self.own), self.piece.width // self.part * (depth // self.own)
        return Scratch(self.dtype, parts * size, size)

    def read(self, block: Index, depth: int) -> None:
        """Loads this thread's units of the block to registers; 0 beyond the ends."""
        for n, place, step in self._units(depth):
            self.take(n, self.piece.start + place, block + step)

    def write(self, depth: int) -> None:
        """Writes the registers to shared memory, steps outermost."""
        for n, place, step in self._units(depth):
            for i in range(self.each):
                self.b.store(self.piece.area, self.where(place, step + i), self.kept(n, i))

    def kept(self, n: int, i: int) -> Expr:
        """Step i of unit n, in the type that shared memory has."""
        vector = self.vector(n, i)
        same = dtype_of(vector) == self.dtype
        return vector if same else Call("cast", (vector,), self.dtype, LANES)

    def ends(self, place: Index, step: Index) -> tuple[Bound, ...]:
        """The conditions under which an element exists."""
        return Bound(place, self.piece.extent), Bound(step, self.piece.steps)

    def loads_vectors(self, load: Load, lanes: int = LANES) -> bool:
        """True if neighbouring rows or columns are adjacent in memory, as whole vectors."""
        q = index(Var("q", -(-self.piece.extent // lanes))) * lanes
        k = index(Var("k", self.piece.steps))
        run = [load.index.substitute(self.piece.point(q + i, k)) for i in range(lanes)]
        return self.piece.extent % lanes == 0 and are_adjacent(run) and is_multiple(run[0], lanes)

    def neighbours(self, load: Load, place: Index, step: Index, whole: bool) -> Expr:
        """The elements of neighbouring rows or columns of a unit, as one load if `whole`."""
        if whole:
            return self.element(load, place, step, self.lanes)
        return Lanes(tuple(self.element(load, place + i, step) for i in range(LANES)))

    def element(self, load: Load, place: Index, step: Index, lanes: int = 1) -> Expr:
        at = load.index.substitute(self.piece.point(place, step))
        return guarded(Load(load.buffer, at, load.dtype, lanes), self.ends(place, step))

    def _shape(self, depth: int) -> tuple[int, int, int]:
        """The shape in which units are assigned to threads; its last part goes to neighbouring
        threads.

        A deep operand: groups of steps, places, units of such a group.  Any other operand: runs,
        steps, units of a run.
        """
        places, along = self.piece.width // self.lanes, depth // self.each
        if self.deep:
            together = gcd(along, LINE_ELEMENTS // self.each)
            return along // together, places, together
        return places // self.run, along, self.run

    def _units(self, depth: int) -> Iterator[tuple[int, Index, Index]]:
        """Number, first place and first step of each of this thread's units.  Statements added
        meanwhile run only if the unit exists."""
        shape = self._shape(depth)
        for n, (major, middle, minor) in self.b.points_of_thread(shape):
            if self.deep:
                place, step = middle, major * shape[2] + minor
            else:
                place, step = major * self.run + minor, middle
            yield n, place * self.lanes, step * self.each

    def reg(self, n: int, part: int = 0, dtype: DType = F32) -> Reg:
        return Reg(f"{self.piece.name}{n}_{part}", dtype, self.lanes)


class Floats(StagedOperand):
    """An operand of f32 or f16.  If it is contiguous along the depth, a unit is 4 steps of 4
    rows."""

    def __init__(
        self, b: Builder, piece: OperandTile, load: Load, *, apart: bool = False, panel: int = 1
    ) -> None:
        """apart: steps are padded so that neighbouring threads write to different banks"""
        p = piece
        q, k = index(Var("q", -(-p.extent // LANES))), index(Var("k", p.steps))
        run = [load.index.substitute(p.point(q * LANES + i, k)) for i in range(LANES)]
        self.deep = not are_adjacent(run)
        super().__init__(b, piece, 1 if self.deep else panel)
        self.load = load
        if self.deep:
            q, k = index(Var("q", p.extent)), index(Var("k", -(-p.steps // LANES))) * LANES
            run = [load.index.substitute(p.point(q, k + i)) for i in range(LANES)]
            self.wide = p.steps % LANES == 0 and are_adjacent(run) and is_multiple(run[0], LANES)
        else:
            self.wide = self.loads_vectors(load)
        self.each = LANES if self.deep and self.wide else 1
        between = LANES if self.deep and not self.wide else self.panel
        self.stride += between if apart else 0
        self.gap = LANES if apart and self.each > 1 else 0

    def as_halves(self, kernel: Kernel) -> None:
        """Stages elements as f16; elements that are f16 in memory are not widened in between."""
        self.dtype = F16
        if kernel.buffers[self.load.buffer].halves:
            self.load = replace(self.load, dtype=F16)

    def take(self, n: int, place: Index, step: Index) -> None:
        dtype = self.load.dtype
        if self.each == 1:
            vector = self.neighbours(self.load, place, step, self.wide)
            self.b.set(self.reg(n, 0, dtype).name, vector)
            return
        for i in range(LANES):
            there = self.element(self.load, place + i, step, LANES)
            self.b.set(self.reg(n, i, dtype).name, there)

    def taken(self, n: int, i: int) -> Expr:
        dtype = self.load.dtype
        if self.each == 1:
            return self.reg(n, 0, dtype)
        return Lanes(tuple(Lane(self.reg(n, row, dtype), i) for row in range(LANES)))


#: Unused f16 elements between two lines of shared memory: a matrix is then read from all banks.
PAD = 8
#: The most elements between two steps of columns; for rows it is LANES.
MOST_GAP = 8


class Integers(StagedOperand):
    """Weights of few bits.  Registers of a unit: a word of each column, or of each step, and the
    columns' scales and zero points if there are any."""

    def __init__(
        self,
        b: Builder,
        piece: OperandTile,
        weights: Quantised,
        *,
        apart: bool = False,
        panel: int = 1,
    ) -> None:
        """apart: words are padded so that neighbouring threads write to different banks"""
        ops = weights.operands
        super().__init__(b, piece, panel)
        self.weights, self.each = weights, weights.together
        self.gap = self.run * LANES if apart and self.run * LANES < piece.width else 0
        whole = {x: self.loads_vectors(x) for e in (weights.scale, weights.zero) for x in _loads(e)}
        self.whole = whole | {ops.col: self.loads_vectors(ops.col)}

    def with_unit_steps(self, steps: int) -> Integers:
        """The same operand with this number of steps in a unit."""
        found = copy(self)
        found.each = steps
        return found

    @property
    def words(self) -> int:
        """Stored elements of a column in a unit."""
        return self.each // self.weights.word

    def take(self, n: int, place: Index, step: Index) -> None:
        col = self.weights.operands.col
        for j in range(self.words):
            words = self.neighbours(col, place, step + j * self.weights.word, self.whole[col])
            self.b.set(self.reg(n, j, col.dtype).name, words)
        self.b.set(self.scale(n).name, self.across(self.weights.scale, place, step))
        zero = self.zero(n)
        if isinstance(zero, Reg):
            self.b.set(zero.name, self.across(self.weights.zero, place, step))

    def taken(self, n: int, i: int) -> Expr:
        """The integers of step i minus their zero points."""
        w, (j, i) = self.weights, divmod(i, self.weights.word)
        words = self.reg(n, j, w.operands.col.dtype)
        whole = in_lanes(w.at(w.quantum, index(i)), lambda _: words)
        return whole if w.centred else Call("sub", (whole, self.zero(n)), F32, LANES)

    def factor(self, n: int) -> Expr:
        return self.scale(n)

    def scale(self, n: int) -> Reg:
        """The scales of unit n."""
        return self.reg(n, self.words)

    def zero(self, n: int) -> Reg | Const:
        """The zero points of unit n."""
        zero = self.weights.zero
        if isinstance(zero, Const):
            return Const(zero.value, F32, LANES)
        return self.reg(n, self.words + 1)

    def across(self, e: Expr, place: Index, step: Index) -> Expr:
        """A scale or a zero point for each of LANES neighbouring columns."""
        return in_lanes(e, lambda x: self.neighbours(x, place, step, self.whole[x]))


def columns(
    b: Builder,
    kernel: Kernel,
    ops: Operands,
    piece: OperandTile,
    *,
    apart: bool = False,
    widest: int,
) -> StagedOperand:
    """The column operand in its memory layout; panels wider than `widest` columns count as rows."""
    form, panel = classify(kernel), panel_of(kernel, ops)
    panel = panel if panel <= widest else 1
    if isinstance(form, BlockContraction):
        return Integers(b, piece, form.weights, apart=apart, panel=panel)
    return Floats(b, piece, ops.col, apart=apart, panel=panel)


def panel_of(kernel: Kernel, ops: Operands) -> int:
    """Columns of a panel; 1 if the operand is not stored in several panels."""
    layout = kernel.buffers[ops.col.buffer].layout
    return layout.width if isinstance(layout, Blocks) else ops.panel


def _loads(e: Expr) -> list[Load]:
    return [x for x in walk(e) if isinstance(x, Load)]


def reduce_by_swaps(
    b: Builder, reg: Reg, other: str, op: Callable[[Expr, Expr], Expr], bits: int, end: int
) -> None:
    """Combines a register over threads of a subgroup whose numbers differ only in the bits from
    `bits` to below `end`.  other: the name of a register for the other threads' values"""
    while bits < end:
        b.set(other, Swapped(reg, bits))
        b.set(reg.name, op(reg, Reg(other, reg.dtype)))
        bits *= 2


@contextmanager
def staged(
    b: Builder,
    sides: Sequence[StagedOperand],
    steps: int,
    depth: int,
    ahead: bool,
    early: bool = False,
) -> Iterator[None]:
    """A loop over blocks of the steps; statements added meanwhile run while a block is staged.

    ahead: the next block is loaded to registers meanwhile
    early: these loads come before the barrier (product/schedule.py)
    """

    def read(first: Index) -> None:
        for side in sides:
            side.read(first, depth)

    if ahead:
        read(Index())
    blocks = ceil(steps / depth)
    with b.loop("block", Index(), index(blocks), 1, blocks) as block:
        if not ahead:
            read(block * depth)
        for side in sides:
            side.write(depth)
        reads = ahead and blocks > 1
        if not (reads and early):
            b.add(Barrier())
        if reads:
            # After the last block, it is loaded once more and not used.
            read(b.let_min(block + 1, index(blocks - 1)) * depth)
        if reads and early:
            b.add(Barrier())
        yield
        b.add(Barrier())
