"""Which tile a product starts with: what a small model of a large GPU expects to be fastest.

Input: the sizes of a product.  Output: a `GroupSchedule` within the limits that every device has.
The figures were fitted to runs on one NVIDIA H200 (benchmarks/results); tuning finds what is best
on another device.

    time = blocks * (tiles of a core * (multiply-adds + copies) + what no other tile can hide)
"""

from __future__ import annotations

from functools import cache
from itertools import product as every
from math import ceil, prod

from tilewright.kernel.form import Contraction, form_as
from tilewright.kernel.spec import Kernel
from tilewright.targets.gpu.schedule import MOST_SHARED, MOST_THREADS, GroupSchedule

#: Cores of a large GPU, and multiply-adds that one does in a cycle.
CORES, LANES_OF_CORE = 132, 128
#: Threads of a warp, and the parts of a core among which its warps are dealt.
WARP, PARTS = 32, 4
#: The part of its multiply-adds that a core does, by the elements of a register tile: the others
#: wait for shared memory.  Every block costs a slice some steps more.
PACE = {64: 0.76, 32: 0.60, 16: 0.45}
LOST_STEPS = 1.2
#: Words that a core copies in a cycle.
WORDS = 24
#: Cycles that nothing hides: of a block; of adding up slices, for each element of a register tile.
WAIT, ADD_UP = 290, 29
#: How much longer tiles take that reach beyond an end, where every read asks for it.
EDGES = 1.4
#: Elements of a large tile.
TALL = 8192
#: Multiply-adds of a thread that are unrolled at most: more need registers that there are not.
MOST_UNROLLED = 1024


@cache
def _tiles() -> tuple[GroupSchedule, ...]:
    """What may be chosen."""
    sizes = every((128, 96, 64, 48, 32, 16), (128, 96, 64, 48, 32, 16), (8, 4), (8, 4))
    found = []
    for (x1, y1, x0, y0), r1, slices in every(sizes, (16, 32), (1, 2, 4)):
        r0 = min(r1 // slices, MOST_UNROLLED // (x0 * y0))
        s = GroupSchedule(x0, y0, r0, x1, y1, r1, 8, ahead=True, apart=True, slices=slices)
        if s.threads % (2 * WARP) == 0 and s.threads <= MOST_THREADS and s.shared <= MOST_SHARED:
            found.append(s)
    return tuple(sorted(found, key=_order))


def _order(s: GroupSchedule) -> tuple[int, ...]:
    """Of equals the largest tile is taken; large ones rather tall, small ones rather wide."""
    area = s.x1 * s.y1
    return -area, -s.x1 if area >= TALL else s.x1, s.y0, s.threads


def cycles(s: GroupSchedule, batch: int, rows: int, cols: int, steps: int) -> float:
    """What a core is expected to need."""
    tiles = ceil(batch * ceil(rows / s.x1) * ceil(cols / s.y1) / CORES)
    warps = tiles * ceil(s.threads / WARP)
    busy = tiles * s.threads / (WARP * PARTS * ceil(warps / PARTS))
    edges = EDGES if rows % s.x1 or cols % s.y1 or steps % s.r1 else 1.0
    lost = 1 + LOST_STEPS * s.slices / s.r1
    work = s.x1 * s.y1 * s.r1 * lost * edges / (LANES_OF_CORE * PACE[s.x0 * s.y0] * busy)
    copies = (s.x1 + s.y1) * s.r1 / WORDS
    added = ADD_UP * s.x0 * s.y0 * tiles if s.slices > 1 else 0
    return ceil(steps / s.r1) * (tiles * (work + copies) + WAIT) + added


def default(kernel: Kernel) -> GroupSchedule:
    """The tile with the fewest cycles."""
    ops = form_as(kernel, Contraction).operands
    batch = prod(v.extent for v in ops.outer)
    sizes = batch, ops.m.extent, ops.n.extent, ops.steps
    return min(_tiles(), key=lambda s: cycles(s, *sizes))
