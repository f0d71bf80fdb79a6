"""How slowdown curves are measured, on a device and in the simulator alike.

Input: workers, times.  Output: the budgets to try, when requests come, and the time that stands for
all.  It measures nothing; measure.py and lab/simulator/measure.py do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

from tilewright.base.budget import EVERYBODY
from tilewright.base.quantiles import quantile

#: The share of requests that a curve's slowdown covers: more than the 99 % whose bound is promised.
COVERED = 0.995
#: Requests that tell such a share.
REQUESTS = 200
#: Points of a curve beyond 0.
LEVELS = 6
#: The shortest and the longest gap before a request, over their mean.
GAPS = (1 / 3, 5 / 3)
#: The golden ratio.  Its multiples by squares, less whole numbers, fill [0, 1) evenly (Weyl), and
#: follow each other in no order that normal kernels could keep step with.
GOLDEN = (5**0.5 - 1) / 2


def covering(times: Sequence[float]) -> float:
    """The time that a curve's slowdown is made of; of few times the longest."""
    return quantile(times, COVERED)


def gaps(mean: float) -> Iterator[float]:
    """Between requests, without end: so long that normal kernels fill the device again, and so
    uneven that requests come at all places of theirs.  They are the same each time."""
    least, most = GAPS
    for number in count(1):
        yield mean * (least + (most - least) * (number * number * GOLDEN % 1))


def levels_of(workers: int, steps: int) -> tuple[int, ...]:
    """Budgets to try beside 0: all workers halved again and again, then all of them.

    The first few workers cost most: one on each multiprocessor slows the critical model nearly as
    much as eight do (decision 55).
    """
    parts = (max(1, workers >> n) for n in range(steps, 1, -1))
    return tuple(dict.fromkeys((*parts, EVERYBODY)))
