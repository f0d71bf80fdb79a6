"""The kernels before and after a critical request.  The first sets the budget and waits until
normal workers have left; the second lifts the limit and reports the end to the host.

Input: the words of base/budget.py, numbers from the host (`Settle`, `Release` in cuda_tasks.py).
Output: text of CUDA C++ for NVRTC.  Nothing is started here.
"""

from __future__ import annotations

from tilewright.base.budget import ALIVE, BUDGET, EVERYBODY

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
  if (words != nullptr) words[_BUDGET] = _EVERYBODY;
  __threadfence_system();
  *ended = number;
}
""".replace("_BUDGET", str(BUDGET)).replace("_EVERYBODY", str(EVERYBODY))
