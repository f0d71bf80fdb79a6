"""The kernel by which a critical request sets the budget of normal work, and waits for it.

Input: the words of base/budget.py, numbers that the host tells (`Settle` in cuda_devices.py).
Output: text of CUDA C++ for NVRTC.  It starts nothing.
"""

from __future__ import annotations

from tilewright.base.budget import ALIVE, BUDGET

#: Sets the budget, then waits until no more workers are alive than may stay, and no longer than so
#: many nanoseconds: nobody who dies without counting himself out holds a stream.  What it is told
#: lies in the host's memory, and is read at once.
SETTLE = """
__device__ inline unsigned long long nanoseconds() {
  unsigned long long found;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(found));
  return found;
}
extern "C" __global__ void k(volatile int *words, const unsigned *told) {
  const unsigned long long begun = nanoseconds();
  unsigned budget, beside, most, none;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(budget), "=r"(beside), "=r"(most), "=r"(none) : "l"(told));
  words[_BUDGET] = budget;
  __threadfence();
  while (words[_ALIVE] > (long long)words[_BUDGET] * beside && nanoseconds() - begun < most)
    __nanosleep(100);
}
""".replace("_ALIVE", str(ALIVE)).replace("_BUDGET", str(BUDGET))
