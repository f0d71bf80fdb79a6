"""Miriam's policy by the paper's formulas, worked by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.miriam import (
    Shard,
    affordable,
    balance,
    dichotomy,
    fits,
    shard,
    shortlist,
    space,
)
from tilewright.elastic.policy import Gpu, KernelCost

GPU = Gpu(30, threads=1024)
NORMAL, CRITICAL = KernelCost(96, 256, 50.0, 50.0), KernelCost(40, 512, 50.0, 50.0)


@pytest.mark.parametrize(("tiles", "slices"), [(12, [3, 6, 12]), (7, [7]), (8, [1, 2, 4, 8])])
def test_slices_are_halves_as_long_as_they_are_whole(tiles: int, slices: list[int]) -> None:
    assert dichotomy(tiles) == slices


def test_the_two_constraints() -> None:
    # 40 mod 30 = 10 blocks in the last wave leave 20; 1024 - 512 threads leave 512
    assert fits(Shard(20), NORMAL, CRITICAL, GPU)
    assert not fits(Shard(24), NORMAL, CRITICAL, GPU)
    assert not fits(Shard(20), KernelCost(96, 1024, 1, 1), CRITICAL, GPU)
    assert fits(Shard(20, fold=2), KernelCost(96, 1024, 1, 1), CRITICAL, GPU)


def test_balance_by_hand() -> None:
    assert balance(Shard(12), NORMAL, CRITICAL, GPU) == pytest.approx((10 + 12) / 30 * 768 / 1024)


def test_many_small_shards_cost_too_much() -> None:
    assert affordable(Shard(48), NORMAL, GPU)
    assert not affordable(Shard(1), KernelCost(96, 256, 0.5, 0.5), GPU)


@given(
    st.builds(KernelCost, st.integers(1, 400), st.sampled_from([64, 128, 256, 512]),
              st.floats(1, 200), st.just(1.0)),
    st.builds(KernelCost, st.integers(1, 400), st.sampled_from([64, 256, 512]),
              st.floats(1, 200), st.just(1.0)),
    st.integers(0, 30),
)  # fmt: skip
def test_what_is_kept_fits_and_scores_best(
    normal: KernelCost, critical: KernelCost, used: int
) -> None:
    found = shortlist(normal, critical, GPU)
    assert len(found) <= max(1, round(0.2 * len(space(normal))))
    for candidate in found:
        assert fits(candidate, normal, critical, GPU)
        assert 0 < balance(candidate, normal, critical, GPU) <= 1 + 1e-9
    scores = [balance(c, normal, critical, GPU) for c in found]
    assert scores == sorted(scores, reverse=True)
    chosen = shard(normal, critical, GPU, used)
    if chosen is not None:
        assert chosen in found
        assert chosen.blocks <= GPU.sms - critical.tiles % GPU.sms - used
