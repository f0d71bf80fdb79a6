"""Contractions: matmul, batched matmul and convolution as one register-tiled loop nest.

Input: a kernel that sums products of two loads.  Output: a `TileFn`: loops over blocks of the
reduction and over register tiles, which `microkernel.py` emits.  The index of an operand alone
tells whether it is a weight and how it is packed.

    tile (rows x1, columns y1), order "nm":
        for block of r1 steps:                  # A's block stays in L2
            copy the block's columns            # if the schedule says so
            for panel of y0 columns:            # B's block stays in L1, A's rows stream by
                for register tile of x0 rows:
                    sums = 0, or those of the last block;  r1 steps;  store, or keep for the next

Order "mn" swaps the two inner loops: x0 rows stay in L1, and panels stream by from L2.

Rows are split evenly: 128 rows in register tiles of at most 6 become 18 tiles of 6 and 4 of 5, so
that no tile has a single row.  A kernel has at most two loop bodies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

from tilewright.kernel.builder import Builder
from tilewright.kernel.cache_blocks import blocks
from tilewright.kernel.expr import is_expensive
from tilewright.kernel.extents import (
    Number,
    bound_of,
    ceil_parts,
    limited_first,
    points,
    reduces,
    scaled,
)
from tilewright.kernel.form import Contraction, form_as
from tilewright.kernel.index import Index, Var, index, stride, unflatten
from tilewright.kernel.loops import Scratch, TileFn
from tilewright.kernel.product_operands import Operands
from tilewright.kernel.spec import Kernel
from tilewright.targets.schedule import Schedule
from tilewright.targets.simd import inner_product
from tilewright.targets.simd.machine import (
    ENOUGH_TILES,
    LONG,
    SHORT,
    TILE_WORK,
    USUAL,
    Machine,
    even,
    unroll,
)
from tilewright.targets.simd.microkernel import Microkernel
from tilewright.targets.simd.register_tiles import register_tile

#: Multiply-accumulates of a tile from which on it is large enough: its operands are used often.
LARGE_TILE_WORK = 1 << 20

#: The wanted number of columns of a tile.
COLUMNS = 64

#: Bytes of a memory page; `PAGED_ROWS`, `PAGED_STEPS`: the most rows of a register tile and steps
#: of a pass if each step of a row is in another page.
PAGE = 4096
PAGED_ROWS, PAGED_STEPS = 5, 4


@dataclass(frozen=True)
class TiledSchedule(Schedule):
    """Loops over register tiles of x0 rows and y0 columns, in tiles of x1 by y1."""

    x0: int = 1
    y0: int = 4
    r0: int = 1
    x1: int = 1
    y1: int = 4096
    r1: int = 0
    order: str = "nm"

    def objection(self, kernel: Kernel) -> str:
        lanes = getattr(self, "lanes", 4)
        found = super().objection(kernel)
        return found or ("y0 is a multiple of lanes" if self.y0 % lanes else "")


@dataclass(frozen=True)
class ContractionSchedule(TiledSchedule):
    """Register tiles of f32 sums with vectors along the columns; `stage` copies columns first."""

    tag = "contraction"
    stage: bool = False
    lanes: int = 4


def default(
    kernel: Kernel, machine: Machine
) -> ContractionSchedule | inner_product.InnerProductSchedule:
    roles = form_as(kernel, Contraction).operands
    if not kernel.extents and inner_product.suits(roles, machine):
        return inner_product.default(roles, machine)
    tile = register_tile(roles.m.extent, roles.n.extent, machine, roles.panel)
    return tiled_schedule(kernel, roles, tile, machine)


def tiled_schedule(
    kernel: Kernel, roles: Operands, tile: tuple[int, int], machine: Machine
) -> ContractionSchedule:
    """The default loops over register tiles of `tile` rows and columns."""
    x0, y0 = tile
    # With a long epilogue between two reductions, SpiderMonkey keeps sums in registers only if the
    # reduction's pass is long, too.
    long = is_expensive(kernel.value)
    about = SHORT if machine.chained else LONG if long else USUAL
    r0 = unroll(_innermost(roles).extent, about)
    if not long and _in_pages(kernel, roles):
        # Measured in two engines on two processors: larger tiles lose up to 40 % in one engine.
        x0, r0 = min(x0, PAGED_ROWS), min(r0, PAGED_STEPS)
    common = ContractionSchedule(x0=x0, y0=y0, r0=r0, lanes=machine.lanes)
    if roles.col_step is None:
        return _panels(kernel, roles, common, machine)
    return _in_rows(kernel, roles, common, machine)


def _innermost(roles: Operands) -> Var:
    """The innermost axis of the reduction."""
    return roles.depth[-1] if roles.depth else roles.n


def _in_pages(kernel: Kernel, roles: Operands) -> bool:
    """True if each step of a row is in another memory page, as with channels of a large image."""
    size = kernel.buffers[roles.row.buffer].dtype.size
    return abs(stride(roles.row.index, _innermost(roles)) or 0) * size >= PAGE


def _panels(
    kernel: Kernel, roles: Operands, common: ContractionSchedule, machine: Machine
) -> ContractionSchedule:
    """The default for packed columns: x0 rows stay in L1, a block of panels streams by from L2."""
    x0, y0, depth = common.x0, common.y0, roles.steps
    rows, cols = roles.m.extent, roles.n.extent
    if cols > depth and 4 * depth * cols <= machine.l2:
        # More is stored than is read, so tiles have whole rows that are stored in long runs.
        x1 = (4 if _in_pages(kernel, roles) else 2) * x0
        return replace(common, order="mn", x1=x1, y1=y0 * -(-min(cols, 256) // y0))
    row_tiles, panels = -(-rows // x0), -(-cols // y0)
    # Windows overlap: a row adds less memory than it has steps.
    own = max(1, min(depth, kernel.buffers[roles.row.buffer].size // rows))
    in_l1 = machine.l1 * 9 // 16 * depth // (4 * x0 * own)
    r1 = min(in_l1, machine.l2 // 2 // (4 * COLUMNS)) // common.r0 * common.r0
    # Few rows read each panel once.  A tile takes at most half of L2, so that a loop in reverse
    # order finds the last tiles still cached.
    least = COLUMNS // y0 if row_tiles > 1 else 1
    work = min(TILE_WORK, rows * machine.l2 // 8)
    span = even(panels, max(least, work // (rows * y0 * depth)))
    # Many rows per tile, so that each panel is read from far memory seldom.  Powers of two, so that
    # matmuls of different length share code.  All rows, if columns alone give enough tiles.
    others = prod(v.extent for v in roles.outer) * -(-panels // span)
    group = row_tiles // -(-ENOUGH_TILES // others)
    power = (row_tiles - 1).bit_length() if group == row_tiles else group.bit_length() - 1
    group = min(64, max(4, 1 << power)) if group else 4
    return replace(
        common, order="mn", x1=x0 * group, y1=y0 * span,
        r1=r1 if depth > r1 and row_tiles > 1 else 0,
    )  # fmt: skip


def _in_rows(
    kernel: Kernel, roles: Operands, common: ContractionSchedule, machine: Machine
) -> ContractionSchedule:
    """The default for columns as they are in memory, or copied: a panel or a block stays in L1."""
    x0, y0, depth = common.x0, common.y0, roles.steps
    row_tiles, panels = -(-roles.m.extent // x0), -(-roles.n.extent // y0)
    r1 = machine.l1 * 3 // 4 // (4 * (x0 + y0)) // common.r0 * common.r0
    # Columns are read along their rows, several cache lines at once.
    span = even(panels, COLUMNS // y0)
    # The rows of a tile stay in L2.  A number of rows that fits one tile is ignored, so that
    # smaller matmuls share code.
    total = prod(v.extent for v in kernel.axes) * depth
    work = max(LARGE_TILE_WORK, min(8 * LARGE_TILE_WORK, total // ENOUGH_TILES))
    fits = min(machine.l2 // (4 * depth * x0), work // (span * y0 * depth * x0))
    group = max(4, min(32, fits))
    if row_tiles > group:
        group = even(row_tiles, group)
    # If a whole block stays in L1, rows and results can stream in the order of memory.
    small = 4 * depth * span * y0 <= machine.l1 // 2
    return replace(
        common, x1=x0 * group, y1=y0 * span, order="mn" if small else "nm",
        stage=_pays_to_stage(kernel, roles, x0, machine),
        r1=r1 if depth > r1 and row_tiles > 1 else 0,
    )  # fmt: skip


def _pays_to_stage(kernel: Kernel, roles: Operands, x0: int, machine: Machine) -> bool:
    """True if columns are used often enough, and are scattered enough, to copy them first.

    A copy costs about 5 instructions per step and 8 columns if they are contiguous, 11 if not; a
    register tile spends about 22.  Panels, and an operand that fits L1 whole, need no copy.
    """
    if roles.col_step is None or kernel.buffers[roles.col.buffer].dtype.size != 4:
        return False
    uses = -(-roles.m.extent // x0)
    if roles.col_step == 1:
        reach = sum(4 * abs(stride(roles.col.index, v) or 0) * (v.extent - 1) for v in roles.depth)
        return uses >= 5 and reach > machine.l1 // 2
    return uses >= 2


def lower(kernel: Kernel, schedule: ContractionSchedule) -> TileFn:
    """Tiles of x1 rows by y1 columns; inside, register tiles of x0 by y0."""
    ops = form_as(kernel, Contraction).operands
    return tiled(kernel, schedule, ops, schedule.lanes, Microkernel, schedule.stage)


def tiled(
    kernel: Kernel,
    schedule: TiledSchedule,
    ops: Operands,
    lanes: int,
    make: Callable[..., Microkernel],
    stage: bool = False,
) -> TileFn:
    """The grid of tiles, and the loops over the register tiles of one tile, which `make` emits."""
    ops = replace(ops, rows=limited_first(kernel, ops.rows), outer=limited_first(kernel, ops.outer))
    rows, cols = ops.m.extent, ops.n.extent
    x0, y0 = min(schedule.x0, rows), schedule.y0
    row_tiles, panels = -(-rows // x0), -(-cols // y0)
    group = max(1, schedule.x1 // x0)
    span = max(1, min(schedule.y1 // y0, panels))
    number = points(kernel, ops.rows)
    sizes: list[tuple[str, Number]] = [(v.name, points(kernel, (v,))) for v in ops.outer]
    sizes += [("rows", ceil_parts(number, x0 * group))]
    sizes += [("cols", ceil_parts(points(kernel, (ops.n,)), y0 * span))]
    # The axis that ends at run time is outermost, so that whole tiles are skipped; other ends cut
    # loops.
    (_, most), *others = sizes = sorted(sizes, key=lambda pair: isinstance(pair[1], int))
    count = Var("rows", rows + 1)
    tiles = scaled(most, prod(bound_of(size) for _, size in others))
    b = Builder({count: number}, tiles, kernel)
    all_row_tiles = b.let((index(count) + (x0 - 1)) // x0, "row_tiles")
    grid = tuple(bound_of(size) for _, size in sizes)
    at = dict(zip((name for name, _ in sizes), map(b.let, unflatten(b.tile, grid)), strict=True))
    values = {v: at[v.name] for v in ops.outer}
    first_row, first_panel = b.let(at["rows"] * group), b.let(at["cols"] * span)
    row_count = b.let_min(index(group), all_row_tiles - first_row)
    all_panels = index(panels)
    if kernel.limit(ops.n) is not None:
        all_panels = b.let((b.end(ops.n) + (y0 - 1)) // y0, "panels")
    panel_count = b.let_min(index(span), all_panels - first_panel)

    ends = reduces(kernel)
    split = blocks(ops.depth, schedule.r0, 0 if ends else schedule.r1)
    micro = make(b, kernel, ops, lanes, split, x0, y0, count, all_row_tiles)
    micro.even = isinstance(number, int)
    scratch: list[Scratch] = []

    def reserve(size: int) -> int:
        scratch.append(Scratch(micro.dtype, size))
        return len(kernel.buffers) + len(scratch) - 1

    if split.count > 1:
        micro.partial = reserve(min(group, row_tiles) * span * micro.size)
    if stage:
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
