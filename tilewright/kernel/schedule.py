"""Schedules: the choices of how one kernel runs, as a small frozen record.

Input: a kernel and the numbers of a machine.  Output: a `Schedule`: hashable, comparable data.
The same kernel with another schedule is another candidate; results may differ only in rounding.
Names follow nnJIT: x = rows, y = columns, r = reduction; 0 = per register tile, 1 = per tile.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import prod
from typing import Any

from tilewright.kernel.roles import Operands, operands
from tilewright.kernel.spec import Kernel
from tilewright.kernel.windows import Windows, windows


@dataclass(frozen=True)
class Machine:
    """What a schedule must fit: f32 lanes of a vector, usable vector registers, bytes of caches."""

    lanes: int = 4
    registers: int = 15
    l1: int = 32768
    l2: int = 524288


@dataclass(frozen=True)
class Schedule:
    """Schedule primitives.  A field that a kernel's lowering does not use has no effect on it.

    x0, y0: rows and columns of the register tile of a contraction, pixels and channels of that of
            a window kernel (y0 a multiple of `lanes`)
    r0:     reduction steps per pass of the innermost loop ("unroll"); elsewhere the number of
            independent partial results of a row reduction
    x1, y1: rows and columns (or elements) of one tile
    order:  "nm" walks the rows of a tile inside its columns, "mn" the other way ("reorder")
    lanes:  elements per vector ("vectorize"); 1 = scalar code
    """

    x0: int = 1
    y0: int = 4
    r0: int = 1
    x1: int = 1
    y1: int = 4096
    order: str = "nm"
    lanes: int = 4

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Schedule:
        return cls(**data)

    def __str__(self) -> str:
        return " ".join(f"{k}={v}" for k, v in asdict(self).items())


#: Multiply-accumulates that make one tile of a contraction worth a ticket (some 10 microseconds).
TILE_WORK = 1 << 17

#: Taps along the innermost axis of a window that are written out, without a loop.
MAX_TAPS = 11

#: Elements that make one tile of an elementwise or row-wise kernel worth a ticket.
TILE_ELEMENTS = 4096


def default_schedule(kernel: Kernel, machine: Machine) -> Schedule:
    """A good first choice, from arithmetic alone; tuning starts here."""
    roles = operands(kernel)
    if roles is not None:
        return _contraction(kernel, roles, machine)
    across = windows(kernel)
    if across is not None:
        return _windows(kernel, across, machine)
    row = prod(v.extent for v in kernel.axes[len(kernel.axes) - max(kernel.cols, 1) :])
    reduced = max((prod(v.extent for v in s.axes) for s in kernel.stages), default=1)
    per_row = max(row, reduced) if kernel.stages else row
    rows = max(1, TILE_ELEMENTS // max(per_row, 1))
    return Schedule(x1=rows, y1=TILE_ELEMENTS, r0=2, lanes=machine.lanes)


def _contraction(kernel: Kernel, roles: Operands, machine: Machine) -> Schedule:
    rows, cols = roles.m.extent, roles.n.extent
    depth = prod(v.extent for v in kernel.stages[0].axes)
    x0, y0 = register_tile(rows, machine)
    # The rows of a tile stay in half of L2 while column panels stream by.  The choice looks at no
    # row count, so that matmuls of any length share code.  Windows overlap: a row of theirs adds
    # less memory than its depth.
    own = min(depth, max(1, kernel.buffers[roles.row.buffer].size // rows))
    x1 = x0 * max(4, min(16, machine.l2 // 2 // (4 * own * x0)))
    y1 = y0 * max(1, min(-(-cols // y0), TILE_WORK // max(1, x1 * y0 * depth)))
    inner = kernel.stages[0].axes[-1].extent if kernel.stages[0].axes else 1
    # Where a row's address takes arithmetic, few columns after each other share it.
    order = "mn" if roles.row_step is None and 4 * depth * y1 <= machine.l1 // 2 else "nm"
    if cols > depth and 4 * depth * cols <= machine.l2:
        # More is stored than is read: whole rows after each other, in long runs of memory.
        order, x1, y1 = "mn", 2 * x0, y0 * -(-min(cols, 256) // y0)
    return Schedule(
        x0=x0, y0=y0, r0=unroll(inner), x1=x1, y1=y1, order=order, lanes=machine.lanes
    )


def unroll(extent: int) -> int:
    """Reduction steps per pass: about 8, and a divisor of the extent if there is one nearby."""
    if extent <= 8:
        return max(1, extent)
    return next((n for n in (8, 7, 9, 10, 6, 12, 5) if extent % n == 0), 8)


def _windows(kernel: Kernel, across: Windows, machine: Machine) -> Schedule:
    """Pixels in registers beside the taps' factors and one element; few pixels take more channels.

    Eight results do not wait for each other.
    """
    taps = across.taps if across.taps <= MAX_TAPS else 4
    room = machine.registers - 2 - (taps if across.weighted else 1)
    parts = -(-across.pixel.extent // max(1, min(8, room)))
    x0 = -(-across.pixel.extent // parts)
    vectors = 1 if across.weighted else max(1, 8 // x0)
    y0 = machine.lanes * max(1, min(vectors, across.channel.extent // machine.lanes))
    depth = prod(v.extent for v in kernel.stages[0].axes)
    blocks = -(-across.channel.extent // y0)
    span = max(1, min(blocks, TILE_WORK // (x0 * y0 * depth)))
    x1 = max(1, TILE_WORK // (x0 * y0 * span * depth))
    return Schedule(x0=x0, y0=y0, r0=taps, x1=x1, y1=span * y0, lanes=machine.lanes)


def register_tile(rows: int, machine: Machine) -> tuple[int, int]:
    """Rows and columns of the register tile: as many sums as fit, and never too few chains.

    A tile of x0 rows and v vectors of columns needs x0*v sums, v columns and one splat row value.
    One or two rows take more columns: fewer than about 8 sums would wait for each other.
    """
    x0 = min(rows, 8, (machine.registers - 3) // 2)
    vectors = {1: 8, 2: 4}.get(x0, 2)
    return x0, vectors * machine.lanes
