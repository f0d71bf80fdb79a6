"""Models as the coordinator runs them: critical ones by phases, normal ones kernel by kernel.

Input: loaded bundles (`CudaHost`) on devices, the budget word.  Output: launches, and what is
complete.  Who may run when is decided by the policy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate, combinations
from typing import Protocol

from tilewright.base.budget import EVERYBODY
from tilewright.elastic.policy import Critical, Hold, KernelCost, Phase, hold, holds
from tilewright.hosts.cuda import CudaHost
from tilewright.hosts.cuda_devices import Launch, Task
from tilewright.hosts.cuda_elastic import Budget, ElasticPlan
from tilewright.hosts.cuda_l2 import Window
from tilewright.hosts.tensors import largest_extents


class CriticalModel:
    """Plain kernels between writes of the budget, all in the order of the host's stream.

    budget: that normal kernels look at; None: theirs are plain, and nobody leaves
    captured: the writes are nodes of the CUDA graph, one for each choice of budgets, instead of
              beside it
    window: what its kernels keep in the L2 cache
    """

    def __init__(
        self,
        host: CudaHost,
        budget: Budget | None,
        plan: int = -1,
        extents: Sequence[int] | None = None,
        captured: bool = False,
        window: Window | None = None,
    ) -> None:
        self.host, self.device = host, host.device
        self._budget, self._captured = budget, captured
        if extents is None:
            extents = largest_extents(host.bundle.manifest)
        steps = host.steps(plan, extents)
        self.launches = [replace(launch, window=window) for _, launch in steps]
        self._recorded: dict[Hold, Callable[[], None]] = {}
        self._wholes: dict[tuple[Hold, ...], Callable[[], None]] = {}

    def prepare(self, phases: Sequence[Phase], settle_us: float = 0.0, beside: int = 0) -> None:
        """Records what `start` may need of these phases, so that no request waits for it."""
        ends = [0, *accumulate(phase.kernels for phase in phases)]
        for kernels in combinations(ends, 2):
            for budget in (0, EVERYBODY):
                self._kernels(hold(budget, kernels, settle_us, beside))

    def start(
        self,
        phases: Sequence[Phase],
        budgets: Sequence[int],
        settle_us: float = 0.0,
        beside: int = 0,
    ) -> None:
        """One inference on the present inputs; returns at once on a GPU.

        Also where a launch fails, everybody may stay afterwards.
        settle_us, beside: as of the policy's `Begin`
        """
        if self._budget is None:
            self._kernels(Hold(EVERYBODY, 0, len(self.launches)))()
            return
        parts = tuple(holds(phases, budgets, settle_us, beside))
        if self._captured:
            if parts not in self._wholes:
                tasks = list[Task]()
                for part in parts:
                    tasks += [self._budget.task(part.budget), *self._tasks(part)]
                self._wholes[parts] = self.device.record([*tasks, self._budget.task(EVERYBODY)])
            self._wholes[parts]()
            return
        self._start(parts)

    def start_kernel(self, number: int) -> None:
        self._kernels(Hold(EVERYBODY, number, number + 1))()

    def start_part(self, part: Hold) -> None:
        """Some of the kernels, for a measurement."""
        if self._budget is None:
            self._kernels(part)()
            return
        self._start([part])

    def _start(self, parts: Sequence[Hold]) -> None:
        assert self._budget is not None
        try:
            for part in parts:
                self.device.start(self._budget.task(part.budget))
                self._kernels(part)()
        finally:
            self.device.start(self._budget.task(EVERYBODY))

    def _kernels(self, part: Hold) -> Callable[[], None]:
        """Recorded whatever the budget: the wait before them reads it."""
        key = replace(part, budget=EVERYBODY)
        if key not in self._recorded:
            self._recorded[key] = self.device.record(self._tasks(part))
        return self._recorded[key]

    def _tasks(self, part: Hold) -> list[Task]:
        """The kernels, and before them the wait for workers that must leave."""
        kernels = self.launches[part.first : part.last]
        if part.beside is None or self._budget is None:
            return [*kernels]
        return [self._budget.settle(part.beside, part.settle_us), *kernels]


class NormalPlan(Protocol):
    """An inference that is made kernel by kernel."""

    kernels: int

    def begin(self) -> None:
        """A new inference, in the stream's order."""

    def start(self, number: int, workers: int) -> None: ...

    def complete_after(self, number: int) -> int:
        """How many kernels are complete, when the launch of this one has ended."""


class ElasticKernels:
    """Kernels whose workers leave: `hosts/cuda_elastic.py`."""

    def __init__(self, plan: ElasticPlan) -> None:
        self._plan, self.kernels = plan, len(plan.steps)

    def begin(self) -> None:
        self._plan.begin()

    def start(self, number: int, workers: int) -> None:
        self._plan.start(number, workers)

    def complete_after(self, number: int) -> int:
        return self._plan.complete


class PlainKernels:
    """Kernels that nothing stops, for designs that do without."""

    def __init__(self, host: CudaHost, launches: Sequence[Launch]) -> None:
        self._host, self._launches, self.kernels = host, launches, len(launches)

    def begin(self) -> None:
        """Nothing is left of the last inference."""

    def start(self, number: int, workers: int) -> None:
        self._host.device.start(self._launches[number])

    def complete_after(self, number: int) -> int:
        return number + 1


def costs(host: CudaHost, microseconds: Sequence[float]) -> tuple[KernelCost, ...]:
    """What policies that go by kernels ask for, of a host's largest plan at its largest extents.

    microseconds: of each kernel alone, as measured
    """
    found = []
    steps = host.steps(-1, largest_extents(host.bundle.manifest))
    for (slot, launch), took in zip(steps, microseconds, strict=True):
        tile = took / -(-launch.blocks // host.residents(slot, launch))
        chunk = tile / max(1, host.forms[slot].chunks)
        found.append(KernelCost(launch.blocks, launch.group, tile, chunk))
    return tuple(found)


def critical_task(
    name: str,
    phases: Sequence[Phase],
    kernels: Sequence[KernelCost] = (),
    *,
    max_slowdown: float = 1.05,
    priority: int = 0,
    deadline_ms: float | None = None,
    rate_hz: float | None = None,
    lease_ms: float = 0.0,
) -> Critical:
    """A critical task with times as people give them."""
    return Critical(
        name,
        tuple(phases),
        tuple(kernels),
        max_slowdown,
        priority,
        None if deadline_ms is None else deadline_ms * 1e3,
        rate_hz,
        lease_ms * 1e3,
    )
