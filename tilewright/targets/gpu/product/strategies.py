"""The strategies of products: the kernels that each suits, its default, and its search space.

Input: a product, the figures of one core, the limits of a workgroup. Output: schedules with
expected costs. Each kind of tile has a file of its own that makes the loops.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import product as every
from math import ceil

from tilewright.kernel.loops import TileFn
from tilewright.kernel.spec import Kernel
from tilewright.targets.cost_figures import WORD_COSTS
from tilewright.targets.gpu.product import (
    f16_gemm,
    few_rows,
    few_rows_int8,
    integer_gemm,
    register_gemm,
    subgroup_gemm,
)
from tilewright.targets.gpu.product.chains import Chain, schedule_for_chain
from tilewright.targets.gpu.product.cost_model import (
    busy_share,
    cached_tiles_around,
    fastest,
    tiles_around,
)
from tilewright.targets.gpu.product.few_rows import column_operand_alone
from tilewright.targets.gpu.product.schedule import (
    BANDS,
    BYTES_PER_STEP,
    ROUNDED_STEPS,
    F16GemmSchedule,
    FewRowsInt8Schedule,
    FewRowsSchedule,
    IntegerGemmSchedule,
    RegisterGemmSchedule,
    Sizes,
    SubgroupGemmSchedule,
    is_int8_product,
    may_round_to_f16,
    may_round_to_int8,
    steps_per_load,
)
from tilewright.targets.gpu.tile.addressing import fixed_product, operands
from tilewright.targets.gpu.tile.staging import LINE_ELEMENTS, panel_of
from tilewright.targets.gpu.workgroup_limits import (
    MOST_SHARED,
    MOST_THREADS,
    SUBGROUP_SIZES,
    WorkgroupLimits,
)
from tilewright.targets.gpu.workgroup_strategy import (
    LEAST_THREADS,
    UNUSUAL_COST,
    DefaultWorkgroupStrategy,
    WorkgroupStrategy,
    nearest_schedules,
)
from tilewright.targets.lite_space import Core
from tilewright.targets.schedule import Schedule
from tilewright.targets.vectors import LANES

#: The number of rows that fills a device with tiles.
ROWS_TO_FILL_DEVICE = 4096

#: The least steps of a thread, so that adding up slices takes little of the time.
LEAST_STEPS = 2

#: Products with too few steps for this number of slices are computed by a thread for each sum.
LEAST_SLICES = 16

#: Products with at least this number of rows use tiles (register_gemm.py).
ENOUGH_ROWS = 4


class RegisterGemm(DefaultWorkgroupStrategy[RegisterGemmSchedule]):
    """Register tiles whose operands are staged in shared memory."""

    kind = RegisterGemmSchedule

    def suits(self, kernel: Kernel) -> bool:
        """True for products with enough rows and columns, fixed extents and no traps.

        With many rows, as convolutions of images have, a few columns are enough.
        """
        ops = fixed_product(kernel)
        if ops is None or ops.m.extent < LANES:
            return False
        return ops.n.extent >= (LANES if ops.m.extent < ROWS_TO_FILL_DEVICE else 2)

    def default(self, kernel: Kernel) -> RegisterGemmSchedule:
        return fastest(kernel, RegisterGemmSchedule)

    def space(
        self, kernel: Kernel, core: Core, group: WorkgroupLimits
    ) -> Sequence[tuple[RegisterGemmSchedule, float]]:
        return cached_tiles_around(kernel, self.default(kernel), core, group)

    def traffic(self, kernel: Kernel, schedule: RegisterGemmSchedule) -> tuple[int, float]:
        return schedule.shared, Sizes.of(kernel).words(schedule)

    def lower(self, kernel: Kernel, schedule: RegisterGemmSchedule) -> TileFn:
        return register_gemm.lower(kernel, schedule)


#: Values tried for few rows: unrolled steps, columns of a tile, slices of the depth.
FEW_ROWS_SETTINGS = {"r0": (1, 2, 4, 8), "y1": (8, 16, 32, 64), "slices": (8, 16, 32, 64, 128)}


@lru_cache(maxsize=1024)
def _has_few_rows(kernel: Kernel) -> bool:
    """True for products of few rows and many steps whose columns are contiguous in memory."""
    ops = fixed_product(kernel)
    if ops is None or ops.m.extent >= ENOUGH_ROWS or ops.n.extent < LANES:
        return False
    columns = column_operand_alone(kernel)
    return (
        ops.steps >= LEAST_STEPS * LEAST_SLICES * columns.layout.unit_steps
        and not columns.layout.deep_in_memory
    )


@lru_cache(maxsize=1024)
def _default_few_rows(kernel: Kernel) -> FewRowsSchedule:
    """The default: columns of a panel, or of a cache line, and a whole group of threads for
    them."""
    ops, columns = operands(kernel), column_operand_alone(kernel)
    panel = panel_of(kernel, ops)
    y1 = panel if panel % LANES == 0 else LINE_ELEMENTS
    slices = MOST_THREADS * LANES // y1
    while slices > 1 and slices * LEAST_STEPS * columns.layout.unit_steps > ops.steps:
        slices //= 2
    return FewRowsSchedule(y1=y1, slices=slices)


def _fits(kernel: Kernel, group: WorkgroupLimits, s: FewRowsSchedule) -> bool:
    """True if the group's limits allow the schedule and it is less than twice as wide as the
    product."""
    within = LEAST_THREADS <= s.threads <= group.threads and s.shared(kernel) <= group.shared
    return within and s.y1 < 2 * operands(kernel).n.extent and not s.objection(kernel)


class FewRows(DefaultWorkgroupStrategy[FewRowsSchedule]):
    """Tiles of some columns whose steps are divided among threads."""

    kind = FewRowsSchedule

    def suits(self, kernel: Kernel) -> bool:
        return _has_few_rows(kernel)

    def default(self, kernel: Kernel) -> FewRowsSchedule:
        return _default_few_rows(kernel)

    def space(
        self, kernel: Kernel, core: Core, group: WorkgroupLimits
    ) -> tuple[tuple[FewRowsSchedule, float], ...]:
        """At most `MOST_SCHEDULES` schedules: the default, then those nearest to it."""
        return nearest_schedules(
            self.default(kernel), FEW_ROWS_SETTINGS, partial(_fits, kernel, group)
        )

    def traffic(self, kernel: Kernel, schedule: FewRowsSchedule) -> tuple[int, float]:
        sizes = Sizes.of(kernel)
        rows = ceil(sizes.cols / schedule.y1) * sizes.rows
        words = sizes.batch * (sizes.steps * (rows + sizes.cols) + sizes.rows * sizes.cols)
        return schedule.shared(kernel), float(words)

    def lower(self, kernel: Kernel, schedule: FewRowsSchedule) -> TileFn:
        return few_rows.lower(kernel, schedule)


class IntegerGemm(DefaultWorkgroupStrategy[IntegerGemmSchedule]):
    """Tiles of bytes, by packed dot products."""

    kind = IntegerGemmSchedule

    def suits(self, kernel: Kernel) -> bool:
        return is_int8_product(kernel)

    def default(self, kernel: Kernel) -> IntegerGemmSchedule:
        """The default of an f32 product with a quarter of the steps."""
        return fastest(kernel, IntegerGemmSchedule)

    def space(
        self, kernel: Kernel, core: Core, group: WorkgroupLimits
    ) -> tuple[tuple[IntegerGemmSchedule, float], ...]:
        """The space of such an f32 product."""
        return tiles_around(kernel, self.default(kernel), core, group)

    def traffic(self, kernel: Kernel, schedule: IntegerGemmSchedule) -> tuple[int, float]:
        """Scratch bytes, and words moved; beyond shared memory each byte counts as a word."""
        sizes = Sizes.of(kernel)
        loaded = sizes.words(schedule) - sizes.stored
        return schedule.shared, BYTES_PER_STEP * loaded + sizes.stored

    def lower(self, kernel: Kernel, schedule: IntegerGemmSchedule) -> TileFn:
        return integer_gemm.lower(kernel, schedule)


#: Steps of a block in f16.  Longer blocks lose more accuracy; shorter ones add to f32 sums more
#: often.
F16_BLOCK_STEPS = 32

#: The number of f16 candidates; their expected speed over f32.
F16_CANDIDATES, F16_SPEED = 12, 1.5


class F16Gemm(WorkgroupStrategy[F16GemmSchedule]):
    """The tiles of f32 with operands in f16."""

    kind = F16GemmSchedule

    def suits(self, kernel: Kernel) -> bool:
        return REGISTER_GEMM.suits(kernel) and may_round_to_f16(kernel)

    def space(
        self, kernel: Kernel, core: Core, group: WorkgroupLimits
    ) -> tuple[tuple[F16GemmSchedule, float], ...]:
        """The best expected schedules of an f32 product, with long blocks that are unrolled."""
        default = fastest(kernel, F16GemmSchedule)
        long = replace(
            default, r0=F16_BLOCK_STEPS // default.slices, r1=F16_BLOCK_STEPS, ahead=False
        )
        found = tiles_around(kernel, default if long.objection(kernel) else long, core, group)
        return tuple((s, cost / F16_SPEED) for s, cost in found[:F16_CANDIDATES])

    def traffic(self, kernel: Kernel, schedule: F16GemmSchedule) -> tuple[int, float]:
        return REGISTER_GEMM.traffic(kernel, schedule)

    def lower(self, kernel: Kernel, schedule: F16GemmSchedule) -> TileFn:
        return f16_gemm.lower(kernel, schedule)


#: With at least this number of tiles' columns, every core has a tile.
MANY_COLUMNS = 256

#: For rounded rows: the values that are tried; the number of candidates; their expected speed over
#: f32 products.
FEW_ROWS_INT8_SETTINGS = {
    "unit": ROUNDED_STEPS, "r0": (1, 2, 4), "y1": (8, 16, 32, 64), "slices": (16, 32, 64, 128)
}  # fmt: skip
FEW_ROWS_INT8_CANDIDATES, FEW_ROWS_INT8_SPEED = 16, 2.0


class FewRowsInt8(WorkgroupStrategy[FewRowsInt8Schedule]):
    """Few rows, rounded to bytes where they are used."""

    kind = FewRowsInt8Schedule

    def suits(self, kernel: Kernel) -> bool:
        return FEW_ROWS.suits(kernel) and may_round_to_int8(kernel)

    def default(self, kernel: Kernel) -> FewRowsInt8Schedule:
        """The default: a whole group of threads; each has more columns if the product has many."""
        ops = operands(kernel)
        y1 = next((y for y in (32, 16) if ops.n.extent >= MANY_COLUMNS * y), 8)
        # With many slices, small units give more threads work.
        unit = max(ROUNDED_STEPS) if y1 == 32 else min(ROUNDED_STEPS)
        slices = MOST_THREADS * LANES // y1
        parts = 1
        while slices > 1 and slices * LEAST_STEPS * unit > ops.steps:
            slices //= 2
        made = FewRowsInt8Schedule(y1=y1, slices=slices, unit=unit)
        while made.shared(kernel) > MOST_SHARED:
            parts += 1
            made = replace(made, r1=unit * ceil(ops.steps / unit / parts))
        return made

    def defaults_with_features(self, kernel: Kernel) -> tuple[FewRowsInt8Schedule, ...]:
        return (self.default(kernel),) if self.suits(kernel) else ()

    def space(
        self, kernel: Kernel, core: Core, group: WorkgroupLimits
    ) -> tuple[tuple[FewRowsInt8Schedule, float], ...]:
        """The default, then the schedules nearest to it."""
        found = nearest_schedules(
            self.default(kernel), FEW_ROWS_INT8_SETTINGS, partial(_fits, kernel, group)
        )
        return tuple(
            (s, cost / FEW_ROWS_INT8_SPEED) for s, cost in found[:FEW_ROWS_INT8_CANDIDATES]
        )

    def traffic(self, kernel: Kernel, schedule: FewRowsInt8Schedule) -> tuple[int, float]:
        return FEW_ROWS.traffic(kernel, schedule)

    def lower(self, kernel: Kernel, schedule: FewRowsInt8Schedule) -> TileFn:
        return few_rows_int8.lower(kernel, schedule)


#: Values tried for subgroup broadcasts: register tiles; rows of register tiles, and subgroups
#: beside each other, in a tile.
REGISTER_TILES = ((4, 4), (8, 4), (16, 4), (4, 8), (8, 8), (16, 8))
TILES_DOWN, SUBGROUPS_ALONG = (1, 2, 4, 8), (1, 2)

#: Steps that are loaded together, in units of what one load reads.
STEPS_TOGETHER = (4, 8)

#: The number of candidates with the class's subgroup size; each other size has one.
SUBGROUP_GEMM_CANDIDATES = 8


class SubgroupGemm(WorkgroupStrategy[SubgroupGemmSchedule]):
    """Tiles whose threads exchange rows within a subgroup."""

    kind = SubgroupGemmSchedule

    def suits(self, kernel: Kernel) -> bool:
        return REGISTER_GEMM.suits(kernel)

    def space(
        self, kernel: Kernel, core: Core, group: WorkgroupLimits
    ) -> tuple[tuple[SubgroupGemmSchedule, float], ...]:
        """For each register tile the best expected schedule, then the best one with other settings.

        They are tried after all other tiles, since no device is known on which they win.
        """
        sizes, found = Sizes.of(kernel), list[SubgroupGemmSchedule]()

        def fits(s: SubgroupGemmSchedule) -> bool:
            return LEAST_THREADS <= s.threads <= group.threads and not s.objection(kernel)

        def rank(s: SubgroupGemmSchedule) -> tuple[float, str]:
            return _cost(s, sizes, core), str(s)

        for width in sorted(SUBGROUP_SIZES, key=lambda size: (size != core.warp_width, size)):
            able = list(filter(fits, _shapes(width, sizes, steps_per_load(kernel))))
            best = dict[tuple[int, int], SubgroupGemmSchedule]()
            for s in sorted(able, key=rank):
                best.setdefault((s.x0, s.y0), s)
            first = list(best.values())[:1]
            if width == core.warp_width:
                first = [*best.values(), *(v for s in first for v in _varied(s) if v in able)][
                    :SUBGROUP_GEMM_CANDIDATES
                ]
            found += first
        costs = [_cost(s, sizes, core) for s in found]
        last = UNUSUAL_COST * max(c for _, c in REGISTER_GEMM.space(kernel, core, group))
        return tuple((s, last * c / min(costs)) for s, c in zip(found, costs, strict=True))

    def traffic(self, kernel: Kernel, schedule: SubgroupGemmSchedule) -> tuple[int, float]:
        """No scratch bytes; words moved: each subgroup reads its rows and columns."""
        sizes, s = Sizes.of(kernel), schedule
        subgroups = sizes.tiles(s) * s.threads // s.width
        loads = subgroups * sizes.steps * (s.x0 + s.y0 * s.width)
        return 0, float(loads + sizes.stored)

    def lower(self, kernel: Kernel, schedule: SubgroupGemmSchedule) -> TileFn:
        return subgroup_gemm.lower(kernel, schedule)


def _shapes(width: int, sizes: Sizes, together: int) -> Iterator[SubgroupGemmSchedule]:
    """Schedules that are less than twice as large as the product."""
    for (x0, y0), down, along, r0, unrolled in every(
        REGISTER_TILES,
        TILES_DOWN,
        SUBGROUPS_ALONG,
        sorted({max(r, together) for r in STEPS_TOGETHER}),
        (True, False),
    ):
        x1, y1 = x0 * down, y0 * width * along
        if x1 < 2 * max(sizes.rows, LANES) and y1 <= 2 * sizes.cols:
            band = sizes.band(BANDS[-1], x1)
            yield SubgroupGemmSchedule(width, x0, y0, r0, x1, y1, band, unrolled)


def _varied(s: SubgroupGemmSchedule) -> Iterator[SubgroupGemmSchedule]:
    """Variations of a schedule, each with one other setting."""
    yield replace(s, unrolled=not s.unrolled)
    yield from (replace(s, r0=r0) for r0 in STEPS_TOGETHER if r0 != s.r0)


def _cost(s: SubgroupGemmSchedule, sizes: Sizes, core: Core) -> float:
    """The expected cost in the unit of `cost` in cost_model.py, with words from other threads and
    caches."""
    count = sizes.tiles(s)
    work = count * s.x1 * s.y1 * ceil(sizes.steps / s.width) * s.width
    words = 1 + WORD_COSTS.other_thread_word / s.y0 + WORD_COSTS.cached_word / s.x0
    each = words + WORD_COSTS.memory_word * (1 / s.x1 + 1 / s.y1)
    unusual = (not s.unrolled) + (s.r0 > STEPS_TOGETHER[0])
    return work * each * UNUSUAL_COST**unusual / busy_share(count, s.threads, s.registers, 0, core)


REGISTER_GEMM, FEW_ROWS, INTEGER_GEMM = RegisterGemm(), FewRows(), IntegerGemm()
F16_GEMM, FEW_ROWS_INT8, SUBGROUP_GEMM = F16Gemm(), FewRowsInt8(), SubgroupGemm()


def lower_chain(chain: Chain, schedule: Schedule) -> tuple[TileFn, Schedule] | None:
    """The loops of a chain with the schedule of its last product; None if that kind has no
    chains."""
    if isinstance(schedule, FewRowsInt8Schedule):
        bytes_ = schedule_for_chain(chain, schedule)
        return (few_rows_int8.lower_chain(chain, bytes_), bytes_) if bytes_ else None
    if isinstance(schedule, FewRowsSchedule):
        own = schedule_for_chain(chain, schedule)
        return (few_rows.lower_chain(chain, own), own) if own else None
    return None
