"""The paper's space for WebGPU as its text may be read: what follows from each reading."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lab.paper_spaces import READINGS, Reading, block_tiles, tiles
from tilewright.targets.lite_space import Core, Product, limits

TABLE_2, K2 = Product(4096, 4096, 4096), Product(384, 384, 64, batch=12)
AMPERE = Core("gpu", registers=65536, l1=131072, warps=48, warp_width=32)


def test_bytes_leave_one_block_tile_and_elements_many() -> None:
    """3 * 32 * 32 words are 12 KB, and twice one side is 20 KB."""
    for reading in READINGS:
        found = [(t.x1, t.r1, t.y1) for t in block_tiles(TABLE_2, reading)]
        assert (32, 32, 32) in found
        assert ((64, 32, 32) in found) is (reading.unit == "elements")
        assert len(found) == (1 if reading.unit == "bytes" else 17)


@pytest.mark.parametrize("reading", READINGS, ids=str)
def test_the_letters_name_axes(reading: Reading) -> None:
    """No block is twice as wide as K2's 64 columns, whichever letter they have."""
    found = block_tiles(K2, reading)
    columns = [t.x1 if reading.columns == "x" else t.y1 for t in found]
    rows = [t.y1 if reading.columns == "x" else t.x1 for t in found]
    assert max(columns) <= 64
    assert (max(rows) > 64) is (reading.unit == "elements")


@pytest.mark.parametrize("reading", READINGS, ids=str)
@pytest.mark.parametrize("matrix", [TABLE_2, K2], ids=str)
def test_names_of_axes_change_no_count(matrix: Product, reading: Reading) -> None:
    """The formulas are symmetric in x and y, so only the tiles are mirrored."""
    other = Reading(reading.unit, "x" if reading.columns == "y" else "y", reading.blocks)
    mirrored = {(t.y0, t.r0, t.x0, t.y1, t.r1, t.x1) for t in tiles(matrix, AMPERE, other, 1.25)}
    found = {(t.x0, t.r0, t.y0, t.x1, t.r1, t.y1) for t in tiles(matrix, AMPERE, reading, 1.25)}
    assert found == mirrored != set()


def test_whole_blocks_are_compared_as_whole_numbers() -> None:
    exact, whole = (Reading("elements", "y", b) for b in ("exact", "whole"))
    added = set(tiles(TABLE_2, AMPERE, whole, 1.0)) - set(tiles(TABLE_2, AMPERE, exact, 1.0))
    assert added
    for tile in added:
        found = limits(tile, replace(AMPERE, l1=4 * AMPERE.l1))
        assert found.registers > found.block_core >= int(found.registers)
