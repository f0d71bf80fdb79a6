"""When a kernel or a model counts as near its optimum, as poor, as slower; and trials until then.

Input: times of candidates, or shares of the optimum's speed.  Output: counts of trials.  Benchmarks
and reports judge by these limits, so that each of them stands here once.  It measures nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

#: Shares of the optimum's speed: from the first on a candidate is near it, below the other poor.
NEAR, POOR = 0.97, 0.92
#: A tuned model counts as slower than the model of the defaults below this ratio of speeds.
SLOWER = 0.98
#: Trials within which a session should have come near the optimum.
MOST_TRIALS = 32


def near(times: Sequence[float]) -> float:
    """The longest time that is near the shortest."""
    return min(times) / NEAR


def trials_until_near(times: Sequence[float], order: Iterable[int]) -> int | None:
    """Candidates tried in this order until one is near the optimum; None if none is."""
    return next((n for n, at in enumerate(order, 1) if times[at] <= near(times)), None)


def trials_at_random(candidates: int, good: int) -> float | None:
    """Mean number of trials until a random order comes to a good candidate; None without any."""
    return (candidates + 1) / (good + 1) if good else None


def reached(shares: Sequence[tuple[int, float]]) -> int | None:
    """The first trial after which the kernel in use stays near the optimum; None if it does not.

    shares: of the kernels in use, each with the trial that brought it
    """
    since = None
    for trial, share in shares:
        since = None if share < NEAR else trial if since is None else since
    return since


def share_after(shares: Sequence[tuple[int, float]], trials: int = MOST_TRIALS) -> float:
    """The share of the kernel in use after this number of trials."""
    return [share for trial, share in shares if trial <= trials][-1]
