"""How slowdown curves are measured, on a device and in the simulator alike.

Input: workers, times.  Output: the budgets to try, and the time that stands for all.  It measures
nothing; measure.py and simulator/measure.py do.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.elastic.policy.tasks import EVERYBODY

#: The share of requests that a curve's slowdown covers.
COVERED = 0.95


def covering(times: Sequence[float], share: float = COVERED) -> float:
    """The time below which this share of all lies."""
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def levels_of(workers: int, steps: int) -> tuple[int, ...]:
    """Budgets to try beside 0: even parts of so many workers, then everybody."""
    parts = (max(1, workers * n // steps) for n in range(1, steps))
    return tuple(dict.fromkeys((*parts, EVERYBODY)))
