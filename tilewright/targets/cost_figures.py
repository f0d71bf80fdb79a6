"""The figures of the cost models that choose tiles: one record for each model.

Input: none. Output: constants. The functions that use them are beside the strategies. They order
schedules and choose defaults, so another figure may mean another default.

Where the figures come from: those of register tiles, matrix units and tensor cores were fitted by
hand to runs on one NVIDIA H200, of some 1,500 variants of tiles (docs/decisions/0020, 0023, 0026,
0033). No command repeats the fit. These commands time the tiles that the models choose, beside
cuBLAS:

    python -m benchmarks gpu.kernels        register tiles, f16 tiles and matrix units in WGSL
    python -m benchmarks cuda.kernels       register tiles and tensor cores in CUDA C++
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class RegisterTileCycles:
    """Cycles of a core of an H200 for tiles of f32 (product/cost_model.py). The default schedule is
    the tile with the fewest.

    multiply_adds_per_cycle: of a core, at its peak
    schedulers:          that share a core's warps
    speed:               the share of the peak that a core reaches, by elements of a register tile;
                         the rest of the time it waits for shared memory
    row_words_per_cycle, column_words_per_cycle: words that a core copies. Rows are faster, since
                         fewer threads copy them in larger units
    block_wait:          cycles of a block that no other tile hides
    slice_sum:           cycles of adding up slices, per element of a register tile
    few_waves:           with at most this number of waves of tiles, the last wave counts as a whole
    sliced_speed:        of slices where whole tiles keep the GPU busy anyway
    checked_time:        relative time of tiles that reach beyond an end: every load is checked
    """

    multiply_adds_per_cycle: int = 128
    schedulers: int = 4
    speed: Mapping[int, float] = field(default_factory=lambda: {64: 0.70, 32: 0.61, 16: 0.44})
    row_words_per_cycle: int = 44
    column_words_per_cycle: int = 22
    block_wait: int = 230
    slice_sum: int = 38
    few_waves: int = 4
    sliced_speed: float = 0.8
    checked_time: float = 1.4


@dataclass(frozen=True)
class WordCosts:
    """Costs of tiles on any GPU, in f32 multiply-adds (`cost` in product/cost_model.py). They order
    the candidates, and were not fitted.

    shared_word, memory_word: multiply-adds in the time of one word from shared memory, and from
        memory beyond it
    other_thread_word, cached_word: the same from another thread of a subgroup, and from a cache;
        NVIDIA's cores do four for each
    cores:        of a common GPU; small GPUs have 6, large ones 130
    busy_threads: threads in flight that a core needs to hide memory latency
    """

    shared_word: float = 2.0
    memory_word: float = 16.0
    other_thread_word: float = 4.0
    cached_word: float = 4.0
    cores: int = 48
    busy_threads: int = 256


@dataclass(frozen=True)
class MatrixUnitCosts:
    """Costs of tiles of matrix units in WGSL, in f32 multiply-adds (matrix/strategies.py).

    speed:           of large tiles over f32 products
    arithmetic:      part of a multiply-add's time in large tiles
    memory_read, shared_read: the same of reads from memory, and from shared memory, for each row
                     and column
    barrier_bytes:   bytes of a slice's depth that take as long as a barrier
    byte_columns:    cost of reading columns of bytes over rows, since columns are also summed
    busy_threads:    threads that keep a core busy;  half_busy: the time that half of them take for
                     the same work
    one_group:       the extra cost if the busy threads are one group, since all of it waits at a
                     barrier. It is not counted for bytes: a larger tile of bytes saves more reads
                     than it waits
    """

    speed: float = 8.0
    arithmetic: float = 0.1
    memory_read: float = 25.6
    shared_read: float = 16.0
    barrier_bytes: int = 64
    byte_columns: float = 1.1
    busy_threads: int = 256
    half_busy: float = 0.9
    one_group: float = 1.2


@dataclass(frozen=True)
class TensorCoreCycles:
    """Cycles of a multiprocessor of an H200 for tensor cores (cuda/strategies.py).

    multiplied_bytes: bytes of both operands that it multiplies in a cycle (2048: 1024 f16
                     multiply-adds)
    memory_bytes, shared_bytes: bytes that it reads in a cycle from memory, and from shared memory
    tile_ends:       cycles of a tile's start and end
    busy_warps:      warps that keep a multiprocessor busy
    warpgroup_speed: how many times faster the instructions of warp groups multiply
    without_copies:  how many times longer a block takes without asynchronous copies
    barrier:         cycles of a barrier;  copy_lead: cycles before its use at which a copy starts
    f32_multiply_adds: in a cycle without tensor cores: the unit of costs
    """

    multiplied_bytes: int = 2048
    memory_bytes: int = 32
    shared_bytes: int = 128
    tile_ends: int = 3000
    busy_warps: int = 8
    warpgroup_speed: int = 2
    without_copies: float = 1.8
    barrier: int = 60
    copy_lead: int = 2500
    f32_multiply_adds: int = 128


REGISTER_TILE_CYCLES, WORD_COSTS = RegisterTileCycles(), WordCosts()
MATRIX_UNIT_COSTS, TENSOR_CORE_CYCLES = MatrixUnitCosts(), TensorCoreCycles()
