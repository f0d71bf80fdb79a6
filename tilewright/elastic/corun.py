"""Runs critical and normal models on one device, from bundles to a result: the `corun` command.

Input: bundles with a section for CUDA, a policy, arrivals.  Output: a `CorunResult`, and results so
far while it runs.  The parts (models, agents, coordinator) can be used without this module.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from operator import itemgetter
from pathlib import Path

from tilewright.base.budget import EVERYBODY
from tilewright.base.errors import UsageError
from tilewright.elastic.agents import CriticalAgent, NormalAgent
from tilewright.elastic.arrivals import Arrival, ClosedLoop
from tilewright.elastic.background import Background
from tilewright.elastic.coordinator import Coordinator, join_thread
from tilewright.elastic.critical import CriticalModel, PersistentWeights, critical_task
from tilewright.elastic.gates import pass_gates
from tilewright.elastic.load_generator import CriticalLoad, NormalLoad, check_all
from tilewright.elastic.measure_curves import Measured, check, identity, measure
from tilewright.elastic.normal import NormalModels, parts_of
from tilewright.elastic.plans import PlacedPlan, kernel_costs, run_cost
from tilewright.elastic.policy import Critical, Gpu, Normal, Scheduler, policy_named
from tilewright.elastic.policy.admission import least_slowdown
from tilewright.elastic.policy.tasks import MOST_PHASES
from tilewright.elastic.result import CorunResult, CriticalResult
from tilewright.elastic.settings import Concurrency, CriticalSettings, Settings, choices, devices
from tilewright.hosts.cuda import CudaHost
from tilewright.hosts.cuda_elastic import Budget
from tilewright.hosts.cuda_tasks import SetWord


class Corun:
    """Loads and measures the models; `run` runs one workload.  Use it in a `with` statement.

    critical: one model, or several, each with its own bound
    curves: earlier measurements, in the order of the critical models, for some kinds of
            concurrency; missing ones are measured now and added to the attribute `curves`
    show: progress callback: the present activity, the number of finished parts, and of all parts

    Raises AdmissionRefused, HostError, BundleCorrupt, MemoryLimit, UsageError.
    """

    def __init__(
        self,
        critical: Path | Sequence[CriticalSettings],
        normal: Sequence[Path],
        settings: Settings,
        curves: Sequence[Measured] = (),
        show: Callable[[str, int, int], None] = lambda what, done, of: None,
    ) -> None:
        chosen = [CriticalSettings(critical)] if isinstance(critical, Path) else list(critical)
        if not normal or not chosen:
            raise UsageError(
                f"there is no {'normal' if chosen else 'critical'} model",
                hint="Name one of each, the critical ones first",
            )
        if not 1 <= settings.phases <= MOST_PHASES:
            raise UsageError(
                f"there cannot be {settings.phases} phases", hint=f"Give 1 to {MOST_PHASES}"
            )
        if settings.max_concurrent is not None and settings.max_concurrent < 0:
            raise UsageError(
                f"{settings.max_concurrent} normal models cannot run at once",
                hint="Give 0 (all) or more",
            )
        self.settings, self.critical, self.policy = settings, chosen, policy_named(settings.policy)
        self.names = [f"critical {n}" for n in range(len(chosen))] if chosen[1:] else ["critical"]
        self._devices = found = devices(settings, self.names, len(normal))
        self._budget = Budget(found.control)
        found.control.wait()
        self._show = show
        part = settings.measure_seconds / 8
        self.normal = NormalModels(normal, found.normal, self._budget, self.policy, part, show)
        budget = None if self.policy.leave == "never" else self._budget
        hosts = [
            CudaHost(each.path, device)
            for each, device in parts_of(
                show, "Loading critical models", zip(chosen, found.critical, strict=True)
            )
        ]
        self.persistent = (
            PersistentWeights(found.control, hosts) if settings.l2_persistence else None
        )
        windows = self.persistent.windows if self.persistent else [None] * len(hosts)
        self.models = [
            CriticalModel(host, budget, window=window)
            for host, window in zip(hosts, windows, strict=True)
        ]
        others = tuple(identity(host.bundle) for host in self.normal.hosts)
        #: For each critical model the identities with which its curves are valid.
        self._identities = [(identity(host.bundle), *others) for host in hosts]
        self.curves = list(curves)
        self.measured = self._chosen()

    def __enter__(self) -> Corun:
        return self

    def __exit__(self, *_: object) -> None:
        self.allow(EVERYBODY)
        if self.persistent is not None:
            self.persistent.release()

    @property
    def sms(self) -> int:
        return self._devices.sms

    @property
    def concurrency(self) -> Concurrency:
        """How many normal models run at once, and whether they have gates."""
        return self.measured[0].concurrency

    @property
    def _running(self) -> list[PlacedPlan]:
        return self.normal.running(self.concurrency.gated)

    def allow(self, workers: int) -> None:
        """Sets the budget now, in a stream of its own."""
        self._devices.control.use()
        self._devices.control.start(SetWord(self._budget.address, workers))

    @property
    def _scheduler(self) -> Scheduler:
        return self._scheduled(self.concurrency)

    def _scheduled(self, concurrency: Concurrency) -> Scheduler:
        return Scheduler(
            self.policy, Gpu(self.sms), self.settings.ahead, concurrency.max_concurrent
        )

    def _chosen(self) -> list[Measured]:
        """Curves of the first choice that can keep all bounds; if none can, of the one that comes
        nearest."""
        tried = list[tuple[float, list[Measured]]]()
        every, asked = len(self.normal.hosts), self.settings.max_concurrent
        for choice in choices(every, asked, self.policy.promises, self._may_wait):
            found = self._curves(choice)
            bounds = (self._bound(n)[0] for n in range(len(found)))
            over = max(
                least_slowdown(each.phases) / b for each, b in zip(found, bounds, strict=True)
            )
            tried.append((over, found))
            if over <= 1:
                break
        return min(tried, key=itemgetter(0))[1]

    def _may_wait(self) -> bool:
        """True if normal models can have gates."""
        others = [*self._devices.critical, self._devices.control]
        return self.normal.in_runs and pass_gates(self.normal.devices, others)

    def _curves(self, choice: Concurrency) -> list[Measured]:
        """The curves for a choice: known ones, or measured now."""
        found = [each for each in self.curves if each.concurrency == choice]
        if found:
            check(found, self._devices.control.name, self.sms, self._identities)
            return found
        what = f"Measuring critical models beside {choice.max_concurrent} normal ones at once"
        if choice.gated:
            what += ", with gates"
        known = list(zip(self.models, self._identities, strict=True))
        found = [self._measure(*each, choice) for each in parts_of(self._show, what, known)]
        self.curves += found
        return found

    def _measure(
        self, model: CriticalModel, models: tuple[str, ...], choice: Concurrency
    ) -> Measured:
        """Measures one critical model.  Policies whose workers never leave need only one level."""
        elastic = self.normal.elastic
        return measure(
            model,
            self.normal.running(choice.gated),
            self.allow,
            self._scheduled(choice),
            models=models,
            workers=self.normal.workers,
            gated=choice.gated,
            phases=self.settings.phases if elastic else 1,
            steps=self.settings.steps if elastic else 1,
            seconds=self.settings.measure_seconds / len(self.models),
            gap_s=self.settings.gap_s,
        )

    def background(self, budget: int) -> Background:
        """The normal models, running without pause as far as the budget allows: for
        measurements."""
        return Background(self._running, self.allow, budget, self._scheduler)

    def run(
        self,
        arrival: Arrival | Sequence[Arrival],
        seconds: float,
        seed: int = 0,
        normal: Sequence[Arrival] = (ClosedLoop(),),
        on_result: Callable[[CorunResult], None] | None = None,
        stop: threading.Event | None = None,
    ) -> CorunResult:
        """Runs the workload.  Critical models take their arrivals in rotation from `arrival`,
        normal models from `normal`.

        Raises the error of an agent.
        on_result: called with the result so far, a few times a second;  stop: ends the run early
        """
        arrivals = _in_rotation([arrival] if isinstance(arrival, Arrival) else arrival, self.models)
        sources = _in_rotation(normal, self.normal.hosts)
        with Coordinator(self._scheduler, self.allow) as coordinator:
            asked = [
                CriticalAgent(coordinator, self._task(n, each), model, self.policy.by_kernels)
                for n, (model, each) in enumerate(zip(self.models, arrivals, strict=True))
            ]
            agents = [self._agent(n, coordinator, each) for n, each in enumerate(sources)]
            for watch in self._devices.watches:
                watch.reset()
            ended, begun = stop or threading.Event(), time.perf_counter()
            # Each source of requests has its own seed; the first critical model has the given one.
            first = seed + len(agents) + 1
            loads = [
                CriticalLoad(agent, each, seconds, first + n if n else seed, ended)
                for n, (agent, each) in enumerate(zip(asked, arrivals, strict=True))
            ]
            asking = [
                NormalLoad(each, source.times(seconds, seed + 1 + n), ended)
                for n, (each, source) in enumerate(zip(agents, sources, strict=True))
                if not source.clients
            ]
            try:
                while not all(load.over.wait(0.25) for load in loads):
                    coordinator.check()
                    check_all(agents, asking)
                    if on_result is not None and all(load.answered for load in loads):
                        on_result(self._result(loads, agents, coordinator, begun))
            finally:
                with contextlib.ExitStack() as closing:  # closes all agents even if one fails
                    for each in agents:
                        closing.callback(each.close)
                    for load in loads:
                        load.end()
                    result = self._result(loads, agents, coordinator, begun)
                    for thread in asking:
                        closing.callback(join_thread, thread, "a source of normal work")
        spans = tuple(span for watch in self._devices.watches for span in watch.spans())
        check_all(loads, asking)
        return replace(result, spans=spans)

    def _bound(self, number: int) -> tuple[float, float | None]:
        """The bound of a critical model, and its deadline in milliseconds."""
        own, usual = self.critical[number], self.settings
        return (
            usual.max_slowdown if own.max_slowdown is None else own.max_slowdown,
            usual.deadline_ms if own.deadline_ms is None else own.deadline_ms,
        )

    def _task(self, number: int, arrival: Arrival) -> Critical:
        measured, (bound, deadline) = self.measured[number], self._bound(number)
        host = self.models[number].host
        return critical_task(
            self.names[number],
            measured.phases,
            kernel_costs(host, measured.kernels_us) if self.policy.by_kernels else (),
            max_slowdown=bound,
            priority=self.critical[number].priority,
            deadline_ms=deadline,
            rate_hz=arrival.rate or None,
            gap_ms=1e3 * arrival.least_gap if self.settings.use_least_gap else 0.0,
            lease_ms=self.settings.lease_ms,
        )

    def _agent(self, number: int, coordinator: Coordinator, arrival: Arrival) -> NormalAgent:
        (plan, device), each = self._running[number], self.normal.costs[number]
        # For the policy, a run is one kernel.
        calls = (run_cost(each[first:last]) for first, last in pairwise((0, *plan.ends)))
        task = Normal(f"normal {number}", tuple(calls))

        def again(count: int) -> None:
            if arrival.clients:
                agent.ask()

        agent = NormalAgent(coordinator, task, plan, device, again)
        agent.ask(arrival.clients)
        return agent

    def _result(
        self,
        loads: Sequence[CriticalLoad],
        normal: Sequence[NormalAgent],
        coordinator: Coordinator,
        begun: float,
    ) -> CorunResult:
        seconds = time.perf_counter() - begun
        return CorunResult(
            seconds,
            tuple(self._critical_result(n, load) for n, load in enumerate(loads)),
            tuple(agent.inferences for agent in normal),
            tuple(rate * seconds for rate in self.normal.alone),
            1e6 * coordinator.spent / max(1, coordinator.events),
        )

    def _critical_result(self, number: int, load: CriticalLoad) -> CriticalResult:
        bound, deadline = self._bound(number)
        return CriticalResult(
            self.names[number],
            self.measured[number].solo_us,
            bound,
            None if deadline is None else deadline * 1e3,
            tuple(load.answered),
            load.refused,
            load.overdue,
            load.noticed,
            load.recalibrated,
        )


def _in_rotation(arrivals: Sequence[Arrival], of: Sequence[object]) -> list[Arrival]:
    return [arrivals[n % len(arrivals)] for n in range(len(of))]
