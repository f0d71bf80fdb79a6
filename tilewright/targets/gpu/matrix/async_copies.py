"""Multi-stage asynchronous copies of matrix-unit operands to shared memory.

Input: a tile of a product, and a `MatrixGemmSchedule` with stages. Output: its loop nest. Copies
move 16 bytes at a time without passing through registers, so nothing is converted or transposed. An
operand whose layout does not allow this is staged by tiles.py instead.

    copy blocks 0 .. stages - 2;  await the first;  barrier
    for block:
        copy block + stages - 1 over block - 1;  multiply;  await block + 1;  barrier
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import ceil

from tilewright.base.errors import required
from tilewright.kernel.builder import Builder
from tilewright.kernel.expr import Bound, Load
from tilewright.kernel.index import Index, index
from tilewright.kernel.loops import AwaitCopies, Barrier, EndCopies, LoadMatrix, Scratch
from tilewright.targets.gpu.matrix.operands import (
    OperandLayout,
    element,
    operand_layouts,
    stride_of,
)
from tilewright.targets.gpu.matrix.schedule import MatrixGemmSchedule
from tilewright.targets.gpu.matrix.tiles import MatrixTile
from tilewright.targets.gpu.tile.addressing import TilePosition
from tilewright.targets.gpu.tile.staging import OperandTile
from tilewright.targets.lite_space import LINE_BYTES


class CopiedOperand:
    """One operand's blocks in shared memory, in lines of steps or of rows (or columns).

    Panels of the memory layout stay panels in shared memory: a copy of 128 adjacent bytes to eight
    lines takes four times as long as a copy to one line.

    panel: columns of a panel;  run: elements of its line, 0: lines have all columns
    apart: elements from a panel to the next one
    """

    def __init__(
        self, b: Builder, piece: OperandTile, operand: OperandLayout, s: MatrixGemmSchedule
    ) -> None:
        self.b, self.piece, self.operand, self.s = b, piece, operand, s
        width, depth = piece.width, s.depth
        self.panel = 0 if operand.along or width % (operand.panel or width + 1) else operand.panel
        self.run, self.apart = self.panel * operand.group, self.panel * operand.group * depth
        self.stride = self.run or stride_of(
            operand.along, width, depth, operand.dtype.size, operand.group
        )
        self.size = (
            (width if operand.along else depth) * self.stride * (width // (self.panel or width))
        )

    def within(self, place: Index, step: Index) -> Index:
        """The offset in a block of a step of one row (or column)."""
        if self.panel:
            at = place % self.panel * self.operand.group
            return place // self.panel * self.apart + step * self.stride + at
        line, at = (place, step) if self.operand.along else (step, place)
        return line * self.stride + at * self.operand.group

    def scratch(self, depth: int) -> Scratch:
        return Scratch(self.operand.dtype, self.s.stages * self.size)

    def copy(self, stage: Index, block: Index) -> None:
        """Adds this thread's copies of a block; nothing is read beyond the ends."""
        b, piece, operand = self.b, self.piece, self.operand
        ragged = piece.steps % self.s.depth != 0
        for place, step in self._units():
            row, at = piece.start + place, block * self.s.depth + step
            b.copy_ahead(
                piece.area, stage * self.size + self.within(place, step),
                Load(
                    operand.load.buffer, element(operand, piece, row, at),
                    operand.dtype, operand.lanes,
                ),
                (Bound(row, piece.extent), *([Bound(at, piece.steps)] if ragged else [])),
            )  # fmt: skip

    def _units(self) -> Iterator[tuple[Index, Index]]:
        """First row (or column) and step of each copy; neighbouring threads copy adjacent bytes."""
        operand, width, depth = self.operand, self.piece.width, self.s.depth
        if operand.along:
            shape: tuple[int, ...] = (width, depth // operand.units)
        else:
            panel = self.panel or width
            shape = (width // panel, depth, panel // operand.units)
        for _, at in self.b.points_of_thread(shape):
            if operand.along:
                yield at[0], at[1] * operand.units
            else:
                yield at[0] * panel + at[2] * operand.units, at[1]


class CopiedTile(MatrixTile):
    """One tile whose operands are copied without change."""

    sides: tuple[CopiedOperand, CopiedOperand]
    kind: type[CopiedOperand] = CopiedOperand
    #: False: copies are issued before the products, which the threads wait for.
    late = False

    def __init__(self, tile: TilePosition, s: MatrixGemmSchedule) -> None:
        super().__init__(tile, s)
        found = required(
            operand_layouts(tile.kernel), "it cannot be copied", kernel=tile.kernel.name
        )
        pieces = tile.pieces(s.x1, s.y1)
        made = (self.kind(self.b, p, operand, s) for p, operand in zip(pieces, found, strict=True))
        self.sides = next(made), next(made)

    @contextmanager
    def blocks(self) -> Iterator[None]:
        b, s, steps = self.b, self.s, self.places.ops.steps
        blocks, behind = ceil(steps / s.depth), AwaitCopies(s.stages - 2)
        # A worker that resumes the tile begins at a later block (cuda/chunks.py).
        first = b.within(Index(), blocks, "first")
        for n in range(s.stages - 1):
            self._copy(first + n, blocks)
        b.add(behind)
        b.add(Barrier())
        with b.loop("block", first, index(blocks), 1, blocks) as block:
            self.copy_next = partial(self._copy, block + (s.stages - 1), blocks)
            if not self.late:
                self.copy_next()
            self.stage = b.let(block % s.stages, "stage")
            yield
            b.add(behind)
            b.add(Barrier())

    def meanwhile(self) -> None:
        if self.late:
            self.copy_next()

    def _copy(self, block: Index, blocks: int) -> None:
        """Copies a block, if it exists."""
        with self.b.only_if((Bound(block, blocks),)):
            stage = self.b.let(block % self.s.stages, "stage")
            for side in self.sides:
                side.copy(stage, block)
        self.b.add(EndCopies())

    def load(self, name: str, right: bool, step: int, number: int) -> LoadMatrix:
        side, s = self.sides[right], self.s
        operand, group = side.operand, side.operand.group
        if right:
            place = self.along * (s.columns * s.n) + number * s.n
        else:
            place = self.down * (s.rows * s.m) + number * s.m
        at = self.stage * side.size + side.within(place, self.slice * s.own + step * s.k // group)
        area, across = side.piece.area, not operand.along
        return LoadMatrix(
            name, right, area, self.b.address(at), side.stride, across, group if across else 1,
            side.run, side.apart,
        )  # fmt: skip


class SwizzledOperand(CopiedOperand):
    """Blocks in swizzled lines of 128 bytes, as a detached unit reads them.

    A line has steps, or 64 rows (or columns) of a step, after which those of the next step follow.
    Panels keep their layout: such a unit reads them, too.
    """

    def __init__(
        self, b: Builder, piece: OperandTile, operand: OperandLayout, s: MatrixGemmSchedule
    ) -> None:
        super().__init__(b, piece, operand, s)
        if self.panel:
            return
        self.stride = LINE_BYTES // operand.dtype.size
        if not operand.along:
            self.panel = self.run = self.stride
            self.apart = s.depth * self.stride
        self.size = piece.width * s.depth

    def scratch(self, depth: int) -> Scratch:
        return replace(
            super().scratch(depth), swizzled=self.stride * self.operand.dtype.size == LINE_BYTES
        )


class WarpgroupTile(CopiedTile):
    """One tile by detached units (warp groups), which multiply while the next block is copied."""

    kind = SwizzledOperand
    late = True
