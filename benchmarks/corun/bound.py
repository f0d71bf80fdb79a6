"""Whether a bound on the slowdown is kept on the simulated GPU, with several ways to hold back.

Input: workloads below, variants of our policy.  Output: results/corun.bound.json; a row is a
variant of a workload under a bound, all arrivals and seeds together:

* over: share of the requests whose time from their begin exceeds the bound: interference; later:
  the same of the second half of each run, when wrong curves may have been noticed;
* waited: share of those within it whose latency exceeds the bound, since they waited for others;
* waited_alone: the same share of a queue with nothing beside the critical model;
* least: the slowdown with a budget of 0 by the measured curve; refused: it exceeds the bound;
* corrected: how often a curve was, of all runs;  ended: runs in which nothing kept the bound, so
  normal work ended.

    python -m benchmarks corun.bound [--requests 20000] [--variant "waits 10 us"]
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated

import typer

from benchmarks.common import Run
from benchmarks.options import among
from benchmarks.records import Row
from lab.simulator import levels, phases, simulate, solo_us
from lab.workloads.metrics import above, queued
from tilewright.base.errors import AdmissionRefused
from tilewright.base.quantiles import quantile
from tilewright.elastic.arrivals import Arrival, ClosedLoop, Poisson, Uniform
from tilewright.elastic.policy import Critical, Curve, Gpu, KernelCost, Normal, Phase, Scheduler
from tilewright.elastic.policy.policies import SETTLE_US, policy_named

BOUNDS = (1.05, 1.3, 1.5)
NO_BOUND = 1e3
SEEDS = (1, 2, 3)
#: Shares of the time that the critical model would take alone; 1: a closed loop.
DUTIES = (0.3, 0.6, 1.0)


@dataclass(frozen=True)
class Subject:
    """A critical and a normal model on a part of a GPU."""

    gpu: Gpu
    critical: tuple[KernelCost, ...]
    normal: tuple[KernelCost, ...]


#: What the critical model leaves idle, and how long the normal one's chunks are, differ.
SUBJECTS = {
    "full SMs": Subject(
        Gpu(4),
        (KernelCost(9, 256, 40, 2, 0.3), KernelCost(30, 256, 15, 1, 0.3)),
        (KernelCost(40, 256, 60, 2, 0.3), KernelCost(7, 128, 120, 4, 0.2, 0.05)),
    ),
    "short kernels": Subject(
        Gpu(4),
        (KernelCost(8, 256, 30, 1, 0.5),) * 6,
        (KernelCost(40, 256, 60, 1.5, 0.3), KernelCost(17, 128, 80, 1, 0.4)),
    ),
    "idle SMs": Subject(
        Gpu(8),
        (KernelCost(5, 256, 25, 1, 0.3),) * 6,
        (KernelCost(64, 128, 30, 1, 0.08, 0.005), KernelCost(40, 256, 50, 2, 0.15)),
    ),
    "tiles of 30 us": Subject(
        Gpu(4),
        (KernelCost(4, 256, 20, 1, 0.5),) * 4,
        (KernelCost(24, 256, 30, 30, 0.3), KernelCost(40, 128, 50, 1, 0.4)),
    ),
}


@dataclass(frozen=True)
class Variant:
    """settle_us: the longest that critical kernels wait;  curve: how much of a measured slowdown
    beyond 1 is known, as if the device had changed since; None: a budget of 0 and no refusal"""

    settle_us: float
    curve: float | None = 1.0


VARIANTS = {
    "budget 0, no wait": Variant(0.0, None),
    "budget 0, waits 2 us": Variant(2.0, None),
    "budget 0, waits 10 us": Variant(SETTLE_US, None),
    "budget 0, waits 50 us": Variant(50.0, None),
    "no wait": Variant(0.0),
    "waits 10 us": Variant(SETTLE_US),
    "waits 10 us, curve halved": Variant(SETTLE_US, 0.5),
    "waits 10 us, curve at 0.8": Variant(SETTLE_US, 0.8),
}


@lru_cache
def measured(name: str, settle_us: float) -> Phase:
    subject = SUBJECTS[name]
    tried = levels(subject.gpu, subject.normal, 6)
    (found,) = phases(subject.gpu, subject.critical, subject.normal, tried, settle_us)
    return found


def phase_of(name: str, variant: Variant) -> Phase:
    if variant.curve is None:
        subject = SUBJECTS[name]
        return Phase(len(subject.critical), solo_us(subject.gpu, subject.critical))
    found = measured(name, variant.settle_us)
    points = ((n, 1 + (slowdown - 1) * variant.curve) for n, slowdown in found.curve.points)
    return replace(found, curve=Curve(tuple(points)))


def arrivals(solo: float) -> Iterator[tuple[Arrival, float]]:
    """Arrivals, and their requests per second."""
    for duty in DUTIES:
        rate = duty * 1e6 / solo
        if duty < 1:
            yield Poisson(rate), rate
            yield Uniform(rate), rate
        else:
            yield ClosedLoop(), rate


@lru_cache
def rate_alone(name: str) -> float:
    """Normal inferences per second with nothing beside them."""
    subject, seconds = SUBJECTS[name], 0.05
    tasks = [(Normal("normal", subject.normal), ClosedLoop())]
    found = simulate(Scheduler(policy_named("tilewright"), subject.gpu), tasks, seconds)
    return found.inferences["normal"] / seconds


@dataclass(frozen=True)
class Outcome:
    """Of one arrival and seed: what requests took, their latencies, those of a queue of nothing
    else, all over the time alone; normal work over what is possible; of curves that were found
    wrong, whether the bound could be kept."""

    took: tuple[float, ...]
    latencies: tuple[float, ...]
    alone: tuple[float, ...]
    share: float | None
    noticed: tuple[bool, ...]


@lru_cache
def runs(name: str, variant: Variant, bound: float, requests: int) -> list[Outcome]:
    """Raises AdmissionRefused."""
    subject, phase = SUBJECTS[name], phase_of(name, variant)
    solo, gpu, found = phase.solo_us, subject.gpu, list[Outcome]()
    scheduler = Scheduler(replace(policy_named("tilewright"), settle_us=variant.settle_us), gpu)
    kinds = list(arrivals(solo))
    for arrival, rate in kinds:
        for seed in SEEDS:
            seconds = requests / (len(kinds) * len(SEEDS)) / rate
            simulated = simulate(
                scheduler,
                [
                    (Critical("critical", (phase,), subject.critical, bound), arrival),
                    (Normal("normal", subject.normal), ClosedLoop()),
                ],
                seconds,
                seed,
            )
            took = tuple(s.took_us / solo for s in simulated.served)
            each = 1 + gpu.submit_us / solo
            came = [1e6 * at / solo for at in arrival.times(seconds, seed)]
            possible = seconds - len(took) * solo / 1e6
            found.append(
                Outcome(
                    took,
                    tuple(s.latency_us / solo for s in simulated.served),
                    tuple(queued(came, [each] * len(came))) if came else (each,) * len(took),
                    None
                    if arrival.clients
                    else simulated.inferences["normal"] / (rate_alone(name) * possible),
                    tuple(notice.attainable for _, notice in simulated.noticed),
                )
            )
    return found


def row(name: str, label: str, bound: float, requests: int) -> Row:
    variant = VARIANTS[label]
    found: Row = {
        "workload": name, "variant": label, "max_slowdown": bound,
        "least": phase_of(name, variant).curve.at(0),
    }  # fmt: skip
    try:
        # with a budget of 0 the bound decides nothing
        all_runs = runs(name, variant, NO_BOUND if variant.curve is None else bound, requests)
    except AdmissionRefused:
        return found | {"refused": True}
    took = [x for run in all_runs for x in run.took]
    later = [x for run in all_runs for x in run.took[len(run.took) // 2 :]]
    within = [
        latency
        for run in all_runs
        for latency, x in zip(run.latencies, run.took, strict=True)
        if x <= bound
    ]
    shares = [run.share for run in all_runs if run.share is not None]
    found |= {
        "refused": False, "n": len(took), "over": above(took, bound),
        "later": above(later, bound),
        "corrected": sum(len(run.noticed) for run in all_runs),
        "ended": sum(not all(run.noticed) for run in all_runs),
        "waited": above(within, bound),
        "waited_alone": above([x for run in all_runs for x in run.alone], bound),
        "p50": quantile(took, 0.5), "p99": quantile(took, 0.99), "p999": quantile(took, 0.999),
        "normal_share": statistics.mean(shares),
    }  # fmt: skip
    return {k: round(v, 5) if isinstance(v, float) else v for k, v in found.items()}


def main(
    run: Run,
    requests: Annotated[int, typer.Option(help="Of each row, about.")] = 20_000,
    variant: Annotated[list[str] | None, among(VARIANTS, "Repeatable")] = None,
    workload: Annotated[list[str] | None, among(SUBJECTS, "Repeatable")] = None,
    bound: Annotated[list[float] | None, typer.Option(help="Repeatable.")] = None,
) -> None:
    for label in variant or VARIANTS:
        for name in workload or SUBJECTS:
            for most in bound or BOUNDS:
                run.keep(row(name, label, most, requests))
