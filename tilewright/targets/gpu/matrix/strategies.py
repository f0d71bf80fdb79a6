"""The strategy of products by matrix units: tiles of result matrices, staged in shared memory.

Input: a product, and a schedule. Output: schedules to try, and the loop nest of one tile (tiles.py,
async_copies.py). A tile has down x along subgroups, each with rows x columns result matrices:

    for block of r1 matrices of the depth:
        copy the tile's rows and columns to shared memory;  barrier
        for matrix of the depth:  load rows left, columns right;  results += left * right
        barrier
    for result:  to shared memory;  barrier;  store its elements
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product as every
from math import ceil

from tilewright.base.dtypes import F16
from tilewright.kernel.form import QuantisedContraction, classify
from tilewright.kernel.loops import TileFn
from tilewright.kernel.spec import Kernel
from tilewright.targets.cost_figures import MATRIX_UNIT_COSTS
from tilewright.targets.gpu.matrix.async_copies import AsyncCopyTile, WarpgroupTile
from tilewright.targets.gpu.matrix.schedule import MATRIX_TYPES, MatrixGemmSchedule, staged_types_of
from tilewright.targets.gpu.matrix.tiles import F16MatrixTile, Int8MatrixTile, MatrixTile
from tilewright.targets.gpu.product.fast_division import fast_division
from tilewright.targets.gpu.product.schedule import BANDS, Sizes
from tilewright.targets.gpu.tile.addressing import operands, tile_of
from tilewright.targets.gpu.workgroup_limits import (
    COMMON_UNITS,
    CORES,
    MATRIX_UNITS,
    SHARED_SIZES,
    WorkgroupLimits,
)
from tilewright.targets.gpu.workgroup_strategy import UNUSUAL_COST, WorkgroupStrategy
from tilewright.targets.lite_space import Core
from tilewright.targets.vectors import LANES

#: The unit that is faster on NVIDIA's GPUs for weights of few bits where tiles have no slices.
FEW_BITS_UNIT = (16, 8, 16, 32)

#: Values that are tried: result matrices of a subgroup; subgroups of a tile; bytes of the depth in
#: a slice of a block; slices.
RESULTS_PER_SUBGROUP = ((1, 1), (1, 2), (2, 2), (4, 2), (2, 4), (4, 4), (4, 8))

SUBGROUPS_PER_TILE = ((1, 1), (2, 1), (1, 2), (2, 2), (2, 4), (4, 2))

SLICE_BYTES = (32, 64)

SLICE_COUNTS = (1, 2)

#: The most candidates of each unit.
MATRIX_GEMM_CANDIDATES = 8

#: The most elements of a block that a thread may copy; with more, registers spill.
MOST_COPIED_ELEMENTS = 64


class MatrixGemm(WorkgroupStrategy[MatrixGemmSchedule]):
    """Products of bytes or f16 with enough rows to fill a matrix."""

    kind = MatrixGemmSchedule

    def suits(self, kernel: Kernel) -> bool:
        return staged_types_of(kernel) != "" and operands(kernel).m.extent >= LANES

    def space(
        self, kernel: Kernel, core: Core, group: WorkgroupLimits
    ) -> tuple[tuple[MatrixGemmSchedule, float], ...]:
        """The best expected schedules of each unit: large tiles that leave no core without work."""
        found, most = list[tuple[MatrixGemmSchedule, float]](), max(group.shared, SHARED_SIZES[-1])
        for ranked in ranked_by_unit(kernel):
            able = [p for p in ranked if p[0].threads <= group.threads and p[0].shared <= most]
            found += able[:MATRIX_GEMM_CANDIDATES]
        return tuple(found)

    def defaults_with_features(self, kernel: Kernel) -> tuple[MatrixGemmSchedule, ...]:
        """Defaults for untuned kernels: the best expected schedule of each common unit."""
        if not self.suits(kernel):
            return ()
        ranked = {
            _unit(found[0][0]): [s for s, _ in found] for found in ranked_by_unit(kernel) if found
        }
        units = [unit for unit in ranked if unit in COMMON_UNITS]
        few_bits = isinstance(classify(kernel), QuantisedContraction)
        if few_bits and ranked.get(FEW_BITS_UNIT) and ranked[FEW_BITS_UNIT][0].slices == 1:
            units = [FEW_BITS_UNIT, *units]
        # Devices with less shared memory get a default, too.
        limits = SHARED_SIZES[::-1]
        best = (
            next((s for s in ranked[u] if s.shared <= m), None) for u, m in every(units, limits)
        )
        return tuple(dict.fromkeys(s for s in best if s is not None))

    def traffic(self, kernel: Kernel, schedule: MatrixGemmSchedule) -> tuple[int, float]:
        """Scratch bytes, and words moved; beyond shared memory each byte counts as a word."""
        sizes, s = Sizes.of(kernel), schedule
        tiles = sizes.tiles(s)
        loads = MATRIX_TYPES[s.types].group * tiles * sizes.steps * (s.x1 + s.y1)
        return s.shared, float(loads + sizes.stored)

    def lower(self, kernel: Kernel, schedule: MatrixGemmSchedule) -> TileFn:
        s, operand = schedule, MATRIX_TYPES[schedule.types].operand
        copied: type[MatrixTile] = WarpgroupTile if s.asynchronous else AsyncCopyTile
        staged: type[MatrixTile] = F16MatrixTile if operand == F16 else Int8MatrixTile
        kind = copied if s.stages > 1 else staged
        rounded = fast_division(kernel) if operand == F16 else kernel
        return kind(tile_of(rounded, s.x1, s.y1, s.band, s.threads), s).emit()


def _unit(s: MatrixGemmSchedule) -> tuple[int, int, int, int]:
    return s.m, s.n, s.k, s.width


def ranked_by_unit(kernel: Kernel) -> Iterator[list[tuple[MatrixGemmSchedule, float]]]:
    """For each unit all schedules that may be tried with their costs, best expected first."""
    types, sizes = staged_types_of(kernel), Sizes.of(kernel)
    for unit in MATRIX_UNITS[types]:
        able = (s for s in _schedules_of_unit(types, *unit, sizes) if not s.objection(kernel))
        costs = ((s, _cost(s, sizes) * (1.0 if s.ahead else UNUSUAL_COST)) for s in able)
        yield sorted(costs, key=lambda pair: (pair[1], str(pair[0])))


def _schedules_of_unit(
    types: str, m: int, n: int, k: int, width: int, sizes: Sizes
) -> Iterator[MatrixGemmSchedule]:
    size = MATRIX_TYPES[types].operand.size
    choices = every(
        RESULTS_PER_SUBGROUP, SUBGROUPS_PER_TILE, SLICE_BYTES, (True, False), SLICE_COUNTS
    )
    for (rows, columns), (down, along), block, ahead, slices in choices:
        r1 = slices * max(1, block // (k * size))
        s = MatrixGemmSchedule(
            types, m, n, k, width, rows, columns, down, along, r1, ahead=ahead, slices=slices
        )
        yield from worth_trying(s, sizes)


def worth_trying(s: MatrixGemmSchedule, sizes: Sizes) -> Iterator[MatrixGemmSchedule]:
    """The schedule with its band, unless it is at least twice as large as the product or each
    thread would copy more elements than its registers hold."""
    few = s.stages > 1 or (s.x1 + s.y1) * s.depth <= MOST_COPIED_ELEMENTS * s.threads
    if few and s.x1 < 2 * max(sizes.rows, s.m) and s.y1 < 2 * max(sizes.cols, s.n):
        yield replace(s, band=sizes.band(BANDS[-1], s.x1))


def _cost(s: MatrixGemmSchedule, sizes: Sizes) -> float:
    """The expected cost in the unit of product/cost_model.py: f32 multiply-adds of all cores.

    A core runs several groups at once, and is partly idle in the last round if few are left.
    """
    figures = MATRIX_UNIT_COSTS
    most = ceil(sizes.tiles(s) / CORES)
    together = max(1, figures.busy_threads // s.threads)
    last = most % together
    half_busy = figures.busy_threads * figures.half_busy / s.threads
    rounds = most - last + (max(last, half_busy) if last else 0)
    work = CORES * rounds * s.x1 * s.y1 * ceil(sizes.steps / s.depth) * s.depth
    types = MATRIX_TYPES[s.types]
    halves = types.operand == F16
    read = figures.memory_read * ((1 if halves else figures.byte_columns) / s.x1 + 1 / s.y1)
    shared = figures.shared_read * (1 / s.m / s.rows + 1 / s.n / s.columns)
    each = figures.arithmetic + read + shared
    waits = 1 + figures.barrier_bytes / (s.own * types.group * types.operand.size)
    one_group = figures.one_group if s.threads >= figures.busy_threads and halves else 1
    return work * each / figures.speed * waits * one_group


MATRIX_GEMM = MatrixGemm()
