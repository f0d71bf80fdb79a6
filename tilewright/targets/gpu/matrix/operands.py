"""The memory layout of a product's operands, for direct 16-byte copies (async_copies.py).

Input: a product. Output: for each operand whether 16 consecutive bytes are adjacent elements, and
along which axis; the sizes of its blocks in shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil

from tilewright.base.abi import WORD_BYTES
from tilewright.base.dtypes import F16, DType
from tilewright.kernel.expr import Expr, Load
from tilewright.kernel.form import IntegerContraction, classify
from tilewright.kernel.index import Index, Var, are_adjacent, index, is_multiple
from tilewright.kernel.layout import Groups, Panels
from tilewright.kernel.spec import Kernel
from tilewright.targets.gpu.tile.addressing import ProductIndices, operands
from tilewright.targets.gpu.tile.staging import OperandTile
from tilewright.targets.lite_space import LINE_BYTES

#: Bytes of one copy; the numbers of stages that are tried.
COPY_BYTES, STAGES = 16, (2, 3, 4)


@dataclass(frozen=True)
class OperandLayout:
    """The memory layout of an operand.

    load, dtype: the load of an element, and the element's type in memory
    axis:  the axis of the bytes within a step; None if a step is a single element
    deep_in_memory: the depth is contiguous, not the rows (or columns) of a step
    panel: columns of a panel; 0: there are no panels
    """

    load: Load
    dtype: DType
    axis: Var | None
    deep_in_memory: bool
    panel: int

    @property
    def group(self) -> int:
        """Elements of a step: a word of bytes, or one."""
        return 1 if self.axis is None else WORD_BYTES

    @property
    def lanes(self) -> int:
        """Elements that one copy moves."""
        return COPY_BYTES // self.dtype.size

    @property
    def units(self) -> int:
        """Steps that one copy moves, or rows (or columns) of a step."""
        return self.lanes // self.group


@dataclass(frozen=True)
class BlockLayout:
    """Where a block of an operand has its elements in shared memory.

    A block has a line of steps for each row (or column), or a line of rows (or columns) for each
    step.  Panels of the memory layout stay panels, each with a line for each step: a copy of 128
    adjacent bytes to eight lines takes four times as long as a copy to one line.

    width, depth: rows (or columns) and steps of a block
    stride: elements from line to line;  panel: rows (or columns) of a panel, 0: there are none
    swizzled: lines of 128 bytes are swizzled, as a warp group's unit reads them
    """

    operand: OperandLayout
    width: int
    depth: int
    stride: int
    panel: int = 0
    swizzled: bool = False

    @staticmethod
    def of(operand: OperandLayout, width: int, depth: int) -> BlockLayout:
        """Panels, or lines with gaps."""
        if operand.panel and not operand.deep_in_memory and width % operand.panel == 0:
            stride = operand.panel * operand.group
            return BlockLayout(operand, width, depth, stride, operand.panel)
        stride = _padded_line(
            operand.deep_in_memory, width, depth, operand.dtype.size, operand.group
        )
        return BlockLayout(operand, width, depth, stride)

    @staticmethod
    def in_swizzled_lines(operand: OperandLayout, width: int, depth: int) -> BlockLayout:
        """Panels, or swizzled lines: of steps, or of 64 rows (or columns) as if they were a
        panel."""
        layout = BlockLayout.of(operand, width, depth)
        if layout.panel:
            return layout
        stride = LINE_BYTES // operand.dtype.size
        panel = 0 if operand.deep_in_memory else stride
        return replace(layout, stride=stride, panel=panel, swizzled=True)

    @property
    def panel_elements(self) -> int:
        """Elements of a step of a panel; 0: there are no panels."""
        return self.panel * self.operand.group

    @property
    def size(self) -> int:
        """Elements of a block."""
        panels = self.width // (self.panel or self.width)
        return (self.width if self.operand.deep_in_memory else self.depth) * self.stride * panels

    def where(self, place: Index, step: Index) -> Index:
        """The offset in a block of a step of one row (or column)."""
        group = self.operand.group
        if self.panel:
            first = place // self.panel * (self.panel_elements * self.depth)
            return first + step * self.stride + place % self.panel * group
        line, at = (place, step) if self.operand.deep_in_memory else (step, place)
        return line * self.stride + at * group


@lru_cache(maxsize=4096)
def operand_layouts(kernel: Kernel) -> tuple[OperandLayout, OperandLayout] | None:
    """The layouts of both operands of a product; None if one of them cannot be copied directly."""
    ops, form = operands(kernel), classify(kernel)
    axis = kernel.stages[0].axes[-1] if isinstance(form, IntegerContraction) else None
    indices = ProductIndices(ops, {})
    rows = _operand_layout(kernel, ops.row, axis, indices.rows(1, Index(), 0))
    columns = _operand_layout(kernel, ops.col, axis, indices.columns(1, Index(), 0))
    return None if rows is None or columns is None else (rows, columns)


def _operand_layout(
    kernel: Kernel, load: Expr, axis: Var | None, operand_tile: OperandTile
) -> OperandLayout | None:
    if not isinstance(load, Load):
        return None
    buffer = kernel.buffers[load.buffer]
    dtype = F16 if buffer.as_f16 else load.dtype
    layout = buffer.layout
    panel = layout.width if isinstance(layout, Panels | Groups) else 0
    for deep in (True, False):
        operand = OperandLayout(load, dtype, axis, deep, panel)
        units = operand.units
        extent, steps = operand_tile.extent, operand_tile.steps
        whole = (steps if deep else extent) % units == 0
        q = index(Var("q", extent if deep else ceil(extent / units)))
        k = index(Var("k", ceil(steps / units) if deep else steps))
        run = [
            element(
                operand, operand_tile, *((q, k * units + i) if deep else (q * units + i, k)), part
            )
            for i in range(units)
            for part in range(operand.group)
        ]
        if whole and are_adjacent(run) and is_multiple(run[0], operand.lanes):
            return operand
    return None


def element(
    operand: OperandLayout, operand_tile: OperandTile, place: Index, step: Index, part: int = 0
) -> Index:
    """The index in its buffer of an element, by row or column, step, and number in the step."""
    values = operand_tile.point(place, step)
    if operand.axis is not None:
        values = values | {operand.axis: index(part)}
    return operand.load.index.substitute(values)


def most_bytes(width: int, depth: int, size: int, group: int) -> int:
    """Bytes of a block with the larger of the two layouts."""
    return size * max(
        width * _padded_line(True, width, depth, size, group),
        depth * _padded_line(False, width, depth, size, group),
    )


def _padded_line(deep: bool, width: int, depth: int, size: int, group: int) -> int:
    """Elements from line to line in shared memory.  A gap after each line puts the eight lines of a
    matrix, or the four steps of words, in different banks."""
    if deep:
        return depth * group + COPY_BYTES // size
    return width * group + (COPY_BYTES if size == F16.size else 2 * COPY_BYTES) // size
