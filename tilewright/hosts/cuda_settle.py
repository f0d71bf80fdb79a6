"""The kernels around a critical request: one sets the budget and waits until normal workers have
left, one removes the limit and tells the host.

Input: the words of base/budget.py, numbers that the host tells (`Settle`, `Release` in
cuda_tasks.py).  Output: text of CUDA C++ for NVRTC.  It starts nothing.
"""

from __future__ import annotations

from tilewright.base.budget import ALIVE, BUDGET, EVERYBODY

#: The time, as the device tells it.
CLOCK = """
__device__ inline unsigned long long nanoseconds() {
  unsigned long long found;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(found));
  return found;
}
"""

#: Sets the budget, then waits until no more workers are alive than may stay, and no longer than so
#: many nanoseconds: nobody who dies without counting himself out holds a stream.  What it is told
#: lies in the host's memory, and is read at once.
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

#: Lets everybody stay, then writes the request's number where the host looks for it: that is seen
#: earlier than an event, and without a call of the driver.  words: null where there is no budget.
RELEASE = """
extern "C" __global__ void k(volatile int *words, const unsigned *told, volatile unsigned *ended) {
  const unsigned number = ((const volatile unsigned *)told)[3];
  if (words != nullptr) words[_BUDGET] = _EVERYBODY;
  __threadfence_system();
  *ended = number;
}
""".replace("_BUDGET", str(BUDGET)).replace("_EVERYBODY", str(EVERYBODY))
