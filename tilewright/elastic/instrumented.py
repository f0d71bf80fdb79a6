"""A device whose kernels begin with more code: a record of their blocks, or a check of a flag.

Input: a device, text for the start of each kernel's body, and parameters before the kernel's own.
Output: a device that hosts use like any other.

`Watch` records where and when blocks run, for pictures and for occupancy: the SM's number, and
times of the device's own clock.  It costs a few writes per block, so it is off when times are
measured.  With `Flag`, blocks end at once while the budget is 0, as in REEF, a design for
comparison; `EntryKernels` starts such a kernel again.  It is for timing only: a kernel that
overwrites its own input gives another result the second time.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tilewright.base.errors import CompilerBug
from tilewright.elastic.timeline import BlockSpan
from tilewright.hosts.cuda import CudaHost
from tilewright.hosts.cuda_devices import CudaDevice, DeviceEvent, DeviceMemory, HostWords
from tilewright.hosts.cuda_elastic import Budget
from tilewright.hosts.cuda_tasks import CScalar, Launch, Task
from tilewright.hosts.tensors import Array

#: The start of a kernel: its parameters, and the line that opens its body.
HEAD = re.compile(r"^(KERNEL void (?:__launch_bounds__\([^)]*\) )?k\()(.*\) \{)$", re.MULTILINE)


@dataclass(frozen=True)
class Instrumentation:
    """prelude: text before all kernels;  parameters, body: text before a kernel's own"""

    prelude: str
    parameters: str
    body: str

    def of(self, text: str) -> str:
        """A kernel's text with the code added."""
        made, count = HEAD.subn(
            lambda head: f"{head[1]}{self.parameters}, {head[2]}\n  {self.body}", text
        )
        if count != 1:
            raise CompilerBug("a kernel's text has no head to add code behind", found=count)
        return made


class InstrumentedDevice:
    """args: gives the values of the added parameters at each launch; a recording keeps them"""

    def __init__(
        self, device: CudaDevice, added: Instrumentation, args: Callable[[], tuple[CScalar, ...]]
    ) -> None:
        self._device, self._added, self._args, self.name = device, added, args, device.name
        self.capability, self.shared_bytes = device.capability, device.shared_bytes
        self.sms, self.returns = device.sms, device.returns

    def compile(
        self, prelude: str, texts: Sequence[str], shared: Sequence[int] = ()
    ) -> Sequence[object]:
        longer = [self._added.of(text) for text in texts]
        return self._device.compile(prelude + self._added.prelude, longer, shared)

    def start(self, task: Task) -> None:
        self._device.start(self._with_args(task))

    def record(self, tasks: Sequence[Task]) -> Callable[[], None]:
        return self._device.record([self._with_args(task) for task in tasks])

    def record_after(self, address: int, tasks: Sequence[Task]) -> Callable[[int], None]:
        return self._device.record_after(address, [self._with_args(task) for task in tasks])

    def _with_args(self, task: Task) -> Task:
        if not isinstance(task, Launch):
            return task
        return replace(task, args=(*self._args(), *task.args))

    def memory(self, size: int) -> DeviceMemory:
        return self._device.memory(size)

    def write(self, address: int, data: Array) -> None:
        self._device.write(address, data)

    def read(self, address: int, size: int) -> bytes:
        return self._device.read(address, size)

    def words(self, count: int = 1) -> HostWords:
        return self._device.words(count)

    def residents(self, kernel: object, group: int, shared: int = 0) -> int:
        return self._device.residents(kernel, group, shared)

    def local_bytes(self, kernel: object) -> int:
        return self._device.local_bytes(kernel)

    def use(self) -> None:
        self._device.use()

    def ensure_current(self) -> None:
        self._device.ensure_current()

    def wait(self) -> None:
        self._device.wait()

    def mark(self) -> DeviceEvent:
        return self._device.mark()

    def milliseconds(self, run: Callable[[], None]) -> float:
        return self._device.milliseconds(run)


#: The most spans until the next reset; later ones are dropped.
MOST_SPANS = 1 << 16
#: Words of a span: SM and threads, start and end in nanoseconds.
FIELDS = 3
TEXT = """
#ifdef CUDA_ON_CPU
#include <chrono>
__device__ inline unsigned long long watch_clock() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}
__device__ inline unsigned watch_sm() { return cuda_cpu::now->block->processor; }
#else
__device__ inline unsigned long long watch_clock() {
  unsigned long long found;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(found));
  return found;
}
__device__ inline unsigned watch_sm() {
  unsigned found;
  asm volatile("mov.u32 %0, %smid;" : "=r"(found));
  return found;
}
#endif
struct Watched {  // lives as long as its block's first thread
  unsigned long long *to, begin;
  __device__ Watched(unsigned long long *to) : to(to), begin(watch_clock()) {}
  __device__ ~Watched() {
    if (threadIdx.x != 0) return;
    const unsigned n = atomicAdd((unsigned *)to, 1u);
    if (n >= MOST_SPANS) return;
    unsigned long long *at = to + 1 + 3ull * n;
    at[0] = (unsigned long long)blockDim.x << 32 | watch_sm(), at[1] = begin, at[2] = watch_clock();
  }
};
""".replace("MOST_SPANS", str(MOST_SPANS))


class BlockTrace:
    """The memory to which the kernels of one task write their spans."""

    def __init__(self, device: CudaDevice, task: str, critical: bool) -> None:
        self._device, self._task, self._critical = device, task, critical
        self._memory = device.memory(8 * (1 + FIELDS * MOST_SPANS))

    @property
    def address(self) -> int:
        return self._memory.address

    def reset(self) -> None:
        self._device.write(self.address, np.zeros(1, np.uint64))

    def spans(self) -> list[BlockSpan]:
        """The spans, in microseconds of the device's clock."""
        (found,) = np.frombuffer(self._device.read(self.address, 8), np.uint64)
        count = min(int(found), MOST_SPANS)
        raw = self._device.read(self.address + 8, 8 * FIELDS * count)
        return [
            BlockSpan(
                int(place) & 0xFFFFFFFF,
                begin / 1e3,
                end / 1e3,
                self._task,
                self._critical,
                int(place) >> 32,
            )
            for place, begin, end in np.frombuffer(raw, np.uint64).reshape(-1, FIELDS).tolist()
        ]


def traced(device: CudaDevice, watch: BlockTrace) -> InstrumentedDevice:
    """A device whose kernels all write spans."""
    added = Instrumentation(TEXT, "unsigned long long *watch", "const Watched watched(watch);")
    return InstrumentedDevice(device, added, lambda: (ctypes.c_void_p(watch.address),))


#: Launches whose answers have their own words: more than are ever in flight.
WORDS = 8
FLAG_CHECK = Instrumentation(
    "",
    "const volatile unsigned *entry_flag, volatile unsigned *entry_told, unsigned entry_launch",
    "__shared__ bool entry_goes;"
    " if (threadIdx.x == 0 && (entry_goes = *entry_flag == 0)) *entry_told = entry_launch;"
    " __syncthreads(); if (entry_goes) return;",
)


class Flag:
    """A device for a host, and a record of launches of which some block ended at once."""

    def __init__(self, device: CudaDevice, budget: Budget) -> None:
        self._budget, self._launches = budget, 0
        self._told: list[HostWords] = [device.words() for _ in range(WORDS)]
        self.device = InstrumentedDevice(device, FLAG_CHECK, self._args)

    def _args(self) -> tuple[ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint]:
        self._launches += 1
        return (
            ctypes.c_void_p(self._budget.address),
            ctypes.c_void_p(self._told[self._launches % WORDS].address),
            ctypes.c_uint(self._launches),
        )

    @property
    def launches(self) -> int:
        return self._launches

    def dropped(self, launch: int) -> bool:
        return int(self._told[launch % WORDS].value[0]) == launch


class EntryKernels:
    """A plan in which a kernel is complete if no block of its launch ended at once."""

    def __init__(self, host: CudaHost, launches: Sequence[Launch], flag: Flag) -> None:
        self._host, self._launches, self._flag = host, launches, flag
        self.ends, self._complete = range(1, 1 + len(launches)), 0
        self._started: list[tuple[int, int]] = []

    def begin(self) -> None:
        self._complete = 0
        self._started.clear()

    def start(self, number: int, workers: int, plain: bool = False) -> None:
        self._host.device.start(self._launches[number])
        self._started.append((number, self._flag.launches))

    def complete_after(self, number: int) -> int:
        """The number of complete kernels; launches end in order."""
        kernel, launch = self._started.pop(0)
        # A kernel after a dropped one has read values that were not computed yet.
        if kernel == self._complete and not self._flag.dropped(launch):
            self._complete += 1
        return self._complete
