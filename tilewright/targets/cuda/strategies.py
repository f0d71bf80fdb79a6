"""CUDA's own strategies: GEMM by tensor cores, and another first tile of f32 GEMM.

Input: a product, and the figures of a device class.  Output: schedules, best expected first.
targets/gpu makes the loops.  The cost model of tensor cores counts the cycles of a multiprocessor;
targets/cost_figures.py has its figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product as every
from math import ceil, sqrt

from tilewright.base.errors import of_kind
from tilewright.kernel.spec import Kernel
from tilewright.targets.cost_figures import TENSOR_CORE_CYCLES
from tilewright.targets.cuda.device_classes import CudaLimits
from tilewright.targets.cuda.features import MMA_SIZES, WGMMA_SIZES, features_of
from tilewright.targets.gpu.matrix.operands import STAGES
from tilewright.targets.gpu.matrix.schedule import MATRIX_TYPES, MatrixGemmSchedule
from tilewright.targets.gpu.matrix.strategies import MatrixGemm, worth_trying
from tilewright.targets.gpu.product.schedule import RegisterGemmSchedule, Sizes
from tilewright.targets.gpu.product.strategies import RegisterGemm
from tilewright.targets.gpu.tile.addressing import operands
from tilewright.targets.gpu.workgroup_limits import CORES, WARP, WARPGROUP, WorkgroupLimits
from tilewright.targets.lite_space import LINE_BYTES, Core
from tilewright.targets.vectors import LANES

#: Rows, columns and threads of the f32 tile that `TransposedTile` transposes.
WIDE_TILE = (64, 128, 128)
#: Matrix results of a warp, and warps of a tile, as (rows, columns): the values that are tried.
RESULTS_PER_WARP = ((4, 4), (2, 4), (4, 2), (2, 2), (1, 4), (1, 2))
WARPS_PER_TILE = ((2, 4), (4, 2), (2, 2), (1, 4), (1, 2), (4, 1))
#: The same for warp groups.
RESULTS_PER_WARPGROUP, WARPGROUPS_PER_TILE = ((1, 2), (2, 1), (1, 1)), ((2, 1), (1, 2))
#: Values that are tried: bytes of a block's depth; blocks of a slice.
BLOCK_BYTES, SLICE_COUNTS = (64, 128), (1, 2)
#: The most candidates of a type and a kind of unit.
CANDIDATES_PER_TYPE = 12
#: Shared memory in bytes of a block on common GPUs, largest first: there is a default for each.
SHARED_LIMITS = (232448, 166912, 101376)


class TransposedTile(RegisterGemm):
    """f32 tiles; the first choice may have its sides exchanged.

    Rows are copied in pieces of four by four elements.  In a tile of 64 rows and 128 columns only
    half of the threads copy while the others wait.  In a tile of 128 rows and 64 columns all of
    them copy. In CUDA C++ the second tile is up to 1.3 times as fast.  In WGSL it is slower, so
    WGSL does not try it first (decision 61).
    """

    def default(self, kernel: Kernel) -> RegisterGemmSchedule:
        default = super().default(kernel)
        wide = (default.x1, default.y1, default.threads) == WIDE_TILE
        return replace(default, x1=default.y1, y1=default.x1) if wide else default


class TensorCores(MatrixGemm):
    """Products by the matrix units (tensor cores) of warps and of warp groups."""

    def suits(self, kernel: Kernel) -> bool:
        """True for products of f16, bytes or relaxed f32 with enough rows to fill a matrix."""
        able = any(types.suits(kernel) for types in MATRIX_TYPES.values())
        return able and operands(kernel).m.extent >= LANES

    def space(
        self, kernel: Kernel, core: Core, group: WorkgroupLimits
    ) -> tuple[tuple[MatrixGemmSchedule, float], ...]:
        """For each type and each kind of unit, the best expected schedules that a device can
        run."""
        own = of_kind(group, CudaLimits, "a class of CUDA says its capability", kernel=kernel.name)
        found, has = list[tuple[MatrixGemmSchedule, float]](), features_of(own.capability)
        for types in MMA_SIZES:
            for shapes in (_warp_schedules, _warpgroup_schedules):
                able = [s for s in _ranked(kernel, types, shapes) if s.features <= has]
                found += [(s, cost(s, kernel)) for s in able[:CANDIDATES_PER_TYPE]]
        return tuple(found)

    def defaults_with_features(self, kernel: Kernel) -> tuple[MatrixGemmSchedule, ...]:
        """Default schedules, best expected first: one for warp groups, then for each type and each
        size of shared memory the best one with asynchronous copies; those without such copies come
        last."""
        if not self.suits(kernel):
            return ()
        found = dict[MatrixGemmSchedule, None]()
        by_groups = _ranked(kernel, "f16-f32", _warpgroup_schedules)[:1]
        found |= dict.fromkeys(by_groups)
        for types in ("f16-f32", "u8-i32", "tf32-f32", "i8-i32"):
            ranked = _ranked(kernel, types, _warp_schedules)
            for limit, stages in every(SHARED_LIMITS, (True, False)):
                fits = (s for s in ranked if s.shared <= limit and (s.stages > 1) == stages)
                found |= dict.fromkeys([s for s in [next(fits, None)] if s is not None])
        return tuple(sorted(found, key=lambda s: (s.stages == 1, cost(s, kernel))))


ScheduleSource = Callable[[str, Sizes], Iterator[MatrixGemmSchedule]]


def _ranked(kernel: Kernel, types: str, shapes: ScheduleSource) -> list[MatrixGemmSchedule]:
    """All schedules of a type that a kernel can have, best expected first."""
    if not MATRIX_TYPES[types].suits(kernel):
        return []
    able = (s for s in shapes(types, Sizes.of(kernel)) if not s.objection(kernel))
    return sorted(able, key=lambda s: (cost(s, kernel), -s.n, str(s)))


def _warp_schedules(types: str, sizes: Sizes) -> Iterator[MatrixGemmSchedule]:
    m, n, k = map(int, MMA_SIZES[types][0].split("x"))
    size = MATRIX_TYPES[types].operand.size
    choices = every(RESULTS_PER_WARP, WARPS_PER_TILE, BLOCK_BYTES, SLICE_COUNTS, (1, *STAGES))
    for (rows, columns), (down, along), block, slices, stages in choices:
        r1 = slices * block // (k * size)
        s = MatrixGemmSchedule(
            types, m, n, k, WARP, rows, columns, down, along, r1, slices=slices, stages=stages
        )
        yield from worth_trying(s, sizes)


def _warpgroup_schedules(types: str, sizes: Sizes) -> Iterator[MatrixGemmSchedule]:
    if types != "f16-f32":
        return
    units = (map(int, size.split("x")) for size in WGMMA_SIZES[1:])
    choices = every(map(tuple, units), RESULTS_PER_WARPGROUP, WARPGROUPS_PER_TILE, STAGES)
    for (m, n, k), (rows, columns), (down, along), stages in choices:
        r1 = LINE_BYTES // (k * MATRIX_TYPES[types].operand.size)
        s = MatrixGemmSchedule(
            types, m, n, k, WARPGROUP, rows, columns, down, along, r1, stages=stages
        )
        yield from worth_trying(s, sizes)


def cost(s: MatrixGemmSchedule, kernel: Kernel) -> float:
    """The expected cost in the unit of product/cost_model.py: f32 multiply-adds of all cores."""
    return cycles(s, Sizes.of(kernel)) * CORES * TENSOR_CORE_CYCLES.f32_multiply_adds


def cycles(s: MatrixGemmSchedule, sizes: Sizes) -> float:
    """The cycles that a multiprocessor is expected to take."""
    figures, types = TENSOR_CORE_CYCLES, MATRIX_TYPES[s.types]
    step = types.operand.size * types.group
    most = ceil(sizes.tiles(s) / CORES)
    warps = min(figures.busy_warps, s.threads // WARP * min(most, SHARED_LIMITS[0] // s.shared))
    pace = figures.multiplied_bytes * (figures.warpgroup_speed if s.asynchronous else 1)
    multiplied = s.x1 * s.y1 * step / pace * sqrt(figures.busy_warps / warps)
    read = (s.x1 + s.y1) * step / figures.memory_bytes
    each = s.m * s.rows + s.n * s.columns
    if s.asynchronous:
        each = (s.m + s.n) * s.rows * s.columns
    shared = s.down * s.along * each * step / figures.shared_bytes
    block = s.depth * max(multiplied, read, shared)
    if s.stages == 1:
        block *= figures.without_copies
    else:
        block += figures.barrier + max(0, figures.copy_lead - (s.stages - 1) * block)
    return most * (ceil(sizes.steps / s.depth) * block + figures.tile_ends)


TRANSPOSED_TILE, TENSOR_CORES = TransposedTile(), TensorCores()
