"""The strategies of attention: the kernels that each suits, its default and its search space.

Input: an attention, the figures of one core, the limits of a workgroup. Output: schedules with
expected costs. Where there is no cost model, schedules nearest to the default come first. Each kind
of tile has a file of its own that makes the loops.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product as every
from math import ceil, prod

from tilewright.kernel.attention_masks import last_seen
from tilewright.kernel.form import Attention, form_as
from tilewright.kernel.loops import TileFn
from tilewright.kernel.spec import Kernel
from tilewright.targets.gpu.attention import many_rows, one_row, some_rows
from tilewright.targets.gpu.attention.schedule import (
    KEYS,
    THREADS,
    UNIT_TYPES,
    AttentionManyRowsSchedule,
    AttentionOneRowSchedule,
    AttentionSomeRowsSchedule,
    is_attention_of_fixed_size,
    many_rows_shared_bytes,
    one_row_shared_bytes,
    suits_matrix_units,
)
from tilewright.targets.gpu.workgroup_limits import (
    COMMON_UNITS,
    CORES,
    MATRIX_UNITS,
    MOST_THREADS,
    SHARED_EVERYWHERE,
    SHARED_SIZES,
    SUBGROUP_SIZES,
    WARP,
    WorkgroupLimits,
)
from tilewright.targets.gpu.workgroup_strategy import (
    DefaultWorkgroupStrategy,
    WorkgroupStrategy,
    nearest_schedules,
)
from tilewright.targets.lite_space import Core
from tilewright.targets.vectors import LANES

#: Values tried for some rows: query rows of a tile, keys of a block, threads, threads that share a
#: dot product, and groups that divide a head's columns.
SOME_ROWS_SETTINGS = {
    "x1": (1, 4, 8), "y1": (64, 128, 256, 512, 1024), "threads": (64, 128, 256), "parts": (1, 8),
    "across": (1, 4),
}  # fmt: skip

#: For several rows: threads, and keys of a block for each vector of rows.  `WIDE_HEAD`: elements of
#: a head beyond which a tile has two vectors of rows.
FEW_THREADS, WIDE_HEAD = 64, 64

#: Threads that share a dot product where a tile has one row: the vectors of a cache line.
DOT_PRODUCT_THREADS = 8

#: Numbers of groups that may divide the columns of a head, if each group gets a core.
ACROSS = (4, 2)

#: The most query rows that are computed one by one, each reading all keys.  Query heads that share
#: one key head count as such rows.
MOST_SINGLE_ROWS = 8

#: Numbers of groups that may divide a head's columns: the first for which there are enough cores is
#: the default.  `ONE_ROW_SETTINGS`: values that are tried.
ROW_ACROSS = (4, 2, 1)
ONE_ROW_SETTINGS = {
    "threads": (64, 128, 256), "keys": (4, 8, 16, 32), "values": (4, 8, 16), "across": (1, 2, 4, 8)
}  # fmt: skip

#: Candidates with the device's own subgroup size; their expected speed over tiles without
#: subgroups.
ONE_ROW_CANDIDATES, ONE_ROW_SPEED = 16, 3.0

#: Defaults for matrix units, most wanted first: rows of a tile, matrices over a subgroup's rows,
#: subgroups that share rows, keys of a block.
TILE_ROWS, ROWS, ALONG, BLOCK_KEYS = (64, 32, 16, 128, 8), (1, 2), (2, 1, 4), (64, 32, 128)

#: The wanted number of query rows of a subgroup.
OWN_ROWS = 16

#: Values that are tried.
MANY_ROWS_SETTINGS = {
    "rows": ROWS, "down": (1, 2, 4, 8), "along": ALONG, "y1": BLOCK_KEYS, "room": SHARED_SIZES
}  # fmt: skip

#: Candidates for each unit; their expected speed over attention in f32.
MANY_ROWS_CANDIDATES, MANY_ROWS_SPEED = 6, 8.0


class AttentionSomeRows(DefaultWorkgroupStrategy[AttentionSomeRowsSchedule]):
    """Attention of some query rows; scores stay in shared memory, a block of keys at a time."""

    kind = AttentionSomeRowsSchedule

    def suits(self, kernel: Kernel) -> bool:
        return is_attention_of_fixed_size(kernel)

    def default(self, kernel: Kernel) -> AttentionSomeRowsSchedule:
        """The default: one vector of rows, or two where heads are wide, and a small group.

        Many small groups run at once, while threads of a large group wait at its barriers.  A
        single row takes all keys in one block if they fit.
        """
        form = form_as(kernel, Attention)
        rows, heads = form.m.extent, prod(v.extent for v in form.outer)
        # Masked keys are skipped by whole blocks.
        ends = last_seen(form) is not None
        vectors = 2 if form.depth.extent > WIDE_HEAD else 1
        x1 = 1 if rows == 1 else vectors * LANES
        most = min(ceil(form.keys.extent / THREADS), 2 if ends else 8) * THREADS
        sizes = [
            AttentionSomeRowsSchedule(x1, min(y1, most))
            for y1 in (8 * THREADS, 4 * THREADS, 2 * THREADS)
        ]
        if rows > 1:
            sizes = [AttentionSomeRowsSchedule(x1, vectors * FEW_THREADS, FEW_THREADS), *sizes]
        elif ends:
            one = AttentionSomeRowsSchedule(1, MOST_THREADS, MOST_THREADS)
            shared = replace(one, parts=DOT_PRODUCT_THREADS)
            wide = [replace(shared, across=n) for n in ACROSS if n * heads <= CORES]
            sizes = [*wide, shared, one, *sizes]
        smallest = (
            AttentionSomeRowsSchedule(min(x1, LANES), THREADS),
            AttentionSomeRowsSchedule(1, THREADS),
        )
        return next(s for s in (*sizes, *smallest) if not s.objection(kernel))

    def space(
        self, kernel: Kernel, core: Core, group: WorkgroupLimits
    ) -> tuple[tuple[AttentionSomeRowsSchedule, float], ...]:
        """At most `MOST_SCHEDULES` schedules: the default, then those nearest to it."""
        form, default = form_as(kernel, Attention), self.default(kernel)

        def fits(s: AttentionSomeRowsSchedule) -> bool:
            if s.x1 >= 2 * max(form.m.extent, LANES) or s.y1 >= 2 * max(
                form.keys.extent, s.threads
            ):
                return False
            within = s.threads <= group.threads and s.shared(kernel) <= group.shared
            return within and not s.objection(kernel)

        return nearest_schedules(default, SOME_ROWS_SETTINGS, fits)

    def traffic(self, kernel: Kernel, schedule: AttentionSomeRowsSchedule) -> tuple[int, float]:
        form = form_as(kernel, Attention)
        rows, width = form.m.extent, form.depth.extent + form.n.extent
        tiles = ceil(rows / schedule.x1)
        # Each group of a head reads all keys.
        width += (schedule.across - 1) * form.depth.extent
        words = prod(v.extent for v in form.outer) * width * (rows + tiles * form.keys.extent)
        return schedule.shared(kernel), float(words)

    def lower(self, kernel: Kernel, schedule: AttentionSomeRowsSchedule) -> TileFn:
        return some_rows.lower(kernel, schedule)


class AttentionOneRow(WorkgroupStrategy[AttentionOneRowSchedule]):
    """Single query rows, with exchange within subgroups."""

    kind = AttentionOneRowSchedule

    def suits(self, kernel: Kernel) -> bool:
        """True for attention of fixed size and few rows that cannot trap."""
        return (
            is_attention_of_fixed_size(kernel)
            and form_as(kernel, Attention).m.extent <= MOST_SINGLE_ROWS
        )

    def defaults_with_features(self, kernel: Kernel) -> tuple[AttentionOneRowSchedule, ...]:
        """Defaults for untuned kernels, for the subgroup size that most GPUs have."""
        return _best_one_row(kernel, WARP) if self.suits(kernel) else ()

    def space(
        self, kernel: Kernel, core: Core, group: WorkgroupLimits
    ) -> tuple[tuple[AttentionOneRowSchedule, float], ...]:
        """With the class's own subgroup size: the default and schedules nearest to it.  With other
        sizes: only the default."""

        def fits(s: AttentionOneRowSchedule) -> bool:
            within = s.threads <= group.threads and one_row_shared_bytes(kernel, s) <= group.shared
            return within and not s.objection(kernel)

        found = list[tuple[AttentionOneRowSchedule, float]]()
        for width in sorted(SUBGROUP_SIZES, key=lambda size: (size != core.warp_width, size)):
            for first in _best_one_row(kernel, width):
                most = ONE_ROW_CANDIDATES if width == core.warp_width else 1
                found += nearest_schedules(first, ONE_ROW_SETTINGS, fits)[:most]
        return tuple((s, cost / ONE_ROW_SPEED) for s, cost in found if fits(s))

    def traffic(self, kernel: Kernel, schedule: AttentionOneRowSchedule) -> tuple[int, float]:
        """Scratch bytes and words moved, as if every row saw all keys."""
        form = form_as(kernel, Attention)
        width = schedule.across * form.depth.extent + form.n.extent
        rows = form.m.extent * prod(v.extent for v in form.outer)
        return one_row_shared_bytes(kernel, schedule), float(rows * width * (1 + form.keys.extent))

    def lower(self, kernel: Kernel, schedule: AttentionOneRowSchedule) -> TileFn:
        return one_row.lower(kernel, schedule)


class AttentionManyRows(WorkgroupStrategy[AttentionManyRowsSchedule]):
    """Many query rows by the matrix units of subgroups."""

    kind = AttentionManyRowsSchedule

    def suits(self, kernel: Kernel) -> bool:
        return suits_matrix_units(kernel)

    def defaults_with_features(self, kernel: Kernel) -> tuple[AttentionManyRowsSchedule, ...]:
        """Defaults for untuned kernels: for common units, one for each size of shared memory."""
        if not self.suits(kernel):
            return ()
        units = [unit for unit in MATRIX_UNITS[UNIT_TYPES] if unit in COMMON_UNITS]
        rooms = SHARED_SIZES[::-1]
        first = (
            next(_many_rows_of_unit(kernel, unit, room), None) for unit, room in every(units, rooms)
        )
        return tuple(s for s in first if s is not None)

    def space(
        self, kernel: Kernel, core: Core, group: WorkgroupLimits
    ) -> tuple[tuple[AttentionManyRowsSchedule, float], ...]:
        """For each unit the default and the schedules nearest to it."""
        found = list[tuple[AttentionManyRowsSchedule, float]]()

        def fits(s: AttentionManyRowsSchedule) -> bool:
            return s.threads <= group.threads and not s.objection(kernel)

        for unit in MATRIX_UNITS[UNIT_TYPES]:
            rooms = (
                next(_many_rows_of_unit(kernel, unit, room), None) for room in SHARED_SIZES[::-1]
            )
            best = next((s for s in rooms if s is not None), None)
            found += (
                nearest_schedules(best, MANY_ROWS_SETTINGS, fits)[:MANY_ROWS_CANDIDATES]
                if best
                else ()
            )
        return tuple((s, cost / MANY_ROWS_SPEED) for s, cost in found)

    def traffic(self, kernel: Kernel, schedule: AttentionManyRowsSchedule) -> tuple[int, float]:
        """Scratch bytes and words moved, as if every row saw all keys."""
        form, s = form_as(kernel, Attention), schedule
        rows, depth, columns = form.m.extent, form.depth.extent, form.n.extent
        each = rows * (depth + columns) + ceil(rows / s.x1) * form.keys.extent * (
            2 * depth + columns
        )
        return many_rows_shared_bytes(kernel, s), float(prod(v.extent for v in form.outer) * each)

    def lower(self, kernel: Kernel, schedule: AttentionManyRowsSchedule) -> TileFn:
        return many_rows.lower(kernel, schedule)


def _best_one_row(kernel: Kernel, width: int) -> tuple[AttentionOneRowSchedule, ...]:
    """The best expected schedule for subgroups of this size; () if none fits."""
    form = form_as(kernel, Attention)
    rows = form.m.extent * prod(v.extent for v in form.outer)
    made = (
        AttentionOneRowSchedule(width=width, keys=keys, across=across, room=room)
        for room in (SHARED_EVERYWHERE, *SHARED_SIZES)
        for across in ROW_ACROSS
        if across == 1 or across * rows <= CORES
        for keys in KEYS
    )
    return tuple(s for s in made if not s.objection(kernel))[:1]


def _many_rows_of_unit(
    kernel: Kernel, unit: tuple[int, int, int, int], room: int
) -> Iterator[AttentionManyRowsSchedule]:
    """Schedules for one unit, best expected first: no more rows than the kernel has, and few
    tiles."""
    (m, n, k, width), rows = unit, form_as(kernel, Attention).m.extent
    owned = sorted(ROWS, key=lambda own: abs(m * own - OWN_ROWS))
    for x1, along, y1, own in every(TILE_ROWS, ALONG, BLOCK_KEYS, owned):
        if x1 % (m * own) == 0 and x1 < 2 * rows:
            s = AttentionManyRowsSchedule(m, n, k, width, own, x1 // (m * own), along, y1, room)
            if not s.objection(kernel):
                yield s


ATTENTION_SOME_ROWS, ATTENTION_ONE_ROW, ATTENTION_MANY_ROWS = (
    AttentionSomeRows(),
    AttentionOneRow(),
    AttentionManyRows(),
)
