"""Multi-stage asynchronous copies of matrix-unit operands to shared memory.

Input: a tile of a product, and a `MatrixGemmSchedule` with stages. Output: its loop nest. Copies
move 16 bytes at a time without passing through registers, so nothing is converted or transposed. An
operand whose layout does not allow this is staged by tiles.py instead.

    copy blocks 0 .. stages - 2;  await the first;  barrier
    for block:
        copy block + stages - 1 over block - 1;  multiply;  await block + 1;  barrier
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import ceil

from tilewright.base.errors import required
from tilewright.kernel.builder import Builder
from tilewright.kernel.expr import Bound, Load
from tilewright.kernel.index import Index, index
from tilewright.kernel.loops import Barrier, CommitCopies, LoadMatrix, Scratch, WaitForCopies
from tilewright.targets.gpu.matrix.operands import (
    BlockLayout,
    OperandLayout,
    element,
    operand_layouts,
)
from tilewright.targets.gpu.matrix.schedule import MatrixGemmSchedule
from tilewright.targets.gpu.matrix.tiles import MatrixTile, SharedBlock
from tilewright.targets.gpu.tile.addressing import TilePosition
from tilewright.targets.gpu.tile.staging import OperandTile


@dataclass(frozen=True)
class CopiedOperand:
    """One operand: copies its blocks to the stages of its shared area.

    layout: of a block;  stages: blocks in shared memory
    """

    b: Builder
    tile: OperandTile
    layout: BlockLayout
    stages: int

    @property
    def operand(self) -> OperandLayout:
        return self.layout.operand

    def scratch(self, depth: int) -> Scratch:
        size = self.stages * self.layout.size
        return Scratch(self.operand.dtype, size, swizzled=self.layout.swizzled)

    def where(self, stage: Index, place: Index, step: Index) -> Index:
        """The offset in shared memory of a step of one row (or column), in a stage."""
        return stage * self.layout.size + self.layout.where(place, step)

    def copy(self, stage: Index, block: Index) -> None:
        """Adds this thread's copies of a block; nothing is read beyond the ends."""
        b, operand_tile, operand, depth = self.b, self.tile, self.operand, self.layout.depth
        ragged = operand_tile.steps % depth != 0
        for place, step in self._units():
            row, at = operand_tile.start + place, block * depth + step
            b.async_copy(
                operand_tile.area, self.where(stage, place, step),
                Load(
                    operand.load.buffer, element(operand, operand_tile, row, at),
                    operand.dtype, operand.lanes,
                ),
                (Bound(row, operand_tile.extent), *([Bound(at, operand_tile.steps)] if ragged else
                [])),
            )  # fmt: skip

    def _units(self) -> Iterator[tuple[Index, Index]]:
        """First row (or column) and step of each copy; neighbouring threads copy adjacent bytes."""
        operand, width, depth = self.operand, self.layout.width, self.layout.depth
        if operand.deep_in_memory:
            shape: tuple[int, ...] = (width, depth // operand.units)
        else:
            panel = self.layout.panel or width
            shape = (width // panel, depth, panel // operand.units)
        for _, at in self.b.points_of_thread(shape):
            if operand.deep_in_memory:
                yield at[0], at[1] * operand.units
            else:
                yield at[0] * panel + at[2] * operand.units, at[1]


class AsyncCopyTile(MatrixTile):
    """One tile whose operands are copied without change."""

    operands: tuple[CopiedOperand, CopiedOperand]
    layout_of: Callable[[OperandLayout, int, int], BlockLayout] = staticmethod(BlockLayout.of)
    #: False: copies are issued before the products, which the threads wait for.
    late = False

    def __init__(self, tile: TilePosition, s: MatrixGemmSchedule) -> None:
        super().__init__(tile, s)
        rows, columns = required(
            operand_layouts(tile.kernel), "it cannot be copied", kernel=tile.kernel.name
        )
        operand_tiles = tile.operand_tiles(s.x1, s.y1)
        self.operands = (
            self._operand(operand_tiles[0], rows),
            self._operand(operand_tiles[1], columns),
        )

    def _operand(self, operand_tile: OperandTile, operand: OperandLayout) -> CopiedOperand:
        layout = self.layout_of(operand, operand_tile.width, self.s.depth)
        return CopiedOperand(self.b, operand_tile, layout, self.s.stages)

    @contextmanager
    def blocks(self) -> Iterator[SharedBlock]:
        b, s, steps = self.b, self.s, self.indices.ops.steps
        blocks, behind = ceil(steps / s.depth), WaitForCopies(s.stages - 2)
        # A worker that resumes the tile begins at a later block (cuda/chunks.py).
        first = b.within(Index(), blocks, "first")
        for n in range(s.stages - 1):
            self._copy(first + n, blocks)
        b.add(behind)
        b.add(Barrier())
        with b.loop("block", first, index(blocks), 1, blocks) as block:
            copy_next = partial(self._copy, block + (s.stages - 1), blocks)
            if not self.late:
                copy_next()
            stage = b.let(block % s.stages, "stage")
            yield SharedBlock(stage, copy_next) if self.late else SharedBlock(stage)
            b.add(behind)
            b.add(Barrier())

    def _copy(self, block: Index, blocks: int) -> None:
        """Copies a block, if it exists."""
        with self.b.only_if((Bound(block, blocks),)):
            stage = self.b.let(block % self.s.stages, "stage")
            for operand in self.operands:
                operand.copy(stage, block)
        self.b.add(CommitCopies())

    def load(self, stage: Index, name: str, right: bool, step: int, number: int) -> LoadMatrix:
        copied, s = self.operands[right], self.s
        layout, operand, group = copied.layout, copied.operand, copied.operand.group
        if right:
            place = self.along * (s.columns * s.n) + number * s.n
        else:
            place = self.down * (s.rows * s.m) + number * s.m
        at = copied.where(stage, place, self.slice * s.own + step * s.k // group)
        area, across = copied.tile.area, not operand.deep_in_memory
        return LoadMatrix(
            name, right, area, self.b.address(at), layout.stride, across, group if across else 1,
            layout.panel_elements, layout.panel_elements * layout.depth,
        )  # fmt: skip


class WarpgroupTile(AsyncCopyTile):
    """One tile by asynchronous units (warp groups), which multiply while the next block is
    copied."""

    layout_of = staticmethod(BlockLayout.in_swizzled_lines)
    late = True
