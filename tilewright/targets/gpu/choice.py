"""Which tile a product starts with: what a small model of a large GPU expects to be fastest.

Input: the sizes of a product.  Output: a `GroupSchedule` within the limits that every device has.
The figures were fitted to runs on one NVIDIA H200 (benchmarks/results); tuning finds what is best
on another device.

    time = blocks * (tiles of a core * (multiply-adds + copies) + what no other tile can hide)
"""

from __future__ import annotations

from functools import cache
from itertools import product as every
from math import ceil
from typing import TypeVar

from tilewright.kernel.spec import Kernel
from tilewright.targets.gpu.schedule import MOST_SHARED, MOST_THREADS, GroupSchedule, Sizes

G = TypeVar("G", bound=GroupSchedule)

#: Cores of a large GPU, and multiply-adds that one does in a cycle.
CORES, LANES_OF_CORE = 132, 128
#: Threads of a warp, and the parts of a core among which its warps are dealt.
WARP, PARTS = 32, 4
#: The part of its multiply-adds that a core does, by the elements of a register tile: the others
#: wait for shared memory.
PACE = {64: 0.70, 32: 0.61, 16: 0.44}
#: Words that a core copies in a cycle: more of rows, which fewer threads copy in larger units.
ROW_WORDS, COLUMN_WORDS = 44, 22
#: Cycles that nothing hides: of a block; of adding up slices, for each element of a register tile.
WAIT, ADD_UP = 230, 38
#: Waves of tiles of which the last one counts as a whole.
FEW_WAVES = 4
#: The pace of slices, where whole tiles keep the card busy anyway.
SLICED = 0.8
#: How much longer tiles take that reach beyond an end, where every read asks for it.
EDGES = 1.4
#: Multiply-adds of a thread that are unrolled at most: more need registers that there are not.
MOST_UNROLLED = 1024
#: Sums of a thread with which the next block is asked for early: with 32 products gained 4 to 20 %
#: by it on an H100, with 64 they lost 6 to 16 %.
FEW_SUMS = 32


@cache
def _tiles() -> tuple[GroupSchedule, ...]:
    """What may be chosen; of equals the largest and tallest is taken.  In WGSL none of 128 rows was
    better than the same of 64."""
    sizes = every((64, 48, 32, 16), (128, 96, 64, 48, 32, 16), (8, 4), (8, 4))
    found = []
    for (x1, y1, x0, y0), r1, slices in every(sizes, (16, 32), (1, 2, 4)):
        r0 = min(r1 // slices, MOST_UNROLLED // (x0 * y0))
        s = GroupSchedule(
            x0, y0, r0, x1, y1, r1, 8,
            ahead=True, apart=True, slices=slices, early=x0 * y0 <= FEW_SUMS,
        )  # fmt: skip
        # no warp has threads of two slices, which would read from the same banks
        warps, rest = divmod(s.threads // slices, WARP)
        full = warps and not rest and warps * slices % 2 == 0
        if full and s.threads <= MOST_THREADS and s.shared <= MOST_SHARED:
            found.append(s)
    return tuple(sorted(found, key=lambda s: (-s.x1 * s.y1, -s.x1, s.y0, s.threads)))


def cycles(s: GroupSchedule, sizes: Sizes) -> float:
    """What a core is expected to need."""
    waves = sizes.tiles(s) / CORES
    # of many waves the last one overlaps the others
    tiles = ceil(waves) if waves <= FEW_WAVES else (waves + ceil(waves)) / 2
    warps = ceil(tiles) * ceil(s.threads / WARP)
    busy = tiles * s.threads / (WARP * PARTS * ceil(warps / PARTS))
    edges = EDGES if sizes.rows % s.x1 or sizes.cols % s.y1 or sizes.steps % s.r1 else 1.0
    pace = PACE[s.x0 * s.y0] * (SLICED if s.slices > 1 and waves > FEW_WAVES else 1.0)
    work = s.x1 * s.y1 * s.r1 * edges / (LANES_OF_CORE * pace * busy)
    copies = s.r1 * (s.x1 / ROW_WORDS + s.y1 / COLUMN_WORDS)
    added = ADD_UP * s.x0 * s.y0 * tiles if s.slices > 1 else 0
    return ceil(sizes.steps / s.r1) * (tiles * (work + copies) + WAIT) + added


def default(kernel: Kernel) -> GroupSchedule:
    """The tile with the fewest cycles."""
    return best(kernel, GroupSchedule)


def best(kernel: Kernel, kind: type[G]) -> G:
    """The same of a type of tiles that may need more than those of f32."""
    sizes = Sizes.of(kernel)
    found = (kind(**vars(s)) for s in _tiles())
    return min((s for s in found if not s.objection(kernel)), key=lambda s: cycles(s, sizes))
