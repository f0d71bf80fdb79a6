"""Products by the matrix units of subgroups: tiles of result matrices, staged in shared memory.

Input: a product of u8 by i8 whose depth is packed in groups of four, and a schedule.  Output: the
loop nest of one tile.  A tile has down x along subgroups, each with rows x columns results:

    for block of r1 matrices of the depth:
        copy the tile's rows and columns to shared memory, each contiguous along the depth;  barrier
        for matrix of the depth:  load rows left, columns right;  results += left * right
        barrier
    for result:  to a patch of shared memory;  barrier;  its elements, as they are stored

Bytes and their signs are as in dots.py.  Operands of another type need another `Side`
and `MatrixUnit`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product as every
from math import ceil, gcd, prod

from tilewright.base.dtypes import I8, I32
from tilewright.kernel.builder import Builder, Values
from tilewright.kernel.expr import Call, Load, Reg
from tilewright.kernel.index import Index, index, unflatten
from tilewright.kernel.loops import (
    Barrier,
    LoadMatrix,
    MatrixUnit,
    MultiplyMatrices,
    Scratch,
    StoreMatrix,
    TileFn,
    ZeroMatrix,
)
from tilewright.kernel.spec import Kernel
from tilewright.targets.gpu import dots
from tilewright.targets.gpu.dots import GROUP, Bytes, ColumnCounts
from tilewright.targets.gpu.features import MATRIX, PACKED, SIZES, SUBGROUPS, size_of
from tilewright.targets.gpu.places import Places, Sums, operands
from tilewright.targets.gpu.schedule import MOST_THREADS, WORD, Sizes, beyond
from tilewright.targets.gpu.space import BANDS, BEYOND, CORES, Group
from tilewright.targets.gpu.staging import LANES, own
from tilewright.targets.lite import Core
from tilewright.targets.schedule import Schedule

#: Result matrices of a subgroup beyond which NVIDIA's registers do not last.
MOST_RESULTS = 16

#: Types of operands and results by `MatrixSchedule.types`.
TYPES = {"i8-i32": (I8, I32)}


@dataclass(frozen=True)
class MatrixSchedule(Schedule):
    """Tiles of down x along subgroups with rows x columns results each.

    m, n, k: sizes of the unit's matrices;  types: of operands and results
    width:   threads of a subgroup
    r1:      matrices of the depth in a block
    band, ahead, apart: as of `GroupSchedule`
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

    @property
    def features(self) -> frozenset[str]:
        sizes = f"subgroup-matrix-{self.types}-{self.m}x{self.n}x{self.k}"
        return frozenset({MATRIX, SUBGROUPS, PACKED, size_of(self.width), sizes})

    @property
    def x1(self) -> int:
        return self.m * self.rows * self.down

    @property
    def y1(self) -> int:
        return self.n * self.columns * self.along

    @property
    def subgroups(self) -> int:
        return self.down * self.along

    @property
    def threads(self) -> int:
        return self.width * self.subgroups

    @property
    def depth(self) -> int:
        """Groups of a block."""
        return self.r1 * self.k // GROUP

    @property
    def pitch(self) -> int:
        """Groups from row to row in shared memory."""
        return self.depth + (LANES if self.apart else 0)

    @property
    def shared(self) -> int:
        """Bytes of shared memory: blocks, sums of columns, a result of each subgroup."""
        patches = self.subgroups * self.m * self.n
        return WORD * ((self.x1 + self.y1) * self.pitch + self.y1 + patches)

    @property
    def unit(self) -> MatrixUnit:
        operand, result = TYPES[self.types]
        return MatrixUnit(self.m, self.n, self.k, operand, result, self.width)

    def objection(self, kernel: Kernel) -> str:
        if found := super().objection(kernel):
            return found
        if self.width not in SIZES:
            return f"width is one of {', '.join(map(str, SIZES))}"
        if self.m % LANES or self.n % LANES or self.k % (LANES * GROUP // 2):
            return f"m and n are multiples of {LANES}, k of {LANES * GROUP // 2}"
        if self.rows * self.columns > MOST_RESULTS:
            return f"a subgroup has at most {MOST_RESULTS} results"
        return beyond(self.threads, self.shared)


def suits(kernel: Kernel) -> bool:
    """True for the products of dots.py with rows for a matrix."""
    return dots.suits(kernel) and operands(kernel).m.extent >= LANES


def traffic(kernel: Kernel, schedule: MatrixSchedule) -> tuple[int, float]:
    """Bytes of shared memory; words loaded and stored beyond it, where a byte takes one."""
    sizes, s = Sizes.of(kernel), schedule
    tiles = _tiles(s, sizes)
    loads = GROUP * tiles * sizes.steps * (s.x1 + s.y1)
    return s.shared, float(loads + sizes.batch * sizes.rows * sizes.cols)


def _tiles(s: MatrixSchedule, sizes: Sizes) -> int:
    return sizes.batch * ceil(sizes.rows / s.x1) * ceil(sizes.cols / s.y1)


#: Units that are tried, by types: sizes and threads, of Mesa's software driver, Intel, NVIDIA.
UNITS: Mapping[str, tuple[tuple[int, int, int, int], ...]] = {
    "i8-i32": ((8, 8, 8, 8), (8, 16, 32, 16), (16, 16, 32, 32), (16, 8, 32, 32)),
}
#: Results of a subgroup; subgroups of a tile; bytes of the depth in a block.
RESULTS = ((1, 1), (1, 2), (2, 2), (4, 2), (2, 4), (4, 4))
SUBGROUPS_OF = ((1, 1), (2, 1), (1, 2), (2, 2), (2, 4), (4, 2))
BLOCKS = (32, 64)
#: Candidates of each unit, and how much faster than products of f32 they are expected to be.
EACH, PACE = 8, 8.0


def space(kernel: Kernel, core: Core, group: Group) -> tuple[tuple[MatrixSchedule, float], ...]:
    """Of each unit the likely best: large tiles that leave no core without work."""
    del core
    sizes = Sizes.of(kernel)
    found = []
    for types, units in UNITS.items():
        for unit in units:
            tried = [s for s in _of_unit(types, *unit, sizes) if not s.objection(kernel)]
            tried = [s for s in tried if s.threads <= group.threads and s.shared <= group.shared]
            found += sorted(((s, _cost(s, sizes)) for s in tried), key=lambda p: (p[1], str(p[0])))[
                :EACH
            ]
    return tuple(found)


def _of_unit(
    types: str, m: int, n: int, k: int, width: int, sizes: Sizes
) -> Iterator[MatrixSchedule]:
    for (rows, columns), (down, along), depth in every(RESULTS, SUBGROUPS_OF, BLOCKS):
        s = MatrixSchedule(types, m, n, k, width, rows, columns, down, along, max(1, depth // k))
        if s.x1 < 2 * max(sizes.rows, m) and s.y1 < 2 * max(sizes.cols, n):
            yield replace(s, band=gcd(BANDS[-1], ceil(sizes.rows / s.x1)))


def _cost(s: MatrixSchedule, sizes: Sizes) -> float:
    """In the unit of space.py: multiply-adds with their words, over how much is at work."""
    tiles = _tiles(s, sizes)
    work = tiles * s.x1 * s.y1 * ceil(sizes.steps / s.depth) * s.depth
    each = 1 / PACE + BEYOND * (1 / s.x1 + 1 / s.y1)
    spread = tiles / (CORES * ceil(tiles / CORES))
    return work * each / (spread * min(1.0, s.threads / MOST_THREADS))


def lower(kernel: Kernel, schedule: MatrixSchedule) -> TileFn:
    """Tiles of x1 rows by y1 columns; what lies beyond the ends is read as 0 and not stored."""
    s, ops = schedule, operands(kernel)
    rows, cols = ceil(ops.m.extent / s.x1), ceil(ops.n.extent / s.y1)
    outer = tuple(v.extent for v in ops.outer)
    b = Builder({}, prod(outer) * rows * cols, kernel, s.threads)
    *others, flat = unflatten(b.tile, (*outer, rows * cols))
    band = gcd(s.band, rows)
    strip, col, row = unflatten(flat, (rows // band, cols, band))
    at: Values = dict(zip(ops.outer, others, strict=True))
    row0 = b.let(strip * band + row, "row") * s.x1
    col0 = b.let(col, "col") * s.y1
    return _Tile(b, kernel, s, Places(ops, at), row0, col0).emit()


class _Words(Bytes):
    """Bytes whose rows (or columns) are contiguous along the depth; a thread copies groups."""

    pitch = 0

    def read(self, block: Index, depth: int) -> None:
        for n, place, step in self._groups(depth):
            self.b.set(self.reg(n, 0, I8).name, self._word(self.start + place, block + step))

    def write(self, depth: int) -> None:
        for n, place, step in self._groups(depth):
            self.b.store(self.area, self.place(place, step), self.reg(n, 0, I8))

    def place(self, place: Index, step: Index) -> Index:
        """Where a group lies in shared memory, in bytes."""
        return (place * self.pitch + step) * GROUP

    def size(self, depth: int) -> int:
        return self.width * self.pitch

    def _groups(self, depth: int) -> Iterator[tuple[int, Index, Index]]:
        """Number, place and step of each group of this thread; neighbours read neighbours."""
        panel = self.panel or 1
        shape = (self.width // panel, depth, panel)
        for n in range(ceil(prod(shape) / self.b.threads)):
            with own(self.b, self.b.thread + n * self.b.threads, prod(shape)) as flat:
                major, step, minor = unflatten(flat, shape)
                yield n, major * panel + minor, step


class _Tile:
    """One tile: the copies, the products and the stores of one thread."""

    def __init__(
        self,
        b: Builder,
        kernel: Kernel,
        s: MatrixSchedule,
        places: Places,
        row0: Index,
        col0: Index,
    ) -> None:
        self.b, self.kernel, self.s, self.places = b, kernel, s, places
        self.row0, self.col0, self.result = row0, col0, s.unit.result
        self.sides = dots.sides(b, kernel, places, (s.x1, s.y1), (row0, col0), False, kind=_Words)
        for side in self.sides:
            side.pitch = s.pitch
        subgroup, self.lane = (b.let(i, "t") for i in unflatten(b.thread, (s.subgroups, s.width)))
        self.subgroup = subgroup
        self.down, self.along = unflatten(subgroup, (s.down, s.along))
        self.counts = ColumnCounts(b, s.y1)

    def emit(self) -> TileFn:
        b, s, steps = self.b, self.s, self.places.ops.steps
        for i, j in every(range(s.rows), range(s.columns)):
            b.add(ZeroMatrix(_result(i, j)))
        if s.ahead:
            self._read(Index())
        blocks = ceil(steps / s.depth)
        with b.loop("block", Index(), index(blocks), 1, blocks) as block:
            if not s.ahead:
                self._read(block * s.depth)
            for side in self.sides:
                side.write(s.depth)
            b.add(Barrier())
            if s.ahead and blocks > 1:
                # the last block is read once more, and not used
                self._read(b.let_min(block + 1, index(blocks - 1)) * s.depth)
            self._multiply()
            cols = self.sides[1]
            self.counts.add(cols.area, s.depth, cols.place)
            b.add(Barrier())
        areas = [side.scratch(s.depth) for side in self.sides]
        first = self.sides[0].area + len(areas)
        self.counts.put(first)
        self._store(first, first + 1)
        areas += [Scratch(I32, s.y1), Scratch(self.result, s.subgroups * s.m * s.n)]
        return replace(b.finish(self.kernel, tuple(areas)), unit=s.unit)

    def _read(self, first: Index) -> None:
        for side in self.sides:
            side.read(first, self.s.depth)

    def _multiply(self) -> None:
        """results += rows * columns, for each matrix of the depth"""
        b, s = self.b, self.s
        rows, cols = self.sides
        stride = s.pitch * GROUP
        for step in range(s.r1):
            for i in range(s.rows):
                at = rows.place((self.down * s.rows + i) * s.m, index(step * s.k // GROUP))
                b.add(LoadMatrix(f"left{i}", False, rows.area, b.address(at), stride))
            for j in range(s.columns):
                at = cols.place((self.along * s.columns + j) * s.n, index(step * s.k // GROUP))
                b.add(LoadMatrix(f"right{j}", True, cols.area, b.address(at), stride))
            for i, j in every(range(s.rows), range(s.columns)):
                b.add(MultiplyMatrices(_result(i, j), f"left{i}", f"right{j}"))

    def _store(self, lacks: int, patches: int) -> None:
        """Each result by way of the subgroup's patch: what its sums lack is added there."""
        b, s, output = self.b, self.s, Sums(self.b, self.kernel, self.places)
        patch = self.subgroup * (s.m * s.n)
        units = s.m * s.n // LANES
        for i, j in every(range(s.rows), range(s.columns)):
            b.add(StoreMatrix(patches, b.address(patch), _result(i, j), s.n))
            b.add(Barrier())
            for n in range(ceil(units / s.width)):
                with own(b, self.lane + n * s.width, units) as flat:
                    down, across = unflatten(flat, (s.m, s.n // LANES))
                    row = (self.down * s.rows + i) * s.m + down
                    col = (self.along * s.columns + j) * s.n + across * LANES
                    at = patch + down * s.n + across * LANES
                    total, lack = (Reg(name, self.result, LANES) for name in ("total", "lack"))
                    b.set(total.name, Load(patches, at, self.result, LANES))
                    b.set(lack.name, Load(lacks, col, I32, LANES))
                    b.set(total.name, Call("add", (total, lack), self.result, LANES))
                    output.put(b.let(self.row0 + row, "row"), b.let(self.col0 + col, "col"), total)
            b.add(Barrier())


def _result(i: int, j: int) -> str:
    return f"result{i}_{j}"
