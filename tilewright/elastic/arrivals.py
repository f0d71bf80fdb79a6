"""Arrival times of requests: closed loops, uniform, Poisson and recorded arrivals.

Input: an arrival, seconds, a seed.  Output: times in seconds from the start.  This module has no
models and no clock: the caller waits for the times.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, pairwise, takewhile

from tilewright.base.errors import UsageError


class Arrival(ABC):
    """The arrival pattern of one stream of requests."""

    @property
    def clients(self) -> int:
        """The number of clients that send a request when the last one is answered; 0: requests come
        at given times."""
        return 0

    @property
    @abstractmethod
    def rate(self) -> float:
        """Requests per second on average; 0 for closed loops, whose rate is not known in
        advance."""

    @property
    def mean_gap(self) -> float:
        """Seconds between two requests on average; 0: a request follows the last answer."""
        return 1 / self.rate if self.rate else 0.0

    @property
    def least_gap(self) -> float:
        """A lower bound of the seconds between two requests; 0: none is known."""
        return 0.0

    @abstractmethod
    def times(self, seconds: float, seed: int) -> tuple[float, ...]:
        """Arrival times before `seconds`, ascending; () for a closed loop."""

    @abstractmethod
    def scaled(self, factor: float) -> Arrival:
        """The pattern at `factor` times its rate."""


def positive(**values: float) -> None:
    """Raises UsageError for a value that is not positive."""
    for name, value in values.items():
        if not value > 0:
            raise UsageError(
                f"Arrivals need a {name} above 0",
                hint="Rates are requests per second, gaps are seconds",
                **{name: value},
            )


@dataclass(frozen=True)
class ClosedLoop(Arrival):
    """number: clients; each sends a request, waits for the answer and sends the next at once"""

    number: int = 1

    def __post_init__(self) -> None:
        positive(number=self.number)

    @property
    def clients(self) -> int:
        return self.number

    @property
    def rate(self) -> float:
        return 0.0

    def times(self, seconds: float, seed: int) -> tuple[float, ...]:
        return ()

    def scaled(self, factor: float) -> ClosedLoop:
        return self


@dataclass(frozen=True)
class Uniform(Arrival):
    """Requests every 1/`per_second` seconds; the seed chooses the first time."""

    per_second: float

    def __post_init__(self) -> None:
        positive(rate=self.per_second)

    @property
    def rate(self) -> float:
        return self.per_second

    @property
    def least_gap(self) -> float:
        return 1 / self.per_second

    def times(self, seconds: float, seed: int) -> tuple[float, ...]:
        first = random.Random(seed).random()
        ticks = ((first + n) / self.per_second for n in count())
        return tuple(takewhile(lambda at: at < seconds, ticks))

    def scaled(self, factor: float) -> Uniform:
        return Uniform(self.per_second * factor)


class RandomGaps(Arrival):
    """Arrival times as sums of independent random gaps."""

    @abstractmethod
    def gap(self, rng: random.Random) -> float:
        """Seconds to the next request."""

    def times(self, seconds: float, seed: int) -> tuple[float, ...]:
        rng = random.Random(seed)

        def sums() -> Iterator[float]:
            at = self.gap(rng)
            while at < seconds:
                yield at
                at += self.gap(rng)

        return tuple(sums())


@dataclass(frozen=True)
class Poisson(RandomGaps):
    """Independent requests, `per_second` of them on average."""

    per_second: float

    def __post_init__(self) -> None:
        positive(rate=self.per_second)

    @property
    def rate(self) -> float:
        return self.per_second

    def gap(self, rng: random.Random) -> float:
        return rng.expovariate(self.per_second)

    def scaled(self, factor: float) -> Poisson:
        return Poisson(self.per_second * factor)


@dataclass(frozen=True)
class Trace(Arrival):
    """Recorded times, which repeat after each period; the seed has no effect.

    recorded: ascending, in seconds, from 0 up to below the period;  period: in seconds
    """

    recorded: tuple[float, ...]
    period: float

    def __post_init__(self) -> None:
        positive(period=self.period)
        ascending = all(a <= b for a, b in pairwise((0.0, *self.recorded)))
        if not self.recorded or not ascending or self.recorded[-1] >= self.period:
            raise UsageError(
                "A trace has ascending times from 0 up to below its period",
                hint="Sort the times, and give a period that is longer than the last",
                times=len(self.recorded),
                period=self.period,
            )

    @property
    def rate(self) -> float:
        return len(self.recorded) / self.period

    def times(self, seconds: float, seed: int) -> tuple[float, ...]:
        again = (n * self.period + at for n in count() for at in self.recorded)
        return tuple(takewhile(lambda at: at < seconds, again))

    def scaled(self, factor: float) -> Trace:
        positive(factor=factor)
        return Trace(tuple(at / factor for at in self.recorded), self.period / factor)
