"""How the workers of an elastic kernel take turns: text of CUDA C++.

Input: none.  Output: text that both the kernels of ours (targets/cuda/elastic.py) and foreign ones
(elastic/transform) contain.  docs/elastic-form.md has the protocol; this is its one copy.
"""

from tilewright.base.budget import ALIVE, LOOKS

#: What a slot is: FREE, SAVED (a tile was left there), TAKEN (somebody reads it).
TURNS = """
struct Turn {  // one launch of a kernel; docs/elastic-form.md
  unsigned *budget;  // workers with this number or more leave; behind it words of base/budget.py
  unsigned *words;   // of this kernel: ticket, tiles done, tiles left behind
  unsigned *slots;   // for each worker: state, tile, block that comes next, ticket drawn ahead
  char *saved;       // for each worker: its registers
  unsigned *complete;  // how many kernels of the plan are
  unsigned *told;      // the same, where the host sees it
  int number, tiles, workers, stride;
};
enum { LOOKS = _LOOKS, ALIVE = _ALIVE };
enum { FREE, SAVED, TAKEN, TICKET = 0, DONE, LEFT, NONE = 0x7fffffff };
__device__ inline unsigned seen(const unsigned *at) { return *(const volatile unsigned *)at; }
__device__ inline unsigned budget_of(const Turn &t) {
#ifdef CUDA_ON_CPU  // the word after the budget counts looks: at the last one everybody must go
  if (atomicSub(t.budget + LOOKS, 1u) == 1u) atomicExch(t.budget, 0u);
#endif
  return seen(t.budget);
}
__device__ inline int draw(const Turn &t) { return atomicAdd(t.words + TICKET, 1u); }
__device__ inline void free_slot(const Turn &t, int slot) {
  __threadfence();
  atomicExch(t.slots + 4 * slot, FREE);
}
// task: the tile, the block to begin with, the slot that has its registers; a tile of -1: go.
// What was left comes first, and of that what this worker left: its slot must be free when it goes.
__device__ inline int left_behind(const Turn &t, int *task) {
  for (int n = 0; n < t.workers; n++) {
    const int slot = (blockIdx.x + n) % t.workers;
    unsigned *const at = t.slots + 4 * slot;
    if (seen(at) == SAVED && atomicCAS(at, SAVED, TAKEN) == SAVED) {
      atomicSub(t.words + LEFT, 1u);
      __threadfence();
      task[0] = seen(at + 1), task[1] = seen(at + 2), task[2] = slot;
      const int following = seen(at + 3);
      if (task[1] == 0) free_slot(t, slot);
      return following;
    }
  }
  return NONE;
}
// Who waits for workers that must leave reads how many are alive (hosts/cuda_devices.py: Settle).
__device__ inline int counted_out(const Turn &t) {
  atomicSub(t.budget + ALIVE, 1u);
  return NONE;
}
// The first task, and the ticket that was drawn ahead with it.
// A kernel whose turn has not come, since the one before it was left, does nothing.
__device__ inline int first_task(const Turn &t, int *task) {
  atomicAdd(t.budget + ALIVE, 1u);
  const unsigned complete = seen(t.complete), budget = budget_of(t);
  const int left = seen(t.words + LEFT);
  task[0] = -1;
  if (complete < (unsigned)t.number || blockIdx.x >= budget) return counted_out(t);
  if (left > 0) {
    const int following = left_behind(t, task);
    if (task[0] >= 0) return following;
  }
  const int ticket = draw(t);
  if (ticket >= t.tiles) return counted_out(t);
  task[0] = ticket, task[1] = 0;
  return NONE;
}
__device__ inline void wait_for_own_slot(const Turn &t) {
  while (seen(t.slots + 4 * blockIdx.x) != FREE) __nanosleep(100);
}
// LEFT is never less than the slots that hold a tile, so nobody overlooks one of its own.
__device__ inline void leave(const Turn &t, int tile, int next, int following) {
  unsigned *const at = t.slots + 4 * blockIdx.x;
  at[1] = tile, at[2] = next, at[3] = following;
  atomicAdd(t.words + LEFT, 1u);
  __threadfence();
  atomicExch(at, SAVED);
}
// The task after a tile; `looks`: the tile was not left, so it is time to.
__device__ inline int next_task(const Turn &t, int *task, int following, bool looks) {
  task[0] = -1;
  // asked for before the budget, so that both answers come at once
  const int left = following < t.tiles ? 0 : (int)seen(t.words + LEFT);
  if (looks && blockIdx.x >= budget_of(t)) {
    if (following < t.tiles) wait_for_own_slot(t), leave(t, following, 0, NONE);
    return counted_out(t);
  }
  if (following < t.tiles) {
    task[0] = following, task[1] = 0;
    return NONE;
  }
  const int more = left > 0 ? left_behind(t, task) : NONE;
  if (task[0] < 0) counted_out(t);
  return more;
}
// A worker that goes has stored so many tiles: counted one by one, each would wait for the answer.
__device__ inline void finish(const Turn &t, unsigned done) {
  __threadfence();
  if (done == 0 || atomicAdd(t.words + DONE, done) + done != (unsigned)t.tiles) return;
  // fences of the device alone: the host asks the device for results, after this
  __threadfence();
  atomicExch(t.complete, t.number + 1u);
  *(volatile unsigned *)t.told = t.number + 1;
}
""".replace("_LOOKS", str(LOOKS)).replace("_ALIVE", str(ALIVE))
