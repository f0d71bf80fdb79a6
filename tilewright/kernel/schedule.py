"""Schedules: the choices of how one kernel runs, as a small frozen record.

Input: a kernel and the numbers of a machine.  Output: a `Schedule`: hashable, comparable data.
The same kernel with another schedule is another candidate; results may differ only in rounding.
Names follow nnJIT: x = rows, y = columns, r = reduction; 0 = per register tile, 1 = per tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from tilewright.kernel.roles import Attention, Operands, attention, operands
from tilewright.kernel.roles_dot import TAP_CHANNELS, byte_windows, dot_operands, pairs_fit
from tilewright.kernel.spec import Kernel
from tilewright.kernel.vectorize import stride
from tilewright.kernel.windows import Windows, windows


@dataclass(frozen=True)
class Machine:
    """What a schedule must fit: f32 lanes of a vector, usable vector registers, bytes of caches.

    fma: multiply-add is one instruction (without it, a product needs a register of its own)
    """

    lanes: int = 4
    registers: int = 15
    l1: int = 32768
    l2: int = 524288
    fma: bool = True


@dataclass(frozen=True)
class Schedule:
    """Schedule primitives.  A field that a kernel's lowering does not use has no effect on it.

    x0, y0: rows and columns of the register tile of a contraction, pixels and channels of that of
            a window kernel (y0 a multiple of `lanes`)
    r0:     reduction steps per pass of the innermost loop ("unroll"); elsewhere the number of
            independent partial results of a row reduction
    x1, y1: rows and columns (or elements) of one tile
    r1:     reduction steps of a contraction after which its tile starts over with the next block of
            them, so that what is used again stays in L1 ("split"); 0 = all steps at once
    order:  "nm" walks the rows of a tile inside its columns, "mn" the other way ("reorder")
    stage:  copy each block of columns into scratch memory first ("cache read")
    along:  vectors of a contraction run along its columns, "n", or, where both operands are
            contiguous there, along its reduction, "k"; then y0 counts single columns
    lanes:  elements per vector ("vectorize"); 1 = scalar code
    cache:  operands whose blocks are copied to scratch memory before use ("cache read"): of an
            attention "k", "v", "kv"; there x1 is query rows of one head, y1 keys of one block
    dot:    how bytes are multiplied: "pair" (4 products per lane) or "wide" (2, in 16 bits)
    """

    x0: int = 1
    y0: int = 4
    r0: int = 1
    x1: int = 1
    y1: int = 4096
    r1: int = 0
    order: str = "nm"
    stage: bool = False
    along: str = "n"
    lanes: int = 4
    cache: str = ""
    dot: str = "wide"

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Schedule:
        return cls(**data)

    def __str__(self) -> str:
        return " ".join(f"{k}={v}" for k, v in vars(self).items())


#: The largest size in a schedule.
MOST = 1 << 20

#: What fields that are no sizes may be.
_SETTINGS: dict[str, tuple[object, ...]] = {
    "order": ("nm", "mn"),
    "along": ("n", "k"),
    "lanes": (1, 4),
    "stage": (False, True),
    "cache": ("", "k", "v", "kv"),
    "dot": ("pair", "wide"),
}


def objection(kernel: Kernel, schedule: Schedule) -> str:
    """What is wrong with a schedule from outside; "" if code can be made from it."""
    for name, value in vars(schedule).items():
        allowed = _SETTINGS.get(name)
        if allowed is not None and value not in allowed:
            return f"{name} is one of {', '.join(map(repr, allowed))}"
        least = 0 if name == "r1" else 1
        if allowed is None and (type(value) is not int or not least <= value <= MOST):
            return f"{name} is a whole number from {least} to {MOST}"
    if schedule.along == "n" and schedule.y0 % schedule.lanes:
        return "y0 is a multiple of lanes"
    if kernel.anchor == "attention" and schedule.lanes != 4:
        return "an attention has vectors of 4 lanes"
    return ""


#: Multiply-accumulates that make one tile of a contraction worth a ticket (some 10 microseconds).
TILE_WORK = 1 << 17

#: Multiply-accumulates of a large tile: what it reads is used often, and there are tiles enough.
LARGE_TILE_WORK = 1 << 20

#: Taps along the innermost axis of a window that are written out, without a loop.
MAX_TAPS = 11

#: Columns of one tile, if there are as many.
COLUMNS = 64

#: Dot products per result that cost less than what becomes of the sum.
SHALLOW = 9

#: Tiles that balance a handful of workers.
ENOUGH_TILES = 24

#: Query rows of one tile of an attention: a head of 384 rows makes 8 tiles.
ATTENTION_ROWS = 48

#: Up to so many query rows, scores are dot products: transposing keys would cost more.
DOT_ROWS = 4

#: Elements that make one tile of an elementwise or row-wise kernel worth a ticket.
TILE_ELEMENTS = 4096


def default_schedule(kernel: Kernel, machine: Machine) -> Schedule:
    """A good first choice, from arithmetic alone; tuning starts here."""
    roles = operands(kernel)
    if roles is not None:
        return _contraction(kernel, roles, machine)
    heads = attention(kernel)
    if heads is not None:
        return _attention(heads, machine)
    dots = dot_operands(kernel)
    if dots is not None:
        return _integers(kernel, dots, machine)
    taps = byte_windows(kernel)
    if taps is not None:
        return _taps(kernel, taps, machine)
    across = windows(kernel)
    if across is not None:
        return _windows(kernel, across, machine)
    row = prod(v.extent for v in kernel.axes[len(kernel.axes) - max(kernel.cols, 1) :])
    reduced = max((prod(v.extent for v in s.axes) for s in kernel.stages), default=1)
    per_row = max(row, reduced) if kernel.stages else row
    if kernel.cols and stride(kernel.store, kernel.axes[-1]) != 1:
        per_row *= kernel.rows[-1].extent if kernel.rows else 1  # vectors run across the rows
    rows = max(1, TILE_ELEMENTS // max(per_row, 1))
    points = max(4 * machine.lanes, TILE_ELEMENTS // max(reduced, 1))
    return Schedule(x1=rows, y1=points, r0=4, lanes=machine.lanes)


def _contraction(kernel: Kernel, roles: Operands, machine: Machine) -> Schedule:
    if _suits_depth(roles, machine):
        return _along_depth(roles, machine)
    tile = register_tile(roles.m.extent, roles.n.extent, machine, roles.panel)
    return tiled(kernel, roles, tile, machine)


def tiled(kernel: Kernel, roles: Operands, tile: tuple[int, int], machine: Machine) -> Schedule:
    """How a contraction walks register tiles of `tile` rows and columns."""
    x0, y0 = tile
    # Rows that are not contiguous need a pointer per step as well.
    inner = roles.depth[-1] if roles.depth else roles.n
    r0 = unroll(inner.extent) if (stride(roles.row.index, inner) or 0) <= 1 else 4
    common = Schedule(x0=x0, y0=y0, r0=r0, lanes=machine.lanes)
    if roles.col_step is None:
        return _panels(kernel, roles, common, machine)
    return _in_rows(kernel, roles, common, machine)


def _panels(kernel: Kernel, roles: Operands, common: Schedule, machine: Machine) -> Schedule:
    """Packed columns: x0 rows stay in L1 while a block of panels streams by from L2."""
    x0, y0, depth = common.x0, common.y0, roles.steps
    rows, cols = roles.m.extent, roles.n.extent
    if cols > depth and 4 * depth * cols <= machine.l2:
        # More is stored than is read: whole rows after each other, in long runs of memory.
        return replace(common, order="mn", x1=2 * x0, y1=y0 * -(-min(cols, 256) // y0))
    row_tiles, panels = -(-rows // x0), -(-cols // y0)
    # Windows overlap: a row of theirs adds less memory than it has steps.
    own = max(1, min(depth, kernel.buffers[roles.row.buffer].size // rows))
    in_l1 = machine.l1 * 9 // 16 * depth // (4 * x0 * own)
    r1 = min(in_l1, machine.l2 // 2 // (4 * COLUMNS)) // common.r0 * common.r0
    # Few rows read each panel once, and half of L2 per tile at most: a loop that walks back finds
    # the last tiles still there.
    least = COLUMNS // y0 if row_tiles > 1 else 1
    work = min(TILE_WORK, rows * machine.l2 // 8)
    span = _even(panels, max(least, work // (rows * y0 * depth)))
    # Many rows, so that each panel comes from far away seldom; as powers of two, so that matmuls
    # of different length share code; all of them, if columns alone make tiles enough.
    others = prod(v.extent for v in roles.outer) * -(-panels // span)
    group = row_tiles // -(-ENOUGH_TILES // others)
    power = (row_tiles - 1).bit_length() if group == row_tiles else group.bit_length() - 1
    group = min(64, max(4, 1 << power)) if group else 4
    return replace(
        common, order="mn", x1=x0 * group, y1=y0 * span,
        r1=r1 if depth > r1 and row_tiles > 1 else 0,
    )  # fmt: skip


def _in_rows(kernel: Kernel, roles: Operands, common: Schedule, machine: Machine) -> Schedule:
    """Columns as they lie in memory, or copied: a panel, or a whole block, stays in L1."""
    x0, y0, depth = common.x0, common.y0, roles.steps
    row_tiles, panels = -(-roles.m.extent // x0), -(-roles.n.extent // y0)
    r1 = machine.l1 * 3 // 4 // (4 * (x0 + y0)) // common.r0 * common.r0
    # They are read along their rows, some cache lines at once.
    span = _even(panels, COLUMNS // y0)
    # The rows of a tile stay in L2.  Rows that fit one tile are not counted: matmuls of fewer
    # share code.
    total = prod(v.extent for v in kernel.axes) * depth
    work = max(LARGE_TILE_WORK, min(8 * LARGE_TILE_WORK, total // ENOUGH_TILES))
    fits = min(machine.l2 // (4 * depth * x0), work // (span * y0 * depth * x0))
    group = max(4, min(32, fits))
    if row_tiles > group:
        group = _even(row_tiles, group)
    # A block that stays in L1 whole lets rows come and results go in the order of memory.
    small = 4 * depth * span * y0 <= machine.l1 // 2
    return replace(
        common, x1=x0 * group, y1=y0 * span, order="mn" if small else "nm",
        stage=_pays_to_stage(kernel, roles, x0, machine),
        r1=r1 if depth > r1 and row_tiles > 1 else 0,
    )  # fmt: skip


def _even(count: int, most: int) -> int:
    """Size of a part when `count` are split evenly into parts of at most `most`."""
    return -(-count // -(-count // max(1, most)))


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
    x0 = _even(across.pixel.extent, min(8, room))
    vectors = 1 if across.weighted else max(1, 8 // x0)
    y0 = machine.lanes * max(1, min(vectors, across.channel.extent // machine.lanes))
    depth = prod(v.extent for v in kernel.stages[0].axes)
    blocks = -(-across.channel.extent // y0)
    span = max(1, min(blocks, TILE_WORK // (x0 * y0 * depth)))
    x1 = max(1, TILE_WORK // (x0 * y0 * span * depth))
    return Schedule(x0=x0, y0=y0, r0=taps, x1=x1, y1=span * y0, lanes=machine.lanes)


def _attention(at: Attention, machine: Machine) -> Schedule:
    """Rows enough to pay for staging keys; scores of a tile stay in half of L2."""
    rows, keys = at.m.extent, at.keys.extent
    x0, y0 = register_tile(rows, keys, machine)
    x1 = x0 * max(1, min(ATTENTION_ROWS, rows) // x0)
    y1 = max(256, machine.l2 // 2 // (4 * x1)) // 64 * 64
    # longer sequences in even blocks of whole cache lines
    y1 = -(-_even(keys, y1) // 64) * 64 if keys > y1 else keys
    cache = "kv" if rows > DOT_ROWS else ""
    return Schedule(x0=x0, y0=y0, r0=8, x1=x1, y1=y1, lanes=machine.lanes, cache=cache)


def _integers(kernel: Kernel, roles: Operands, machine: Machine) -> Schedule:
    """Like f32, but a dot product needs a register for its parts, and "wide" two per vector."""
    pair = pairs_fit(kernel, roles)
    per_vector = 2 if roles.col.dtype.size == 1 and not pair else 1
    rows, cols = roles.m.extent, roles.n.extent
    depth = roles.steps * roles.row.lanes
    room = machine.registers - 2  # one row value, one product
    x0 = max(1, min(rows, 8, (room - 2 * per_vector) // (2 * per_vector)))
    vectors = 2 if x0 > 2 or per_vector == 2 else 4
    if pair and roles.steps <= SHALLOW and cols >= 4 * machine.lanes:
        # stores count more than loads: whole vectors of bytes
        x0, vectors = max(1, min(rows, (room - 4) // 4)), 4
    y0 = vectors * machine.lanes
    x1 = x0 * max(4, min(16, machine.l2 // 2 // (roles.row.dtype.size * depth * x0)))
    y1 = y0 * max(1, min(-(-cols // y0), 2 * TILE_WORK // max(1, x1 * y0 * depth)))
    dot = "pair" if pair else "wide"
    return Schedule(
        x0=x0, y0=y0, r0=4, x1=x1, y1=y1, order="mn", lanes=machine.lanes, dot=dot
    )  # fmt: skip


def _taps(kernel: Kernel, roles: Operands, machine: Machine) -> Schedule:
    """Pixels share columns of taps; their code is straight, so large windows take fewer."""
    depth = prod(v.extent for v in roles.depth)
    pixels = roles.outer[-1].extent if roles.outer else 1
    x0 = _even(pixels, max(1, min(8, 128 // depth)))
    work = x0 * roles.n.extent * depth
    return Schedule(
        x0=x0, y0=TAP_CHANNELS, x1=max(1, TILE_WORK // work), y1=roles.n.extent,
        lanes=machine.lanes,
    )  # fmt: skip


def _pays_to_stage(kernel: Kernel, roles: Operands, x0: int, machine: Machine) -> bool:
    """True if the columns are used often enough, and lie badly enough, to copy them first.

    A copy costs some 5 instructions per step and 8 columns if they are contiguous, 11 if not; a
    register tile spends some 22.  What needs no copy: panels, and an operand that fits L1 whole.
    """
    if roles.col_step is None or kernel.buffers[roles.col.buffer].dtype.size != 4:
        return False
    uses = -(-roles.m.extent // x0)
    if roles.col_step == 1:
        reach = sum(4 * abs(stride(roles.col.index, v) or 0) * (v.extent - 1) for v in roles.depth)
        return uses >= 5 and reach > machine.l1 // 2
    return uses >= 2


def _suits_depth(roles: Operands, machine: Machine) -> bool:
    """True if vectors should run along the reduction: it is contiguous, and columns are few or far.

    Few: they would not fill a vector.  Far: each would be read alone, and too rarely to copy them.
    """
    if not roles.runs_along_depth or roles.depth[-1].extent < 4 * machine.lanes:
        return False
    far = roles.col_step not in (1, None)
    return roles.n.extent < machine.lanes or (far and roles.m.extent < machine.lanes)


def _along_depth(roles: Operands, machine: Machine) -> Schedule:
    """Enough sums for all chains, both operands in registers: 8x1, 6x2, 4x3; and the other way."""
    rows, cols = roles.m.extent, roles.n.extent
    few = min(rows, cols, 3)
    many = {1: 8, 2: 5, 3: 3}[few]
    x0, y0 = (few, min(cols, many)) if rows <= cols else (min(rows, many), few)
    tiles = max(1, TILE_WORK // (x0 * y0 * roles.steps))
    x1, y1 = (x0, y0 * tiles) if rows <= cols else (x0 * tiles, y0)
    return Schedule(x0=x0, y0=y0, r0=2, x1=x1, y1=y1, along="k", lanes=machine.lanes)


#: Vectors of columns, and rows, that register tiles may have.
VECTORS = (1, 2, 3, 4, 8)
MOST_ROWS = 16


def register_tile(rows: int, cols: int, machine: Machine, panel: int = 1) -> tuple[int, int]:
    """Rows and columns of the register tile that spends the fewest cycles per product."""
    return register_tiles(rows, cols, machine, panel)[0][1:]


def register_tiles(
    rows: int, cols: int, machine: Machine, panel: int = 1, vectors: Sequence[int] = VECTORS
) -> list[tuple[float, int, int]]:
    """(cycles per product, x0, y0) of all that fit the registers, the best first."""
    spare = machine.registers - (1 if machine.fma else 2)
    found = [
        (*tile_cycles(x0, v, rows, cols, machine, panel), v, x0)
        for v in vectors
        for x0 in range(1, min(rows, MOST_ROWS) + 1)
        if x0 * v + min(x0, v) <= spare
    ]
    return [(cycles, x0, v * machine.lanes) for cycles, _, v, x0 in sorted(found)]


def tile_cycles(
    x0: int, v: int, rows: int, cols: int, machine: Machine, panel: int = 1
) -> tuple[float, float]:
    """(cycles, loads) per vector of products of a register tile of x0 rows and v vectors.

    They need x0*v sums, one register per element of the smaller set of operands, and one that walks
    the other.  A step costs the most of: x0*v products at 2 a cycle; x0 + v loads at 2 a cycle; all
    instructions at 4 a cycle; 4 cycles, since a sum cannot be touched again before.  Few rows or
    columns are split evenly, so partly filled tiles count.  Panels come from L2 at some 12 bytes a
    cycle, and whole: 12 columns touch two of 8.
    """
    vectors = -(-cols // machine.lanes)
    x, y = rows / -(-rows // x0), vectors / -(-vectors // v)
    products = x * y if machine.fma else 2 * x * y
    cycles = max(products / 2, (x + y) / 2, (products + x + y + 2) / 4, 4.0)
    if panel > 1:
        touched = -(-v * machine.lanes // panel) * panel
        cycles = max(cycles, touched * y / v * 4 / 12)
    return round(cycles / (x * y), 2), (x + y) / (x * y)
