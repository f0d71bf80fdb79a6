"""The one definition of a quantile, and the quantiles by which latencies are judged.

Input: values, and a share from 0 to 1.  Output: one of the values; nothing is interpolated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from tilewright.base.errors import UsageError


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all values do not exceed (nearest rank).

    Raises ValueError if there are no values.
    """
    if not values:
        raise ValueError("there are no values")
    return sorted(values)[max(0, ceil(share * len(values) - 1e-9) - 1)]


@dataclass(frozen=True)
class LatencyQuantiles:
    """Quantiles of latencies, in the unit of the latencies.  With fewer than 1000, p999 equals the
    worst."""

    p50: float
    p99: float
    p999: float
    worst: float
    n: int


def tail(latencies: Sequence[float]) -> LatencyQuantiles:
    """The quantiles of these latencies.  Raises UsageError if there are none."""
    if not latencies:
        raise UsageError(
            "There is no latency to judge", hint="Run for longer, or send more requests"
        )
    p50, p99, p999, worst = (quantile(latencies, share) for share in (0.5, 0.99, 0.999, 1.0))
    return LatencyQuantiles(p50, p99, p999, worst, len(latencies))
