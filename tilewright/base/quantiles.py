"""The one definition of a quantile, and those by which latencies are judged.

Input: values, a share.  Output: one of the values; nothing is interpolated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from tilewright.base.errors import UsageError


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that is not exceeded by `share` of all (nearest rank).

    Raises ValueError where there is none.
    """
    if not values:
        raise ValueError("there are no values")
    return sorted(values)[max(0, ceil(share * len(values) - 1e-9) - 1)]


@dataclass(frozen=True)
class Tail:
    """Quantiles of latencies; worst is the largest.  The 99.9th of fewer than 1000 is the worst."""

    p50: float
    p99: float
    p999: float
    worst: float
    n: int


def tail(latencies: Sequence[float]) -> Tail:
    """Raises UsageError if there are none."""
    if not latencies:
        raise UsageError(
            "There is no latency to judge", hint="Run for longer, or send more requests"
        )
    p50, p99, p999, worst = (quantile(latencies, share) for share in (0.5, 0.99, 0.999, 1.0))
    return Tail(p50, p99, p999, worst, len(latencies))
