"""Slowdown curves of a critical model, measured on the device: one for each of its phases.

Input: a critical model, normal models that run beside it, budgets to try.  Output:
`Measured`, kept as JSON.  The simulator has the same experiment with one normal model
(simulator/measure.py).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec

from tilewright.base.budget import EVERYBODY
from tilewright.base.errors import InputError, UsageError
from tilewright.bundle import Bundle
from tilewright.bundle.format import MALFORMED, digest
from tilewright.elastic.agents import NormalAgent
from tilewright.elastic.coordinator import Coordinator, now_us
from tilewright.elastic.models import CriticalModel, NormalPlan
from tilewright.elastic.policy import (
    Arrived,
    Critical,
    Curve,
    Finished,
    Hold,
    KernelCost,
    Normal,
    Phase,
    Scheduler,
)
from tilewright.elastic.policy.curves import LEVELS, REQUESTS, covering, gaps, levels_of
from tilewright.elastic.policy.designs import ALL, Design
from tilewright.elastic.policy.turns import most_beside
from tilewright.elastic.quiet import in_quiet
from tilewright.elastic.ways import NormalWay
from tilewright.hosts.cuda import TARGET
from tilewright.hosts.cuda_devices import CudaDevice
from tilewright.hosts.cuda_tasks import Launch

#: Runs of one measurement: so many, unless time is over, and these in any case.
MOST_RUNS, LEAST_RUNS = 30, 3
#: Launches of a kernel by which it is timed.
IN_A_ROW = 8
#: Seconds between two requests of a curve, on average; a model alone is measured with the gaps of
#: its requests, up to LONGEST_GAP_S.
GAP_S, LONGEST_GAP_S = 3e-4, 0.01
#: Of a model's identity.
DIGITS = 16
ANEW = "Delete the file of curves or name another one, and they are measured anew"
#: Seconds that a normal model is waited for before it is measured beside, at most.
WARM_S = 2.0


#: A normal model and the device that it runs on.
Running: TypeAlias = tuple[NormalPlan, CudaDevice]


class Measured(msgspec.Struct, frozen=True):
    """device: its name;  workers: that the normal models' largest kernel has alone
    kernels_us: of each critical kernel alone;  solo_us: of a request, by the host's clock
    models: identities of its own and of those that it was measured beside;  way: how these ran
    """

    device: str
    sms: int
    workers: int
    solo_us: float
    kernels_us: tuple[float, ...]
    phases: tuple[Phase, ...]
    models: tuple[str, ...]
    way: NormalWay


#: A file of curves.
Kept = Annotated[list[Measured], msgspec.Meta(min_length=1)]


def save(measured: Sequence[Measured], path: Path) -> None:
    """Of the critical models of a session, in their order, for each number of normal ones."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(measured)) + b"\n")


def load(path: Path) -> list[Measured]:
    """Raises InputError for a file that `save` did not write."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Kept)
    except MALFORMED as error:
        raise InputError(
            f"the file has no slowdown curves of this version: {error}",
            hint=ANEW,
            path=path,
        ) from error


def identity(bundle: Bundle) -> str:
    """What a model's kernels and plans are, whatever its weights."""
    return digest(msgspec.json.encode(bundle.manifest.section(TARGET)))[:DIGITS]


def check(
    curves: Sequence[Measured], device: str, sms: int, models: Sequence[tuple[str, ...]]
) -> None:
    """Raises UsageError for curves of another device, part of it, or models.

    models: for each critical model what `Measured` says of them
    """
    if len(curves) != len(models):
        raise UsageError(
            f"there are {len(curves)} slowdown curves for {len(models)} critical models",
            hint=ANEW,
        )
    for known, now in zip(curves, models, strict=True):
        facts: tuple[tuple[str, Any, Any], ...] = (
            ("another device", known.device, device),
            ("other multiprocessors", known.sms, sms),
            ("another critical model", known.models[:1], now[:1]),
            ("other normal models", known.models[1:], now[1:]),
        )
        for kind, measured, present in facts:
            if measured != present:
                raise UsageError(
                    f"the slowdown curves were measured with {kind}", hint=ANEW,
                    measured=measured, present=present,
                )  # fmt: skip


def divided(times: Sequence[float], parts: int) -> list[int]:
    """How many kernels each of at most `parts` phases has, such that they take about as long."""
    whole, counts, spent = sum(times), [0], 0.0
    for took in times:
        if counts[-1] and len(counts) < parts and spent + took / 2 > whole * len(counts) / parts:
            counts.append(0)
        counts[-1] += 1
        spent += took
    return counts


def repeated(once: Callable[[], float], most: int, seconds: float, least: int = 1) -> list[float]:
    """What `once` gives, again and again until it was enough or took too long."""
    stop, found = time.perf_counter() + seconds, [once()]
    while len(found) < least or (len(found) < most and time.perf_counter() < stop):
        found.append(once())
    return found


def kernel_times(model: CriticalModel, seconds: float = 1.0) -> list[float]:
    """Microseconds of each kernel alone: the least of some runs, by the device's clock."""
    each = seconds / max(1, len(model.launches))
    return [min(repeated(_timed(model, launch), MOST_RUNS, each)) for launch in model.launches]


def _timed(model: CriticalModel, launch: Launch) -> Callable[[], float]:
    """Times a kernel several times in a row: the first one waits for the host."""
    run = model.device.record([launch] * IN_A_ROW)
    return lambda: 1e3 * model.device.milliseconds(run) / IN_A_ROW


def measure(
    model: CriticalModel,
    normal: Sequence[Running],
    allow: Callable[[int], None],
    scheduler: Scheduler,
    *,
    models: tuple[str, ...],
    workers: int,
    gated: bool = False,
    phases: int = 1,
    steps: int = LEVELS,
    most: int = REQUESTS,
    seconds: float = 10.0,
    gap_s: float = 0.0,
) -> Measured:
    """Runs each phase with each budget while all normal models run all the time, and before each
    budget the model alone: a host's pace changes within seconds.

    scheduler: by which requests will be served;  models: what they are
    gated: whether the normal models have gates
    phases: parts of the critical model with a curve of their own, at most
    seconds: after which a point has fewer requests, but three at least
    gap_s: between requests of the model alone, as they will come
    """
    times, settle_us = kernel_times(model, seconds / 8), scheduler.design.settle_us
    counts = divided(times, phases)
    parts = _parts(counts)
    tried = (0, *levels_of(workers, steps))
    each = seconds / (len(counts) * (len(tried) + 1))

    def a_part(once: Callable[[], float], whole_s: float) -> list[float]:
        return repeated(once, -(-most // len(tried)), whole_s / len(tried), LEAST_RUNS)

    entire = requests(
        model, Hold(EVERYBODY, 0, len(model.launches)), 0.0, gap_s=min(gap_s, LONGEST_GAP_S)
    )
    singly = [
        requests(model, Hold(EVERYBODY, *part), 0.0, gap_s=min(gap_s, GAP_S)) for part in parts
    ]
    whole = list[float]()
    alone: list[list[float]] = [[] for _ in parts]
    beside: list[list[tuple[int, float]]] = [[] for _ in parts]
    for budget in tried:
        whole += a_part(entire, seconds / 8)
        for once, took in zip(singly, alone, strict=True):
            took += a_part(once, each)
        with Background(normal, allow, budget, scheduler) as busy:
            busy.warmed()
            for part, took, points in zip(parts, alone, beside, strict=True):
                held = Hold(budget, *part, waits=settle_us > 0 and budget < EVERYBODY)
                once = requests(model, held, settle_us, busy, statistics.median(took))
                points.append((budget, covering(repeated(once, most, each, LEAST_RUNS))))
    solo_us = statistics.median(whole)
    alone_us = [statistics.median(took) for took in alone]
    scale = solo_us / sum(alone_us)
    found = (
        Phase(count, us * scale, Curve(tuple((budget, worst / us) for budget, worst in points)))
        for count, us, points in zip(counts, alone_us, beside, strict=True)
    )
    return Measured(
        model.device.name,
        scheduler.gpu.sms,
        workers,
        solo_us,
        tuple(times),
        tuple(found),
        models,
        NormalWay(scheduler.together, gated),
    )


def _parts(counts: Sequence[int]) -> list[tuple[int, int]]:
    ends = [sum(counts[: n + 1]) for n in range(len(counts))]
    return [(end - count, end) for count, end in zip(counts, ends, strict=True)]


class Background:
    """Normal models run without a break, but as far as the budget holds each of them back.

    scheduler: by which they will run beside requests
    agents: in the order of the models;  beside: as of the policy's `Begin`
    """

    def __init__(
        self,
        normal: Sequence[Running],
        allow: Callable[[int], None],
        budget: int,
        scheduler: Scheduler,
    ) -> None:
        part = ALL if budget else None
        design = Design("measured", "chunk", lambda t, _: (budget,), lambda _: part, plain=True)
        self.coordinator = Coordinator(replace(scheduler, design=design), allow)
        self._critical = Critical("critical", (Phase(1, 1.0),), max_slowdown=1e9, lease_us=1e12)
        self.coordinator.join(self._critical, lambda action: None)
        self.agents = [self._agent(n, plan, device) for n, (plan, device) in enumerate(normal)]
        self.beside = most_beside(scheduler.together, self.coordinator.state)

    def _agent(self, number: int, plan: NormalPlan, device: CudaDevice) -> NormalAgent:
        task = Normal(f"normal {number}", (KernelCost(1, 32, 1.0, 1.0),) * len(plan.ends))
        return NormalAgent(
            self.coordinator, task, plan, device, lambda _: self.agents[number].ask()
        )

    def __enter__(self) -> Background:
        for agent in self.agents:
            agent.ask(2)
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as last:
            last.callback(self.coordinator.close)
            for agent in self.agents:
                last.callback(agent.close)

    def warmed(self) -> None:
        """Waits until each has ended an inference: kernels are loaded when they first run."""
        until = time.perf_counter() + WARM_S
        while any(not agent.inferences for agent in self.agents) and time.perf_counter() < until:
            for agent in self.agents:
                agent.check()
            time.sleep(1e-3)

    def around(self, run: Callable[[], float]) -> float:
        """A request as the policy sees it: normal work is launched or not as it will be."""
        number = self.coordinator.request()
        self.coordinator.post(Arrived(now_us(), "critical", number))
        try:
            return run()
        finally:
            self.coordinator.post(Finished(now_us(), number, None))


def requests(
    model: CriticalModel,
    held: Hold,
    settle_us: float,
    busy: Background | None = None,
    expected_us: float | None = None,
    gap_s: float = GAP_S,
    before: Callable[[], None] = lambda: None,
) -> Callable[[], float]:
    """A request of a part of the model, as an agent makes it: each call gives microseconds by the
    host's clock.

    expected_us: as of `in_quiet`;  gap_s: the mean of pauses before each, of changing length
    before: called before the pause
    """

    def once() -> float:
        begun = now_us()
        start = partial(model.start_parts, [held], settle_us, beside)
        in_quiet(start, expected_us, starts=held.budget > 0)
        return now_us() - begun

    def timed() -> float:
        before()
        if gap_s:
            time.sleep(next(between))
        return once() if busy is None else busy.around(once)

    beside, between = busy.beside if busy else 0, gaps(gap_s)
    return timed
