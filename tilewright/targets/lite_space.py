"""The tile sizes worth trying for a matrix product: nnJIT's lite space by its formulas.

Input: a product's sizes, and the figures of one core of the device.  Output: tiles in the order in
which they are tried; equal input gives equal tiles, in every process.  This module makes no
schedules and no code.  Symbols, formulas and the numbers of heuristics are those of nnJIT, section
5.2, table 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product as every
from math import prod
from typing import Literal

from tilewright.base.abi import WORD_BYTES
from tilewright.base.errors import of_kind
from tilewright.kernel.form import product
from tilewright.kernel.spec import Kernel
from tilewright.targets.schedule import Schedule

#: One thread with vectors, or groups of threads with shared memory.
Kind = Literal["simd", "gpu"]
Objective = Literal["latency", "traffic", "scratch"]

#: Bytes of a GPU's cache line, which is also what a warp group's unit reads at a time.
LINE_BYTES = 128


@dataclass(frozen=True)
class Product:
    """`batch` products of [m, k] times [k, n], in f32."""

    m: int
    k: int
    n: int
    batch: int = 1

    def __str__(self) -> str:
        sizes = f"{self.m}x{self.k}x{self.n}"
        return sizes if self.batch == 1 else f"{self.batch}x{sizes}"


def product_of(kernel: Kernel) -> Product | None:
    """The matrix product that a kernel computes, or None.  For integers a step is one word."""
    roles = product(kernel)
    if roles is None:
        return None
    batch = prod(v.extent for v in roles.outer)
    return Product(roles.m.extent, roles.steps, roles.n.extent, batch)


@dataclass(frozen=True)
class Core:
    """The resources that the threads of one core share.

    registers: words of 32 bits in all registers that kernels can use (TOTAL_REGS_PER_CORE)
    l1:        bytes of the fastest cache or shared memory (L1_SIZE_PER_CORE)
    warps, warp_width: resident groups of threads, and threads of a group that run in lockstep; a
        CPU
        core runs one thread, which is a group of one
    """

    kind: Kind
    registers: int
    l1: int
    warps: int = 1
    warp_width: int = 1


@dataclass(frozen=True, order=True)
class Tile(Schedule):
    """x rows, r reduction steps, y columns.  0: the part of one thread, in registers; 1: a block in
    L1.

    cache_read: a block is copied to shared memory before use
    """

    tag = "tile"
    x0: int
    r0: int
    y0: int
    x1: int
    r1: int
    y1: int
    cache_read: bool = False

    @property
    def reg_thread(self) -> int:
        """Words that a thread keeps in registers."""
        return self.x0 * self.r0 + self.r0 * self.y0 + self.x0 * self.y0

    @property
    def l1_block(self) -> int:
        """Bytes that a block touches."""
        return WORD_BYTES * (self.x1 * self.r1 + self.r1 * self.y1 + self.x1 * self.y1)

    def thread_block(self, core: Core) -> int:
        """Threads that compute one block together."""
        if not KINDS[core.kind].shared:
            return 1
        return (self.x1 // self.x0) * (self.y1 // self.y0)


def tile_of(schedule: Schedule, matrix: Product) -> Tile:
    """The tile of a product's schedule, in the terms of the formulas."""
    told = schedule.to_json()
    x0, r0, y0, x1, y1 = (
        of_kind(told[name], int, "a schedule of a product has no such number", name=name)
        for name in ("x0", "r0", "y0", "x1", "y1")
    )
    steps = of_kind(told.get("r1", 0), int, "its steps are no number") or matrix.k
    return Tile(x0, r0, y0, x1, steps, y1, bool(told.get("stage") or told.get("cache_read")))


@dataclass(frozen=True)
class Limits:
    """How many blocks of a tile fit on a core, by each resource."""

    registers: float
    l1: float
    warps: float

    @property
    def block_core(self) -> float:
        return min(self.registers, self.l1, self.warps)


def limits(tile: Tile, core: Core) -> Limits:
    """RegLimit, L1Limit and WarpLimit.  A partly filled warp counts as a whole one."""
    threads = tile.thread_block(core)
    return Limits(
        registers=core.registers / (tile.reg_thread * threads),
        l1=core.l1 / tile.l1_block,
        warps=core.warps / -(-threads // core.warp_width),
    )


#: A margin for what else a kernel keeps in a resource: with R registers, a tile that uses at least
#: R / RELAXATION counts as using all of them.
RELAXATION = 1.25


@dataclass(frozen=True)
class Heuristic:
    """One rule of the table, and the sizes that it tests; most tiles are rejected before they are
    made."""

    number: int
    sizes: Literal["outer", "inner", "both"]
    holds: Callable[[Tile, Core, float], bool]


@dataclass(frozen=True)
class Figures:
    """The inputs of the formulas for one kind of core.

    inner, columns, outer: smallest and largest size of each level; heuristic 2 takes the powers of
                two between them
    cache_read: values of `Tile.cache_read` that are tried
    heuristics: heuristics 3 to 7; 1 and 2 are part of the ranges
    shared:     True if the threads of a block share its work
    """

    inner: tuple[int, int]
    columns: tuple[int, int]
    cache_read: tuple[bool, ...]
    heuristics: tuple[Heuristic, ...]
    shared: bool
    outer: tuple[int, int] = (32, 256)


def _all_registers(tile: Tile, core: Core, relaxation: float) -> bool:
    return core.registers <= tile.reg_thread * relaxation <= core.registers * relaxation


def _bound_by_registers(tile: Tile, core: Core, relaxation: float) -> bool:
    """True if registers are the scarcest resource, and at least one block fits."""
    found = limits(tile, core)
    return 1 <= found.registers <= found.block_core * relaxation


#: The GPU ranges are those of the paper's table 2.  It has none for Wasm, so they are ours: a
#: vector has at least four columns (heuristic 1: 128 bits), and one row or one step is allowed.
#: `cache_read` is fixed there: docs/primitives.md has the measurement that decided it.
KINDS: Mapping[Kind, Figures] = {
    "simd": Figures(
        inner=(1, 32),
        columns=(4, 32),
        cache_read=(False,),
        heuristics=(
            Heuristic(3, "outer", lambda tile, core, ratio: tile.l1_block * ratio <= core.l1),
            Heuristic(4, "inner", _all_registers),
        ),
        shared=False,
    ),
    "gpu": Figures(
        inner=(4, 32),
        columns=(4, 32),
        cache_read=(False, True),
        heuristics=(
            Heuristic(5, "both", lambda tile, core, ratio: tile.thread_block(core) <= 256),
            Heuristic(6, "outer", lambda tile, core, ratio: tile.l1_block <= 16384),
            Heuristic(7, "both", _bound_by_registers),
        ),
        shared=True,
    ),
}


def lite(matrix: Product, core: Core, relaxation: float = RELAXATION) -> tuple[Tile, ...]:
    """The candidates in the order in which they are tried: most blocks per core first."""
    kind = KINDS[core.kind]

    def suits(tile: Tile, sizes: str) -> bool:
        rules = (h for h in kind.heuristics if h.sizes == sizes)
        return all(h.holds(tile, core, relaxation) for h in rules)

    outer = [
        Tile(1, 1, 1, x, r, y)
        for x, r, y in every(*(_between(kind.outer, n) for n in (matrix.m, matrix.k, matrix.n)))
    ]
    inner = [
        Tile(x, r, y, x, r, y)
        for x, r, y in every(*(_powers(r) for r in (kind.inner, kind.inner, kind.columns)))
    ]
    tiles = (
        Tile(i.x0, i.r0, i.y0, o.x1, o.r1, o.y1, cache_read)
        for o in outer
        if suits(o, "outer")
        for i in inner
        if i.x0 <= o.x1 and i.r0 <= o.r1 and i.y0 <= o.y1 and suits(i, "inner")
        for cache_read in kind.cache_read
    )
    fitting = (tile for tile in tiles if suits(tile, "both"))
    return tuple(sorted(fitting, key=lambda t: (-min(core.warps, limits(t, core).block_core), t)))


def traffic(tile: Tile, matrix: Product) -> int:
    """Words that all tiles load from and store to memory beyond L1."""
    rows, cols = -(-matrix.m // tile.x1), -(-matrix.n // tile.y1)
    steps = -(-matrix.k // tile.r1)
    loads = matrix.k * (matrix.m * cols + matrix.n * rows)
    return matrix.batch * (loads + (2 * steps - 1) * matrix.m * matrix.n)


def _powers(ends: tuple[int, int]) -> list[int]:
    return [1 << n for n in range(ends[0].bit_length() - 1, ends[1].bit_length())]


def _between(ends: tuple[int, int], size: int) -> list[int]:
    """The powers of two in a range that are less than twice `size`; at least one."""
    return [p for p in _powers(ends) if p < 2 * size] or [ends[0]]
