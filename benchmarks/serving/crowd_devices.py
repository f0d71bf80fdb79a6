"""Simulated devices of one class: how fast their kernels truly are, and what tuning finds.

Input: a random generator.  Output: `Truth`, and the ratios that honest clients measure.  Liars, the
store and results are in crowd.py, which also describes the model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Standard deviation of one pair's log ratio, and of what all pairs of one trial share.
QUIET, QUIET_DRIFT = 0.02, 0.003
LOUD, LOUD_DRIFT = 0.10, 0.010
#: A device's own departure from its class, for each candidate.
DEVICE = 0.02

# web/tune: trial/trial_worker.js, trial/statistics.js, tuner.js
SURE = 3.3
MARGIN = float(np.log(1.01))
PAIRS_LEAST, PAIRS_MOST = 10, 80


@dataclass(frozen=True)
class Truth:
    """The true speeds: logarithms of speedups over the default, by device and candidate."""

    speed: Floats  # devices × candidates
    wrong: NDArray[np.bool_]
    target: int  # the candidate that liars name

    @property
    def value(self) -> Floats:
        """Median speed over the default on the class's devices; 0 where it is wrong."""
        found: Floats = np.median(np.where(self.wrong, 0.0, np.exp(self.speed)), axis=0)
        return found


def truth(random: np.random.Generator, devices: int) -> Truth:
    """One kernel on one class."""
    count = int(random.integers(10, 33))
    families = -(-count // 3)
    speed = np.repeat(random.normal(0.0, 0.3, families), 3)[:count]
    speed = speed + random.normal(0.0, 0.015, count)
    # The bundle's default is a good guess: among the best third.
    order = np.argsort(-speed)
    default = int(order[random.integers(0, max(1, count // 3))])
    speed[[0, default]] = speed[[default, 0]]
    speed -= speed[0]
    wrong_on = np.where(random.random(count) < 0.05, random.uniform(0.1, 1.0, count), 0.0)
    wrong_on[0] = 0.0
    best = int(np.argmax(speed))
    if best and random.random() < 0.1:
        wrong_on[best] = random.uniform(0.1, 1.0)
    own = speed + random.normal(0.0, DEVICE, (devices, count))
    own[:, 0] = 0.0
    wrong = random.random((devices, count)) < wrong_on
    slow = order[-max(1, count // 3) :]
    slow = slow[(slow != 0) & (slow != default)]
    target = best if wrong_on[best] > 0.6 else int(random.choice(slow if len(slow) else [1]))
    return Truth(own, wrong, target)


def sure(free: Ints) -> Floats:
    """Student's t for 99.9 % (Cornish and Fisher's series)."""
    z = SURE
    found: Floats = z + (z**3 + z) / (4 * free) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)
    return found


def compare(
    random: np.random.Generator, truth: Floats, loud: NDArray[np.bool_], margin: float
) -> tuple[Floats, Floats, Floats]:
    """A/B pairs of many clients at once: centre and interval of each log ratio.

    Pairs end as soon as the interval leaves `margin`, which is why it is wider than it looks.
    """
    drift = np.where(loud, LOUD_DRIFT, QUIET_DRIFT) * random.normal(size=len(truth))
    sigma = np.where(loud, LOUD, QUIET)[:, None]
    pairs = (truth + drift)[:, None] + sigma * random.normal(size=(len(truth), PAIRS_MOST))
    number = np.arange(1, PAIRS_MOST + 1)
    mean = np.cumsum(pairs, axis=1) / number
    variance = np.maximum(np.cumsum(pairs**2, axis=1) / number - mean**2, 0.0)
    half = sure(np.maximum(number - 1, 1)) * np.sqrt(variance / np.maximum(number - 1, 1))
    looked = slice(PAIRS_LEAST - 1, None, 2)
    mean, half = mean[:, looked], half[:, looked]
    decided = (mean - half > margin) | (mean + half < margin)
    decided[:, -1] = True
    at = np.argmax(decided, axis=1)
    rows = np.arange(len(truth))
    mean, half = mean[rows, at], half[rows, at]
    return mean, mean - half, mean + half


@dataclass
class Counts:
    """Adoptions of honest clients; `slower`: of a kernel slower than the one before.

    crowd: of these, kernels that the crowd named;  worst: least speed over the one before
    offered: how often the crowd had a default;  bad: of these, slower than the bundle's or wrong
    """

    adopted: int = 0
    adopted_slower: int = 0
    adopted_wrong: int = 0
    adopted_crowd: int = 0
    adopted_crowd_slower: int = 0
    worst: float = 1.0
    offered: int = 0
    offered_bad: int = 0
    trials: int = 0


def tune(
    random: np.random.Generator,
    what: Truth,
    clients: Ints,
    loud: NDArray[np.bool_],
    first: list[int],
    counts: Counts,
) -> list[dict[int, float]]:
    """A wave of honest clients tries candidates; gives the ratios that each measured."""
    size, count = len(clients), what.speed.shape[1]
    orders = np.argsort(random.random((size, count)), axis=1)
    # The crowd's candidates come first; the default itself is not tried.
    place = np.take_along_axis(np.full((size, count), 1), orders, axis=1)
    place[np.isin(orders, first)] = 0
    place[orders == 0] = 2
    orders = np.take_along_axis(orders, np.argsort(place, axis=1, kind="stable"), axis=1)
    # Half of the clients leave the page in the middle.
    ends = np.where(random.random(size) < 0.5, count, random.integers(count // 3, count + 1, size))
    have = np.zeros(size, np.int64)
    have_ratio = np.zeros(size)
    found: list[dict[int, float]] = [{} for _ in range(size)]
    for turn in range(count - 1):
        tried = orders[:, turn]
        busy = np.flatnonzero((turn < ends) & (tried != 0) & ~what.wrong[clients, tried])
        counts.trials += len(busy)
        tried, mine = tried[busy], clients[busy]
        gain = what.speed[mine, tried] - what.speed[mine, have[busy]]
        ratio, low, _ = compare(random, gain, loud[busy], MARGIN)
        # Reports are relative to the bundle's default, by way of the kernel in use.
        for i, candidate, over in zip(busy, tried, ratio + have_ratio[busy], strict=True):
            found[i][int(candidate)] = float(np.clip(np.exp(over), 1e-3, 1e3))
        won = np.flatnonzero(low > MARGIN)
        again, again_low, _ = compare(random, gain[won], loud[busy[won]], 0.0)
        won = won[(again > MARGIN) & (again_low > 0.0)]
        have[busy[won]], have_ratio[busy[won]] = tried[won], have_ratio[busy[won]] + ratio[won]
        counts.adopted += len(won)
        counts.adopted_slower += int((gain[won] < 0).sum())
        crowds = np.isin(tried[won], first)
        counts.adopted_crowd += int(crowds.sum())
        counts.adopted_crowd_slower += int((crowds & (gain[won] < 0)).sum())
        counts.adopted_wrong += int(what.wrong[mine[won], tried[won]].sum())
        counts.worst = float(np.exp(gain[won]).min(initial=counts.worst))
    return found
