"""The plan for measuring slowdown curves, on a device and in the simulator alike.

Input: workers, times.  Output: the budgets to try, the gaps between requests, and the time that
represents many.  measure_curves.py and lab/simulator/measure.py measure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

from tilewright.base.budget import EVERYBODY
from tilewright.base.quantiles import quantile

#: The share of requests that a curve's slowdown covers; it exceeds the promised 99 %.
COVERED = 0.995
#: The number of requests from which that share is estimated.
REQUESTS = 200
#: Points of a curve besides 0.
LEVELS = 6
#: The shortest and the longest gap before a request, relative to their mean.
GAPS = (1 / 3, 5 / 3)
#: The golden ratio.  The fractional parts of its multiples fill [0, 1) evenly (Weyl), in an order
#: that no periodic kernel can stay in step with.
GOLDEN = (5**0.5 - 1) / 2


def covering(times: Sequence[float]) -> float:
    """The time that covers the share COVERED of requests; the longest if they are few."""
    return quantile(times, COVERED)


def gaps(mean: float) -> Iterator[float]:
    """Gaps between requests, without end; the same sequence each time.

    They are long enough for normal kernels to fill the device again, and irregular enough for
    requests to meet them at all stages.
    """
    least, most = GAPS
    for number in count(1):
        yield mean * (least + (most - least) * (number * number * GOLDEN % 1))


def levels_of(workers: int, steps: int) -> tuple[int, ...]:
    """Budgets to try besides 0: all workers, halved repeatedly.

    The first few workers matter most: one on each multiprocessor slows the critical model nearly as
    much as eight do (decision 55).
    """
    parts = (max(1, workers >> n) for n in range(steps, 1, -1))
    return tuple(dict.fromkeys((*parts, EVERYBODY)))
