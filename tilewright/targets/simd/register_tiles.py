"""Register tiles: how many rows and columns of sums stay in registers, and what a tile costs.

Input: rows and columns of a product, a machine.  Output: tiles, the best first, by a small model of
a core.  It knows neither kernels nor schedules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tilewright.targets.simd.machine import Machine
from tilewright.targets.simd.sizes import SHORT

#: Vectors of columns, and rows, that register tiles may have.
VECTORS = (1, 2, 3, 4, 8)
MOST_ROWS = 16


#: Widths of register tiles in vectors, and how many tiles of each width a space has.
WIDTHS, PER_WIDTH = (1, 2, 3, 4, 5, 6, 8), 3

#: A register tile that costs more than this multiple of the best one's cycles is not tried.
WORSE = 1.6


def register_tile(rows: int, cols: int, machine: Machine, panel: int = 1) -> tuple[int, int]:
    """Rows and columns of the register tile that spends the fewest cycles per product."""
    return register_tiles(rows, cols, machine, panel)[0][1:]


def register_tiles(
    rows: int, cols: int, machine: Machine, panel: int = 1, vectors: Sequence[int] = VECTORS
) -> list[tuple[float, int, int]]:
    """(cycles per product, x0, y0) of all that fit the registers, the best first."""
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

    They need x0*v sums, one register per element of the smaller set of operands, and one that walks
    the other.  A step costs the most of: x0*v products at 2 a cycle; x0 + v loads at 2 a cycle; all
    instructions at 4 a cycle; 4 cycles, since a sum cannot be touched again before.  Few rows or
    columns are split evenly, so partly filled tiles count.  Panels come from L2 at some 12 bytes a
    cycle, and whole: 12 columns touch two of 8.
    """
    vectors = -(-cols // machine.lanes)
    x, y = rows / -(-rows // x0), vectors / -(-vectors // v)
    products = x * y if machine.fma else 2 * x * y
    cycles = max(products / 2, (x + y) / 2, (products + x + y + 2) / 4, 4.0)
    if panel > 1:
        touched = -(-v * machine.lanes // panel) * panel
        cycles = max(cycles, touched * y / v * 4 / 12)
    return round(cycles / (x * y), 2), (x + y) / (x * y)


def usual_tiles(rows: int, cols: int, machine: Machine, panel: int = 1) -> list[tuple[int, int]]:
    """(x0, y0) of register tiles worth trying, the best first: some of each width."""
    tiles = register_tiles(rows, cols, machine, panel, WIDTHS)
    seen: Counter[int] = Counter()
    found = []
    for cycles, x0, y0 in tiles:
        seen[y0] += 1
        if seen[y0] <= PER_WIDTH and cycles <= WORSE * tiles[0][0]:
            found.append((x0, y0))
    return found
