"""The lite space is the paper's arithmetic, and says the same every time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.paper_spaces import naive
from tilewright.targets.lite_space import Core, Product, Tile, limits, lite, traffic

K0, K2 = Product(384, 768, 768), Product(384, 384, 64, batch=12)
X86 = Core("simd", registers=60, l1=32768)
AMPERE = Core("gpu", registers=65536, l1=131072, warps=48, warp_width=32)


def test_formulas_by_hand() -> None:
    tile = Tile(x0=4, r0=8, y0=16, x1=32, r1=64, y1=128)
    assert tile.reg_thread == 4 * 8 + 8 * 16 + 4 * 16
    assert tile.l1_block == 4 * (32 * 64 + 64 * 128 + 32 * 128)
    assert tile.thread_block(X86) == 1
    assert tile.thread_block(AMPERE) == 8 * 8
    found = limits(tile, AMPERE)
    assert found.registers == 65536 / (224 * 64)
    assert found.l1 == 131072 / tile.l1_block
    assert found.warps == 48 / 2
    assert found.block_core == min(found.registers, found.l1, found.warps)


@pytest.mark.parametrize("matrix", [K0, K2], ids=str)
def test_sizes_are_of_the_papers_order(matrix: Product) -> None:
    assert 10 <= len(lite(matrix, X86)) <= 32
    assert 24 <= len(lite(matrix, AMPERE)) <= 96


def test_naive_sizes() -> None:
    """The paper prints 74,131,200 for a batched product; it is that of K1."""
    assert naive(K0, "simd") == 2_099_520
    assert naive(K0, "gpu") == 42_768_000
    assert naive(Product(640, 768, 3072), "gpu") == 74_131_200


def test_a_size_with_a_large_prime_is_counted_at_once() -> None:
    """Looking for factors up to the size itself would take days."""
    prime = 1_000_000_000_039
    assert naive(Product(prime, 1, 1), "simd") == 3 * 2**3
    assert naive(Product(2 * prime, 1, 1), "simd") == 3 * 3 * 2**3


SIZES = st.integers(1, 1024)
MATRICES = st.builds(Product, SIZES, SIZES, SIZES, st.integers(1, 4))


@given(MATRICES, st.sampled_from([X86, AMPERE]))
def test_every_tile_satisfies_the_heuristics(matrix: Product, core: Core) -> None:
    found = lite(matrix, core)
    assert found == lite(matrix, core)
    assert len(set(found)) == len(found)
    for tile in found:
        sizes = (tile.x0, tile.r0, tile.y0, tile.x1, tile.r1, tile.y1)
        assert all(size.bit_count() == 1 for size in sizes)
        assert tile.x0 <= tile.x1
        assert tile.r0 <= tile.r1
        assert tile.y0 <= tile.y1
        if core.kind == "simd":
            assert tile.l1_block <= core.l1
            assert tile.reg_thread <= core.registers
        else:
            assert tile.thread_block(core) <= 256
            assert tile.l1_block <= 16384
            assert limits(tile, core).registers >= 1
    blocks = [min(core.warps, limits(tile, core).block_core) for tile in found]
    assert blocks == sorted(blocks, reverse=True)


def test_traffic_by_hand() -> None:
    """One block holds all: everything is read once, and written once."""
    whole = Tile(4, 4, 4, 64, 64, 64)
    assert traffic(whole, Product(64, 64, 64)) == 3 * 64 * 64
    assert traffic(whole, Product(128, 64, 64)) == (128 + 2 * 64 + 128) * 64
