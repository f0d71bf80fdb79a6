"""Records where and when blocks of kernels run, for pictures (timeline.py) and for occupancy.

Input: a device.  Output: a device whose kernels write spans: the SM's number, and times of the
device's own clock.  This costs a few writes per block, so it is off when times are measured.
"""

from __future__ import annotations

import ctypes

import numpy as np

from tilewright.elastic.timeline import BlockSpan
from tilewright.hosts.cuda_devices import CudaDevice
from tilewright.hosts.cuda_instrumented import Instrumentation, InstrumentedDevice

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


def traced(device: CudaDevice, trace: BlockTrace) -> InstrumentedDevice:
    """A device whose kernels all write spans."""
    added = Instrumentation(TEXT, "unsigned long long *watch", "const Watched watched(watch);")
    return InstrumentedDevice(device, added, lambda: (ctypes.c_void_p(trace.address),))
