"""Counts nnJIT's search spaces as the paper does: the naive ones, and WebGPU's in every reading of
its text.

Input: a product, a kind of core or the core of a class of GPUs.  Output: numbers of candidates; the
tiles of a reading.  It serves only for comparison with the paper; the spaces that devices try are
in targets/lite_space.py and targets/gpu/product/cost_model.py.  The paper's tables 1 and 2 print
sizes without units, bind and vectorize x as the faster axis, and do not say whether blocks per core
are whole numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product as every
from math import comb, floor, prod
from typing import Literal, get_args

from tilewright.base.abi import WORD_BYTES
from tilewright.targets.lite_space import Core, Kind, Product, Tile, limits

#: The paper's kernels; B and all sizes as it prints them.
PAPER = {
    "K0": Product(384, 768, 768),
    "K1": Product(640, 768, 3072),
    "K2": Product(384, 384, 64, batch=12),
    "K3": Product(64, 64, 64, batch=120),
}
RELAXATIONS = (1.0, 1.1, 1.25, 1.5, 2.0)

Unit = Literal["bytes", "elements"]
Columns = Literal["x", "y"]
Blocks = Literal["exact", "whole"]

#: Table 2: the smallest and largest of (x0, r0, y0) and of (x1, r1, y1), and cache read.
INNER, OUTER = (4, 8, 16, 32), (32, 64, 128, 256)
CACHE_READ = (False, True)


@dataclass(frozen=True)
class Reading:
    """One way to fill in the details that the paper leaves open.

    unit:    the unit of L1_block, which heuristic 6 and L1Limit compare with bytes
    columns: the letter of the axis of columns: x by Table 2, which vectorizes x0 and binds x1 to
             thread.x; y by figure 10 and in the rest of this package
    blocks:  whether heuristic 7 compares RegLimit with L1Limit and WarpLimit as they are, or
             rounded down to whole blocks per core
    """

    unit: Unit
    columns: Columns
    blocks: Blocks

    @property
    def scale(self) -> int:
        """Bytes of L1 that one unit of the reading stands for."""
        return WORD_BYTES if self.unit == "elements" else 1

    def suits(self, tile: Tile, core: Core, relaxation: float) -> bool:
        """Heuristics 5 and 7; 6 is in `block_tiles`."""
        if tile.thread_block(core) > 256:
            return False
        found = limits(tile, replace(core, l1=self.scale * core.l1))
        room = found.registers, found.l1, found.warps
        if self.blocks == "whole":
            room = floor(room[0]), floor(room[1]), floor(room[2])
        return 1 <= room[0] <= min(room) * relaxation


READINGS: tuple[Reading, ...] = tuple(
    Reading(*r) for r in every(get_args(Unit), get_args(Columns), get_args(Blocks))
)


def block_tiles(matrix: Product, reading: Reading) -> list[Tile]:
    """The tiles whose outer sizes pass heuristics 2 and 6; their inner sizes are still 1."""
    axes = (matrix.m, matrix.k, matrix.n)
    x, r, y = ([s for s in OUTER if s < 2 * axis] for axis in _letters(axes, reading))
    sizes = (Tile(1, 1, 1, *outer) for outer in every(x, r, y))
    return [t for t in sizes if t.l1_block <= reading.scale * 16384]


def tiles(matrix: Product, core: Core, reading: Reading, relaxation: float) -> list[Tile]:
    """The tiles of one reading, each once.  Each stands for two candidates: with cache read on and
    off.

    relaxation: how much of the registers may stay unused, as for `lite`
    """
    found = (
        replace(block, x0=x, r0=r, y0=y)
        for block in block_tiles(matrix, reading)
        for x, r, y in every(INNER, INNER, INNER)
    )
    return [t for t in found if reading.suits(t, core, relaxation)]


def _letters(axes: tuple[int, int, int], reading: Reading) -> tuple[int, int, int]:
    """Extents of x, r and y, from those of rows, steps and columns."""
    return axes if reading.columns == "y" else (axes[2], axes[1], axes[0])


# ---- naive spaces --------------------------------------------------------------------------------

#: Parts that rows, columns and steps are split into, and primitives with two settings.
LEVELS: Mapping[Kind, tuple[tuple[int, int, int], int]] = {
    "simd": ((3, 3, 2), 3),
    "gpu": ((4, 4, 3), 0),
}


def naive(matrix: Product, kind: Kind) -> int:
    """The number of candidates without any heuristic: all ways to split the axes.

    Each axis is split into whole factors, one per level; further primitives are on or off.  This
    reproduces both of the paper's counts for 384x768x768 (2,099,520 and 42,768,000).
    """
    (m, n, k), switches = LEVELS[kind]
    splits = _splits(matrix.m, m) * _splits(matrix.n, n) * _splits(matrix.k, k)
    return splits * (1 << switches) * _splits(matrix.batch, 2)


def _splits(size: int, parts: int) -> int:
    """The number of ways to write `size` as an ordered product of `parts` factors."""
    return prod(comb(power + parts - 1, parts - 1) for power in _prime_powers(size))


def _prime_powers(size: int) -> Iterator[int]:
    factor = 2
    while factor * factor <= size:
        power = 0
        while size % factor == 0:
            size //= factor
            power += 1
        if power:
            yield power
        factor += 1
    if size > 1:
        yield 1
