"""The search space of product tiles, and the default, by two small cost models of GPUs.

Input: a product, the figures of one core, the limits of a workgroup. Output: schedules with their
modelled costs, the default first, then the others in order of cost. Equal input gives equal
schedules in every process. This module measures nothing and makes no code.

The default is the tile with the fewest cycles on a large GPU, within the limits that every device
has. The figures and their source are in targets/cost_figures.py:

    time = blocks * (tiles of a core * (multiply-adds + copies) + latency that no other tile hides)

The other tiles are nnJIT's lite space, applied to workgroups. Of the paper's heuristics
(targets/lite_space.py) 2 and 5 hold unchanged. Heuristic 6 counts shared memory: the blocks of both
operands, since sums stay in registers. Heuristic 7, that registers are the scarcest resource, is
only a part of the cost, because no tile for phone GPUs meets it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from itertools import product as every
from math import ceil, gcd
from typing import Any, TypeVar

from tilewright.base.errors import of_kind
from tilewright.kernel.spec import Kernel
from tilewright.targets.cost_figures import REGISTER_TILE_CYCLES, WORD_COSTS
from tilewright.targets.gpu.product.schedule import (
    BANDS,
    OVERHEAD_REGISTERS,
    RegisterGemmSchedule,
    Sizes,
)
from tilewright.targets.gpu.workgroup_limits import (
    CORES,
    MOST_SHARED,
    MOST_THREADS,
    WARP,
    WorkgroupLimits,
)
from tilewright.targets.gpu.workgroup_strategy import LEAST_THREADS, MOST_SCHEDULES, UNUSUAL_COST
from tilewright.targets.lite_space import Core

G = TypeVar("G", bound=RegisterGemmSchedule)

#: The most unrolled multiply-adds of a thread; more need too many registers.
MOST_UNROLLED_MULTIPLY_ADDS = 1024

#: The most sums of a thread with which the next block is loaded early.  On an H100, early loads
#: made products with 32 sums 4 to 20 % faster, and products with 64 sums 6 to 16 % slower.
FEW_SUMS = 32

#: The number of best shapes that are also tried with other settings, besides the default.
VARIED_SHAPES = 2

#: Values that are tried: rows and columns of a register tile, and of a tile; steps of a block.
REGISTER_TILE_SIDES = (4, 8)

TILE_ROWS = (8, 16, 32, 64, 128)

TILE_COLUMNS = (16, 32, 64, 128, 256)

BLOCK_STEPS = (8, 16, 32)

SETTINGS: Mapping[str, Sequence[Any]] = {
    "r0": (4, 8, 16), "ahead": (False, True), "early": (False, True), "slices": (1, 2, 4)
}  # fmt: skip


@cache
def _tiles() -> tuple[RegisterGemmSchedule, ...]:
    """Tiles among which the default is chosen; among equals the largest and tallest wins.

    No tile of 128 rows is among them: in WGSL none was faster than the same tile with 64 rows.
    """
    sizes = every((64, 48, 32, 16), (128, 96, 64, 48, 32, 16), (8, 4), (8, 4))
    found = []
    for (x1, y1, x0, y0), r1, slices in every(sizes, (16, 32), (1, 2, 4)):
        r0 = min(r1 // slices, MOST_UNROLLED_MULTIPLY_ADDS // (x0 * y0))
        s = RegisterGemmSchedule(
            x0, y0, r0, x1, y1, r1, 8,
            ahead=True, apart=True, slices=slices, early=x0 * y0 <= FEW_SUMS,
        )  # fmt: skip
        # A warp must not have threads of two slices: they would read from the same banks.
        warps, rest = divmod(s.threads // slices, WARP)
        full = warps and not rest and warps * slices % 2 == 0
        if full and s.threads <= MOST_THREADS and s.shared <= MOST_SHARED:
            found.append(s)
    return tuple(sorted(found, key=lambda s: (-s.x1 * s.y1, -s.x1, s.y0, s.threads)))


def cycles(s: RegisterGemmSchedule, sizes: Sizes) -> float:
    """The cycles that a core is expected to take."""
    figures = REGISTER_TILE_CYCLES
    waves = sizes.tiles(s) / CORES
    many = waves > figures.few_waves
    # With many waves, the last one overlaps those before it.
    tiles = (waves + ceil(waves)) / 2 if many else ceil(waves)
    warps = ceil(tiles) * ceil(s.threads / WARP)
    per_scheduler = ceil(warps / figures.schedulers)
    busy = tiles * s.threads / (WARP * figures.schedulers * per_scheduler)
    ragged = sizes.rows % s.x1 or sizes.cols % s.y1 or sizes.steps % s.r1
    checked = figures.checked_time if ragged else 1.0
    speed = figures.speed[s.x0 * s.y0] * (figures.sliced_speed if s.slices > 1 and many else 1.0)
    work = s.x1 * s.y1 * s.r1 * checked / (figures.multiply_adds_per_cycle * speed * busy)
    copies = s.r1 * (s.x1 / figures.row_words_per_cycle + s.y1 / figures.column_words_per_cycle)
    added = figures.slice_sum * s.x0 * s.y0 * tiles if s.slices > 1 else 0
    return ceil(sizes.steps / s.r1) * (tiles * (work + copies) + figures.block_wait) + added


def fastest(kernel: Kernel, kind: type[G]) -> G:
    """The tile with the fewest cycles, as a schedule of type `kind`, which may need more memory."""
    make: Callable[..., RegisterGemmSchedule] = kind
    return of_kind(_fastest(kernel, make), kind, "a tile of another type", kernel=kernel.name)


@lru_cache(maxsize=1024)
def _fastest(kernel: Kernel, make: Callable[..., RegisterGemmSchedule]) -> RegisterGemmSchedule:
    sizes = Sizes.of(kernel)
    found = (make(**vars(s)) for s in _tiles())
    return min((s for s in found if not s.objection(kernel)), key=lambda s: cycles(s, sizes))


@lru_cache(maxsize=64)
def cached_tiles_around(
    kernel: Kernel, default: RegisterGemmSchedule, core: Core, group: WorkgroupLimits
) -> tuple[tuple[RegisterGemmSchedule, float], ...]:
    """The tiles of f32 around a default, kept because several strategies ask for them."""
    return tiles_around(kernel, default, core, group)


def tiles_around(
    kernel: Kernel, default: G, core: Core, group: WorkgroupLimits
) -> tuple[tuple[G, float], ...]:
    """At most `MOST_SCHEDULES` with their costs: the default, then the others, best expected
    first."""
    sizes = Sizes.of(kernel)

    def fits(s: RegisterGemmSchedule) -> bool:
        within = LEAST_THREADS <= s.threads <= group.threads and s.shared <= group.shared
        return within and not s.objection(kernel)

    def expected(s: RegisterGemmSchedule) -> float:
        unusual = sum(getattr(s, name) != getattr(default, name) for name in SETTINGS)
        return cost(s, sizes, core) * float(UNUSUAL_COST**unusual)

    def rank(s: RegisterGemmSchedule) -> tuple[float, str]:
        return expected(s), str(s)

    shapes = sorted(filter(fits, _shapes(default, sizes)), key=rank)
    varied = [v for s in (default, *shapes[:VARIED_SHAPES]) for v in _varied(s)]
    walked = (_with_band(s, sizes) for s in (*varied, *shapes))
    found = dict.fromkeys(filter(fits, walked))
    for same in (default, _with_band(default, sizes)):
        found.pop(same, None)
    chosen = (default, *sorted([*found][: MOST_SCHEDULES - 1], key=rank))
    return tuple((s, expected(s)) for s in chosen)


def cost(schedule: RegisterGemmSchedule, sizes: Sizes, core: Core) -> float:
    """Relative time: multiply-adds and loads, divided by the share of the device that is busy."""
    s = schedule
    work = sizes.tiles(s) * s.x1 * s.y1 * -(-sizes.steps // s.r1) * s.r1
    shared = WORD_COSTS.shared_word * (1 / s.x0 + 1 / s.y0)
    each = 1 + shared + WORD_COSTS.memory_word * (1 / s.x1 + 1 / s.y1)
    barriers = 1 + 2 / s.r1
    return (
        work * each * barriers / busy_share(sizes.tiles(s), s.threads, registers(s), s.shared, core)
    )


def busy_share(tiles: int, threads: int, registers: int, shared: int, core: Core) -> float:
    """The share of the device that is busy: cores with a tile, times the occupancy of these cores.

    registers: words of a thread;  shared: bytes of a group
    """
    cores = WORD_COSTS.cores
    spread = tiles / (cores * -(-tiles // cores))
    return spread * _flight(threads, registers, shared, core, max(1.0, tiles / cores))


def registers(schedule: RegisterGemmSchedule) -> int:
    """Words of a thread's registers: sums, one step of both operands, and the block it copies
    ahead."""
    s = schedule
    copied = s.r1 * (s.x1 + s.y1) // s.threads
    return s.x0 * s.y0 + s.x0 + s.y0 + copied + OVERHEAD_REGISTERS


def _flight(threads: int, registers: int, shared: int, core: Core, most: float) -> float:
    """The share of the threads a core needs in flight that it can hold and has work for.

    most: the number of groups there is work for.  A partly filled warp counts in proportion.
    """
    warps = -(-threads // core.warp_width)
    lanes = threads / (warps * core.warp_width)
    room = core.registers / (registers * threads), core.l1 / max(shared, 1), core.warps / warps
    return lanes * min(1.0, max(min(*room, most), 0.25) * threads / WORD_COSTS.busy_threads)


def _shapes(default: G, sizes: Sizes) -> Iterator[G]:
    """Every tile of the ranges, with default settings, that is less than twice as large as the
    product."""
    slices = sorted({1, default.slices})
    for x0, y0, x1, y1, r1, parts in every(
        REGISTER_TILE_SIDES, REGISTER_TILE_SIDES, TILE_ROWS, TILE_COLUMNS, BLOCK_STEPS, slices
    ):
        oversized = x1 >= 2 * max(sizes.rows, TILE_ROWS[0]) or y1 >= 2 * max(
            sizes.cols, TILE_COLUMNS[0]
        )
        if not oversized and x0 <= x1 and y0 <= y1 and r1 < 2 * max(sizes.steps, BLOCK_STEPS[0]):
            r0 = gcd(default.r0, r1 // parts)
            shape = replace(default, x0=x0, y0=y0, r0=r0, x1=x1, y1=y1, r1=r1, band=BANDS[-1])
            yield replace(shape, slices=parts)


def _varied(s: G) -> Iterator[G]:
    """The same shape, and variations that differ in one setting."""
    yield from (replace(s, band=band) for band in BANDS)
    for name, values in SETTINGS.items():
        yield from (replace(s, **{name: value}) for value in values)


def _with_band(s: G, sizes: Sizes) -> G:
    """The schedule with its effective band, so that equal orders of tiles are one candidate."""
    return replace(s, band=sizes.band(s.band, s.x1))
