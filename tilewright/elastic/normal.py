"""Loads and times normal models, and makes the plans that a policy needs.

Input: bundles, a device for each, the budget word.  Output: `PlacedPlan`s for the agents.  The
policy decides when each model runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeAlias, TypeVar

from tilewright.elastic.device_timing import kernel_times, repeat_timing
from tilewright.elastic.entry_kernels import EntryFlag, EntryKernels
from tilewright.elastic.gates import gates_of
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
from tilewright.elastic.policy import KernelCost, Policy
from tilewright.hosts.cuda import CudaHost
from tilewright.hosts.cuda_devices import CudaDevice
from tilewright.hosts.cuda_elastic import Budget, ElasticPlan
from tilewright.hosts.cuda_tasks import Launch
from tilewright.hosts.tensors import largest_extents

T = TypeVar("T")
#: A progress callback: the present activity, the number of finished parts, and of all parts.
Show: TypeAlias = Callable[[str, int, int], None]

#: Runs by which a model's own rate is measured.
SOLO_RUNS = 20


def parts_of(show: Show, what: str, parts: Iterable[T]) -> Iterator[T]:
    """Yields the parts one by one; before each, `show` gets the number of finished parts."""
    every = list(parts)
    for done, part in enumerate(every):
        show(what, done, len(every))
        yield part


@dataclass(frozen=True)
class NormalModels:
    """Loaded normal models, with measured times.  Each sequence has an item for each model.

    flags, elastic_plans: empty if the policy needs none
    times_us: microseconds of each kernel alone;  costs: of each kernel, for the policy
    alone: inferences per second with the device to itself, in plain form
    """

    policy: Policy
    hosts: Sequence[CudaHost]
    devices: Sequence[CudaDevice]
    flags: Sequence[EntryFlag]
    elastic_plans: Sequence[ElasticPlan]
    times_us: Sequence[Sequence[float]]
    costs: Sequence[Sequence[KernelCost]]
    alone: Sequence[float]
    _placed: dict[bool, list[PlacedPlan]] = field(default_factory=dict, init=False, repr=False)

    @property
    def elastic(self) -> bool:
        """True if workers may leave normal kernels."""
        return _is_elastic(self.policy)

    @property
    def in_runs(self) -> bool:
        """True if kernels are launched in runs, which may have gates."""
        return self.elastic and self.policy.runs

    @property
    def workers(self) -> int:
        """The number of workers of the largest kernel of all models."""
        return max(h.residents(slot, launch) for h in self.hosts for slot, launch in _largest(h))

    def running(self, gated: bool = False) -> list[PlacedPlan]:
        """The plans, recorded at the first call.  gated: their runs have gates"""
        if gated not in self._placed:
            plans = (self._plan(number, gated) for number in range(len(self.hosts)))
            self._placed[gated] = list(zip(plans, self.devices, strict=True))
        return self._placed[gated]

    def _plan(self, number: int, gated: bool) -> NormalPlan:
        host, runs = self.hosts[number], self.policy.runs
        if self.elastic:
            plan, times = self.elastic_plans[number], self.times_us[number]
            if not runs:
                return ElasticKernels(plan)
            ends = run_ends(times)
            return ElasticRuns(plan, ends, gates_of(times, ends) if gated else ())
        launches = [launch for _, launch in _largest(host)]
        if self.flags:
            return EntryKernels(host, launches, self.flags[number])
        return (WholePlain if runs else PlainKernels)(host, launches)


def load_normal(
    paths: Sequence[Path],
    devices: Sequence[CudaDevice],
    budget: Budget,
    policy: Policy,
    seconds: float,
    show: Show,
) -> NormalModels:
    """Loads models and times them alone.

    devices: one for each path;  seconds: the length of each measurement

    Raises HostError, BundleCorrupt, MemoryLimit.
    """
    flags = list[EntryFlag]()
    if policy.leave == "entry":
        flags = [EntryFlag(device, budget) for device in devices]
        devices = [flag.device for flag in flags]
    pairs = zip(paths, devices, strict=True)
    hosts = [CudaHost(*pair) for pair in parts_of(show, "Loading normal models", pairs)]
    times = [
        kernel_times(host.device, [launch for _, launch in _largest(host)], seconds)
        for host in parts_of(show, "Timing kernels of normal models", hosts)
    ]
    return NormalModels(
        policy,
        hosts,
        devices,
        flags,
        [ElasticPlan(host, budget) for host in hosts] if _is_elastic(policy) else [],
        times,
        [kernel_costs(host, each) for host, each in zip(hosts, times, strict=True)],
        [_rate(host, seconds) for host in hosts],
    )


def _is_elastic(policy: Policy) -> bool:
    return policy.leave in ("chunk", "tile")


def _rate(host: CudaHost, seconds: float) -> float:
    once = partial(_milliseconds, host)
    return 1e3 / min(repeat_timing(once, SOLO_RUNS, seconds))


def _milliseconds(host: CudaHost) -> float:
    return host.clock(1, repeat=2)[0]


def _largest(host: CudaHost) -> list[tuple[int, Launch]]:
    """Slot and launch of each step of the largest plan at its largest lengths."""
    return host.steps(-1, largest_extents(host.bundle.manifest))
