"""Critical and normal models on one device, from bundles to an answer: what `corun` runs.

Input: bundles with a section for CUDA, a policy, arrivals.  Output: `CorunResult`, and while it
runs what has been found so far.  The parts (models, agents, coordinator) can be used without it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import TypeVar

from tilewright.base.budget import EVERYBODY
from tilewright.base.errors import UsageError
from tilewright.elastic.agents import CriticalAgent, NormalAgent
from tilewright.elastic.coordinator import Coordinator
from tilewright.elastic.entry import EntryKernels, Flag
from tilewright.elastic.load import Asking, CriticalLoad
from tilewright.elastic.measure import (
    Background,
    Measured,
    check,
    kernel_times,
    measure,
    repeated,
    sizes,
)
from tilewright.elastic.models import (
    CriticalModel,
    ElasticKernels,
    ElasticRuns,
    NormalPlan,
    PlainKernels,
    WholePlain,
    costs,
    critical_task,
    run_cost,
    run_ends,
)
from tilewright.elastic.policy import Critical, Gpu, Normal, Scheduler, design
from tilewright.elastic.policy.admission import least
from tilewright.elastic.policy.tasks import MOST_PHASES
from tilewright.elastic.result import CorunResult, CriticalResult
from tilewright.elastic.settings import Guarded, Settings, devices
from tilewright.elastic.weights import KeptWeights
from tilewright.elastic.workloads.arrivals import Arrival, ClosedLoop
from tilewright.hosts.cuda import CudaHost
from tilewright.hosts.cuda_elastic import Budget, ElasticPlan
from tilewright.hosts.cuda_tasks import Launch, SetWord
from tilewright.hosts.tensors import largest_extents

T = TypeVar("T")

#: Normal models at once, where a bound cannot be kept beside all of them.
FEWER = (2, 1)
#: Runs by which the normal model's own rate is found.
SOLO_RUNS = 20


class CorunSession:
    """Loads and measures; `run` runs one workload.  Use it in a `with` statement.

    critical: one model, or several with bounds of their own
    curves: measured before, in the order of the critical models, for some numbers of normal models
            at once; what is missing is measured now, and is in `curves` with the others
    show: is told what is done now, and how many of its parts are done
    Raises AdmissionRefused, HostError, BundleCorrupt, MemoryLimit, UsageError.
    """

    def __init__(
        self,
        critical: Path | Sequence[Guarded],
        normal: Sequence[Path],
        settings: Settings,
        curves: Sequence[Measured] = (),
        show: Callable[[str, int, int], None] = lambda what, done, of: None,
    ) -> None:
        guarded = [Guarded(critical)] if isinstance(critical, Path) else list(critical)
        if not normal or not guarded:
            raise UsageError(
                f"there is no {'normal' if guarded else 'critical'} model",
                hint="Name one of each, the critical ones first",
            )
        if not 1 <= settings.phases <= MOST_PHASES:
            raise UsageError(
                f"{settings.phases} phases are none to plan with", hint=f"Give 1 to {MOST_PHASES}"
            )
        if settings.together is not None and settings.together < 0:
            raise UsageError(
                f"{settings.together} normal models cannot run at once", hint="Give 0 (all) or more"
            )
        self.settings, self.guarded, self.design = settings, guarded, design(settings.policy)
        self.names = [f"critical {n}" for n in range(len(guarded))] if guarded[1:] else ["critical"]
        self._devices = found = devices(settings, self.names, len(normal))
        self._budget = Budget(found.control)
        found.control.wait()
        self._flags: list[Flag] = []
        if self.design.leave == "entry":
            self._flags = [Flag(device, self._budget) for device in found.normal]
            found.normal = [flag.device for flag in self._flags]
        self._show = show
        self._hosts = [
            CudaHost(path, device)
            for path, device in self._shown(
                "Loading normal models", zip(normal, found.normal, strict=True)
            )
        ]
        budget = None if self.design.leave == "never" else self._budget
        hosts = [
            CudaHost(each.path, device)
            for each, device in self._shown(
                "Loading critical models", zip(guarded, found.critical, strict=True)
            )
        ]
        self.kept = KeptWeights(found.control, hosts) if settings.l2_persistence else None
        self.models = [
            CriticalModel(host, budget, window=window)
            for host, window in zip(
                hosts, self.kept.windows if self.kept else [None] * len(hosts), strict=True
            )
        ]
        part = settings.measure_seconds / 8
        times = [
            kernel_times(CriticalModel(host, None), part)
            for host in self._shown("Timing kernels of normal models", self._hosts)
        ]
        self._costs = [costs(host, each) for host, each in zip(self._hosts, times, strict=True)]
        self._plans = [self._plan(n, each) for n, each in enumerate(times)]
        self._running = [(p, host.device) for p, host in zip(self._plans, self._hosts, strict=True)]
        self.alone = [self._rate(host) for host in self._hosts]
        self.curves = list(curves)
        self.measured = self._chosen()

    def __enter__(self) -> CorunSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.allow(EVERYBODY)
        if self.kept is not None:
            self.kept.release()

    @property
    def sms(self) -> int:
        return self._devices.sms

    @property
    def together(self) -> int:
        """Normal models that run at once, at most."""
        return self.measured[0].together

    def allow(self, workers: int) -> None:
        """Sets the budget now, by a stream that has nothing else to do."""
        self._devices.control.use()
        self._devices.control.start(SetWord(self._budget.address, workers))

    def _rate(self, host: CudaHost) -> float:
        """Inferences per second of a normal model that has the device to itself, in plain form."""
        once = partial(self._milliseconds, host)
        return 1e3 / min(repeated(once, SOLO_RUNS, self.settings.measure_seconds / 8))

    @staticmethod
    def _milliseconds(host: CudaHost) -> float:
        return host.clock(1, repeat=2)[0]

    @property
    def _elastic(self) -> bool:
        """Whether workers leave normal kernels."""
        return self.design.leave in ("chunk", "tile")

    def _plan(self, number: int, times: Sequence[float]) -> NormalPlan:
        """times: microseconds of its kernels"""
        host, runs = self._hosts[number], self.design.runs
        if self._elastic:
            plan = ElasticPlan(host, self._budget)
            return ElasticRuns(plan, run_ends(times)) if runs else ElasticKernels(plan)
        launches = [launch for _, launch in _largest(host)]
        if self._flags:
            return EntryKernels(host, launches, self._flags[number])
        return (WholePlain if runs else PlainKernels)(host, launches)

    def _shown(self, what: str, parts: Iterable[T]) -> Iterator[T]:
        """The parts one by one, and each time how many are done."""
        every = list(parts)
        for done, part in enumerate(every):
            self._show(what, done, len(every))
            yield part

    @property
    def _scheduler(self) -> Scheduler:
        return self._scheduled(self.together)

    def _scheduled(self, together: int) -> Scheduler:
        return Scheduler(self.design, Gpu(self.sms), self.settings.ahead, together)

    def _chosen(self) -> list[Measured]:
        """Curves beside all normal models at once, or beside as many as let all bounds be kept:
        five models do more than two, but disturb twice as much (decision 58).  If no number does,
        those that come nearest."""
        tried = list[tuple[float, list[Measured]]]()
        for together in self._numbers():
            found = self._beside(together)
            bounds = (self._bound(n)[0] for n in range(len(found)))
            over = max(least(each.phases) / b for each, b in zip(found, bounds, strict=True))
            tried.append((over, found))
            if over <= 1:
                break
        return min(tried, key=itemgetter(0))[1]

    def _beside(self, together: int) -> list[Measured]:
        """Curves beside so many normal models at once: known ones, or measured now."""
        found = [each for each in self.curves if each.together == together]
        if found:
            check(found, self.models, self.sms, sizes(self._running))
            return found
        what = f"Measuring critical models beside {together} normal ones at once"
        found = [self._measure(model, together) for model in self._shown(what, self.models)]
        self.curves += found
        return found

    def _numbers(self) -> Sequence[int]:
        """Of normal models at once, to try."""
        every, asked = len(self._hosts), self.settings.together
        if asked is not None:
            return [min(asked or every, every)]
        return [every, *(n for n in FEWER if n < every and self.design.promises)]

    def _measure(self, model: CriticalModel, together: int) -> Measured:
        """Designs whose normal kernels do not leave have no use for more than one level."""
        workers = max(
            host.residents(slot, launch) for host in self._hosts for slot, launch in _largest(host)
        )
        return measure(
            model,
            self._running,
            self.allow,
            self._scheduled(together),
            workers=workers,
            phases=self.settings.phases if self._elastic else 1,
            steps=self.settings.steps if self._elastic else 1,
            seconds=self.settings.measure_seconds / len(self.models),
            gap_s=self.settings.gap_s,
        )

    def background(self, budget: int) -> Background:
        """The normal models run without a break, as far as the budget lets them, in a `with`
        statement: for measurements."""
        return Background(self._running, self.allow, budget, self._scheduler)

    def run(
        self,
        arrival: Arrival | Sequence[Arrival],
        seconds: float,
        seed: int = 0,
        normal: Sequence[Arrival] = (ClosedLoop(),),
        told: Callable[[CorunResult], None] | None = None,
        stop: threading.Event | None = None,
    ) -> CorunResult:
        """Requests come as arrivals say: of each critical model by turns of `arrival`, those of
        normal ones by turns of `normal`.

        Raises what an agent failed with.
        told: is given what was found so far, a few times a second;  stop: ends it early
        """
        arrivals = _by_turns([arrival] if isinstance(arrival, Arrival) else arrival, self.models)
        sources = _by_turns(normal, self._hosts)
        with Coordinator(self._scheduler, self.allow) as coordinator:
            asked = [
                CriticalAgent(coordinator, self._task(n, each), model, self.design.by_kernels)
                for n, (model, each) in enumerate(zip(self.models, arrivals, strict=True))
            ]
            agents = [self._agent(n, coordinator, each) for n, each in enumerate(sources)]
            for watch in self._devices.watches:
                watch.reset()
            ended, begun = stop or threading.Event(), time.perf_counter()
            # seeds of their own; a single critical model has the one that was given
            first = seed + len(agents) + 1
            loads = [
                CriticalLoad(agent, each, seconds, first + n if n else seed, ended)
                for n, (agent, each) in enumerate(zip(asked, arrivals, strict=True))
            ]
            asking = [
                Asking(each, source.times(seconds, seed + 1 + n), ended)
                for n, (each, source) in enumerate(zip(agents, sources, strict=True))
                if not source.clients
            ]
            try:
                while not all(load.over.wait(0.25) for load in loads):
                    for each in agents:
                        each.check()
                    if told is not None and all(load.answered for load in loads):
                        told(self._result(loads, agents, coordinator, begun))
            finally:
                with contextlib.ExitStack() as closing:  # all agents, whatever fails
                    for each in agents:
                        closing.callback(each.close)
                    for load in loads:
                        load.end()
                    result = self._result(loads, agents, coordinator, begun)
                    for thread in asking:
                        thread.join()
        spans = tuple(span for watch in self._devices.watches for span in watch.spans())
        for load in loads:
            load.check()
        return replace(result, spans=spans)

    def _bound(self, number: int) -> tuple[float, float | None]:
        """The bound and the deadline in milliseconds of a critical model."""
        own, usual = self.guarded[number], self.settings
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
            costs(host, measured.kernels_us) if self.design.by_kernels else (),
            max_slowdown=bound,
            priority=self.guarded[number].priority,
            deadline_ms=deadline,
            rate_hz=arrival.rate or None,
            gap_ms=1e3 * arrival.least_gap if self.settings.gaps else 0.0,
            lease_ms=self.settings.lease_ms,
        )

    def _agent(self, number: int, coordinator: Coordinator, arrival: Arrival) -> NormalAgent:
        host, plan = self._hosts[number], self._plans[number]
        each = self._costs[number]
        # to the policy a call is a kernel
        calls = (run_cost(each[first:last]) for first, last in pairwise((0, *plan.ends)))
        task = Normal(f"normal {number}", tuple(calls))

        def again(count: int) -> None:
            if arrival.clients:
                agent.ask()

        agent = NormalAgent(coordinator, task, plan, host.device, again)
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
            tuple(rate * seconds for rate in self.alone),
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
        )


def _largest(host: CudaHost) -> list[tuple[int, Launch]]:
    """Slot and launch of each step of the largest plan at its largest lengths."""
    return host.steps(-1, largest_extents(host.bundle.manifest))


def _by_turns(arrivals: Sequence[Arrival], of: Sequence[object]) -> list[Arrival]:
    return [arrivals[n % len(arrivals)] for n in range(len(of))]
