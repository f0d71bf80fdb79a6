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
from tilewright.hosts.inputs_outputs import largest_extents

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
class NormalModel:
    """One loaded model, with measured times.

    flag, elastic_plan: None if the policy needs none
    times_us: microseconds of each kernel alone;  costs: of each kernel, for the policy
    alone: inferences per second with the device to itself, in plain form
    """

    host: CudaHost
    flag: EntryFlag | None
    elastic_plan: ElasticPlan | None
    times_us: Sequence[float]
    costs: Sequence[KernelCost]
    alone: float

    def plan(self, runs: bool, gated: bool) -> PlacedPlan:
        """How it is launched.  runs: several kernels by one call;  gated: runs have gates"""
        return PlacedPlan(self._plan(runs, gated), self.host.device)

    def _plan(self, runs: bool, gated: bool) -> NormalPlan:
        if self.elastic_plan is not None:
            if not runs:
                return ElasticKernels(self.elastic_plan)
            ends = run_ends(self.times_us)
            gates = gates_of(self.times_us, ends) if gated else ()
            return ElasticRuns(self.elastic_plan, ends, gates)
        launches = [launch for _, launch in _largest(self.host)]
        if self.flag is not None:
            return EntryKernels(self.host, launches, self.flag)
        return (WholePlain if runs else PlainKernels)(self.host, launches)


@dataclass(frozen=True)
class NormalModels:
    """The normal models of a session, and the policy that decides about them."""

    policy: Policy
    models: Sequence[NormalModel]
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
    def devices(self) -> list[CudaDevice]:
        return [model.host.device for model in self.models]

    @property
    def alone(self) -> list[float]:
        """Inferences per second of each model with the device to itself."""
        return [model.alone for model in self.models]

    @property
    def workers(self) -> int:
        """The number of workers of the largest kernel of all models."""
        hosts = [model.host for model in self.models]
        return max(h.residents(slot, launch) for h in hosts for slot, launch in _largest(h))

    def running(self, gated: bool = False) -> list[PlacedPlan]:
        """The plans, recorded at the first call.  gated: their runs have gates"""
        if gated not in self._placed:
            self._placed[gated] = [model.plan(self.policy.runs, gated) for model in self.models]
        return self._placed[gated]


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
    at_entry = policy.leave == "entry"
    flags = [EntryFlag(device, budget) if at_entry else None for device in devices]
    placed = zip(paths, devices, flags, strict=True)
    hosts = [
        CudaHost(path, device if flag is None else flag.device)
        for path, device, flag in parts_of(show, "Loading normal models", placed)
    ]
    times = [
        kernel_times(host.device, [launch for _, launch in _largest(host)], seconds)
        for host in parts_of(show, "Timing kernels of normal models", hosts)
    ]
    models = [
        NormalModel(
            host,
            flag,
            ElasticPlan(host, budget) if _is_elastic(policy) else None,
            each,
            kernel_costs(host, each),
            _rate(host, seconds),
        )
        for host, flag, each in zip(hosts, flags, times, strict=True)
    ]
    return NormalModels(policy, models)


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
