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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import ceil, gcd
from typing import Self

from tilewright.base.abi import WORD_BYTES
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
    dtype_of,
)
from tilewright.kernel.form import QuantisedContraction, classify
from tilewright.kernel.index import Index, Var, are_adjacent, index, is_multiple
from tilewright.kernel.layout import Blocks
from tilewright.kernel.loops import Barrier, Scratch
from tilewright.kernel.product_operands import Operands
from tilewright.kernel.quantised_operands import QuantisedProduct
from tilewright.kernel.spec import Kernel
from tilewright.kernel.tree import walk
from tilewright.targets.lite_space import LINE_BYTES
from tilewright.targets.vectors import LANES, guarded, in_lanes

#: Gives the values of a kernel's variables at a row (or column) and a step.
IndexValues = Callable[[Index, Index], Values]

#: Elements of a row that neighbouring threads read: a cache line.  A longer run would make more
#: threads write to the same banks.
LINE_ELEMENTS = LINE_BYTES // WORD_BYTES


@dataclass(frozen=True)
class OperandTile:
    """A tile's part of an operand.  A *place* is a row or a column.

    extent, steps: sizes of the whole operand;  width, start: the tile's places, and the first one
    area:          number of the shared area;  point: the index values of an element
    """

    name: str
    extent: int
    steps: int
    width: int
    start: Index
    area: int
    point: IndexValues

    def ends(self, place: Index, step: Index) -> tuple[Bound, ...]:
        """The conditions under which an element exists."""
        return Bound(place, self.extent), Bound(step, self.steps)

    def places_are_adjacent(self, load: Load, count: int = LANES) -> bool:
        """True if neighbouring places are adjacent in memory."""
        return are_adjacent(self._places(load, count))

    def loads_places(self, load: Load, lanes: int = LANES) -> bool:
        """True if neighbouring places are adjacent in memory, as whole vectors."""
        return self.extent % lanes == 0 and _are_vectors(self._places(load, lanes))

    def loads_steps(self, load: Load, lanes: int = LANES) -> bool:
        """True if neighbouring steps are adjacent in memory, as whole vectors."""
        place = index(Var("q", self.extent))
        step = index(Var("k", ceil(self.steps / lanes))) * lanes
        run = [load.index.substitute(self.point(place, step + i)) for i in range(lanes)]
        return self.steps % lanes == 0 and _are_vectors(run)

    def _places(self, load: Load, count: int) -> list[Index]:
        """The indices of neighbouring places at any step."""
        place = index(Var("q", ceil(self.extent / count))) * count
        step = index(Var("k", self.steps))
        return [load.index.substitute(self.point(place + i, step)) for i in range(count)]


def _are_vectors(run: Sequence[Index]) -> bool:
    return are_adjacent(run) and is_multiple(run[0], len(run))


@dataclass(frozen=True)
class StagingLayout:
    """How threads divide a block of an operand, and where shared memory has its elements.

    Threads copy units of `unit_steps` steps and `lanes` places.  Shared memory has a line of places
    for each step, or a line of steps for each place.

    width:  places of the tile;  panel: columns that are adjacent in memory, 0: there are no panels
    deep_in_memory: the operand is contiguous along the depth in memory, not along its places
    deep_in_shared: lines are lines of steps (matrix/vector_staging.py)
    stride: elements from line to line;  gap: further elements after the lines of a unit
    part, part_steps: places and steps of each part of shared memory (`Scratch.part`), one slice of
        the steps after another; 0: there is only one part
    dtype:  type in shared memory;  group: its elements in a step of one place, 4 for bytes.  All
        numbers of elements here count such groups
    """

    width: int
    panel: int = 0
    deep_in_memory: bool = False
    deep_in_shared: bool = False
    unit_steps: int = 1
    lanes: int = LANES
    stride: int = 0
    gap: int = 0
    part: int = 0
    part_steps: int = 0
    dtype: DType = F32
    group: int = 1

    @staticmethod
    def of(width: int, panel: int = 1) -> StagingLayout:
        """Lines without gaps.  panel: columns that are adjacent in memory"""
        in_panels = panel > 1 and panel % LANES == 0 and width % panel == 0
        return StagingLayout(width, panel if in_panels else 0, stride=width)

    def in_parts(self, part: int, steps: int, gap: int, deep: bool = False) -> StagingLayout:
        """Divided into parts of `part` places and these steps.

        gap: unused elements after each line;  deep: lines are lines of steps
        """
        stride = (steps if deep else part) + gap
        return replace(self, part=part, part_steps=steps, stride=stride, deep_in_shared=deep)

    @property
    def run(self) -> int:
        """Units that are adjacent at one step: those of a panel, or all."""
        return (self.panel or self.width) // self.lanes

    def where(self, place: Index, step: Index) -> Index:
        """The offset of an element of the block in shared memory."""
        if not self.part:
            return self._within(place, step) * self.group
        number = step // self.part_steps * (self.width // self.part) + place // self.part
        return self.in_part(number, place % self.part, step % self.part_steps)

    def in_part(self, number: Index, place: Index, step: Index) -> Index:
        """The offset of an element of part `number` in shared memory."""
        return (number * self._size(self.part_steps) + self._within(place, step)) * self.group

    def scratch(self, depth: int) -> Scratch:
        """The shared area for `depth` steps."""
        if not self.part:
            return Scratch(self.dtype, self._size(depth) * self.group)
        size = self._size(self.part_steps) * self.group
        parts = self.width // self.part * (depth // self.part_steps)
        return Scratch(self.dtype, parts * size, size)

    def _within(self, place: Index, step: Index) -> Index:
        """The offset of an element in shared memory, or in a part of it."""
        if self.deep_in_shared:
            return place * self.stride + step
        return step * self.stride + step // self.unit_steps * self.gap + place

    def _size(self, depth: int) -> int:
        """Elements of shared memory, or of a part of it, for `depth` steps."""
        if self.deep_in_shared:
            return self.part * self.stride
        return depth * self.stride + ceil(depth / self.unit_steps) * self.gap

    def units(self, b: Builder, depth: int) -> Iterator[tuple[int, Index, Index]]:
        """Number, first place and first step of each of this thread's units.  Statements added
        meanwhile run only if the unit exists.

        Neighbouring threads have neighbouring steps if the operand is deep in memory, else
        neighbouring places.
        """
        places, steps = self.width // self.lanes, depth // self.unit_steps
        if self.deep_in_memory:
            together = gcd(steps, LINE_ELEMENTS // self.unit_steps)
            for n, (major, place, minor) in b.points_of_thread(
                (steps // together, places, together)
            ):
                yield n, place * self.lanes, (major * together + minor) * self.unit_steps
        else:
            for n, (major, step, minor) in b.points_of_thread(
                (places // self.run, steps, self.run)
            ):
                yield n, (major * self.run + minor) * self.lanes, step * self.unit_steps


@dataclass(frozen=True, eq=False)
class StagedOperand(ABC):
    """One operand: stages a block of it in shared memory."""

    b: Builder
    tile: OperandTile
    layout: StagingLayout

    @abstractmethod
    def load_unit(self, n: int, place: Index, step: Index) -> None:
        """Loads unit `n`, which begins at a place and a step, to registers; 0 beyond the ends."""

    @abstractmethod
    def loaded_step(self, n: int, i: int) -> Expr:
        """Step i of unit n as a vector, before it is multiplied by `factor`."""

    def factor(self, n: int) -> Expr | None:
        """The factor that all steps of unit n share; None if there is none."""
        return None

    def vector(self, n: int, i: int) -> Expr:
        """Step i of unit n, as a vector."""
        taken, factor = self.loaded_step(n, i), self.factor(n)
        return taken if factor is None else Call("mul", (taken, factor), F32, LANES)

    def in_f16(self, kernel: Kernel) -> Self:
        """The same operand, staged as f16."""
        return replace(self, layout=replace(self.layout, dtype=F16))

    def scratch(self, depth: int) -> Scratch:
        """The shared area for `depth` steps."""
        return self.layout.scratch(depth)

    def units(self, depth: int) -> Iterator[tuple[int, Index, Index]]:
        """Number, first place and first step of each of this thread's units."""
        return self.layout.units(self.b, depth)

    def load_block(self, block: Index, depth: int) -> None:
        """Loads this thread's units of the block to registers; 0 beyond the ends."""
        for n, place, step in self.units(depth):
            self.load_unit(n, self.tile.start + place, block + step)

    def store_block(self, depth: int) -> None:
        """Writes the registers to shared memory."""
        for n, place, step in self.units(depth):
            for i in range(self.layout.unit_steps):
                at = self.layout.where(place, step + i)
                self.b.store(self.tile.area, at, self._converted(self.vector(n, i)))

    def _converted(self, vector: Expr) -> Expr:
        """A vector in the type that shared memory has."""
        dtype = self.layout.dtype
        same = dtype_of(vector) == dtype
        return vector if same else Call("cast", (vector,), dtype, LANES)

    def neighbours(self, load: Load, place: Index, step: Index, whole: bool) -> Expr:
        """The elements of neighbouring places of a unit, as one load if `whole`."""
        if whole:
            return self.element(load, place, step, self.layout.lanes)
        return Lanes(tuple(self.element(load, place + i, step) for i in range(LANES)))

    def element(self, load: Load, place: Index, step: Index, lanes: int = 1) -> Expr:
        """An element, or `lanes` adjacent ones; 0 beyond the ends."""
        at = load.index.substitute(self.tile.point(place, step))
        return guarded(Load(load.buffer, at, load.dtype, lanes), self.tile.ends(place, step))

    def reg(self, n: int, part: int = 0, dtype: DType = F32) -> Reg:
        """A register of unit `n`."""
        return Reg(f"{self.tile.name}{n}_{part}", dtype, self.layout.lanes)


@dataclass(frozen=True, eq=False)
class FloatOperand(StagedOperand):
    """An operand of f32 or f16.  If it is deep in memory, a unit is 4 steps of 4 places.

    vectors: memory has whole vectors along the steps if the operand is deep, else along the places
    """

    load: Load
    vectors: bool

    @staticmethod
    def of(
        b: Builder, operand_tile: OperandTile, load: Load, *, padded: bool = False, panel: int = 1
    ) -> FloatOperand:
        """padded: lines are padded so that neighbouring threads write to different banks"""
        deep = not operand_tile.places_are_adjacent(load)
        vectors = operand_tile.loads_steps(load) if deep else operand_tile.loads_places(load)
        layout = StagingLayout.of(operand_tile.width, 1 if deep else panel)
        unit_steps = LANES if deep and vectors else 1
        padding = LANES if deep and not vectors else layout.panel
        layout = replace(
            layout,
            deep_in_memory=deep,
            unit_steps=unit_steps,
            stride=layout.stride + (padding if padded else 0),
            gap=LANES if padded and unit_steps > 1 else 0,
        )
        return FloatOperand(b, operand_tile, layout, load, vectors)

    def in_f16(self, kernel: Kernel) -> Self:
        """The same operand, staged as f16; f16 elements in memory are not widened in between."""
        dtype = F16 if kernel.buffers[self.load.buffer].as_f16 else self.load.dtype
        layout = replace(self.layout, dtype=F16)
        return replace(self, layout=layout, load=replace(self.load, dtype=dtype))

    def load_unit(self, n: int, place: Index, step: Index) -> None:
        dtype = self.load.dtype
        if self.layout.unit_steps == 1:
            vector = self.neighbours(self.load, place, step, self.vectors)
            self.b.set(self.reg(n, 0, dtype).name, vector)
            return
        for i in range(LANES):
            there = self.element(self.load, place + i, step, LANES)
            self.b.set(self.reg(n, i, dtype).name, there)

    def loaded_step(self, n: int, i: int) -> Expr:
        dtype = self.load.dtype
        if self.layout.unit_steps == 1:
            return self.reg(n, 0, dtype)
        return Lanes(tuple(Lane(self.reg(n, row, dtype), i) for row in range(LANES)))


#: The most elements between two steps of columns; for rows it is LANES.
MOST_STEP_GAP = 8


@dataclass(frozen=True, eq=False)
class QuantisedOperand(StagedOperand):
    """Weights of few bits.  Registers of a unit: a word of each column, or of each step, and the
    columns' scales and zero points if there are any.

    vectors: whether memory has whole vectors of columns, for the words, scales and zero points
    """

    weights: QuantisedProduct
    vectors: Mapping[Load, bool]

    @staticmethod
    def of(
        b: Builder,
        operand_tile: OperandTile,
        weights: QuantisedProduct,
        *,
        padded: bool = False,
        panel: int = 1,
    ) -> QuantisedOperand:
        """padded: words are padded so that neighbouring threads write to different banks"""
        layout = StagingLayout.of(operand_tile.width, panel)
        run = layout.run * LANES
        gap = run if padded and run < operand_tile.width else 0
        layout = replace(layout, unit_steps=weights.together, gap=gap)
        loads = (*_loads(weights.scale), *_loads(weights.zero), weights.operands.col)
        return QuantisedOperand(
            b, operand_tile, layout, weights, {x: operand_tile.loads_places(x) for x in loads}
        )

    def with_unit_steps(self, steps: int) -> QuantisedOperand:
        """The same operand with this number of steps in a unit."""
        return replace(self, layout=replace(self.layout, unit_steps=steps))

    @property
    def words(self) -> int:
        """Stored elements of a column in a unit."""
        return self.layout.unit_steps // self.weights.word

    def load_unit(self, n: int, place: Index, step: Index) -> None:
        col = self.weights.operands.col
        for j in range(self.words):
            words = self.neighbours(col, place, step + j * self.weights.word, self.vectors[col])
            self.b.set(self.reg(n, j, col.dtype).name, words)
        self.b.set(self.scale(n).name, self.across(self.weights.scale, place, step))
        zero = self.zero(n)
        if isinstance(zero, Reg):
            self.b.set(zero.name, self.across(self.weights.zero, place, step))

    def loaded_step(self, n: int, i: int) -> Expr:
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
        return in_lanes(e, lambda x: self.neighbours(x, place, step, self.vectors[x]))


def column_operand(
    b: Builder,
    kernel: Kernel,
    ops: Operands,
    operand_tile: OperandTile,
    *,
    padded: bool = False,
    widest: int,
) -> FloatOperand | QuantisedOperand:
    """The column operand in its memory layout; panels wider than `widest` columns count as rows."""
    form, panel = classify(kernel), panel_of(kernel, ops)
    panel = panel if panel <= widest else 1
    if isinstance(form, QuantisedContraction):
        return QuantisedOperand.of(b, operand_tile, form.weights, padded=padded, panel=panel)
    return FloatOperand.of(b, operand_tile, ops.col, padded=padded, panel=panel)


def panel_of(kernel: Kernel, ops: Operands) -> int:
    """Columns of a panel; 1 if the operand is not stored in several panels."""
    layout = kernel.buffers[ops.col.buffer].layout
    return layout.width if isinstance(layout, Blocks) else ops.panel


def _loads(e: Expr) -> list[Load]:
    return [x for x in walk(e) if isinstance(x, Load)]


@contextmanager
def staged_blocks(
    b: Builder,
    operands: Sequence[StagedOperand],
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
        for operand in operands:
            operand.load_block(first, depth)

    if ahead:
        read(Index())
    blocks = ceil(steps / depth)
    with b.loop("block", Index(), index(blocks), 1, blocks) as block:
        if not ahead:
            read(block * depth)
        for operand in operands:
            operand.store_block(depth)
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
