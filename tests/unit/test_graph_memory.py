"""The memory plan: what lives together lies apart, and what does not shares memory."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.base.abi import ALIGNMENT, align
from tilewright.plan.arena import Life, place

LIVES = st.builds(
    lambda size, first, length: Life(size, first, first + length),
    st.one_of(st.integers(0, 300), st.sampled_from([1, 63, 64, 65, 4096])),
    st.integers(-1, 12),
    st.integers(0, 6),
)


@settings(max_examples=200, derandomize=True)
@given(st.lists(LIVES, max_size=14))
def test_buffers_that_live_together_never_overlap(lives: list[Life]) -> None:
    offsets, total = place(lives)
    placed = list(zip(lives, offsets, strict=True))
    for life, at in placed:
        assert at >= 0
        assert at % ALIGNMENT == 0
        assert at + life.size <= total
    for (a, at), (b, bt) in combinations(placed, 2):
        if meet(a, b) and a.size and b.size:
            assert at + a.size <= bt or bt + b.size <= at
    assert total <= sum(align(life.size) for life in lives)
    steps = range(-1, 20)
    needed = max(
        (sum(align(x.size) for x in lives if x.first <= s <= x.last) for s in steps), default=0
    )
    assert total >= needed


@settings(max_examples=200, derandomize=True)
@given(st.lists(LIVES, max_size=40))
def test_largest_first_each_at_the_lowest_free_place(lives: list[Life]) -> None:
    offsets, _ = place(lives)
    order = sorted(range(len(lives)), key=lambda i: (-lives[i].size, lives[i].first, i))
    for position, i in enumerate(order):
        size = align(lives[i].size)
        near = [j for j in order[:position] if meet(lives[i], lives[j])]
        taken = [(offsets[j], offsets[j] + align(lives[j].size)) for j in near]
        lowest = min(
            at
            for at in (0, *(end for _, end in taken))
            if all(at + size <= start or end <= at for start, end in taken)
        )
        assert offsets[i] == lowest


def meet(a: Life, b: Life) -> bool:
    return a.first <= b.last and b.first <= a.last


@pytest.mark.parametrize("length", [3, 4, 9, 30])
def test_chain_of_equal_buffers_needs_two_places(length: int) -> None:
    lives = [Life(1000, i, i + 1) for i in range(length)]
    _, total = place(lives)
    assert total == 2 * align(1000)


def test_chain_with_a_long_residual_needs_three_places() -> None:
    lives = [Life(64, i, i + 1) for i in range(8)] + [Life(64, 0, 9)]
    assert place(lives)[1] == 3 * 64


def test_nothing_to_place() -> None:
    assert place([]) == ((), 0)
