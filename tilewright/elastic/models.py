"""Models as the coordinator runs them: critical ones by phases, normal ones kernel by kernel.

Input: loaded bundles (`CudaHost`) on devices, the budget word.  Output: launches, and what is
complete.  Who may run when is decided by the policy.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

from tilewright.base.budget import EVERYBODY, WORD
from tilewright.elastic.policy import Critical, Hold, KernelCost, Phase, holds
from tilewright.hosts.cuda import CudaHost
from tilewright.hosts.cuda_devices import CudaDevice, HostWords
from tilewright.hosts.cuda_elastic import Budget, ElasticPlan
from tilewright.hosts.cuda_l2 import Window
from tilewright.hosts.cuda_tasks import TOLD, Launch, Release, Task
from tilewright.hosts.tensors import Array, largest_extents

#: Seconds for which a critical thread looks without rest whether its request has ended.
SPIN_S = 0.02
#: Between two looks after that.
REST_S = 1e-4


@dataclass(frozen=True)
class Recording:
    """A recording, and the words that its parts read; `start` is given the first budget."""

    start: Callable[[int], None]
    told: HostWords


class RequestEnd:
    """The end of a critical request, which the GPU tells by a word in the host's memory.

    Looking for it is no call of the driver: beside normal work such a call takes up to 200 us, and
    threads of Python take turns at each of them.
    """

    def __init__(self, word: Array, number: int, device: CudaDevice) -> None:
        self._word, self._number, self._device = word, number, device
        self._asks = time.perf_counter() + SPIN_S

    def passed(self) -> bool:
        """Raises HostError if the device has failed, for then the word never comes."""
        if int(self._word[0]) == self._number:
            return True
        if time.perf_counter() > self._asks:
            self._device.mark()  # only for its error
            self._asks = time.perf_counter() + SPIN_S
        return False

    def wait(self) -> None:
        while not self.passed():
            time.sleep(REST_S)


class CriticalModel:
    """Plain kernels in the order of the host's stream.  Before each part of them a kernel sets the
    budget and waits for who must leave; in the end everybody may stay.

    A request is one CUDA graph, started by one call: between two calls of a thread another one may
    have its turn, and then the GPU waits, too.  The first budget is written without a kernel, which
    might find no room until somebody has left.

    budget: that normal kernels look at; None: theirs are plain, and nobody leaves
    window: what its kernels keep in the L2 cache
    """

    def __init__(
        self,
        host: CudaHost,
        budget: Budget | None,
        plan: int = -1,
        extents: Sequence[int] | None = None,
        window: Window | None = None,
    ) -> None:
        self.host, self.device = host, host.device
        self._budget = budget
        if extents is None:
            extents = largest_extents(host.bundle.manifest)
        steps = host.steps(plan, extents)
        self.launches = [replace(launch, window=window) for _, launch in steps]
        self._ended, self._requests = self.device.words(), 0
        self._last: RequestEnd | None = None
        self._left: list[Recording] = []
        self._runs: dict[tuple[tuple[int, int], ...], Recording] = {}
        #: What a choice of budgets comes to, of the phases that were prepared.
        self._phases: Sequence[Phase] | None = None
        self._choices: dict[tuple[tuple[int, ...], float], tuple[Hold, ...]] = {}
        self._kernels: dict[int, Callable[[], None]] = {}

    def prepare(self, phases: Sequence[Phase], by_kernels: bool = False) -> None:
        """Records what `start`, or `start_kernel`, needs of these phases, so that no request waits
        for it."""
        if by_kernels:
            for number in range(len(self.launches)):
                self._kernel(number)
        else:
            self._run(holds(phases, (EVERYBODY,) * len(phases), 0.0))
            self._phases = phases
            self._choices.clear()

    def start(
        self,
        phases: Sequence[Phase],
        budgets: Sequence[int],
        settle_us: float = 0.0,
        beside: int = 0,
    ) -> RequestEnd:
        """One inference on the present inputs; the last one has ended.  Returns at once on a GPU.

        Also where a launch fails, everybody may stay afterwards.
        settle_us, beside: as of the policy's `Begin`
        """
        if phases is not self._phases:
            return self.start_parts(holds(phases, budgets, settle_us), settle_us, beside)
        key = (tuple(budgets), settle_us)
        if key not in self._choices:
            self._choices[key] = tuple(holds(phases, budgets, settle_us))
        return self.start_parts(self._choices[key], settle_us, beside)

    def start_parts(
        self, parts: Sequence[Hold], settle_us: float = 0.0, beside: int = 0
    ) -> RequestEnd:
        """The same of some kernels only, for a measurement."""
        if self._last is None or self._last.passed():
            self._left.clear()
        else:
            # nobody waits for the last one any longer, but its kernels still read their words
            self._left += self._runs.values()
            self._runs.clear()
        run, most_ns = self._run(parts), round(1e3 * settle_us)
        self._requests = number = (self._requests + 1) % 2**32
        told, at = run.told.value, 0
        for part in parts:
            told[at : at + TOLD] = (part.budget, beside, most_ns if part.waits else 0, number)
            at += TOLD
        try:
            run.start(parts[0].budget)
        except BaseException:
            if self._budget is not None:
                self.device.start(self._budget.task(EVERYBODY))
            raise
        self._last = RequestEnd(self._ended.value, number, self.device)
        return self._last

    def start_kernel(self, number: int) -> None:
        self._kernel(number)()

    def _kernel(self, number: int) -> Callable[[], None]:
        if number not in self._kernels:
            self._kernels[number] = self.device.record([self.launches[number]])
        return self._kernels[number]

    def _run(self, parts: Sequence[Hold]) -> Recording:
        """Recorded once for parts, whatever their budgets: these are read when it runs."""
        key = tuple((part.first, part.last) for part in parts)
        if key not in self._runs:
            self._runs[key] = self._recorded(key)
        return self._runs[key]

    def _recorded(self, parts: Sequence[tuple[int, int]]) -> Recording:
        told, tasks = self.device.words(TOLD * len(parts)), list[Task]()
        for number, (first, last) in enumerate(parts):
            if self._budget is not None:
                tasks.append(self._budget.settle(told.address + TOLD * WORD * number))
            tasks += self.launches[first:last]
        words = 0 if self._budget is None else self._budget.address
        tasks.append(Release(words, told.address, self._ended.address))
        if words:
            return Recording(self.device.record_after(words, tasks), told)
        run = self.device.record(tasks)
        return Recording(lambda budget: run(), told)


#: Microseconds for which kernels run that are started by one call, at least.
RUN_US = 300.0


class NormalPlan(Protocol):
    """An inference that is made kernel by kernel, or by runs of kernels, which are as one then.

    ends: numbers of the kernels behind each of them
    """

    @property
    def ends(self) -> Sequence[int]: ...

    def begin(self) -> None:
        """A new inference, in the stream's order: the one before it may still run, if nothing of it
        can be left."""

    def start(self, number: int, workers: int, plain: bool = False) -> None:
        """plain: in the form that nobody leaves, where there are two.  All before it is complete or
        was started so itself.  Nothing of it may have been computed in this inference yet, since a
        later kernel of the run may have overwritten what it reads."""

    def complete_after(self, number: int) -> int:
        """How many kernels are complete, when the launch of this one has ended."""


class ElasticKernels:
    """Kernels whose workers leave: `hosts/cuda_elastic.py`."""

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
    """The same, several by one call: a thread of Python cannot start each kernel in time.

    Where a run was left, kernels of it that are complete do nothing the next time, but take a place
    in the stream: so a run is not a whole plan.

    gates: kernels before which the device waits while nobody may stay (gates.py)
    """

    def __init__(self, plan: ElasticPlan, ends: Sequence[int], gates: Collection[int] = ()) -> None:
        self._plan, self.ends = plan, ends
        runs = list(pairwise((0, *ends)))
        self._runs = [plan.recorded(*run, gates=gates) for run in runs]
        self._plain = [plan.recorded_plain(*run) for run in runs]

    def begin(self) -> None:
        self._plan.begin()

    def start(self, number: int, workers: int, plain: bool = False) -> None:
        """Who is not among the workers leaves at once, by the budget."""
        (self._plain if plain else self._runs)[number]()

    def complete_after(self, number: int) -> int:
        return bisect_right(self.ends, self._plan.complete)


class PlainKernels:
    """Kernels that nothing stops, for designs that do without."""

    def __init__(self, host: CudaHost, launches: Sequence[Launch]) -> None:
        self._host, self._launches, self.ends = host, launches, range(1, 1 + len(launches))

    def begin(self) -> None:
        """Nothing is left of the last inference."""

    def start(self, number: int, workers: int, plain: bool = False) -> None:
        self._host.device.start(self._launches[number])

    def complete_after(self, number: int) -> int:
        return number + 1


class WholePlain:
    """The same, started by one call."""

    def __init__(self, host: CudaHost, launches: Sequence[Launch]) -> None:
        self._run, self.ends = host.device.record(launches), [len(launches)]

    def begin(self) -> None:
        """Nothing is left of the last inference."""

    def start(self, number: int, workers: int, plain: bool = False) -> None:
        self._run()

    def complete_after(self, number: int) -> int:
        return 1


def costs(host: CudaHost, microseconds: Sequence[float]) -> tuple[KernelCost, ...]:
    """What policies that go by kernels ask for, of a host's largest plan at its largest extents.

    microseconds: of each kernel alone, as measured
    """
    found = []
    steps = host.steps(-1, largest_extents(host.bundle.manifest))
    for (slot, launch), took in zip(steps, microseconds, strict=True):
        tile = took / -(-launch.blocks // host.residents(slot, launch))
        chunk = tile / max(1, host.forms[slot].chunks)
        found.append(KernelCost(launch.blocks, launch.group, tile, chunk, whole_us=took))
    return tuple(found)


def run_ends(microseconds: Sequence[float], least: float = RUN_US) -> list[int]:
    """Behind which kernels runs of them end, which take so long at least, but for the last one."""
    ends, spent = list[int](), 0.0
    for number, took in enumerate(microseconds, 1):
        spent += took
        if spent >= least or number == len(microseconds):
            ends.append(number)
            spent = 0.0
    return ends


def run_cost(kernels: Sequence[KernelCost]) -> KernelCost:
    """Of kernels that are started by one call."""
    return replace(
        kernels[0],
        tile_us=sum(kernel.tile_us for kernel in kernels),
        chunk_us=max(kernel.chunk_us for kernel in kernels),
        whole_us=sum(kernel.whole_us for kernel in kernels),
    )


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
    gap_ms: float = 0.0,
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
        gap_ms * 1e3,
    )
