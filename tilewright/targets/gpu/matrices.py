"""Products by the matrix units of subgroups: tiles of result matrices, staged in shared memory.

Input: a product, and a schedule.  Output: the loop nest of one tile (matrix_tiles.py).  A tile has
down x along subgroups, each with rows x columns results:

    for block of r1 matrices of the depth:
        copy the tile's rows and columns to shared memory;  barrier
        for matrix of the depth:  load rows left, columns right;  results += left * right
        barrier
    for result:  to a patch of shared memory;  barrier;  its elements, as they are stored

Products are of u8 by i8 with a depth packed in groups of four (dots.py), exactly; or of numbers
that are rounded to halves on their way, with sums in f32, where the model itself computes in halves
or the user says that it may (docs/decisions/0023-products-of-halves.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product as every
from math import ceil, gcd

from tilewright.base.dtypes import F16, F32, I8, I32, U8, DType
from tilewright.kernel.form import BlockContraction, classify, in_halves, in_tf32
from tilewright.kernel.loops import MatrixUnit, TileFn
from tilewright.kernel.spec import Kernel
from tilewright.targets.gpu import dots, features
from tilewright.targets.gpu.copies import LINE, STAGES, CopiedTile, WarpgroupTile, lies, most_bytes
from tilewright.targets.gpu.dots import GROUP
from tilewright.targets.gpu.features import (
    LARGER_SIZES,
    MATRIX,
    SHARED_SIZES,
    SIZES,
    SUBGROUPS,
    shared_of,
    size_of,
)
from tilewright.targets.gpu.matrix_tiles import PAD, ByteTile, HalfTile, MatrixTile
from tilewright.targets.gpu.places import fixed_product, operands, tile_of
from tilewright.targets.gpu.quick import quick
from tilewright.targets.gpu.schedule import WORD, Sizes, beyond
from tilewright.targets.gpu.space import BANDS, UNUSUAL, Group
from tilewright.targets.gpu.staging import LANES
from tilewright.targets.lite import Core
from tilewright.targets.schedule import Schedule

#: Threads of a warp group of Hopper, and what lies between rows of its results in shared memory.
WARPGROUP, WIDE_PAD = 128, 8
#: Sums of a thread beyond which NVIDIA's registers do not last.
MOST_SUMS = 128


@dataclass(frozen=True)
class Types:
    """Of operands and results.

    group: elements of a step of the product;  feature: beside matrices
    suits: whether a product may be computed so
    tile:  what one is made by, where operands are not copied ahead; None: they always are
    fraction: as of `MatrixUnit`
    """

    operand: DType
    result: DType
    group: int
    feature: str
    suits: Callable[[Kernel], bool]
    tile: type[MatrixTile] | None = None
    fraction: int = 0


def _of_floats(allowed: Callable[[Kernel], bool]) -> Callable[[Kernel], bool]:
    """Products of f32 with columns enough, fixed extents and no traps, that may be rounded so."""

    def suits(kernel: Kernel) -> bool:
        ops = fixed_product(kernel)
        return ops is not None and ops.n.extent >= LANES and allowed(kernel)

    return suits


#: By `MatrixSchedule.types`, the middle of a feature's name.
TYPES = {
    "i8-i32": Types(I8, I32, GROUP, features.PACKED, dots.suits, ByteTile),
    "f16-f32": Types(F16, F32, 1, features.F16, _of_floats(in_halves), HalfTile),
    "u8-i32": Types(U8, I32, GROUP, features.PACKED, dots.suits),
    "tf32-f32": Types(F32, F32, 1, features.COPIES, _of_floats(in_tf32), fraction=10),
}


@dataclass(frozen=True)
class MatrixSchedule(Schedule):
    """Tiles of down x along subgroups with rows x columns results each.

    m, n, k: sizes of the unit's matrices;  types: of operands and results
    width:   threads of a subgroup
    r1:      matrices of the depth in a block
    slices:  parts of each block's depth, each computed by down x along subgroups of its own, which
             add up their sums in the end: work for more threads where tiles are few ("split-K")
    band, ahead, apart: as of `GroupSchedule`
    stages:  blocks that shared memory has room for, all but one copied ahead (copies.py); 1: by way
             of registers
    """

    form = "matrix"
    types: str = "i8-i32"
    m: int = 16
    n: int = 16
    k: int = 32
    width: int = 32
    rows: int = 2
    columns: int = 2
    down: int = 2
    along: int = 2
    r1: int = 1
    band: int = 1
    ahead: bool = True
    apart: bool = False
    slices: int = 1
    stages: int = 1

    @property
    def features(self) -> frozenset[str]:
        sizes = f"subgroup-matrix-{self.types}-{self.m}x{self.n}x{self.k}"
        own = {MATRIX, SUBGROUPS, TYPES[self.types].feature, size_of(self.width), sizes}
        own |= {features.COPIES} if self.stages > 1 else set()
        return frozenset(own | shared_of(self.shared))

    @property
    def x1(self) -> int:
        return self.m * self.rows * self.down

    @property
    def y1(self) -> int:
        return self.n * self.columns * self.along

    @property
    def subgroups(self) -> int:
        return self.slices * self.down * self.along

    @property
    def threads(self) -> int:
        return self.width * self.subgroups

    @property
    def depth(self) -> int:
        """Steps of a block."""
        return self.r1 * self.k // TYPES[self.types].group

    @property
    def own(self) -> int:
        """Steps of a slice of a block."""
        return self.depth // self.slices

    @property
    def gap(self) -> int:
        """Groups between rows of bytes in shared memory."""
        return LANES if self.apart else 0

    @property
    def shared(self) -> int:
        """Bytes of shared memory: blocks, of bytes also sums of columns, a result of each
        subgroup."""
        patches = WORD * self.subgroups * self.m * self.pitch
        if self.detached:
            step = TYPES[self.types].operand.size * TYPES[self.types].group
            return max(self.stages * (self.x1 + self.y1) * self.depth * step, patches)
        if self.stages > 1:
            types = TYPES[self.types]
            widths = (most_bytes(width, self.depth, types.operand.size, types.group)
                      for width in (self.x1, self.y1))  # fmt: skip
            return max(self.stages * sum(widths), patches)
        if TYPES[self.types].operand == F16:
            # a gap follows each step of a part, or each of its rows or columns
            rows = max(self.x1 * self.slices, self.depth * self.down)
            columns = max(self.y1 * self.slices, self.depth * self.along)
            return F16.size * (self.depth * (self.x1 + self.y1) + PAD * (rows + columns)) + patches
        pitch = self.depth + self.slices * self.gap
        return WORD * ((self.x1 + self.y1) * pitch + self.y1) + patches

    @property
    def pitch(self) -> int:
        """Elements from row to row of a result in shared memory."""
        return self.n + (WIDE_PAD if self.detached else 0)

    @property
    def detached(self) -> bool:
        """Whether subgroups are whole warp groups, whose units read shared memory themselves."""
        return self.width == WARPGROUP

    @property
    def unit(self) -> MatrixUnit:
        types = TYPES[self.types]
        return MatrixUnit(
            self.m,
            self.n,
            self.k,
            types.operand,
            types.result,
            self.width,
            types.fraction,
            self.detached,
        )

    def objection(self, kernel: Kernel) -> str:
        if found := super().objection(kernel):
            return found
        if self.width not in SIZES:
            return f"width is one of {', '.join(map(str, SIZES))}"
        if self.m % LANES or self.n % LANES or self.k % (LANES * GROUP // 2):
            return f"m and n are multiples of {LANES}, k of {LANES * GROUP // 2}"
        if self.rows * self.columns * self.m * self.n > MOST_SUMS * self.width:
            return f"a thread has at most {MOST_SUMS} sums"
        if self.r1 % self.slices:
            return "r1 is a multiple of slices"
        if not TYPES[self.types].suits(kernel):
            return f"the operands of {kernel.name} are no {self.types}"
        if self.stages > STAGES[-1] or (TYPES[self.types].tile is None and self.stages == 1):
            return f"{self.types} has {STAGES[0]} to {STAGES[-1]} stages"
        if self.stages > 1 and not copied_as(self.types, kernel):
            return f"the operands of {kernel.name} cannot be copied as they lie"
        if self.detached and (
            self.stages == 1 or self.depth * TYPES[self.types].operand.size != LINE
        ):
            return f"warp groups have stages, no slices, and {LINE} bytes of the depth in a block"
        form = classify(kernel)
        if isinstance(form, BlockContraction) and self.depth % form.weights.together:
            return f"r1 * k is a multiple of the {form.weights.together} weights read at a time"
        most = LARGER_SIZES if self.stages > 1 else SHARED_SIZES
        return beyond(self.threads, self.shared, most[-1])


def types_of(kernel: Kernel) -> str:
    """In which types matrix units compute a product without stages; "" if in none."""
    found = (name for name, types in TYPES.items() if types.tile and types.suits(kernel))
    return next(found, "")


def copied_as(types: str, kernel: Kernel) -> bool:
    """Whether both operands lie so that they can be copied as what these types multiply."""
    found = lies(kernel)
    want = (U8, I8) if types == "u8-i32" else (TYPES[types].operand,) * 2
    return found is not None and tuple(lie.dtype for lie in found) == want


def suits(kernel: Kernel) -> bool:
    """True for products of bytes or halves with rows for a matrix."""
    return types_of(kernel) != "" and operands(kernel).m.extent >= LANES


def traffic(kernel: Kernel, schedule: MatrixSchedule) -> tuple[int, float]:
    """Bytes of shared memory; words loaded and stored beyond it, where a byte takes one."""
    sizes, s = Sizes.of(kernel), schedule
    tiles = sizes.tiles(s)
    loads = TYPES[s.types].group * tiles * sizes.steps * (s.x1 + s.y1)
    return s.shared, float(loads + sizes.batch * sizes.rows * sizes.cols)


def _unit(s: MatrixSchedule) -> tuple[int, int, int, int]:
    return s.m, s.n, s.k, s.width


#: Units that are tried, by types: sizes and threads, of Mesa's software driver, Apple, Intel,
#: NVIDIA.
UNITS: Mapping[str, tuple[tuple[int, int, int, int], ...]] = {
    "i8-i32": ((8, 8, 8, 8), (8, 16, 32, 16), (16, 16, 32, 32), (16, 8, 32, 32)),
    "f16-f32": ((8, 8, 8, 8), (8, 8, 8, 32), (8, 16, 16, 16), (16, 16, 16, 32), (16, 8, 16, 32)),
}
#: Units of GPUs that many have, for products that fill one: NVIDIA's and Intel's; and the one that
#: is faster on NVIDIA's with weights of few bits where tiles have no slices.
USUAL = frozenset({(16, 16, 32, 32), (16, 16, 16, 32), (8, 16, 32, 16), (8, 16, 16, 16)})
FEW_BITS = (16, 8, 16, 32)
#: Results of a subgroup; subgroups of a tile; bytes of the depth in a slice of a block; slices.
RESULTS = ((1, 1), (1, 2), (2, 2), (4, 2), (2, 4), (4, 4), (4, 8))
SUBGROUPS_OF = ((1, 1), (2, 1), (1, 2), (2, 2), (2, 4), (4, 2))
BLOCKS = (32, 64)
SLICES = (1, 2)
#: Candidates of each unit, and how much faster than products of f32 large tiles are.
EACH, PACE = 8, 8.0
#: Cores of the GPU on which this was measured.
CORES = 132
#: Threads with which a core is busy; what half of them take for the same work; what it costs that
#: they are of one group, and all wait for its barriers.  Not of bytes: what they read takes four
#: times the room, and a larger tile saves more than it waits.
BUSY, HALF_BUSY, ONE_GROUP = 256, 0.9, 1.2
#: The time of a multiply-add by large tiles: what it is alone, what reads of memory and of shared
#: memory add for each row and column; bytes of a slice's depth that barriers take as long as.
ALONE, READ, LOAD, WAIT = 0.1, 25.6, 16.0, 64
#: What it takes to read columns of bytes, which are added up, over rows.
SUMMED = 1.1
#: Elements that a thread copies in a block, beyond which registers do not last.
MOST_COPIED = 64


def space(kernel: Kernel, core: Core, group: Group) -> tuple[tuple[MatrixSchedule, float], ...]:
    """Of each unit the likely best: large tiles that leave no core without work."""
    del core
    found, most = list[tuple[MatrixSchedule, float]](), max(group.shared, SHARED_SIZES[-1])
    for ranked in each_unit(kernel):
        able = [p for p in ranked if p[0].threads <= group.threads and p[0].shared <= most]
        found += able[:EACH]
    return tuple(found)


def usual(kernel: Kernel) -> tuple[MatrixSchedule, ...]:
    """The likely best of each unit in `USUAL`: what is tried first where nothing was tuned."""
    if not suits(kernel):
        return ()
    ranked = {_unit(found[0][0]): [s for s, _ in found] for found in each_unit(kernel) if found}
    units = [unit for unit in ranked if unit in USUAL]
    few_bits = isinstance(classify(kernel), BlockContraction)
    if few_bits and ranked.get(FEW_BITS) and ranked[FEW_BITS][0].slices == 1:
        units = [FEW_BITS, *units]
    # devices that share less have one, too
    limits = SHARED_SIZES[::-1]
    best = (next((s for s in ranked[u] if s.shared <= m), None) for u, m in every(units, limits))
    return tuple(dict.fromkeys(s for s in best if s is not None))


def each_unit(kernel: Kernel) -> Iterator[list[tuple[MatrixSchedule, float]]]:
    """All that may be tried with their costs, unit by unit, the likely best first."""
    types, sizes = types_of(kernel), Sizes.of(kernel)
    for unit in UNITS[types]:
        able = (s for s in _of_unit(types, *unit, sizes) if not s.objection(kernel))
        costs = ((s, _cost(s, sizes) * (1.0 if s.ahead else UNUSUAL)) for s in able)
        yield sorted(costs, key=lambda pair: (pair[1], str(pair[0])))


def _of_unit(
    types: str, m: int, n: int, k: int, width: int, sizes: Sizes
) -> Iterator[MatrixSchedule]:
    size = TYPES[types].operand.size
    choices = every(RESULTS, SUBGROUPS_OF, BLOCKS, (True, False), SLICES)
    for (rows, columns), (down, along), block, ahead, slices in choices:
        r1 = slices * max(1, block // (k * size))
        s = MatrixSchedule(
            types, m, n, k, width, rows, columns, down, along, r1, ahead=ahead, slices=slices
        )
        fits = (s.x1 + s.y1) * s.depth <= MOST_COPIED * s.threads
        if fits and s.x1 < 2 * max(sizes.rows, m) and s.y1 < 2 * max(sizes.cols, n):
            yield replace(s, band=gcd(BANDS[-1], ceil(sizes.rows / s.x1)))


def _cost(s: MatrixSchedule, sizes: Sizes) -> float:
    """In the unit of space.py: multiply-adds with their words, as if all cores were busy.

    A core has several groups at a time, and is not busy with the last ones if these are few.
    """
    most = ceil(sizes.tiles(s) / CORES)
    together = max(1, BUSY // s.threads)
    last = most % together
    rounds = most - last + (max(last, BUSY * HALF_BUSY / s.threads) if last else 0)
    work = CORES * rounds * s.x1 * s.y1 * ceil(sizes.steps / s.depth) * s.depth
    types = TYPES[s.types]
    halves = types.operand == F16
    read = READ * ((1 if halves else SUMMED) / s.x1 + 1 / s.y1)
    each = ALONE + read + LOAD * (1 / s.m / s.rows + 1 / s.n / s.columns)
    waits = 1 + WAIT / (s.own * types.group * types.operand.size)
    one_group = ONE_GROUP if s.threads >= BUSY and halves else 1
    return work * each / PACE * waits * one_group


def lower(kernel: Kernel, schedule: MatrixSchedule) -> TileFn:
    """Tiles of x1 rows by y1 columns; what lies beyond the ends is read as 0 and not stored."""
    s = schedule
    copied = WarpgroupTile if s.detached else CopiedTile
    kind = copied if s.stages > 1 else TYPES[s.types].tile
    assert kind is not None, f"{s.types} without stages"
    rounded = quick(kernel) if TYPES[s.types].operand == F16 else kernel
    return kind(tile_of(rounded, s.x1, s.y1, s.band, s.threads), s).emit()
