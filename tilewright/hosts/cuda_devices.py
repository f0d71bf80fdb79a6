"""The devices on which CUDA kernels run: an NVIDIA GPU by its driver, or the CPU for checking.

Input: text of kernels, memory, launches.  Output: their effects.  `hosts/cuda.py` knows bundles;
this file does not.  Two kernels of its own run before and after a critical request: the first sets
the budget and waits until normal workers have left; the second lifts the limit and reports the end
to the host.
"""

from __future__ import annotations

import ctypes
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import lru_cache
from typing import NamedTuple, Protocol, SupportsInt

import numpy as np

from tilewright.base.abi import WORD_BYTES
from tilewright.base.budget import ALIVE, BUDGET, BUDGET_BYTES, UNLIMITED
from tilewright.base.errors import CompilerBug, HostError, MemoryLimit, of_kind
from tilewright.hosts.cuda_driver import Driver, cubins
from tilewright.hosts.cuda_on_cpu import Kernels
from tilewright.hosts.cuda_tasks import TOLD, Gate, Launch, Release, Settle, SetWord, Task, Zeroes
from tilewright.hosts.inputs_outputs import Array

#: Reads the device's clock.
CLOCK = """
__device__ inline unsigned long long nanoseconds() {
  unsigned long long found;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(found));
  return found;
}
"""

#: Sets the budget, then waits until the workers alive are at most those that may stay, but only for
#: the given nanoseconds: a worker that dies without decrementing the count does not block the
#: stream.  Its inputs are in the host's memory and are read when it starts.
SETTLE = (
    CLOCK
    + """extern "C" __global__ void k(volatile int *words, const unsigned *told) {
  const unsigned long long begun = nanoseconds();
  unsigned budget, beside, most, number;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(budget), "=r"(beside), "=r"(most), "=r"(number) : "l"(told));
  words[_BUDGET] = budget;
  __threadfence();
  while (words[_ALIVE] > (long long)words[_BUDGET] * beside && nanoseconds() - begun < most)
    __nanosleep(100);
}
""".replace("_ALIVE", str(ALIVE)).replace("_BUDGET", str(BUDGET))
)

#: Lets all workers stay, then writes the request's number to the host's word.  The host sees that
#: earlier than an event, and without a driver call.  words: null if there is no budget
RELEASE = """
extern "C" __global__ void k(volatile int *words, const unsigned *told, volatile unsigned *ended) {
  const unsigned number = ((const volatile unsigned *)told)[3];
  if (words != nullptr) words[_BUDGET] = _UNLIMITED;
  __threadfence_system();
  *ended = number;
}
""".replace("_BUDGET", str(BUDGET)).replace("_UNLIMITED", str(UNLIMITED))


#: The least compute capability that kernels are written for.
LEAST = (7, 0)
#: The kernels before and after a critical request; their parameters are the fields of these tasks.
AROUND: Mapping[type[Settle | Release], str] = {Settle: SETTLE, Release: RELEASE}


@dataclass(frozen=True, eq=False)
class HostWords:
    """32-bit numbers that kernels and the host share, and their address for kernels."""

    value: Array
    address: int


@dataclass(frozen=True, eq=False)
class DeviceMemory:
    """An allocation of a device's memory, which is freed when nothing refers to it."""

    address: int
    size: int


class DeviceEvent(Protocol):
    """A point in the order of a device's work."""

    def passed(self) -> bool:
        """True if all earlier work has ended."""

    def wait(self) -> None:
        """Waits until all earlier work has ended."""


class CudaDevice(Protocol):
    """The interface of a device for `CudaHost`.

    capability:   its compute capability;  shared_bytes: the most shared memory of a block
    sms:          multiprocessors
    returns:      True if calls return before the work that they start has ended
    """

    name: str
    returns: bool
    sms: int
    capability: tuple[int, int]
    shared_bytes: int

    def memory(self, size: int) -> DeviceMemory:
        """Memory that is set to 0.  Raises MemoryLimit."""

    def write(self, address: int, data: Array) -> None: ...

    def read(self, address: int, size: int) -> bytes:
        """Reads memory after all started work has ended."""

    def compile(
        self, prelude: str, texts: Sequence[str], shared: Sequence[int] = ()
    ) -> Sequence[object]:
        """Compiles kernels; each text has one kernel `k`.  shared: bytes that each is launched
        with"""

    def words(self, count: int = 1) -> HostWords:
        """Shared numbers, set to 0."""

    def residents(self, kernel: object, group: int, shared: int = 0) -> int:
        """The blocks that run at once, with this many threads and bytes of dynamic shared
        memory."""

    def local_bytes(self, kernel: object) -> int:
        """Bytes of a thread's local memory: its own arrays, and spilled registers."""

    def start(self, task: Task) -> None:
        """Starts a task and returns at once."""

    def wait(self) -> None:
        """Waits until all started work has ended."""

    def use(self) -> None:
        """Called once by each other thread that uses the device."""

    def ensure_current(self) -> None:
        """As `use`, but fast if the thread uses the device already.  Call it after code that may
        have switched the thread to another device."""

    def mark(self) -> DeviceEvent:
        """Marks the work that was started until now."""

    def record(self, tasks: Sequence[Task]) -> Callable[[], None]:
        """A function that starts these tasks, one after the other."""

    def record_after(self, address: int, tasks: Sequence[Task]) -> Callable[[int], None]:
        """The same; the function first sets a 32-bit word to its argument, without a kernel."""

    def milliseconds(self, run: Callable[[], None]) -> float:
        """The device's time for the work that `run` starts, by its own clock."""


class _Passed:
    def passed(self) -> bool:
        return True

    def wait(self) -> None: ...


class _EventMark:
    def __init__(self, driver: Driver, stream: SupportsInt) -> None:
        self._driver, self._event = driver, driver.event()
        driver.mark(self._event, stream)
        weakref.finalize(self, driver.forget, self._event)

    def passed(self) -> bool:
        return self._driver.passed(self._event)

    def wait(self) -> None:
        self._driver.reached(self._event)


class CpuKernel(NamedTuple):
    kernels: Kernels
    name: str


@lru_cache(maxsize=64)
def _on_cpu(text: str, count: int) -> Kernels:
    """Compiles a text once for all hosts with the same kernels."""
    return Kernels(text, {f"k{n}": f"k{n}::k" for n in range(count)})


class CpuDevice:
    """Kernels compiled by the system's C++ compiler; several threads share the blocks.

    capability: the compute capability of the GPU that it represents
    """

    name, returns = "CPU", False
    shared_bytes = 227 << 10

    def __init__(self, processors: int = 2, capability: tuple[int, int] = (9, 0)) -> None:
        self.sms, self.capability = processors, capability

    def memory(self, size: int) -> DeviceMemory:
        data = np.zeros(size + 256, np.uint8)
        address = -(-data.ctypes.data // 256) * 256
        made = DeviceMemory(address, size)
        weakref.finalize(made, lambda kept: None, data)
        return made

    def write(self, address: int, data: Array) -> None:
        given = np.ascontiguousarray(data)
        ctypes.memmove(address, given.ctypes.data, given.nbytes)

    def read(self, address: int, size: int) -> bytes:
        return ctypes.string_at(address, size)

    def compile(
        self, prelude: str, texts: Sequence[str], shared: Sequence[int] = ()
    ) -> Sequence[CpuKernel]:
        spaces = (f"namespace k{n} {{\n{text}}}\n" for n, text in enumerate(texts))
        kernels = _on_cpu("#define CUDA_ON_CPU\n" + prelude + "".join(spaces), len(texts))
        return [CpuKernel(kernels, f"k{n}") for n in range(len(texts))]

    def words(self, count: int = 1) -> HostWords:
        value = np.zeros(count, np.uint32)
        return HostWords(value, value.ctypes.data)

    def residents(self, kernel: object, group: int, shared: int = 0) -> int:
        return 2 * self.sms

    def local_bytes(self, kernel: object) -> int:
        return 0

    def start(self, task: Task) -> None:
        if isinstance(task, Zeroes):
            ctypes.memset(task.address, 0, task.size)
            return
        if isinstance(task, SetWord):
            ctypes.c_uint32.from_address(task.address).value = task.value
            return
        if isinstance(task, Gate):
            while not ctypes.c_uint32.from_address(task.address).value:
                time.sleep(0)
            return
        if isinstance(task, Settle):
            words = (ctypes.c_int32 * (BUDGET_BYTES // WORD_BYTES)).from_address(task.address)
            budget, beside, most, _ = (ctypes.c_uint32 * TOLD).from_address(task.told)
            words[BUDGET] = budget
            until = time.perf_counter() + most / 1e9
            while words[ALIVE] > words[BUDGET] * beside and time.perf_counter() < until:
                time.sleep(0)
            return
        if isinstance(task, Release):
            if task.address:
                (ctypes.c_int32 * (BUDGET_BYTES // WORD_BYTES)).from_address(task.address)[
                    BUDGET
                ] = UNLIMITED
            number = (ctypes.c_uint32 * TOLD).from_address(task.told)[TOLD - 1]
            ctypes.c_uint32.from_address(task.ended).value = number
            return
        kernels, name = of_kind(task.kernel, CpuKernel, "a kernel of another device")
        kernels.run(
            name, [task.blocks], [task.group], task.args, shared=task.shared,
            processors=self.sms,
        )  # fmt: skip

    def wait(self) -> None:
        """Does nothing: `start` returns when its work has ended."""

    def use(self) -> None:
        """Does nothing: any thread may use the device."""

    def ensure_current(self) -> None:
        """Does nothing: any thread may use the device."""

    def mark(self) -> DeviceEvent:
        return _Passed()

    def record(self, tasks: Sequence[Task]) -> Callable[[], None]:
        def run() -> None:
            for task in tasks:
                self.start(task)

        return run

    def record_after(self, address: int, tasks: Sequence[Task]) -> Callable[[int], None]:
        rest = self.record(tasks)

        def run(value: int) -> None:
            self.start(SetWord(address, value))
            rest()

        return run

    def milliseconds(self, run: Callable[[], None]) -> float:
        start = time.perf_counter()
        run()
        return (time.perf_counter() - start) * 1e3


class NvidiaDevice:
    """An NVIDIA GPU.

    driver: shared by several devices; by default the first GPU as a whole
    stream: a CUDA stream of the caller, as a number; None: a new one
    urgent: blocks of its own stream are scheduled before those of others

    Raises HostError if there is no GPU, or none that can run the kernels.
    """

    returns = True

    def __init__(
        self, driver: Driver | None = None, *, stream: int | None = None, urgent: bool = False
    ) -> None:
        self.driver = driver or Driver(0)
        self.name, self.capability = self.driver.name, self.driver.capability
        self.sms = self.driver.sms
        self.shared_bytes = self.driver.shared_bytes
        if self.capability < LEAST:
            raise HostError(
                f"{self.name} has compute capability {'.'.join(map(str, self.capability))}",
                hint="Use a GPU with 7.0 or more (Volta, 2017), or another host",
                host="cuda",
            )
        self.stream = self.driver.stream(urgent) if stream is None else stream
        self._loaded: dict[type[Settle | Release], SupportsInt] = {}

    def memory(self, size: int) -> DeviceMemory:
        address = self.driver.allocate(size)
        if address is None:
            raise MemoryLimit(
                "the model does not fit the GPU's memory",
                hint="Free memory of the GPU, or build the bundle with smaller buckets",
                bytes=size,
                limit=self.driver.free_bytes(),
            )
        made = DeviceMemory(address, size)
        weakref.finalize(made, self.driver.release, address)
        return made

    def write(self, address: int, data: Array) -> None:
        self.driver.upload(address, np.ascontiguousarray(data), self.stream)

    def read(self, address: int, size: int) -> bytes:
        return self.driver.download(address, size, self.stream)

    def compile(
        self, prelude: str, texts: Sequence[str], shared: Sequence[int] = ()
    ) -> Sequence[SupportsInt]:
        made = cubins([prelude + text for text in texts], self.capability)
        given = shared or [0] * len(texts)
        return [self.driver.function(code, "k", n) for code, n in zip(made, given, strict=True)]

    def words(self, count: int = 1) -> HostWords:
        address, there = self.driver.mapped(WORD_BYTES * count)
        value = np.ctypeslib.as_array((ctypes.c_uint32 * count).from_address(address))
        value[:] = 0
        made = HostWords(value, there)
        weakref.finalize(made, self.driver.unmap, address)
        return made

    def residents(self, kernel: object, group: int, shared: int = 0) -> int:
        return self.driver.residents(kernel, group, shared)

    def local_bytes(self, kernel: object) -> int:
        if not isinstance(kernel, SupportsInt):
            raise CompilerBug("a kernel of another device", found=kernel)
        return self.driver.local_bytes(kernel)

    def start(self, task: Task) -> None:
        if isinstance(task, Zeroes):
            self.driver.zero(task.address, task.size, self.stream)
        elif isinstance(task, SetWord):
            self.driver.write_word(task.address, task.value, self.stream)
        elif isinstance(task, Gate):
            self.driver.wait_word(task.address, self.stream)
        elif isinstance(task, Settle | Release):
            args = tuple(map(ctypes.c_void_p, astuple(task)))
            self.driver.launch(Launch(self._around(type(task)), 1, 1, args), self.stream)
        else:
            self.driver.launch(task, self.stream)

    def _around(self, kind: type[Settle | Release]) -> SupportsInt:
        """The kernel of such a task."""
        if kind not in self._loaded:
            (self._loaded[kind],) = self.compile("", [AROUND[kind]])
        return self._loaded[kind]

    def wait(self) -> None:
        self.driver.wait(self.stream)

    def use(self) -> None:
        self.driver.use()

    def ensure_current(self) -> None:
        self.driver.ensure_current()

    def mark(self) -> DeviceEvent:
        return _EventMark(self.driver, self.stream)

    def record(self, tasks: Sequence[Task]) -> Callable[[], None]:
        return self.driver.graphs.recorded(self._started(tasks), self.stream)

    def record_after(self, address: int, tasks: Sequence[Task]) -> Callable[[int], None]:
        return self.driver.graphs.recorded_after(address, self._started(tasks), self.stream)

    def _started(self, tasks: Sequence[Task]) -> Callable[[], None]:
        # Kernels are loaded before the recording: none can be loaded during it.
        for task in tasks:
            if isinstance(task, Settle | Release):
                self._around(type(task))

        def all_tasks() -> None:
            for task in tasks:
                if isinstance(task, SetWord):
                    # This write would not become a node of the graph, so use one that does.
                    self.driver.fill(task.address, task.value, self.stream)
                elif isinstance(task, Gate):
                    self.driver.graphs.gate(task.address, self.stream)
                else:
                    self.start(task)

        return all_tasks

    def milliseconds(self, run: Callable[[], None]) -> float:
        return self.driver.milliseconds(run, self.stream)
