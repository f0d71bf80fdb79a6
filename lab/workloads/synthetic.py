"""Arrivals with the statistics of a recording that is not public.

Input: four statistics of gaps, a seed.  Output: times in seconds from the start.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from tilewright.base.errors import UsageError
from tilewright.elastic.arrivals import RandomGaps, positive


@dataclass(frozen=True)
class Synthetic(RandomGaps):
    """Gaps with four statistics of a recording: a beta distribution between least and most.

    mean, deviation, least, most: of the gaps, in seconds.  It does not reproduce the order of the
                                  recorded gaps, nor dependences between streams that were recorded
                                  together.
    """

    mean: float
    deviation: float
    least: float
    most: float

    def __post_init__(self) -> None:
        positive(mean=self.mean, deviation=self.deviation)
        low, high = self.mean - self.least, self.most - self.mean
        if not (self.least >= 0 and low > 0 and high > 0 and self.deviation**2 < low * high):
            raise UsageError(
                "No distribution between these bounds has this mean and deviation",
                hint="Choose least < mean < most, and deviation² < (mean - least) (most - mean)",
                **vars(self),
            )

    @property
    def rate(self) -> float:
        return 1 / self.mean

    @property
    def least_gap(self) -> float:
        return self.least

    def gap(self, rng: random.Random) -> float:
        span = self.most - self.least
        mean, variance = (self.mean - self.least) / span, (self.deviation / span) ** 2
        weight = mean * (1 - mean) / variance - 1
        return self.least + span * rng.betavariate(mean * weight, (1 - mean) * weight)

    def scaled(self, factor: float) -> Synthetic:
        positive(factor=factor)
        parts = (self.mean, self.deviation, self.least, self.most)
        return Synthetic(*(part / factor for part in parts))
