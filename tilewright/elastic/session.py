"""A critical and normal models on one device, from bundles to an answer: what `corun` runs.

Input: bundles with a section for CUDA, a policy, arrivals.  Output: `CorunResult`, and while it
runs what has been found so far.  The parts (models, agents, coordinator) can be used without it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from tilewright.base.budget import EVERYBODY
from tilewright.base.errors import UsageError
from tilewright.elastic.agents import Answered, CriticalAgent, NormalAgent
from tilewright.elastic.coordinator import Coordinator
from tilewright.elastic.entry import EntryKernels, Flag
from tilewright.elastic.load import Asking, CriticalLoad
from tilewright.elastic.measure import Measured, kernel_times, measure, repeated
from tilewright.elastic.models import (
    CriticalModel,
    ElasticKernels,
    NormalPlan,
    PlainKernels,
    costs,
    critical_task,
)
from tilewright.elastic.policy import Design, Gpu, Normal, Scheduler, design
from tilewright.elastic.policy.tasks import MOST_PHASES
from tilewright.elastic.spans import BlockSpan
from tilewright.elastic.watch import Watch, watched
from tilewright.elastic.workloads.arrivals import Arrival, ClosedLoop
from tilewright.elastic.workloads.metrics import Tail, tail
from tilewright.hosts.cuda import CudaHost
from tilewright.hosts.cuda_devices import CpuDevice, CudaDevice, NvidiaDevice, SetWord
from tilewright.hosts.cuda_driver import Driver
from tilewright.hosts.cuda_elastic import Budget, ElasticPlan
from tilewright.hosts.tensors import largest_extents

#: Threads that make an SM of the CPU.
CPU_SMS = 2
#: Runs by which the normal model's own rate is found.
SOLO_RUNS = 20


@dataclass(frozen=True)
class Settings:
    """sms: a part of the GPU; None: all of it;  phases: with a budget of their own, at most
    steps: points of a curve beyond 0;  watched: kernels tell where they run when
    """

    policy: str = "tilewright"
    kind: Literal["gpu", "cpu"] = "gpu"
    sms: int | None = None
    max_slowdown: float = 1.05
    deadline_ms: float | None = None
    lease_ms: float = 0.0
    phases: int = 1
    steps: int = 4
    ahead: int = 2
    captured: bool = False
    watched: bool = False
    measure_seconds: float = 4.0


@dataclass(frozen=True)
class CorunResult:
    """What a session came to.

    solo_us: of the critical model;  answered: its requests;  refused, overdue: how many were
    inferences: of normal models;  alone: the same in the same time with the device to themselves
    over_bound: requests whose time from their begin exceeded the bound
    decision_us: of the processor's time, by event; the watchdog's ticks are none
    """

    seconds: float
    solo_us: float
    max_slowdown: float
    deadline_us: float | None
    answered: tuple[Answered, ...]
    refused: int
    overdue: int
    inferences: tuple[int, ...]
    alone: tuple[float, ...]
    decision_us: float
    spans: tuple[BlockSpan, ...] = ()

    @property
    def waited(self) -> Tail:
        """Latency, waiting included, over the time alone.  Raises UsageError without a request."""
        return tail([answer.latency_us for answer in self.answered]).over(self.solo_us)

    @property
    def service(self) -> Tail:
        """The same from the begin of each request, which the bound is on."""
        return tail([answer.took_us for answer in self.answered]).over(self.solo_us)

    @property
    def over_bound(self) -> int:
        return sum(a.took_us > self.max_slowdown * self.solo_us for a in self.answered)

    @property
    def missed(self) -> int:
        """Answers after their deadline, and requests that were refused or overdue."""
        late = (self.deadline_us is not None and a.latency_us > self.deadline_us
                for a in self.answered)  # fmt: skip
        return sum(late) + self.refused + self.overdue

    @property
    def normal_share(self) -> float:
        """Normal work, as a share of what the device does of it alone."""
        pairs = zip(self.inferences, self.alone, strict=True)
        return sum(done / alone for done, alone in pairs if alone)

    @property
    def duty(self) -> float:
        """The share of the time that the critical model would take alone."""
        return len(self.answered) * self.solo_us / (self.seconds * 1e6)


@dataclass
class _Devices:
    """The critical model's stream, one for each normal model, one for the budget alone."""

    critical: CudaDevice
    normal: list[CudaDevice]
    control: CudaDevice
    sms: int
    watches: list[Watch] = field(default_factory=list)


def devices(settings: Settings, normal: int) -> _Devices:
    """Raises HostError where there is no such device."""
    chosen = design(settings.policy)
    if settings.kind == "cpu":
        made = _Devices(CpuDevice(1), [CpuDevice(1) for _ in range(normal)], CpuDevice(1), CPU_SMS)
    else:
        own, rest = _drivers(settings, chosen)
        made = _Devices(
            NvidiaDevice(own, urgent=chosen.urgent),
            [NvidiaDevice(rest) for _ in range(normal)],
            NvidiaDevice(own, urgent=True),
            own.sms if own is rest else own.sms + rest.sms,
        )
    if settings.watched:
        made.watches = [
            Watch(made.control, "critical", True),
            *(Watch(made.control, f"normal {n}", False) for n in range(normal)),
        ]
        made.critical = watched(made.critical, made.watches[0])
        made.normal = [
            watched(device, watch)
            for device, watch in zip(made.normal, made.watches[1:], strict=True)
        ]
    return made


def _drivers(settings: Settings, chosen: Design) -> tuple[Driver, Driver]:
    if not chosen.split:
        one = Driver(0, settings.sms)
        return one, one
    sms = settings.sms or Driver(0).sms
    first = max(2, round(sms * chosen.split / 2) * 2)
    own, rest = Driver.parts(0, [first, sms - first])
    return own, rest


class CorunSession:
    """Loads and measures; `run` runs one workload.  Use it in a `with` statement.

    curves: measured before; None: measure now
    Raises AdmissionRefused, HostError, BundleCorrupt, MemoryLimit.
    """

    def __init__(
        self,
        critical: Path,
        normal: Sequence[Path],
        settings: Settings,
        curves: Measured | None = None,
    ) -> None:
        if not normal:
            raise UsageError("there is no normal model", hint="Name one after the critical one")
        if not 1 <= settings.phases <= MOST_PHASES:
            raise UsageError(
                f"{settings.phases} phases are none to plan with", hint=f"Give 1 to {MOST_PHASES}"
            )
        self.settings, self.design = settings, design(settings.policy)
        self._devices = found = devices(settings, len(normal))
        self._budget = Budget(found.control)
        found.control.wait()
        self._flags: list[Flag] = []
        if self.design.leave == "entry":
            self._flags = [Flag(device, self._budget) for device in found.normal]
            found.normal = [flag.device for flag in self._flags]
        self._hosts = [
            CudaHost(path, device) for path, device in zip(normal, found.normal, strict=True)
        ]
        host = CudaHost(critical, found.critical)
        elastic = self.design.leave in ("chunk", "tile")
        self.model = CriticalModel(host, None if self.design.leave == "never" else self._budget,
                                   captured=settings.captured)  # fmt: skip
        self._plans = [self._plan(n, elastic) for n in range(len(self._hosts))]
        part = settings.measure_seconds / 8
        self._costs = [
            costs(host, kernel_times(CriticalModel(host, None), part)) for host in self._hosts
        ]
        self.alone = [self._rate(host) for host in self._hosts]
        self.measured = curves or self._measure(elastic)
        self.model.prepare(self.measured.phases)

    def __enter__(self) -> CorunSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.allow(EVERYBODY)

    @property
    def sms(self) -> int:
        return self._devices.sms

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

    def _plan(self, number: int, elastic: bool) -> NormalPlan:
        host = self._hosts[number]
        if elastic:
            return ElasticKernels(ElasticPlan(host, self._budget))
        steps = host.steps(-1, largest_extents(host.bundle.manifest))
        launches = [launch for _, launch in steps]
        if self._flags:
            return EntryKernels(host, launches, self._flags[number])
        return PlainKernels(host, launches)

    def _measure(self, elastic: bool) -> Measured:
        """Designs whose normal kernels do not leave have no use for more than one level."""
        host = self._hosts[0]
        workers = max(
            host.device.residents(host.elastic_kernels[slot], launch.group)
            for slot, launch in host.steps(-1, largest_extents(host.bundle.manifest))
        )
        return measure(
            self.model,
            self._plans[0],
            self._hosts[0].device,
            self.allow,
            sms=self._devices.sms,
            workers=workers,
            phases=self.settings.phases if elastic else 1,
            steps=self.settings.steps if elastic else 1,
            settle_us=self.design.settle_us,
            seconds=self.settings.measure_seconds,
        )

    def run(
        self,
        arrival: Arrival,
        seconds: float,
        seed: int = 0,
        normal: Sequence[Arrival] = (ClosedLoop(),),
        told: Callable[[CorunResult], None] | None = None,
        stop: threading.Event | None = None,
    ) -> CorunResult:
        """Requests come as arrivals say, those of normal models by turns of `normal`.

        Raises what an agent failed with.
        told: is given what was found so far, a few times a second;  stop: ends it early
        """
        gpu = Gpu(self._devices.sms)
        scheduler = Scheduler(self.design, gpu, self.settings.ahead)
        task = critical_task(
            "critical",
            self.measured.phases,
            costs(self.model.host, self.measured.kernels_us) if self.design.by_kernels else (),
            max_slowdown=self.settings.max_slowdown,
            deadline_ms=self.settings.deadline_ms,
            rate_hz=arrival.rate or None,
            lease_ms=self.settings.lease_ms,
        )
        with Coordinator(scheduler, self.allow) as coordinator:
            agent = CriticalAgent(coordinator, task, self.model, self.design.by_kernels)
            sources = [normal[n % len(normal)] for n in range(len(self._hosts))]
            agents = [self._agent(n, coordinator, each) for n, each in enumerate(sources)]
            for watch in self._devices.watches:
                watch.reset()
            ended = stop or threading.Event()
            begun = time.perf_counter()
            load = CriticalLoad(agent, arrival, seconds, seed, ended)
            asking = [
                Asking(each, source.times(seconds, seed + 1 + n), ended)
                for n, (each, source) in enumerate(zip(agents, sources, strict=True))
                if not source.clients
            ]
            try:
                while not load.over.wait(0.25):
                    for each in agents:
                        each.check()
                    if told is not None and load.answered:
                        told(self._result(load, agents, coordinator, begun))
            finally:
                with contextlib.ExitStack() as closing:  # all agents, whatever fails
                    for each in agents:
                        closing.callback(each.close)
                    load.end()
                    result = self._result(load, agents, coordinator, begun)
                    for thread in asking:
                        thread.join()
        spans = tuple(span for watch in self._devices.watches for span in watch.spans())
        load.check()
        return CorunResult(**{**vars(result), "spans": spans})

    def _agent(self, number: int, coordinator: Coordinator, arrival: Arrival) -> NormalAgent:
        host, task = self._hosts[number], Normal(f"normal {number}", self._costs[number])

        def again(count: int) -> None:
            if arrival.clients:
                agent.ask()

        agent = NormalAgent(coordinator, task, self._plans[number], host.device, again)
        agent.ask(arrival.clients)
        return agent

    def _result(
        self,
        load: CriticalLoad,
        normal: Sequence[NormalAgent],
        coordinator: Coordinator,
        begun: float,
    ) -> CorunResult:
        seconds = time.perf_counter() - begun
        deadline = self.settings.deadline_ms
        return CorunResult(
            seconds,
            self.measured.solo_us,
            self.settings.max_slowdown,
            None if deadline is None else deadline * 1e3,
            tuple(load.answered),
            load.refused,
            load.overdue,
            tuple(agent.inferences for agent in normal),
            tuple(rate * seconds for rate in self.alone),
            1e6 * coordinator.spent / max(1, coordinator.events),
        )
