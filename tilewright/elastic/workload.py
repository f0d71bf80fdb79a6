"""A workload in progress: agents that run the models, and sources that send them requests.

Input: loaded models with their curves, a coordinator, arrivals.  Output: a `Workload`, which gives
the result so far.  corun.py decides how long it runs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise

from tilewright.elastic.agents import CriticalAgent, NormalAgent
from tilewright.elastic.arrivals import Arrival
from tilewright.elastic.calibration import Calibration
from tilewright.elastic.coordination import join_thread
from tilewright.elastic.coordinator import Coordinator
from tilewright.elastic.critical import critical_task
from tilewright.elastic.load_generator import CriticalLoad, NormalLoad, check_all
from tilewright.elastic.loading import LoadedCritical, LoadedModels
from tilewright.elastic.measure_curves import Measured
from tilewright.elastic.plans import PlacedPlan, kernel_costs, run_cost
from tilewright.elastic.policy import Critical, KernelCost, Normal
from tilewright.elastic.result import CorunResult, CriticalResult


@dataclass(frozen=True)
class Requests:
    """The requests of a workload.

    critical, normal: the arrivals of each model
    seconds: the length of the run;  seed: of the first critical model; others have seeds after it
    stop: ends the run early when it is set
    """

    critical: Sequence[Arrival]
    normal: Sequence[Arrival]
    seconds: float
    seed: int
    stop: threading.Event


@dataclass(frozen=True)
class Workload:
    """Running agents and sources of requests.

    critical: sources of requests, in the order of the models;  normal: agents, in that order
    asking: sources of requests for the normal models that have arrivals at given times
    begun: when the requests began, in seconds of `time.perf_counter`
    """

    models: LoadedModels
    calibration: Calibration
    coordinator: Coordinator
    critical: Sequence[CriticalLoad]
    normal: Sequence[NormalAgent]
    asking: Sequence[NormalLoad]
    begun: float

    @property
    def answered(self) -> bool:
        """True if each critical model has answered a request."""
        return all(load.answered for load in self.critical)

    def is_over(self, within_s: float) -> bool:
        """True if all critical requests end within this time from now; returns when they have."""
        return all(load.over.wait(within_s) for load in self.critical)

    def end_requests(self) -> None:
        """Ends the critical requests; running ones finish first."""
        for load in self.critical:
            load.end()

    def check(self) -> None:
        """Raises the first error of the coordinator, of a normal model or of its requests."""
        self.coordinator.check()
        check_all(self.normal, self.asking)

    def check_requests(self) -> None:
        """Raises the first error of a source of requests."""
        check_all(self.critical, self.asking)

    def result(self) -> CorunResult:
        """The result so far."""
        seconds = time.perf_counter() - self.begun
        coordinator = self.coordinator
        return CorunResult(
            seconds,
            tuple(map(_result, self.models.critical, self.calibration.chosen, self.critical)),
            tuple(agent.inferences for agent in self.normal),
            tuple(rate * seconds for rate in self.models.normal.alone),
            1e6 * coordinator.spent / max(1, coordinator.events),
        )


@contextmanager
def started(
    models: LoadedModels, calibration: Calibration, coordinator: Coordinator, requests: Requests
) -> Generator[Workload]:
    """Starts the agents, then the requests.  At the end of the `with` statement, or if a part does
    not start, it ends all that was started, even if a part fails.

    Raises AdmissionRefused for a model whose bound cannot be kept, and errors of agents.
    """
    by_kernels = models.policy.by_kernels
    with ExitStack() as ending:
        asked = [
            CriticalAgent(coordinator, _task(models, *each), each[0].model, by_kernels)
            for each in zip(models.critical, calibration.chosen, requests.critical, strict=True)
        ]
        plans = models.normal.running(calibration.concurrency.gated)
        normal = list[NormalAgent]()
        for placed, model, arrival in zip(
            plans, models.normal.models, requests.normal, strict=True
        ):
            name, again = f"normal {len(normal)}", arrival.clients > 0
            agent = _normal_agent(coordinator, name, placed, model.costs, again)
            ending.callback(agent.close)
            normal.append(agent)
            agent.ask(arrival.clients)
        for trace in models.devices.traces:
            trace.reset()
        begun = time.perf_counter()
        loads = _critical_loads(asked, requests, first_seed=requests.seed + len(normal) + 1)
        for load in loads:
            load.start()
            ending.callback(load.end)
        asking = _normal_loads(normal, requests)
        for source in asking:
            source.start()
            ending.callback(join_thread, source, "a source of normal work")
            ending.callback(requests.stop.set)
        yield Workload(models, calibration, coordinator, loads, normal, asking, begun)


def _critical_loads(
    agents: Sequence[CriticalAgent], requests: Requests, first_seed: int
) -> list[CriticalLoad]:
    """first_seed: `first_seed + n` is the seed of the n-th model, but for the first one"""
    seeds = [first_seed + n if n else requests.seed for n in range(len(agents))]
    return [
        CriticalLoad(agent, arrival, requests.seconds, seed, requests.stop)
        for agent, arrival, seed in zip(agents, requests.critical, seeds, strict=True)
    ]


def _normal_loads(agents: Sequence[NormalAgent], requests: Requests) -> list[NormalLoad]:
    """The sources of those normal models whose requests come at given times."""
    return [
        NormalLoad(agent, arrival.times(requests.seconds, requests.seed + 1 + n), requests.stop)
        for n, (agent, arrival) in enumerate(zip(agents, requests.normal, strict=True))
        if not arrival.clients
    ]


def _task(
    models: LoadedModels, critical: LoadedCritical, measured: Measured, arrival: Arrival
) -> Critical:
    settings, host = models.settings, critical.model.host
    return critical_task(
        critical.name,
        measured.phases,
        kernel_costs(host, measured.kernels_us) if models.policy.by_kernels else (),
        max_slowdown=critical.max_slowdown,
        priority=critical.priority,
        deadline_ms=critical.deadline_ms,
        rate_hz=arrival.rate or None,
        gap_ms=1e3 * arrival.least_gap if settings.use_least_gap else 0.0,
        lease_ms=settings.lease_ms,
    )


def _normal_agent(
    coordinator: Coordinator,
    name: str,
    placed: PlacedPlan,
    costs: Sequence[KernelCost],
    again: bool,
) -> NormalAgent:
    """costs: of each kernel;  again: an inference that ends is followed by a request for another"""
    plan, device = placed
    # For the policy, a run is one kernel.
    runs = tuple(run_cost(costs[first:last]) for first, last in pairwise((0, *plan.ends)))

    def between(count: int) -> None:
        if again:
            agent.ask()

    agent = NormalAgent(coordinator, Normal(name, runs), plan, device, between)
    return agent


def _result(critical: LoadedCritical, measured: Measured, load: CriticalLoad) -> CriticalResult:
    return CriticalResult(
        critical.name,
        measured.solo_us,
        critical.max_slowdown,
        None if critical.deadline_ms is None else critical.deadline_ms * 1e3,
        tuple(load.answered),
        load.refused,
        load.overdue,
        load.noticed,
        load.recalibrated,
    )
