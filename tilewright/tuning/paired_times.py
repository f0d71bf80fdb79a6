"""Decides which of two kernels is faster, from pairs of times that are measured back to back.

Input: a function that measures a pair, a margin.  Output: a ratio with its interval, a verdict. No
clock is read here.  The rules are the page's (web/tune/trial/statistics.js, paired_times.js), for
kernels that are timed whole: the Hodges-Lehmann centre of log ratios, and the interval of
Wilcoxon's signed-rank test.  A winner is measured again with new pairs, since the best of many
candidates is partly lucky.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

#: Half-width of intervals in standard deviations; the second is for long kernels with few pairs.
SURE, SURE_LONG = 3.3, 2.4
#: Times are clipped to this multiple of the median.
CLIP = 1.1
#: If all of `FEW` pairs differ by the factor `FAR`, it bounds the interval.
FEW, FAR = 4, 1.25
#: The least and the most pairs; the second for kernels that both take more than LONG milliseconds.
SHORT_PAIRS, LONG_PAIRS, LONG = (10, 320), (4, 80), 40.0
#: The factor by which a candidate must be faster.
MARGIN = 1.01
#: A kernel is measured no further if its interval ends below `WORTH`, or if it seems slower and the
#: interval ends below `HOPE`.
WORTH, HOPE = 1.03, 1.06

#: Multiples of the time limit: for a kernel that seems faster, and while there is no interval.
PROMISING, HOPELESS = 2.0, 6.0

Pair = tuple[float, float]
#: Tells whether this multiple of the time limit has passed.
Over = Callable[[float], bool]
#: Measures both kernels; True: the second one first.  None: the clock did not advance.
Measure = Callable[[bool], Pair | None]


@dataclass(frozen=True)
class Judgement:
    """The first kernel's time over the second one's, with its interval; milliseconds of both."""

    ratio: float
    low: float
    high: float
    first: float
    second: float


NOTHING = Judgement(math.nan, math.nan, math.nan, math.nan, math.nan)


def interval(values: Sequence[float], sure: float) -> tuple[float, float, float]:
    """Centre, low end, high end; the ends are infinite if there are too few values."""
    n = len(values)
    means = np.sort(np.add.outer(values, values)[np.tril_indices(n)] / 2)
    half = sure * math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
    rank = math.floor(len(means) / 2 + 0.5 - half)
    centre = float(np.median(means))
    if rank < 1:
        return centre, -math.inf, math.inf
    return centre, float(means[rank - 1]), float(means[-rank])


def judged(pairs: Sequence[Pair], sure: float = SURE) -> Judgement:
    """Compares both kernels by all pairs."""
    times = np.array(pairs)
    middles = np.median(times, axis=0)
    clipped = np.minimum(times, CLIP * middles)
    logs = np.log(clipped[:, 0] / clipped[:, 1])
    centre, low, high = interval(logs.tolist(), sure)
    first = float(middles[0])
    ends = [math.exp(centre), math.exp(low) if low > -700 else 0.0]
    ends.append(math.exp(high) if high < 700 else math.inf)
    if len(pairs) >= FEW and bool((logs > math.log(FAR)).all()):
        ends[1] = max(ends[1], FAR)
    if len(pairs) >= FEW and bool((logs < -math.log(FAR)).all()):
        ends[2] = min(ends[2], 1 / FAR)
    return Judgement(ends[0], ends[1], ends[2], first, first / ends[0])


def compare(measure: Measure, margin: float, over: Over, *, long: bool) -> Judgement:
    """Measures pairs until the interval is on one side of the margin, or the time is over."""
    (least, most), sure = (LONG_PAIRS, SURE_LONG) if long else (SHORT_PAIRS, SURE)
    pairs: list[Pair] = []
    lost, found = 0, NOTHING
    while len(pairs) < most:
        pair = measure(len(pairs) % 2 == 1)
        if pair is None:
            lost += 1
            if lost > most:
                return NOTHING
            continue
        pairs.append(pair)
        # Each kernel must have been first equally often.
        if len(pairs) < least or len(pairs) % 2:
            continue
        found = judged(pairs, sure)
        clear = found.low > margin or found.high < margin
        poor = found.ratio < margin and (long or found.high < (HOPE if found.ratio < 1 else WORTH))
        late = found.high < math.inf and over(PROMISING if found.ratio > margin else 1)
        if clear or poor or late or over(HOPELESS):
            break
    return found


def contest(measure: Measure, begin: Callable[[], Over], *, long: bool) -> tuple[str, Judgement]:
    """ "faster", "same" or "slower" for the second kernel, and the latest comparison.

    begin: starts a time limit
    """
    first = compare(measure, MARGIN, begin(), long=long)
    if not first.low > MARGIN:
        return ("slower" if first.high < 1 else "same"), first
    again = compare(measure, 1.0, begin(), long=long)
    faster = again.low > 1 and again.ratio > MARGIN
    return ("faster" if faster else "same"), again
