"""Contractions: matmul, batched matmul and convolution as one register-tiled loop nest.

Input: a kernel that sums products of two loads.  Output: a `TileFn`: the walk over blocks of the
reduction and over register tiles, which `micro.py` emits.  Which of the operands is a weight, and
how it is packed, is only in its index.

    tile (rows x1, columns y1), order "nm":
        for block of r1 steps:                  # A's block stays in L2
            copy the block's columns            # if the schedule says so
            for panel of y0 columns:            # B's block stays in L1, A's rows stream by
                for register tile of x0 rows:
                    sums = 0, or what the last block left;  r1 steps;  store, or leave for the next

Order "mn" has the two inner loops the other way: x0 rows stay in L1, and panels stream by from L2.

Rows are split evenly: 128 rows in register tiles of at most 6 become 18 tiles of 6 and 4 of 5, so
that no tile is left with one lonely row.  At most two bodies exist per kernel.
"""

from __future__ import annotations

from math import prod

from tilewright.kernel.blocks import blocks
from tilewright.kernel.builder import Builder
from tilewright.kernel.index import Index, Var, index, unflatten
from tilewright.kernel.loops import Scratch, TileFn
from tilewright.kernel.micro import Micro
from tilewright.kernel.roles import Operands, operands
from tilewright.kernel.schedule import Schedule
from tilewright.kernel.spec import Kernel


def lower_contraction(kernel: Kernel, schedule: Schedule) -> TileFn:
    """Tiles of x1 rows by y1 columns; inside, register tiles of x0 by y0."""
    ops = operands(kernel)
    assert ops is not None
    return tiled(kernel, schedule, ops, Micro)


def tiled(kernel: Kernel, schedule: Schedule, ops: Operands, kind: type[Micro]) -> TileFn:
    """The grid of tiles and the walk over the register tiles of one, which `kind` emits."""
    outer_extents = tuple(v.extent for v in ops.outer)
    rows, cols = ops.m.extent, ops.n.extent
    x0, y0 = min(schedule.x0, rows), schedule.y0
    row_tiles, panels = -(-rows // x0), -(-cols // y0)
    group = max(1, schedule.x1 // x0)
    span = max(1, min(schedule.y1 // y0, panels))
    grid = (*outer_extents, -(-row_tiles // group), -(-panels // span))
    count = Var("rows", rows + 1)
    b = Builder({count: rows}, prod(grid))
    all_row_tiles = b.let((index(count) + (x0 - 1)) // x0, "row_tiles")
    *outer_at, group_at, col_at = (b.let(i) for i in unflatten(b.tile, grid))
    values = dict(zip(ops.outer, outer_at, strict=True))
    first_row, first_panel = b.let(group_at * group), b.let(col_at * span)
    row_count = b.let_min(index(group), all_row_tiles - first_row)
    panel_count = b.let_min(index(span), first_panel * -1 + panels)

    split = blocks(ops.depth, schedule.r0, schedule.r1)
    micro = kind(b, kernel, ops, schedule, split, x0, y0, count, all_row_tiles)
    scratch: list[Scratch] = []

    def reserve(size: int) -> int:
        scratch.append(Scratch(kind.dtype, size))
        return len(kernel.buffers) + len(scratch) - 1

    if split.count > 1:
        micro.partial = reserve(min(group, row_tiles) * span * micro.size)
    if schedule.stage:
        micro.staged = reserve(span * split.points * y0)

    columns_first = schedule.order == "nm"
    outer, inner = (panel_count, row_count) if columns_first else (row_count, panel_count)
    with split.loop(b, values) as block:
        if micro.staged is not None:
            micro.stage(first_panel, panel_count, block)
        with b.loop("o", Index(), outer) as o, b.loop("i", Index(), inner) as i:
            row, panel = (i, o) if columns_first else (o, i)
            micro.emit(first_row, row, first_panel, panel, row * span + panel, block)
    return b.finish(kernel, tuple(scratch))
