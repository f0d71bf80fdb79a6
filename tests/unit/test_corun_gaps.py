"""When the requests come by which slowdown curves are measured."""

from __future__ import annotations

from itertools import accumulate, islice

import pytest

from tilewright.elastic.policy.budgets import GAPS, REQUESTS, gaps


def test_gaps_are_of_all_lengths_and_of_the_mean() -> None:
    found = list(islice(gaps(10.0), REQUESTS))
    assert min(found) >= 10 * GAPS[0]
    assert max(found) <= 10 * GAPS[1]
    assert sum(found) / len(found) == pytest.approx(10, rel=0.05)
    assert found == list(islice(gaps(10.0), REQUESTS))


@pytest.mark.parametrize("period", [0.5, 1.0, 2.0, 3.0, 7.3, 20.0])
def test_requests_come_at_all_places_of_whatever_repeats(period: float) -> None:
    """In each tenth of the period at least a third of what would be even."""
    tenths = [0] * 10
    for at in accumulate(islice(gaps(1.0), REQUESTS)):
        tenths[int(at % period / period * 10)] += 1
    assert min(tenths) >= REQUESTS / 30
