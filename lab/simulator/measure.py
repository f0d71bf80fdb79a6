"""Measures a model for the policy on the simulated GPU: its baseline and its slowdown curves.

Input: costs of kernels.  Output: phases with their slowdown curves, as elastic/measure_curves.py
finds them on a real device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, islice

from lab.simulator.run import RequestSource, simulate
from tilewright.elastic.policy import (
    Critical,
    Curve,
    Gpu,
    KernelCost,
    Normal,
    Phase,
    Scheduler,
)
from tilewright.elastic.policy.budgets import LEVELS, REQUESTS, covering_time, gaps, levels_of
from tilewright.elastic.policy.policies import ALL, SETTLE_US, Policy

#: The mean gap between requests, as a multiple of about their service time.
GAP = 3.0


@dataclass(frozen=True)
class _Loop:
    clients: int = 1

    def times(self, seconds: float, seed: int) -> tuple[float, ...]:
        return ()


@dataclass(frozen=True)
class _Requests:
    """Arrivals of `count` requests; the mean gap between them is `gap` seconds."""

    count: int
    gap: float
    clients: int = 0

    def times(self, seconds: float, seed: int) -> tuple[float, ...]:
        return tuple(accumulate(islice(gaps(self.gap), self.count)))


def solo_us(gpu: Gpu, kernels: Sequence[KernelCost]) -> float:
    """Microseconds of one inference with nothing beside it."""
    return _took(gpu, kernels, (), 0)[0]


def phases(
    gpu: Gpu,
    kernels: Sequence[KernelCost],
    normal: Sequence[KernelCost],
    levels: Sequence[int],
    settle_us: float = SETTLE_US,
) -> tuple[Phase, ...]:
    """The whole model as one phase, with its slowdown at each level of workers beside it.

    At level 0, too, a request waits until the normal workers have left.
    """
    alone = solo_us(gpu, kernels)
    points = (
        (n, covering_time(_took(gpu, kernels, normal, n, settle_us)) / alone) for n in (0, *levels)
    )
    return (Phase(len(kernels), alone, Curve(tuple(points))),)


def _took(
    gpu: Gpu,
    kernels: Sequence[KernelCost],
    normal: Sequence[KernelCost],
    workers: int,
    settle_us: float = 0.0,
) -> list[float]:
    """Microseconds of each request while `workers` normal workers may stay beside it."""
    part = ALL if workers else None
    policy = Policy(
        "measured", "chunk", lambda t, _: (workers,) * len(t.phases), lambda _: part,
        settle_us=settle_us, plain=True,
    )  # fmt: skip
    critical = Critical("critical", (Phase(len(kernels), 1.0),), tuple(kernels), max_slowdown=1e9)
    gap = GAP * sum(k.tile_us * (1 + k.tiles / gpu.sms) for k in (*kernels, *normal[:1])) / 1e6
    source = _Requests(REQUESTS if normal else 1, gap)
    tasks: list[tuple[Critical | Normal, RequestSource]] = [(critical, source)]
    if normal:
        tasks.append((Normal("normal", tuple(normal)), _Loop()))
    outcome = simulate(Scheduler(policy, gpu), tasks, source.times(0, 0)[-1] + gap)
    return [served.took_us for served in outcome.served]


def levels(gpu: Gpu, kernels: Sequence[KernelCost], steps: int = LEVELS) -> tuple[int, ...]:
    """The budgets to measure: shares of the largest number of resident workers, then no limit."""
    most = max(kernel.residents(gpu) for kernel in kernels)
    return levels_of(most, steps)
