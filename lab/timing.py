"""How benchmarks and the laboratory time things: warm-up, turns, and how much times spread.

Input: what runs something and gives milliseconds.  Output: times.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from tilewright.hosts.browser import BrowserModel

T = TypeVar("T")
#: Milliseconds of runs after which browsers and Node have compiled hot code again, optimised.
WARM_MS = 1500.0
#: Milliseconds of runs that are timed together at least, and the least of a time that is told by
#: itself: browsers round their clocks, Firefox to 20 µs.
BATCH_MS, COARSE_MS = 10.0, 0.5
#: Batches of a warm-up, at most.
MOST_BATCHES = 400


def timer_of(model: BrowserModel) -> Callable[[int], list[float]]:
    """Milliseconds of single runs, without runs before them."""
    return lambda runs: model.time(runs, 0).milliseconds


def warm_up(timer: Callable[[int], Sequence[float]], milliseconds: float, runs: int = 10) -> None:
    """Runs for this number of milliseconds, in which an engine compiles hot functions again.

    It also ends if the clock is too coarse to see a run.
    """
    spent = 0.0
    for _ in range(MOST_BATCHES):
        spent += sum(timer(runs))
        if spent >= milliseconds:
            return


def warmed(timer: Callable[[int], Sequence[float]], milliseconds: float, batch: float) -> float:
    """Runs so long, in batches of `batch` ms; the milliseconds of a run at the end."""
    spent, runs = 0.0, 1
    while True:
        times = timer(runs)
        spent += max(sum(times), 1.0)  # a coarse clock may show 0
        usual = statistics.mean(times)
        if spent > milliseconds:
            return usual
        runs = runs_in(batch, usual)


def runs_in(milliseconds: float, usual: float) -> int:
    """How many runs of `usual` milliseconds make a batch."""
    return max(1, min(400, round(milliseconds / max(usual, 0.01))))


def turn(number: int, items: Sequence[T]) -> Sequence[T]:
    """The order of a round: every other one begins at the end, so that drifts cancel out."""
    return items[:: -1 if number % 2 else 1]


def by_turns(
    timers: Mapping[T, Callable[[], Sequence[float]]], rounds: int
) -> dict[T, list[float]]:
    """The times of each, all in every round."""
    found: dict[T, list[float]] = {name: [] for name in timers}
    for number in range(rounds):
        for name in turn(number, list(timers)):
            found[name] += timers[name]()
    return found


def figures(values: Sequence[float], name: str, digits: int = 4) -> dict[str, float]:
    """What rows say of repeated measurements: the median by this name, how much they spread, n."""
    return {
        name: round(statistics.median(values), digits),
        "spread": round(spread(values), 4),
        "n": len(values),
    }


def spread(values: Sequence[float]) -> float:
    """Interquartile range over the median."""
    low, _, high = statistics.quantiles(values, n=4)
    return (high - low) / statistics.median(values)
