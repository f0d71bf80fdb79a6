"""Operands of matrix units as they lie in memory, copied to shared memory blocks ahead.

Input: a tile of a product, a `MatrixSchedule` with stages.  Output: its loop nest.  Sixteen bytes
go at a time and not by way of registers, so nothing is converted or transposed; an operand that
does not lie so has an objection, and is staged by matrix_tiles.py.

    copy blocks 0 .. stages - 2;  await the first;  barrier
    for block:
        copy block + stages - 1 to where block - 1 was;  multiply;  await block + 1;  barrier
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import ceil, prod
from typing import TYPE_CHECKING

from tilewright.base.dtypes import F16, DType
from tilewright.kernel.builder import Builder
from tilewright.kernel.expr import Bound, Expr, Load
from tilewright.kernel.form import ByteContraction, classify
from tilewright.kernel.index import Index, Var, index, unflatten
from tilewright.kernel.layout import Groups, Panels
from tilewright.kernel.loops import AwaitCopies, Barrier, EndCopies, LoadMatrix, Scratch
from tilewright.kernel.spec import Kernel
from tilewright.targets.gpu.matrix_tiles import MatrixTile
from tilewright.targets.gpu.places import Placed, Places, operands
from tilewright.targets.gpu.staging import Piece, inside, multiple, own, side_by_side

if TYPE_CHECKING:
    from tilewright.targets.gpu.matrices import MatrixSchedule

#: Bytes of one copy, and stages that are tried.
COPIED, STAGES = 16, (2, 3, 4)
#: Bytes of a line that a detached unit reads.
LINE = 128
#: Bytes of a word, of which matrices of other elements than halves consist.
WORD = 4


@dataclass(frozen=True)
class Lie:
    """How an operand lies.

    load, dtype: where an element is, and its type in memory
    axis:  along the bytes of a step; None where a step is an element, not a word of bytes
    along: the depth is contiguous; else rows (or columns) of a step are
    panel: of how many columns; 0: of all
    """

    load: Load
    dtype: DType
    axis: Var | None
    along: bool
    panel: int

    @property
    def group(self) -> int:
        """Elements of a step."""
        return 1 if self.axis is None else WORD

    @property
    def lanes(self) -> int:
        """Elements of a copy."""
        return COPIED // self.dtype.size

    @property
    def units(self) -> int:
        """Steps of a copy, or its rows or columns."""
        return self.lanes // self.group


@lru_cache(maxsize=4096)
def lies(kernel: Kernel) -> tuple[Lie, Lie] | None:
    """How both operands of a product lie; None if one cannot be copied as it is."""
    ops, form = operands(kernel), classify(kernel)
    axis = kernel.stages[0].axes[-1] if isinstance(form, ByteContraction) else None
    places = Places(ops, {})
    rows = _lie(kernel, ops.row, axis, places.rows(1, Index(), 0))
    columns = _lie(kernel, ops.col, axis, places.columns(1, Index(), 0))
    return None if rows is None or columns is None else (rows, columns)


def _lie(kernel: Kernel, load: Expr, axis: Var | None, piece: Piece) -> Lie | None:
    if not isinstance(load, Load):
        return None
    buffer = kernel.buffers[load.buffer]
    dtype = F16 if buffer.halves else load.dtype
    layout = buffer.layout
    panel = layout.width if isinstance(layout, Panels | Groups) else 0
    for along in (True, False):
        lie = Lie(load, dtype, axis, along, panel)
        units = lie.units
        extent, steps = piece.extent, piece.steps
        whole = (steps if along else extent) % units == 0
        q = index(Var("q", extent if along else ceil(extent / units)))
        k = index(Var("k", ceil(steps / units) if along else steps))
        run = [
            element(lie, piece, *((q, k * units + i) if along else (q * units + i, k)), part)
            for i in range(units)
            for part in range(lie.group)
        ]
        if whole and side_by_side(run) and multiple(run[0], lie.lanes):
            return lie
    return None


def element(lie: Lie, piece: Piece, place: Index, step: Index, part: int = 0) -> Index:
    """Where in its buffer an element is, by row or column, step and number in the step."""
    values = piece.point(place, step)
    if lie.axis is not None:
        values = values | {lie.axis: index(part)}
    return lie.load.index.substitute(values)


def stride_of(along: bool, width: int, depth: int, size: int, group: int) -> int:
    """Elements from line to line in shared memory: a few more than a line has, so that the eight
    lines of a matrix, or the four steps of words, lie in different banks."""
    if along:
        return depth * group + COPIED // size
    return width * group + (COPIED if size == F16.size else 2 * COPIED) // size


def most_bytes(width: int, depth: int, size: int, group: int) -> int:
    """Bytes of a block, however it lies."""
    return size * max(
        width * stride_of(True, width, depth, size, group),
        depth * stride_of(False, width, depth, size, group),
    )


class Copied:
    """One operand's blocks in shared memory, in lines of steps or of rows (or columns).

    Panels stay panels: what lies side by side in memory does so in shared memory.  Copies of 128
    bytes to eight lines are four times as slow as copies to one.

    panel: columns of a panel;  run: elements of its line, 0: lines have all columns
    apart: elements from a panel to the next one
    """

    def __init__(self, b: Builder, piece: Piece, lie: Lie, s: MatrixSchedule) -> None:
        self.b, self.piece, self.lie, self.s = b, piece, lie, s
        width, depth = piece.width, s.depth
        self.panel = 0 if lie.along or width % (lie.panel or width + 1) else lie.panel
        self.run, self.apart = self.panel * lie.group, self.panel * lie.group * depth
        self.stride = self.run or stride_of(lie.along, width, depth, lie.dtype.size, lie.group)
        self.size = (width if lie.along else depth) * self.stride * (width // (self.panel or width))

    def within(self, place: Index, step: Index) -> Index:
        """Where a step begins, in a block."""
        if self.panel:
            at = place % self.panel * self.lie.group
            return place // self.panel * self.apart + step * self.stride + at
        line, at = (place, step) if self.lie.along else (step, place)
        return line * self.stride + at * self.lie.group

    def scratch(self, depth: int) -> Scratch:
        return Scratch(self.lie.dtype, self.s.stages * self.size)

    def copy(self, stage: Index, block: Index) -> None:
        """This thread's copies; nothing is read beyond the ends."""
        b, piece, lie = self.b, self.piece, self.lie
        ragged = piece.steps % self.s.depth != 0
        for place, step in self._units():
            row, at = piece.start + place, block * self.s.depth + step
            b.copy_ahead(
                piece.area, stage * self.size + self.within(place, step),
                Load(lie.load.buffer, element(lie, piece, row, at), lie.dtype, lie.lanes),
                (Bound(row, piece.extent), *([Bound(at, piece.steps)] if ragged else [])),
            )  # fmt: skip

    def _units(self) -> Iterator[tuple[Index, Index]]:
        """First place and step of each copy; neighbours read neighbours."""
        lie, width, depth = self.lie, self.piece.width, self.s.depth
        if lie.along:
            shape: tuple[int, ...] = (width, depth // lie.units)
        else:
            panel = self.panel or width
            shape = (width // panel, depth, panel // lie.units)
        for n in range(ceil(prod(shape) / self.b.threads)):
            with own(self.b, self.b.thread + n * self.b.threads, prod(shape)) as flat:
                at = unflatten(flat, shape)
                if lie.along:
                    yield at[0], at[1] * lie.units
                else:
                    yield at[0] * panel + at[2] * lie.units, at[1]


class CopiedTile(MatrixTile):
    """One tile whose operands are copied as they lie."""

    sides: tuple[Copied, Copied]
    kind: type[Copied] = Copied
    #: Copies follow the products, which go on by themselves.
    late = False

    def __init__(self, tile: Placed, s: MatrixSchedule) -> None:
        super().__init__(tile, s)
        found = lies(tile.kernel)
        assert found is not None, f"{tile.kernel.name} cannot be copied"
        pieces = tile.pieces(s.x1, s.y1)
        made = (self.kind(self.b, p, lie, s) for p, lie in zip(pieces, found, strict=True))
        self.sides = next(made), next(made)

    @contextmanager
    def blocks(self) -> Iterator[None]:
        b, s, steps = self.b, self.s, self.places.ops.steps
        blocks, behind = ceil(steps / s.depth), AwaitCopies(s.stages - 2)
        # who goes on with the tile later begins at another block (chunks.py)
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
        """Copies a block, if there is one."""
        with inside(self.b, (Bound(block, blocks),)):
            stage = self.b.let(block % self.s.stages, "stage")
            for side in self.sides:
                side.copy(stage, block)
        self.b.add(EndCopies())

    def load(self, name: str, right: bool, step: int, number: int) -> LoadMatrix:
        side, s = self.sides[right], self.s
        lie, group = side.lie, side.lie.group
        if right:
            place = self.along * (s.columns * s.n) + number * s.n
        else:
            place = self.down * (s.rows * s.m) + number * s.m
        at = self.stage * side.size + side.within(place, self.slice * s.own + step * s.k // group)
        area, across = side.piece.area, not lie.along
        return LoadMatrix(
            name, right, area, self.b.address(at), side.stride, across, group if across else 1,
            side.run, side.apart,
        )  # fmt: skip


class Swizzled(Copied):
    """The same in lines of 128 bytes, for a detached unit: of steps, or 64 rows (or columns) of a
    step, then those of the next step.  Panels are what such a unit reads, too."""

    def __init__(self, b: Builder, piece: Piece, lie: Lie, s: MatrixSchedule) -> None:
        super().__init__(b, piece, lie, s)
        if self.panel:
            return
        self.stride = LINE // lie.dtype.size
        if not lie.along:
            self.panel = self.run = self.stride
            self.apart = s.depth * self.stride
        self.size = piece.width * s.depth

    def scratch(self, depth: int) -> Scratch:
        return replace(super().scratch(depth), swizzled=self.stride * self.lie.dtype.size == LINE)


class WarpgroupTile(CopiedTile):
    """One tile by detached units, which multiply while the next block is copied."""

    kind = Swizzled
    late = True
