"""How a normal model is launched: kernel by kernel or in runs, elastic or plain; and its costs.

Input: a loaded bundle (`CudaHost`) or its elastic plan; measured microseconds of its kernels.
Output: launches, and how many kernels of the inference are complete; for the policy, `KernelCost`s
and the kernels at which runs end.  The policy decides when each is launched; measure_curves.py
measures.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple, Protocol

from tilewright.elastic.policy import KernelCost
from tilewright.hosts.cuda import CudaHost
from tilewright.hosts.cuda_devices import CudaDevice
from tilewright.hosts.cuda_elastic import ElasticPlan
from tilewright.hosts.cuda_tasks import Launch
from tilewright.hosts.inputs_outputs import largest_extents


class NormalPlan(Protocol):
    """Launches the kernels of an inference: one by one, or in runs by one call each.

    A run counts as one kernel here.
    ends: for each kernel or run, the number of the first kernel after it
    """

    @property
    def ends(self) -> Sequence[int]: ...

    def begin(self) -> None:
        """Begins an inference, in the stream's order.  The last inference may still be running if
        no worker can leave it."""

    def start(self, number: int, workers: int, plain: bool = False) -> None:
        """Launches a kernel or run.

        plain: use the form that no worker leaves, if there are two.  Required then: all kernels
               before it are complete or were started in plain form, and no part of it was computed
               in this inference, since a later kernel of the run may have overwritten its inputs.
        """

    def complete_after(self, number: int) -> int:
        """The number of complete kernels after the launch of this one has ended."""


class PlacedPlan(NamedTuple):
    """A normal model and the device that it runs on."""

    plan: NormalPlan
    device: CudaDevice


class ElasticKernels:
    """Elastic kernels, launched one by one (hosts/cuda_elastic.py)."""

    def __init__(self, plan: ElasticPlan) -> None:
        self._plan, self.ends = plan, range(1, 1 + len(plan.steps))

    def begin(self) -> None:
        self._plan.begin()

    def start(self, number: int, workers: int, plain: bool = False) -> None:
        if plain:
            self._plan.start_plain(number)
        else:
            self._plan.start(number, workers)

    def complete_after(self, number: int) -> int:
        return self._plan.complete


class ElasticRuns:
    """Elastic kernels in runs, by one call each: a Python thread cannot start each kernel in time.

    If workers left a run, it is launched again.  Its complete kernels then do nothing, but still
    take time in the stream, so a run is shorter than a plan.

    gates: kernels before which the device waits while no worker may stay (gates.py)
    """

    def __init__(self, plan: ElasticPlan, ends: Sequence[int], gates: Collection[int] = ()) -> None:
        self._plan, self.ends = plan, ends
        runs = list(pairwise((0, *ends)))
        self._runs = [plan.recorded(*run, gates=gates) for run in runs]
        self._plain = [plan.recorded_plain(*run) for run in runs]

    def begin(self) -> None:
        self._plan.begin()

    def start(self, number: int, workers: int, plain: bool = False) -> None:
        """Launches a run.  The budget limits the workers: those beyond it leave at once."""
        (self._plain if plain else self._runs)[number]()

    def complete_after(self, number: int) -> int:
        return bisect_right(self.ends, self._plan.complete)


class PlainKernels:
    """Plain kernels, launched one by one, for policies whose workers never leave."""

    def __init__(self, host: CudaHost, launches: Sequence[Launch]) -> None:
        self._host, self._launches, self.ends = host, launches, range(1, 1 + len(launches))

    def begin(self) -> None:
        """Does nothing: plain kernels keep no state."""

    def start(self, number: int, workers: int, plain: bool = False) -> None:
        self._host.device.start(self._launches[number])

    def complete_after(self, number: int) -> int:
        return number + 1


class WholePlain:
    """All plain kernels of an inference, launched by one call."""

    def __init__(self, host: CudaHost, launches: Sequence[Launch]) -> None:
        self._run, self.ends = host.device.record(launches), [len(launches)]

    def begin(self) -> None:
        """Does nothing: plain kernels keep no state."""

    def start(self, number: int, workers: int, plain: bool = False) -> None:
        self._run()

    def complete_after(self, number: int) -> int:
        return 1


#: The least microseconds of the kernels that one call starts.
RUN_US = 300.0


def kernel_costs(host: CudaHost, microseconds: Sequence[float]) -> tuple[KernelCost, ...]:
    """Costs of the kernels of a host's largest plan at its largest extents, for policies that
    decide by kernels.

    microseconds: the measured time of each kernel alone
    """
    found = []
    steps = host.steps(-1, largest_extents(host.bundle.manifest))
    for (slot, launch), took in zip(steps, microseconds, strict=True):
        tile = took / -(-launch.blocks // host.residents(slot, launch))
        chunk = tile / max(1, host.forms[slot].chunks)
        found.append(KernelCost(launch.blocks, launch.group, tile, chunk, whole_us=took))
    return tuple(found)


def run_ends(microseconds: Sequence[float], least: float = RUN_US) -> list[int]:
    """For each run the number of the first kernel after it.  All runs but the last take at least
    `least` microseconds."""
    ends, spent = list[int](), 0.0
    for number, took in enumerate(microseconds, 1):
        spent += took
        if spent >= least or number == len(microseconds):
            ends.append(number)
            spent = 0.0
    return ends


def run_cost(kernels: Sequence[KernelCost]) -> KernelCost:
    """The cost of a run, which the policy sees as one kernel."""
    return replace(
        kernels[0],
        tile_us=sum(kernel.tile_us for kernel in kernels),
        chunk_us=max(kernel.chunk_us for kernel in kernels),
        whole_us=sum(kernel.whole_us for kernel in kernels),
    )
