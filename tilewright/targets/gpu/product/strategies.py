"""The strategies of products: which kernels each suits, its default, and its search space.

Input: a product, the figures of one core, the limits of a workgroup. Output: schedules with
expected costs. The file of each kind of tile makes the loops.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import product as every
from math import ceil

from tilewright.kernel.loops import TileFn
from tilewright.kernel.spec import Kernel
from tilewright.targets.gpu.limits import MOST_SHARED, MOST_THREADS, SIZES, Group
from tilewright.targets.gpu.product import (
    bytes,
    few_rows,
    halves,
    registers,
    rounded,
    shuffles,
)
from tilewright.targets.gpu.product.chains import Chain, for_chain
from tilewright.targets.gpu.product.few_rows import columns_alone
from tilewright.targets.gpu.product.schedule import (
    BANDS,
    GROUP,
    UNITS,
    DotSchedule,
    FewRowsSchedule,
    GroupSchedule,
    HalfSchedule,
    RoundedSchedule,
    ShuffleSchedule,
    Sizes,
    may_round,
    of_bytes,
    of_halves,
    read_together,
)
from tilewright.targets.gpu.product.space import BEYOND, at_work, fastest, tiles_around, tiles_of
from tilewright.targets.gpu.strategy import (
    LEAST_THREADS,
    UNUSUAL,
    GroupAlternative,
    GroupStrategy,
    nearby,
)
from tilewright.targets.gpu.tile.places import fixed_product, operands
from tilewright.targets.gpu.tile.staging import LANES, LINE, panel_of
from tilewright.targets.lite import Core
from tilewright.targets.schedule import Schedule

#: Rows that fill a device with tiles.
MANY_ROWS = 4096

#: Steps that a thread must have, so that adding up does not count.
LEAST_STEPS = 2

#: Products with steps for fewer slices are computed by a thread for each sum.
LEAST_SLICES = 16

#: Products of so many rows are tiles (registers.py).
ENOUGH_ROWS = 4


class Registers(GroupStrategy[GroupSchedule]):
    """Tiles whose operands shared memory stages."""

    kinds = (GroupSchedule,)

    def suits(self, kernel: Kernel) -> bool:
        """True for products with rows and columns enough, whose extents are fixed and which cannot
        trap.  Of many rows a few columns are enough: images, as convolutions make them."""
        ops = fixed_product(kernel)
        if ops is None or ops.m.extent < LANES:
            return False
        return ops.n.extent >= (LANES if ops.m.extent < MANY_ROWS else 2)

    def first(self, kernel: Kernel) -> GroupSchedule:
        return fastest(kernel, GroupSchedule)

    def space(
        self, kernel: Kernel, core: Core, group: Group
    ) -> Sequence[tuple[GroupSchedule, float]]:
        return tiles_of(kernel, core, group)

    def traffic(self, kernel: Kernel, schedule: GroupSchedule) -> tuple[int, float]:
        return schedule.shared, Sizes.of(kernel).words(schedule)

    def lower(self, kernel: Kernel, schedule: GroupSchedule) -> TileFn:
        return registers.lower(kernel, schedule)


#: Steps unrolled, columns of a tile, and slices of the depth that are tried of few rows.
FEW_ROWS_SETTINGS = {"r0": (1, 2, 4, 8), "y1": (8, 16, 32, 64), "slices": (8, 16, 32, 64, 128)}


@lru_cache(maxsize=1024)
def _has_few_rows(kernel: Kernel) -> bool:
    """True for products of few rows whose columns lie side by side in memory, if they are long."""
    ops = fixed_product(kernel)
    if ops is None or ops.m.extent >= ENOUGH_ROWS or ops.n.extent < LANES:
        return False
    side = columns_alone(kernel)
    return ops.steps >= LEAST_STEPS * LEAST_SLICES * side.each and not side.deep


@lru_cache(maxsize=1024)
def _usual_of_few_rows(kernel: Kernel) -> FewRowsSchedule:
    """Columns of a panel, or of a cache line, and a whole group of threads for them."""
    ops, side = operands(kernel), columns_alone(kernel)
    panel = panel_of(kernel, ops)
    y1 = panel if panel % LANES == 0 else LINE
    slices = MOST_THREADS * LANES // y1
    while slices > 1 and slices * LEAST_STEPS * side.each > ops.steps:
        slices //= 2
    return FewRowsSchedule(y1=y1, slices=slices)


def _fits(kernel: Kernel, group: Group, s: FewRowsSchedule) -> bool:
    """Whether such groups can have a schedule, which is not twice as wide as the product."""
    within = LEAST_THREADS <= s.threads <= group.threads and s.shared(kernel) <= group.shared
    return within and s.y1 < 2 * operands(kernel).n.extent and not s.objection(kernel)


class FewRows(GroupStrategy[FewRowsSchedule]):
    """Columns of a tile whose steps are dealt to threads."""

    kinds = (FewRowsSchedule,)

    def suits(self, kernel: Kernel) -> bool:
        return _has_few_rows(kernel)

    def first(self, kernel: Kernel) -> FewRowsSchedule:
        return _usual_of_few_rows(kernel)

    def space(
        self, kernel: Kernel, core: Core, group: Group
    ) -> tuple[tuple[FewRowsSchedule, float], ...]:
        """At most `MOST` schedules: the default, then those nearest to it."""
        return nearby(self.first(kernel), FEW_ROWS_SETTINGS, partial(_fits, kernel, group))

    def traffic(self, kernel: Kernel, schedule: FewRowsSchedule) -> tuple[int, float]:
        sizes = Sizes.of(kernel)
        rows = ceil(sizes.cols / schedule.y1) * sizes.rows
        words = sizes.batch * (sizes.steps * (rows + sizes.cols) + sizes.rows * sizes.cols)
        return schedule.shared(kernel), float(words)

    def lower(self, kernel: Kernel, schedule: FewRowsSchedule) -> TileFn:
        return few_rows.lower(kernel, schedule)


class PackedDots(GroupStrategy[DotSchedule]):
    """Tiles of bytes, by packed dot products."""

    kinds = (DotSchedule,)

    def suits(self, kernel: Kernel) -> bool:
        return of_bytes(kernel)

    def first(self, kernel: Kernel) -> DotSchedule:
        """That of a product of f32 with a quarter of the steps."""
        return fastest(kernel, DotSchedule)

    def space(
        self, kernel: Kernel, core: Core, group: Group
    ) -> tuple[tuple[DotSchedule, float], ...]:
        """As of a product of f32."""
        return tiles_around(kernel, self.first(kernel), core, group)

    def traffic(self, kernel: Kernel, schedule: DotSchedule) -> tuple[int, float]:
        """Beyond it a byte takes a word."""
        sizes = Sizes.of(kernel)
        loaded = sizes.words(schedule) - sizes.stored
        return schedule.shared, GROUP * loaded + sizes.stored

    def lower(self, kernel: Kernel, schedule: DotSchedule) -> TileFn:
        return bytes.lower(kernel, schedule)


#: Steps of a block of halves: sums of more lose more, and fewer are often added to those of f32.
DEPTH = 32

#: Candidates of halves, and how much faster than f32 they are expected to be.
HALVES, HALVES_PACE = 12, 1.5


class Halves(GroupAlternative[HalfSchedule]):
    """The tiles of f32 with operands in f16."""

    kinds = (HalfSchedule,)

    def suits(self, kernel: Kernel) -> bool:
        return REGISTERS.suits(kernel) and of_halves(kernel)

    def space(
        self, kernel: Kernel, core: Core, group: Group
    ) -> tuple[tuple[HalfSchedule, float], ...]:
        """The likely best: those of a product of f32, in long blocks that are unrolled."""
        usual = fastest(kernel, HalfSchedule)
        long = replace(usual, r0=DEPTH // usual.slices, r1=DEPTH, ahead=False)
        found = tiles_around(kernel, usual if long.objection(kernel) else long, core, group)
        return tuple((s, cost / HALVES_PACE) for s, cost in found[:HALVES])

    def traffic(self, kernel: Kernel, schedule: HalfSchedule) -> tuple[int, float]:
        return REGISTERS.traffic(kernel, schedule)

    def lower(self, kernel: Kernel, schedule: HalfSchedule) -> TileFn:
        return halves.lower(kernel, schedule)


#: With so many times as many columns as a tile has, there are tiles for every core.
MANY_COLUMNS = 256

#: Settings that are tried of rounded rows, how many candidates there are, and how much faster than
#: products of f32 they are expected to be.
ROUNDED_SETTINGS = {
    "unit": UNITS, "r0": (1, 2, 4), "y1": (8, 16, 32, 64), "slices": (16, 32, 64, 128)
}  # fmt: skip
ROUNDED_EACH, ROUNDED_PACE = 16, 2.0


class Rounded(GroupAlternative[RoundedSchedule]):
    """Few rows, rounded to bytes where they are used."""

    kinds = (RoundedSchedule,)

    def suits(self, kernel: Kernel) -> bool:
        return FEW_ROWS.suits(kernel) and may_round(kernel)

    def first(self, kernel: Kernel) -> RoundedSchedule:
        """A whole group of threads; more columns for each where there are many."""
        ops = operands(kernel)
        y1 = next((y for y in (32, 16) if ops.n.extent >= MANY_COLUMNS * y), 8)
        # small units keep more threads at work where there are many slices
        unit = max(UNITS) if y1 == 32 else min(UNITS)
        slices = MOST_THREADS * LANES // y1
        parts = 1
        while slices > 1 and slices * LEAST_STEPS * unit > ops.steps:
            slices //= 2
        made = RoundedSchedule(y1=y1, slices=slices, unit=unit)
        while made.shared(kernel) > MOST_SHARED:
            parts += 1
            made = replace(made, r1=unit * ceil(ops.steps / unit / parts))
        return made

    def usual(self, kernel: Kernel) -> tuple[RoundedSchedule, ...]:
        return (self.first(kernel),) if self.suits(kernel) else ()

    def space(
        self, kernel: Kernel, core: Core, group: Group
    ) -> tuple[tuple[RoundedSchedule, float], ...]:
        """The likely best, then those nearest to it."""
        found = nearby(self.first(kernel), ROUNDED_SETTINGS, partial(_fits, kernel, group))
        return tuple((s, cost / ROUNDED_PACE) for s, cost in found[:ROUNDED_EACH])

    def traffic(self, kernel: Kernel, schedule: RoundedSchedule) -> tuple[int, float]:
        return FEW_ROWS.traffic(kernel, schedule)

    def lower(self, kernel: Kernel, schedule: RoundedSchedule) -> TileFn:
        return rounded.lower(kernel, schedule)


#: What is tried by subgroups: register tiles; rows of them, and subgroups beside each other, in a
#: tile.
TILES = ((4, 4), (8, 4), (16, 4), (4, 8), (8, 8), (16, 8))
DOWN, ALONG = (1, 2, 4, 8), (1, 2)

#: Steps read together, in units of what comes with one read.
TOGETHER = (4, 8)

#: Candidates with subgroups of the class's size; of each other size there is one.
SHUFFLED_EACH = 8

#: Multiply-adds in the time of a word that another thread gives, and of one from a cache: NVIDIA's
#: cores do four for each.  Nothing here was fitted to runs.
GIVEN, CACHED = 4.0, 4.0


class Shuffles(GroupAlternative[ShuffleSchedule]):
    """Tiles whose rows the threads of a subgroup give each other."""

    kinds = (ShuffleSchedule,)

    def suits(self, kernel: Kernel) -> bool:
        return REGISTERS.suits(kernel)

    def space(
        self, kernel: Kernel, core: Core, group: Group
    ) -> tuple[tuple[ShuffleSchedule, float], ...]:
        """The likely best of each register tile, then the best one with other settings.

        They are tried after all other tiles: nobody knows yet where they win.
        """
        sizes, found = Sizes.of(kernel), list[ShuffleSchedule]()

        def fits(s: ShuffleSchedule) -> bool:
            return LEAST_THREADS <= s.threads <= group.threads and not s.objection(kernel)

        def rank(s: ShuffleSchedule) -> tuple[float, str]:
            return _cost(s, sizes, core), str(s)

        for width in sorted(SIZES, key=lambda size: (size != core.warp_width, size)):
            able = list(filter(fits, _shapes(width, sizes, read_together(kernel))))
            best = dict[tuple[int, int], ShuffleSchedule]()
            for s in sorted(able, key=rank):
                best.setdefault((s.x0, s.y0), s)
            first = list(best.values())[:1]
            if width == core.warp_width:
                first = [*best.values(), *(v for s in first for v in _varied(s) if v in able)][
                    :SHUFFLED_EACH
                ]
            found += first
        costs = [_cost(s, sizes, core) for s in found]
        last = UNUSUAL * max(c for _, c in tiles_of(kernel, core, group))
        return tuple((s, last * c / min(costs)) for s, c in zip(found, costs, strict=True))

    def traffic(self, kernel: Kernel, schedule: ShuffleSchedule) -> tuple[int, float]:
        """No shared memory; each subgroup reads its rows and columns."""
        sizes, s = Sizes.of(kernel), schedule
        subgroups = sizes.tiles(s) * s.threads // s.width
        loads = subgroups * sizes.steps * (s.x0 + s.y0 * s.width)
        return 0, float(loads + sizes.stored)

    def lower(self, kernel: Kernel, schedule: ShuffleSchedule) -> TileFn:
        return shuffles.lower(kernel, schedule)


def _shapes(width: int, sizes: Sizes, together: int) -> Iterator[ShuffleSchedule]:
    """Those not twice as large as the product."""
    for (x0, y0), down, along, r0, unrolled in every(
        TILES, DOWN, ALONG, sorted({max(r, together) for r in TOGETHER}), (True, False)
    ):
        x1, y1 = x0 * down, y0 * width * along
        if x1 < 2 * max(sizes.rows, LANES) and y1 <= 2 * sizes.cols:
            band = sizes.band(BANDS[-1], x1)
            yield ShuffleSchedule(width, x0, y0, r0, x1, y1, band, unrolled)


def _varied(s: ShuffleSchedule) -> Iterator[ShuffleSchedule]:
    """Each with one other setting."""
    yield replace(s, unrolled=not s.unrolled)
    yield from (replace(s, r0=r0) for r0 in TOGETHER if r0 != s.r0)


def _cost(s: ShuffleSchedule, sizes: Sizes, core: Core) -> float:
    """In the unit of `cost` in space.py: multiply-adds with what others give and caches have."""
    count = sizes.tiles(s)
    work = count * s.x1 * s.y1 * ceil(sizes.steps / s.width) * s.width
    each = 1 + GIVEN / s.y0 + CACHED / s.x0 + BEYOND * (1 / s.x1 + 1 / s.y1)
    unusual = (not s.unrolled) + (s.r0 > TOGETHER[0])
    return work * each * UNUSUAL**unusual / at_work(count, s.threads, s.registers, 0, core)


REGISTERS, FEW_ROWS, BYTES = Registers(), FewRows(), PackedDots()
HALVES_BY_TILES, ROUNDED, SHUFFLES = Halves(), Rounded(), Shuffles()


def lower_chain(chain: Chain, schedule: Schedule) -> tuple[TileFn, Schedule] | None:
    """A chain under the schedule of its last product; None if that is not for chains."""
    if isinstance(schedule, RoundedSchedule):
        bytes_ = for_chain(chain, schedule)
        return (rounded.lower_chain(chain, bytes_), bytes_) if bytes_ else None
    if isinstance(schedule, FewRowsSchedule):
        own = for_chain(chain, schedule)
        return (few_rows.lower_chain(chain, own), own) if own else None
    return None
