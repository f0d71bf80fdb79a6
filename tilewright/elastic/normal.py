"""Loads and times normal models, and makes the plans that a policy needs.

Input: bundles, a device for each, the budget word.  Output: `PlacedPlan`s for the agents.  The
policy decides when each model runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from tilewright.elastic.device_timing import kernel_times, repeat_timing
from tilewright.elastic.gates import gates_of
from tilewright.elastic.instrumented import EntryKernels, Flag
from tilewright.elastic.plans import (
    ElasticKernels,
    ElasticRuns,
    NormalPlan,
    PlacedPlan,
    PlainKernels,
    WholePlain,
    kernel_costs,
    run_ends,
)
from tilewright.elastic.policy.policies import Policy
from tilewright.hosts.cuda import CudaHost
from tilewright.hosts.cuda_devices import CudaDevice
from tilewright.hosts.cuda_elastic import Budget, ElasticPlan
from tilewright.hosts.cuda_tasks import Launch
from tilewright.hosts.tensors import largest_extents

T = TypeVar("T")

#: Runs by which a model's own rate is measured.
SOLO_RUNS = 20


def parts_of(show: Callable[[str, int, int], None], what: str, parts: Iterable[T]) -> Iterator[T]:
    """Yields the parts one by one; before each, `show` gets the number of finished parts."""
    every = list(parts)
    for done, part in enumerate(every):
        show(what, done, len(every))
        yield part


class NormalModels:
    """devices, costs: of each model, the device that it runs on and the costs of its kernels
    alone: inferences per second of each model with the device to itself, in plain form
    """

    def __init__(
        self,
        paths: Sequence[Path],
        devices: Sequence[CudaDevice],
        budget: Budget,
        policy: Policy,
        seconds: float,
        show: Callable[[str, int, int], None],
    ) -> None:
        """seconds: the length of each measurement"""
        self._policy, self._flags = policy, list[Flag]()
        if policy.leave == "entry":
            self._flags = [Flag(device, budget) for device in devices]
            devices = [flag.device for flag in self._flags]
        self.devices = devices
        self.hosts = [
            CudaHost(path, device)
            for path, device in parts_of(
                show, "Loading normal models", zip(paths, devices, strict=True)
            )
        ]
        self._times = [
            kernel_times(host.device, [launch for _, launch in _largest(host)], seconds)
            for host in parts_of(show, "Timing kernels of normal models", self.hosts)
        ]
        self.costs = [
            kernel_costs(h, each) for h, each in zip(self.hosts, self._times, strict=True)
        ]
        self._elastic = [ElasticPlan(h, budget) for h in self.hosts] if self.elastic else []
        self._made: dict[bool, list[PlacedPlan]] = {}
        self.alone = [self._rate(host, seconds) for host in self.hosts]

    @property
    def elastic(self) -> bool:
        """True if workers may leave normal kernels."""
        return self._policy.leave in ("chunk", "tile")

    @property
    def in_runs(self) -> bool:
        """True if kernels are launched in runs, which may have gates."""
        return self.elastic and self._policy.runs

    @property
    def workers(self) -> int:
        """The number of workers of the largest kernel of all models."""
        return max(h.residents(slot, launch) for h in self.hosts for slot, launch in _largest(h))

    def running(self, gated: bool = False) -> list[PlacedPlan]:
        if gated not in self._made:
            plans = (self._plan(number, gated) for number in range(len(self.hosts)))
            self._made[gated] = list(zip(plans, self.devices, strict=True))
        return self._made[gated]

    def _plan(self, number: int, gated: bool) -> NormalPlan:
        host, runs = self.hosts[number], self._policy.runs
        if self.elastic:
            if not runs:
                return ElasticKernels(self._elastic[number])
            times = self._times[number]
            ends = run_ends(times)
            return ElasticRuns(self._elastic[number], ends, gates_of(times, ends) if gated else ())
        launches = [launch for _, launch in _largest(host)]
        if self._flags:
            return EntryKernels(host, launches, self._flags[number])
        return (WholePlain if runs else PlainKernels)(host, launches)

    @staticmethod
    def _rate(host: CudaHost, seconds: float) -> float:
        once = partial(_milliseconds, host)
        return 1e3 / min(repeat_timing(once, SOLO_RUNS, seconds))


def _milliseconds(host: CudaHost) -> float:
    return host.clock(1, repeat=2)[0]


def _largest(host: CudaHost) -> list[tuple[int, Launch]]:
    """Slot and launch of each step of the largest plan at its largest lengths."""
    return host.steps(-1, largest_extents(host.bundle.manifest))
