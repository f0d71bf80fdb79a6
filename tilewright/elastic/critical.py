"""A critical model on a device: one call starts its kernels, in phases with a budget each.

Input: a loaded bundle (`CudaHost`), the budget word.  Output: requests that the GPU computes, and
the end of each.  The policy decides the budgets of a request.  On request the models' weights stay
in the GPU's L2 cache (the driver's calls are in hosts/cuda_l2_persistence.py).
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tilewright.base.abi import WORD_BYTES
from tilewright.base.budget import UNLIMITED
from tilewright.base.errors import HostError
from tilewright.elastic.interpreter_priority import REST_S, SPIN_S
from tilewright.elastic.policy import Critical, Hold, KernelCost, Phase, holds
from tilewright.hosts.cuda import CudaHost
from tilewright.hosts.cuda_devices import CudaDevice, HostWords, NvidiaDevice
from tilewright.hosts.cuda_driver import Driver
from tilewright.hosts.cuda_elastic import Budget
from tilewright.hosts.cuda_l2_persistence import Window
from tilewright.hosts.cuda_tasks import TOLD, Release, Task
from tilewright.hosts.inputs_outputs import Array, largest_extents


@dataclass(frozen=True)
class Recording:
    """A recorded request, and the words that its parts read; `start` takes the first budget."""

    start: Callable[[int], None]
    argument_words: HostWords


class RequestEnd:
    """The end of a critical request, which the GPU reports by a word in the host's memory.

    Polling this word needs no driver call.  Beside normal work a driver call takes up to 200 us,
    and Python may switch threads at each one.
    """

    def __init__(self, word: Array, number: int, device: CudaDevice) -> None:
        self._word, self._number, self._device = word, number, device
        self._asks = time.perf_counter() + SPIN_S

    def passed(self) -> bool:
        """True if the request has ended.  Raises HostError if the device has failed: the word never
        comes then."""
        if int(self._word[0]) == self._number:
            return True
        if time.perf_counter() > self._asks:
            self._device.mark()  # raises the device's error, if there is one
            self._asks = time.perf_counter() + SPIN_S
        return False

    def wait(self) -> None:
        while not self.passed():
            time.sleep(REST_S)


class CriticalModel:
    """Plain kernels in the order of the host's stream.  Before each phase a kernel sets the budget
    and waits for workers that must leave; at the end all workers may stay.

    A request is one CUDA graph, started by one call: between two calls Python may switch threads,
    and the GPU would wait, too.  The first budget is written without a kernel, since a kernel might
    not be scheduled until a worker has left.

    budget: the word that normal kernels read; None: normal kernels are plain, and no worker leaves
    window: the memory of its kernels that stays in the L2 cache
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
        #: By the first and last kernels of their parts.
        self._recordings: dict[tuple[tuple[int, int], ...], Recording] = {}
        #: Of requests that the agent has given up: their kernels may still read their words.
        self._abandoned: list[Recording] = []
        #: The prepared phases, and their parts by budgets and longest wait.
        self._phases: Sequence[Phase] | None = None
        self._parts: dict[tuple[tuple[int, ...], float], tuple[Hold, ...]] = {}
        self._kernels: dict[int, Callable[[], None]] = {}

    def prepare(self, phases: Sequence[Phase], by_kernels: bool = False) -> None:
        """Records all that `start` or `start_kernel` needs for these phases, so that no request
        waits for a recording."""
        if by_kernels:
            for number in range(len(self.launches)):
                self._kernel(number)
        else:
            self._recording(holds(phases, (UNLIMITED,) * len(phases), 0.0))
            self._phases = phases
            self._parts.clear()

    def start(
        self,
        phases: Sequence[Phase],
        budgets: Sequence[int],
        settle_us: float = 0.0,
        concurrent: int = 0,
    ) -> RequestEnd:
        """Starts one inference on the present inputs, after the last one has ended.  Returns at
        once on a GPU.

        Afterwards all workers may stay, even if a launch failed.
        settle_us, concurrent: as in the policy's `Begin`
        """
        if phases is not self._phases:
            return self.start_parts(holds(phases, budgets, settle_us), settle_us, concurrent)
        key = (tuple(budgets), settle_us)
        if key not in self._parts:
            self._parts[key] = tuple(holds(phases, budgets, settle_us))
        return self.start_parts(self._parts[key], settle_us, concurrent)

    def start_parts(
        self, parts: Sequence[Hold], settle_us: float = 0.0, concurrent: int = 0
    ) -> RequestEnd:
        """As `start`, for some kernels only: for measurements."""
        if self._last is None or self._last.passed():
            self._abandoned.clear()
        else:
            self._abandoned += self._recordings.values()
            self._recordings.clear()
        recording, most_ns = self._recording(parts), round(1e3 * settle_us)
        self._requests = number = (self._requests + 1) % 2**32
        words = recording.argument_words.value
        for at, part in zip(range(0, len(words), TOLD), parts, strict=True):
            wait_ns = most_ns if part.waits else 0
            words[at : at + TOLD] = part.budget, concurrent, wait_ns, number
        try:
            recording.start(parts[0].budget)
        except BaseException:
            if self._budget is not None:
                self.device.start(self._budget.task(UNLIMITED))
            raise
        self._last = RequestEnd(self._ended.value, number, self.device)
        return self._last

    def start_kernel(self, number: int) -> None:
        self._kernel(number)()

    def _kernel(self, number: int) -> Callable[[], None]:
        if number not in self._kernels:
            self._kernels[number] = self.device.record([self.launches[number]])
        return self._kernels[number]

    def _recording(self, parts: Sequence[Hold]) -> Recording:
        """The recording of these parts, made once; budgets are read when it runs."""
        key = tuple((part.first, part.last) for part in parts)
        if key not in self._recordings:
            self._recordings[key] = self._record(key)
        return self._recordings[key]

    def _record(self, parts: Sequence[tuple[int, int]]) -> Recording:
        argument_words, tasks = self.device.words(TOLD * len(parts)), list[Task]()
        for number, (first, last) in enumerate(parts):
            if self._budget is not None:
                tasks.append(
                    self._budget.settle(argument_words.address + TOLD * WORD_BYTES * number)
                )
            tasks += self.launches[first:last]
        words = 0 if self._budget is None else self._budget.address
        tasks.append(Release(words, argument_words.address, self._ended.address))
        if words:
            return Recording(self.device.record_after(words, tasks), argument_words)
        run = self.device.record(tasks)
        return Recording(lambda budget: run(), argument_words)


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
    """A critical task, from times in the units that users give."""
    return Critical(
        name,
        tuple(phases),
        tuple(kernels),
        max_slowdown=max_slowdown,
        priority=priority,
        deadline_us=None if deadline_ms is None else deadline_ms * 1e3,
        rate_hz=rate_hz,
        lease_us=lease_ms * 1e3,
        gap_us=gap_ms * 1e3,
    )


class PersistentWeights:
    """A part of the cache that is reserved until `release`, or until nothing refers to this object.

    windows: in the order of the hosts; None: a model has no weights
    share:   the share of all weights' bytes that stays

    Raises HostError if the device cannot reserve cache.
    """

    def __init__(self, device: CudaDevice, hosts: Sequence[CudaHost]) -> None:
        if not isinstance(device, NvidiaDevice):
            raise HostError(
                f"{device.name} has no L2 cache that can be set aside",
                hint="Leave out L2 persistence, or use an NVIDIA GPU",
            )
        self.release = weakref.finalize(self, _release, device.driver)
        self.release.atexit = False  # at the process's end the driver releases it
        self.windows = device.driver.l2.keep([host.weights for host in hosts])
        total = sum(size for _, size in (host.weights for host in hosts))
        stays = sum(window.size * window.share for window in self.windows if window is not None)
        self.share = stays / total if total else 0.0


def _release(driver: Driver) -> None:
    driver.use()
    driver.l2.release()
