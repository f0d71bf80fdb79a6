"""The loops of one tile by matrix units, for operands of bytes and of f16.

Each subgroup has its own part of shared memory for its rows and for its columns. The subgroup's
number selects the part, and a matrix has a constant offset within it.

Input: a tile of a product, and a `MatrixGemmSchedule`. Output: its loop nest; strategies.py shows
the structure. Each operand type has its own `MatrixTile`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from itertools import product as every
from math import ceil
from typing import Protocol

from tilewright.base.dtypes import I8, I32
from tilewright.kernel.expr import Call, Expr, Load, Reg
from tilewright.kernel.index import Index, index, unflatten
from tilewright.kernel.loops import (
    Barrier,
    BeginProducts,
    EndProducts,
    LoadMatrix,
    MultiplyMatrices,
    Scratch,
    StoreMatrix,
    TileFn,
    ZeroMatrix,
)
from tilewright.targets.gpu.matrix.schedule import MatrixGemmSchedule
from tilewright.targets.gpu.matrix.vector_staging import staged_in_vectors
from tilewright.targets.gpu.product.integer_gemm import ColumnSums, Int8Operand, int8_operands
from tilewright.targets.gpu.tile.addressing import TilePosition, stage_operands
from tilewright.targets.gpu.tile.epilogue import EpilogueStore
from tilewright.targets.gpu.tile.staging import StagedOperand, staged_blocks
from tilewright.targets.gpu.workgroup_limits import F16_LINE_GAP
from tilewright.targets.vectors import LANES


def _nothing() -> None:
    """Adds no statements."""


@dataclass(frozen=True)
class SharedBlock:
    """A block in shared memory.

    stage: the number of the part of the shared areas that has it
    while_multiplying: adds the work to do while asynchronous units multiply
    """

    stage: Index = field(default_factory=Index)
    while_multiplying: Callable[[], None] = _nothing


class SharedOperand(Protocol):
    """An operand in shared memory."""

    def scratch(self, depth: int) -> Scratch:
        """The shared area for a block of `depth` steps."""


class MatrixTile(ABC):
    """One tile: the copies, the products and the stores of one thread."""

    operands: tuple[SharedOperand, SharedOperand]

    def __init__(self, tile: TilePosition, s: MatrixGemmSchedule) -> None:
        self.b, self.kernel, self.indices, self.s = tile.b, tile.kernel, tile.indices, s
        self.row0, self.col0, self.unit = tile.row0, tile.col0, s.unit
        b = self.b
        subgroup, self.lane = (b.let(i, "t") for i in unflatten(b.thread, (s.subgroups, s.width)))
        self.subgroup = subgroup
        shape = (s.slices, s.down, s.along)
        self.slice, self.down, self.along = (b.let(i, "t") for i in unflatten(subgroup, shape))

    @abstractmethod
    def blocks(self) -> AbstractContextManager[SharedBlock]:
        """A loop over blocks of the depth; its body runs while a block is in shared memory."""

    def add_block_work(self) -> None:
        """Adds other work on a block in shared memory.  None by default."""
        return

    @abstractmethod
    def load(self, stage: Index, name: str, right: bool, step: int, number: int) -> LoadMatrix:
        """Loads the subgroup's left (rows) or right (columns) matrix `number` from a stage, at a
        step of its slice.

        Where an area has parts, the offset includes the part's number (`Scratch`).
        """

    def before_store(self) -> list[Scratch]:
        """Emits the work between the loop and the stores of sums; returns its shared areas, which
        follow those of the operands."""
        return []

    def corrected_sums(self, total: Reg, col: Index) -> Reg:
        """Four sums as the kernel stores them, from a column of the tile on."""
        return total

    def emit(self) -> TileFn:
        b, s = self.b, self.s
        results = list(every(range(s.rows), range(s.columns)))
        for i, j in results:
            b.add(ZeroMatrix(_result(i, j)))
        with self.blocks() as block:
            if self.unit.asynchronous:
                b.add(BeginProducts())
            for step in range(s.r1 // s.slices):
                for i in range(s.rows):
                    b.add(self.load(block.stage, f"left{i}_{step}", False, step, i))
                for j in range(s.columns):
                    b.add(self.load(block.stage, f"right{j}_{step}", True, step, j))
                for i, j in results:
                    b.add(MultiplyMatrices(_result(i, j), f"left{i}_{step}", f"right{j}_{step}"))
            block.while_multiplying()
            if self.unit.asynchronous:
                b.add(EndProducts(tuple(_result(i, j) for i, j in results)))
            self.add_block_work()
        areas = [operand.scratch(s.depth) for operand in self.operands]
        areas += self.before_store()
        self._store(len(self.kernel.buffers) + len(areas))
        patches = Scratch(self.unit.result, s.subgroups * s.m * s.pitch, s.m * s.pitch)
        areas += [replace(patches, may_overlap=s.stages > 1)]
        return replace(b.finish(self.kernel, tuple(areas)), unit=self.unit)

    def _store(self, patches: int) -> None:
        """Stores each result through the subgroup's area; the slices' results are added up in
        turn."""
        b, s, output = self.b, self.s, EpilogueStore(self.b, self.kernel, self.indices)
        each, others = s.m * s.pitch, s.down * s.along
        place = self.down * s.along + self.along
        units, threads = s.m * s.n // LANES, s.width * s.slices
        barrier = Barrier(subgroup_only=s.slices == 1)
        for i, j in every(range(s.rows), range(s.columns)):
            b.add(StoreMatrix(patches, self.subgroup * each, _result(i, j), s.pitch))
            b.add(barrier)
            for n in range(ceil(units / threads)):
                with b.only_below(self.slice * s.width + self.lane + n * threads, units) as flat:
                    down, across = unflatten(flat, (s.m, s.n // LANES))
                    row = (self.down * s.rows + i) * s.m + down
                    col = (self.along * s.columns + j) * s.n + across * LANES
                    at = place * each + down * s.pitch + across * LANES
                    total = Reg("total", self.unit.result, LANES)
                    b.set(total.name, Load(patches, at, total.dtype, LANES))
                    for slice_ in range(1, s.slices):
                        more = Load(patches, at + slice_ * others * each, total.dtype, LANES)
                        b.set(total.name, Call("add", (total, more), total.dtype, LANES))
                    total = self.corrected_sums(total, col)
                    output.put(b.let(self.row0 + row, "row"), b.let(self.col0 + col, "col"), total)
            b.add(barrier)


def _result(i: int, j: int) -> str:
    return f"result{i}_{j}"


class StagedMatrixTile(MatrixTile):
    """One tile whose operands are staged through registers, in parts of shared memory."""

    operands: tuple[StagedOperand, StagedOperand]

    def __init__(self, tile: TilePosition, s: MatrixGemmSchedule) -> None:
        super().__init__(tile, s)
        b = self.b
        #: The parts of shared memory with this subgroup's rows, and with its columns.
        self.parts = (
            b.let(self.slice * s.down + self.down, "part"),
            b.let(self.slice * s.along + self.along, "part"),
        )

    @contextmanager
    def blocks(self) -> Iterator[SharedBlock]:
        s = self.s
        with staged_blocks(self.b, self.operands, self.indices.ops.steps, s.depth, s.ahead):
            yield SharedBlock()

    def load(self, stage: Index, name: str, right: bool, step: int, number: int) -> LoadMatrix:
        operand, layout, s = self.operands[right], self.operands[right].layout, self.s
        place, first = index(number * (s.n if right else s.m)), index(step * s.k // layout.group)
        at = layout.in_part(self.parts[right], place, first)
        stride = layout.stride * layout.group
        return LoadMatrix(name, right, operand.tile.area, at, stride, not layout.deep_in_shared)


class F16MatrixTile(StagedMatrixTile):
    """Operands as f16, each step with all rows or columns; sums in f32."""

    def __init__(self, tile: TilePosition, s: MatrixGemmSchedule) -> None:
        super().__init__(tile, s)
        rows, columns = stage_operands(tile, (s.x1, s.y1))
        parts = (rows, s.x1 // s.down), (columns, s.y1 // s.along)
        made = (
            staged_in_vectors(operand, tile.kernel, part, s.own, F16_LINE_GAP)
            for operand, part in parts
        )
        self.operands = next(made), next(made)


class _Int8Lines(Int8Operand):
    """Bytes that are contiguous along the depth for each place; a unit is one group of four."""

    def units(self, depth: int) -> Iterator[tuple[int, Index, Index]]:
        """Number, place and step of each of this thread's groups; neighbours' are adjacent."""
        panel = self.layout.panel or 1
        shape = (self.tile.width // panel, depth, panel)
        for n, (major, step, minor) in self.b.points_of_thread(shape):
            yield n, major * panel + minor, step

    def load_unit(self, n: int, place: Index, step: Index) -> None:
        self.b.set(self.reg(n, 0, I8).name, self.word(place, step))

    def loaded_step(self, n: int, i: int) -> Expr:
        return self.reg(n, 0, I8)


class Int8MatrixTile(StagedMatrixTile):
    """Operands as bytes, each row or column contiguous along the depth; sums in i32."""

    operands: tuple[_Int8Lines, _Int8Lines]

    def __init__(self, tile: TilePosition, s: MatrixGemmSchedule) -> None:
        super().__init__(tile, s)
        rows, columns = int8_operands(tile, (s.x1, s.y1), False, kind=_Int8Lines)
        self.operands = _in_parts(rows, s.down, s), _in_parts(columns, s.along, s)
        self.counts = ColumnSums(self.b, s.y1)
        #: The number of the shared area with the correction of each column.
        self.corrections = len(self.kernel.buffers) + len(self.operands)

    def add_block_work(self) -> None:
        cols = self.operands[1]
        self.counts.add(cols.tile.area, self.s.depth, cols.layout.where)

    def before_store(self) -> list[Scratch]:
        self.counts.put(self.corrections)
        return [Scratch(I32, self.s.y1)]

    def corrected_sums(self, total: Reg, col: Index) -> Reg:
        """Adds the correction for signed bytes to four sums."""
        lack = Reg("lack", I32, LANES)
        self.b.set(lack.name, ColumnSums.four(self.corrections, col))
        self.b.set(total.name, Call("add", (total, lack), I32, LANES))
        return total


def _in_parts(operand: _Int8Lines, parts: int, s: MatrixGemmSchedule) -> _Int8Lines:
    """The same operand in this number of parts, with a line of steps for each place."""
    part = operand.tile.width // parts
    return replace(operand, layout=operand.layout.in_parts(part, s.own, s.gap, deep=True))
