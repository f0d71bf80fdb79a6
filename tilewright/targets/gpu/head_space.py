"""Which schedules of an attention are tried, and with which it starts.

Input: an attention, the limits of a group.  Output: schedules, the default first.  It measures
nothing: what is nearest to the default is tried first.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, prod

from tilewright.kernel.form import Attention, form_as
from tilewright.kernel.spec import Kernel
from tilewright.targets.gpu.choice import CORES
from tilewright.targets.gpu.heads import THREADS, HeadSchedule
from tilewright.targets.gpu.schedule import MOST_THREADS
from tilewright.targets.gpu.space import Group, nearby
from tilewright.targets.gpu.staging import LANES
from tilewright.targets.lite import Core
from tilewright.targets.masks import last_seen

#: Query rows of a tile, keys of a block, threads, threads of a score, and groups of a head's
#: columns that are tried.
SETTINGS = {
    "x1": (1, 4, 8), "y1": (64, 128, 256, 512, 1024), "threads": (64, 128, 256), "parts": (1, 8),
    "across": (1, 4),
}  # fmt: skip
#: Threads of several rows, and keys of a block for each vector of them; elements of a head beyond
#: which there are two.
FEW_THREADS, WIDE = 64, 64
#: Threads that share a score where a tile has one row: vectors of a cache line.
SHARED = 8
#: Groups that share the columns of a head, where there is a core for each.
ACROSS = (4, 2)


def default(kernel: Kernel) -> HeadSchedule:
    """A vector of rows, two where heads are wide, for a small group: many run, and a large one
    waits for its own barriers.  A row alone has all keys in one block if they fit."""
    form = form_as(kernel, Attention)
    rows, heads = form.m.extent, prod(v.extent for v in form.outer)
    # what no row sees falls away in whole blocks
    ends = last_seen(form) is not None
    vectors = 2 if form.depth.extent > WIDE else 1
    x1 = 1 if rows == 1 else vectors * LANES
    most = min(ceil(form.keys.extent / THREADS), 2 if ends else 8) * THREADS
    sizes = [HeadSchedule(x1, min(y1, most)) for y1 in (8 * THREADS, 4 * THREADS, 2 * THREADS)]
    if rows > 1:
        sizes = [HeadSchedule(x1, vectors * FEW_THREADS, FEW_THREADS), *sizes]
    elif ends:
        one = HeadSchedule(1, MOST_THREADS, MOST_THREADS)
        shared = replace(one, parts=SHARED)
        wide = [replace(shared, across=n) for n in ACROSS if n * heads <= CORES]
        sizes = [*wide, shared, one, *sizes]
    smallest = HeadSchedule(min(x1, LANES), THREADS), HeadSchedule(1, THREADS)
    return next(s for s in (*sizes, *smallest) if not s.objection(kernel))


def space(kernel: Kernel, core: Core, group: Group) -> tuple[tuple[HeadSchedule, float], ...]:
    """At most `MOST` schedules: the default, then those nearest to it."""
    del core  # what a group shares is what runs out
    form, usual = form_as(kernel, Attention), default(kernel)

    def fits(s: HeadSchedule) -> bool:
        if s.x1 >= 2 * max(form.m.extent, LANES) or s.y1 >= 2 * max(form.keys.extent, s.threads):
            return False
        within = s.threads <= group.threads and s.shared(kernel) <= group.shared
        return within and not s.objection(kernel)

    return nearby(usual, SETTINGS, fits)


def traffic(kernel: Kernel, schedule: HeadSchedule) -> tuple[int, float]:
    """Bytes of shared memory; words loaded and stored beyond it."""
    form = form_as(kernel, Attention)
    rows, width = form.m.extent, form.depth.extent + form.n.extent
    tiles = ceil(rows / schedule.x1)
    # every group of a head reads all keys
    width += (schedule.across - 1) * form.depth.extent
    words = prod(v.extent for v in form.outer) * width * (rows + tiles * form.keys.extent)
    return schedule.shared(kernel), float(words)
