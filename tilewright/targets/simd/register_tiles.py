"""Register tiles: how many rows and columns of sums stay in registers, and the cost of a tile.

Input: rows and columns of a product, a machine.  Output: tiles, best first, by a small model of a
core.  This module knows neither kernels nor schedules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tilewright.targets.simd.machine import SHORT, Machine

#: Vectors of columns, and rows, that register tiles may have.
VECTORS = (1, 2, 3, 4, 8)
MOST_ROWS = 16


#: Widths of register tiles in vectors; the number of tiles of each width in a space.
WIDTHS, PER_WIDTH = (1, 2, 3, 4, 5, 6, 8), 3

#: A register tile is tried if it costs at most this multiple of the best one's cycles.
WORSE = 1.6


def register_tile(rows: int, cols: int, machine: Machine, panel: int = 1) -> tuple[int, int]:
    """Rows and columns of the register tile with the fewest cycles per product."""
    return register_tiles(rows, cols, machine, panel)[0][1:]


def register_tiles(
    rows: int, cols: int, machine: Machine, panel: int = 1, vectors: Sequence[int] = VECTORS
) -> list[tuple[float, int, int]]:
    """(cycles per product, x0, y0) of all tiles that fit the registers, best first."""
    spare = machine.registers - (1 if machine.fma else 2)

    def operands(x0: int, v: int) -> int:
        return SHORT[0] * (v + 1) - 1 if machine.chained else min(x0, v)

    found = [
        (*tile_cycles(x0, v, rows, cols, machine, panel), v, x0)
        for v in vectors
        for x0 in range(1, min(rows, MOST_ROWS) + 1)
        if x0 * v + operands(x0, v) <= spare
    ]
    return [(cycles, x0, v * machine.lanes) for cycles, _, v, x0 in sorted(found)]


def tile_cycles(
    x0: int, v: int, rows: int, cols: int, machine: Machine, panel: int = 1
) -> tuple[float, float]:
    """(cycles, loads) per vector of products of a register tile of x0 rows and v vectors.

    Such a tile needs x0*v registers for sums, one for each element of the smaller set of operands,
    and one for the current element of the other set.  A step takes the largest of: x0*v products at
    2 a cycle; x0 + v loads at 2 a cycle; all instructions at 4 a cycle; 4 cycles, the latency of a
    sum. Few rows or columns are split evenly, so partly filled tiles count.  Panels come from L2 at
    about 12 bytes a cycle, and as a whole: 12 columns read two panels of 8.
    """
    vectors = -(-cols // machine.lanes)
    x, y = rows / -(-rows // x0), vectors / -(-vectors // v)
    products = x * y if machine.fma else 2 * x * y
    cycles = max(products / 2, (x + y) / 2, (products + x + y + 2) / 4, 4.0)
    if panel > 1:
        touched = -(-v * machine.lanes // panel) * panel
        cycles = max(cycles, touched * y / v * 4 / 12)
    return round(cycles / (x * y), 2), (x + y) / (x * y)


def varied_tiles(rows: int, cols: int, machine: Machine, panel: int = 1) -> list[tuple[int, int]]:
    """(x0, y0) of register tiles worth trying, best first: some of each width."""
    tiles = register_tiles(rows, cols, machine, panel, WIDTHS)
    seen: Counter[int] = Counter()
    found = []
    for cycles, x0, y0 in tiles:
        seen[y0] += 1
        if seen[y0] <= PER_WIDTH and cycles <= WORSE * tiles[0][0]:
            found.append((x0, y0))
    return found
