"""How workers of elastic kernels take turns: text of CUDA C++.

Input: none.  Output: text that both the kernels of ours (targets/cuda/elastic.py) and foreign ones
(elastic/transform) contain.  docs/elastic-form.md has the protocol; this is its one copy.  `TURNS`
is for a kernel that is one step of a plan, `PLAN` for one that has all steps.
"""

from tilewright.base.budget import ALIVE, LOOKS, PARTS

_WORDS = """
enum { LOOKS = _LOOKS, ALIVE = _ALIVE };
enum { FREE, SAVED, TAKEN, TICKET = 0, DONE, LEFT, NONE = 0x7fffffff };
__device__ inline unsigned seen(const unsigned *at) { return *(const volatile unsigned *)at; }
// leads: one thread of those that look together
__device__ inline unsigned looked_at(unsigned *budget, bool leads) {
#ifdef CUDA_ON_CPU  // the word after the budget counts looks: at the last one everybody must go
  if (leads && atomicSub(budget + LOOKS, 1u) == 1u) atomicExch(budget, 0u);
#endif
  return seen(budget);
}
""".replace("_LOOKS", str(LOOKS)).replace("_ALIVE", str(ALIVE))

#: What a slot is: FREE, SAVED (a tile was left there), TAKEN (somebody reads it).
_ONE = """
struct Turn {  // one launch of a kernel; docs/elastic-form.md
  unsigned *budget;  // workers with this number or more leave; behind it words of base/budget.py
  unsigned *words;   // of this kernel: ticket, tiles done, tiles left behind
  unsigned *slots;   // for each worker: state, tile, block that comes next, ticket drawn ahead
  char *saved;       // for each worker: its registers
  unsigned *complete;  // how many kernels of the plan are
  unsigned *told;      // the same, where the host sees it
  int number, tiles, workers, stride;
};
enum { PARTS = 1 };
__device__ inline int part_of(const Turn &) { return 0; }
__device__ inline int thread_of(const Turn &) { return threadIdx.x; }
__device__ inline int worker_of(const Turn &) { return blockIdx.x; }
__device__ inline int scratch_of(const Turn &) { return 0; }
__device__ inline void meet(const Turn &) { __syncthreads(); }
__device__ inline bool meet_or(const Turn &, bool p) { return __syncthreads_or(p); }
// Who waits for workers that must leave reads how many are alive (hosts/cuda_devices.py: Settle).
__device__ inline int counted_out(const Turn &t) {
  atomicSub(t.budget + ALIVE, 1u);
  return NONE;
}
"""

_TILES = """
__device__ inline unsigned budget_of(const Turn &t) {
  return looked_at(t.budget, thread_of(t) == 0);
}
__device__ inline bool must_go(const Turn &, unsigned budget) { return blockIdx.x >= budget; }
__device__ inline int draw(const Turn &t) { return atomicAdd(t.words + TICKET, 1u); }
__device__ inline void free_slot(const Turn &t, int slot) {
  __threadfence();
  atomicExch(t.slots + 4 * slot, FREE);
}
// task: the tile, the block to begin with, the slot that has its registers; a tile of -1: go.
// What was left comes first, and of that what this worker left: its slot must be free when it goes.
__device__ inline int left_behind(const Turn &t, int *task) {
  for (int n = 0; n < t.workers; n++) {
    const int slot = (worker_of(t) + n) % t.workers;
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
__device__ inline void wait_for_own_slot(const Turn &t) {
  while (seen(t.slots + 4 * worker_of(t)) != FREE) __nanosleep(100);
}
// LEFT is never less than the slots that hold a tile, so nobody overlooks one of its own.
__device__ inline void leave(const Turn &t, int tile, int next, int following) {
  unsigned *const at = t.slots + 4 * worker_of(t);
  at[1] = tile, at[2] = next, at[3] = following;
  atomicAdd(t.words + LEFT, 1u);
  __threadfence();
  atomicExch(at, SAVED);
}
// The task after a tile; `looks`: the tile was not left, so it is time to.
__device__ inline int next_task(const Turn &t, int *task, int following, bool looks) {
  task[0] = -1;
  if (looks && must_go(t, budget_of(t))) {
    if (following < t.tiles) wait_for_own_slot(t), leave(t, following, 0, NONE);
    return counted_out(t);
  }
  if (following < t.tiles) {
    task[0] = following, task[1] = 0;
    return NONE;
  }
  const int more = (int)seen(t.words + LEFT) > 0 ? left_behind(t, task) : NONE;
  if (task[0] < 0) counted_out(t);
  return more;
}
// The first task where some may have been left, and the ticket that was drawn ahead with it.
__device__ inline int any_task(const Turn &t, int *task, bool left) {
  task[0] = -1;
  if (left) {
    const int following = left_behind(t, task);
    if (task[0] >= 0) return following;
  }
  const int ticket = draw(t);
  if (ticket >= t.tiles) return counted_out(t);
  task[0] = ticket, task[1] = 0;
  return NONE;
}
// Whether the tile that this worker has stored was the last one of all.
__device__ inline bool finished_last(const Turn &t) {
  __threadfence();
  return atomicAdd(t.words + DONE, 1u) + 1 == (unsigned)t.tiles;
}
"""

#: A kernel whose turn has not come, since the one before it was left, does nothing.
_ONE_ENDS = """
__device__ inline int first_task(const Turn &t, int *task) {
  atomicAdd(t.budget + ALIVE, 1u);
  const unsigned complete = seen(t.complete), budget = budget_of(t);
  const int left = seen(t.words + LEFT);
  task[0] = -1;
  if (complete < (unsigned)t.number || must_go(t, budget)) return counted_out(t);
  return any_task(t, task, left > 0);
}
__device__ inline void finish(const Turn &t) {
  if (!finished_last(t)) return;
  __threadfence_system();
  atomicExch(t.complete, t.number + 1u);
  __threadfence_system();
  *(volatile unsigned *)t.told = t.number + 1;
}
"""

#: A block has as many workers as its threads make, and these are parts of it.
_EACH = """
struct Step {  // a step of a plan, as its table has it
  int kernel, tiles, group, parts, stride, scratch, args;
};
struct Turn {  // a worker's part in one step
  unsigned *budget, *words, *slots;
  char *saved;
  unsigned *plan, *told;  // words of the plan; complete steps where the host sees them
  int number, tiles, workers, stride;
  int part, parts, group, scratch;
  bool fresh, ends;  // nothing of it can have been left by this block; it is an inference's last
};
enum { PARTS = _PARTS, COMPLETE = 0, GONE, ENDED };
__device__ inline int part_of(const Turn &t) { return t.part; }
__device__ inline int thread_of(const Turn &t) { return threadIdx.x - t.part * t.group; }
__device__ inline int worker_of(const Turn &t) { return blockIdx.x * t.parts + t.part; }
__device__ inline int scratch_of(const Turn &t) { return t.part * t.scratch; }
// Barriers of a part; barrier 0 is the block's.
__device__ inline bool meet_or(const Turn &t, bool p) {
#ifdef CUDA_ON_CPU
  return cuda_cpu::meet_part(t.part + 1, t.group, p);
#else
  int any;
  asm volatile(
      "{.reg .pred p, q; setp.ne.s32 p, %1, 0; barrier.red.or.pred q, %2, %3, p;"
      " selp.s32 %0, 1, 0, q;}"
      : "=r"(any) : "r"((int)p), "r"(t.part + 1), "r"(t.group) : "memory");
  return any;
#endif
}
__device__ inline void meet(const Turn &t) {
#ifdef CUDA_ON_CPU
  cuda_cpu::meet_part(t.part + 1, t.group, false);
#else
  asm volatile("barrier.sync %0, %1;" : : "r"(t.part + 1), "r"(t.group) : "memory");
#endif
}
// The block counts itself.
__device__ inline int counted_out(const Turn &) { return NONE; }
""".replace("_PARTS", str(PARTS))

#: `next_step` has seen that it is this step's turn, and that the worker may stay.
_EACH_ENDS = """
__device__ inline int first_task(const Turn &t, int *task) {
  return any_task(t, task, !t.fresh && (int)seen(t.words + LEFT) > 0);
}
__device__ inline void finish(const Turn &t) {
  if (!finished_last(t)) return;
  __threadfence();
  if (t.ends) {
    *(volatile unsigned *)t.told = t.number + 1;
    __threadfence_system();  // before another worker tells of the next inference
  }
  atomicExch(t.plan + COMPLETE, t.number + 1u);
}
struct Plan {
  const Step *steps;
  const uint64_t *args;
  unsigned *budget, *words, *slots;
  char *saved;
  unsigned *told;
  int count, total;  // steps of an inference; steps after which this launch ends
};
__device__ inline unsigned *words_of(const Plan &p, int step) { return p.words + 4 * (1 + step); }
// The step that has tiles to take, of which this block has done what it could up to `last`; -1: go.
// Who waits here holds no tile.  Where somebody left who may stay again, all go between two steps:
// the launch that follows has everybody.
__device__ inline int next_step(const Plan &p, int last) {
  for (;;) {
    const int step = seen(p.words + COMPLETE);
    const unsigned budget = looked_at(p.budget, true), gone = seen(p.words + GONE);
    if (step >= p.total || (gone > 0 && budget >= gridDim.x)) return -1;
    if (blockIdx.x >= budget) {
      atomicAdd(p.words + GONE, 1u);
      return -1;
    }
    const unsigned *const words = words_of(p, step);
    if (step != last || (int)seen(words + LEFT) > 0 ||
        seen(words + TICKET) < (unsigned)p.steps[step % p.count].tiles) {
      __threadfence();
      return step;
    }
    __nanosleep(40);
  }
}
// The last block of a launch leaves the words as the next launch wants them.
__device__ inline void ended(const Plan &p) {
  atomicSub(p.budget + ALIVE, 1u);
  if (atomicAdd(p.words + ENDED, 1u) + 1 != gridDim.x) return;
  atomicExch(p.words + GONE, 0u);
  atomicExch(p.words + ENDED, 0u);
}
__device__ void run_step(int kernel, const uint64_t *at, const Turn turn, int (*tasks)[3]);
__device__ inline void run_plan(const Plan &p) {
  __shared__ int tasks[PARTS][2][3], next;
  if (threadIdx.x == 0) atomicAdd(p.budget + ALIVE, 1u);
  for (int last = -1;;) {
    if (threadIdx.x == 0) next = next_step(p, last);
    __syncthreads();
    const int number = next;
    if (number < 0) break;
    const Step step = p.steps[number % p.count];
    const int part = threadIdx.x / step.group;
    if (part < step.parts) {
      const Turn turn{p.budget, words_of(p, number), p.slots, p.saved, p.words, p.told,
                      number, step.tiles, int(gridDim.x) * step.parts, step.stride,
                      part, step.parts, step.group, step.scratch,
                      last >= 0 && number != last, (number + 1) % p.count == 0};
      run_step(step.kernel, p.args + step.args, turn, tasks[part]);
    }
    last = number;
    __syncthreads();
  }
  if (threadIdx.x == 0) ended(p);
}
"""

TURNS = _WORDS + _ONE + _TILES + _ONE_ENDS
PLAN = _WORDS + _EACH + _TILES + _EACH_ENDS
