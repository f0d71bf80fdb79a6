"""The memory plan: what lives together lies apart, and what does not shares memory."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.base.abi import ALIGNMENT, align
from tilewright.plan.arena import Lifetime, place

LIVES = st.builds(
    lambda size, first, length: Lifetime(size, first, first + length),
    st.one_of(st.integers(0, 300), st.sampled_from([1, 63, 64, 65, 4096])),
    st.integers(-1, 12),
    st.integers(0, 6),
)


@settings(max_examples=200, derandomize=True)
@given(st.lists(LIVES, max_size=14))
def test_buffers_that_live_together_never_overlap(lifetimes: list[Lifetime]) -> None:
    offsets, total = place(lifetimes)
    placed = list(zip(lifetimes, offsets, strict=True))
    for lifetime, at in placed:
        assert at >= 0
        assert at % ALIGNMENT == 0
        assert at + lifetime.size <= total
    for (a, at), (b, bt) in combinations(placed, 2):
        if meet(a, b) and a.size and b.size:
            assert at + a.size <= bt or bt + b.size <= at
    assert total <= sum(align(lifetime.size) for lifetime in lifetimes)
    steps = range(-1, 20)
    needed = max(
        (sum(align(x.size) for x in lifetimes if x.first <= s <= x.last) for s in steps), default=0
    )
    assert total >= needed


@settings(max_examples=200, derandomize=True)
@given(st.lists(LIVES, max_size=40))
def test_largest_first_each_at_the_lowest_free_place(lifetimes: list[Lifetime]) -> None:
    offsets, _ = place(lifetimes)
    order = sorted(range(len(lifetimes)), key=lambda i: (-lifetimes[i].size, lifetimes[i].first, i))
    for position, i in enumerate(order):
        size = align(lifetimes[i].size)
        near = [j for j in order[:position] if meet(lifetimes[i], lifetimes[j])]
        taken = [(offsets[j], offsets[j] + align(lifetimes[j].size)) for j in near]
        lowest = min(
            at
            for at in (0, *(end for _, end in taken))
            if all(at + size <= start or end <= at for start, end in taken)
        )
        assert offsets[i] == lowest


def meet(a: Lifetime, b: Lifetime) -> bool:
    return a.first <= b.last and b.first <= a.last


@pytest.mark.parametrize("length", [3, 4, 9, 30])
def test_chain_of_equal_buffers_needs_two_places(length: int) -> None:
    lifetimes = [Lifetime(1000, i, i + 1) for i in range(length)]
    _, total = place(lifetimes)
    assert total == 2 * align(1000)


def test_chain_with_a_long_residual_needs_three_places() -> None:
    lifetimes = [Lifetime(64, i, i + 1) for i in range(8)] + [Lifetime(64, 0, 9)]
    assert place(lifetimes)[1] == 3 * 64


def test_nothing_to_place() -> None:
    assert place([]) == ((), 0)
