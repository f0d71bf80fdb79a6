"""The protocol of an elastic kernel's workers, as CUDA C++: tickets, budget checks, saved tiles.

Output: text for our own kernels (targets/cuda/elastic.py) and for foreign kernels
(elastic/transform). docs/elastic-form.md describes the protocol; this is its only implementation.
"""

from tilewright.base.budget import ALIVE, LOOKS, SAVE_AREA_WORDS

#: A worker's save area is called a slot in this text.  Its states: FREE, SAVED (it has an
#: unfinished tile), TAKEN (a worker is reading it).
TURNS = (
    """
struct Turn {  // one launch of a kernel; docs/elastic-form.md
  unsigned *budget;  // workers with this number or a higher one leave; more words follow it, see
                     // base/budget.py
  unsigned *words;   // counters of this kernel: next ticket, tiles done, tiles left unfinished,
                     // first tiles claimed
  unsigned *slots;   // for each worker: state, tile, next block of that tile, ticket drawn ahead,
                     // claim of its first tile
  char *saved;       // for each worker: its saved registers
  unsigned *before;  // tiles done of the previous kernel
  unsigned *completed;  // the number of complete kernels, in memory that the host reads; null if
                        // the host does not need it
  int needed;        // this kernel may begin when the previous one has done this many tiles
  int number, tiles;  // the kernel's index in its inference, and its number of tiles
  int firsts;        // in a full launch, workers 0 to firsts - 1 begin with their number's tile
  int workers, stride;
};
enum { LOOKS = _LOOKS, ALIVE = _ALIVE, TICKET = 0, DONE, LEFT, CLAIMED };
enum { FREE, SAVED, TAKEN, CLAIM = 4, SLOT = _SLOT, NONE = 0x7fffffff };
struct Worker {  // what the first thread of a worker knows
  int following;    // the ticket drawn ahead; ticket n stands for tile firsts + n
  unsigned budget;  // the lowest budget seen since the tile began; 0 makes the worker read it again
                    // before it ends: another worker had to leave, or an unfinished tile was found
  unsigned done;    // tiles that it has stored but not yet added to DONE
};
__device__ inline unsigned seen(const unsigned *at) { return *(const volatile unsigned *)at; }
__device__ inline unsigned budget_of(const Turn &t) {
#ifdef CUDA_ON_CPU  // tests set the word at LOOKS: after that many reads all workers must leave
  if (atomicSub(t.budget + LOOKS, 1u) == 1u) atomicExch(t.budget, 0u);
#endif
  return seen(t.budget);
}
// Adds without returning the old value.  For atomicAdd the compiler emits an instruction that
// returns it even if the value is not used (seen in the code for Hopper).
__device__ inline void add(unsigned *at, unsigned n) {
#ifndef CUDA_ON_CPU
  asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" :: "l"(at), "r"(n) : "memory");
#else
  atomicAdd(at, n);
#endif
}
// A copy of the budget and the words behind it (base/budget.py), as the last completed read found
// them.  The read is asynchronous and ends in shared memory: a read into a register would make the
// thread wait for all its other outstanding reads as well.  A worker waits for the copy only before
// it ends, because its shared memory then belongs to another block.  While the copy is under way, a
// word has either its old or its new value; devices behave so, but PTX does not promise it.
// With WAITED each copy is waited for, so that race detectors report other races only
// (scripts/gpu-sanitize).
struct alignas(16) Asked { unsigned budget, more[3]; };
__device__ inline void ask(const Turn &t, Asked &asked) {
#if !defined(CUDA_ON_CPU) && __CUDA_ARCH__ >= 800
  const unsigned at = (unsigned)__cvta_generic_to_shared(&asked);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(at), "l"(t.budget));
#ifdef WAITED
  asm volatile("cp.async.wait_all;");
#endif
#else
  asked.budget = budget_of(t);
#endif
}
__device__ inline void all_came() {
#if !defined(CUDA_ON_CPU) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;");
#endif
}
__device__ inline unsigned answer(const Asked &asked) { return seen(&asked.budget); }
__device__ inline int draw(const Turn &t) { return atomicAdd(t.words + TICKET, 1u); }
__device__ inline void free_slot(const Turn &t, int slot) {
  __threadfence();
  atomicExch(t.slots + SLOT * slot, FREE);
}
// Workers search for work with a stride of the number of workers, so that few of them look at the
// same place.
__device__ inline unsigned step_of(unsigned budget, unsigned places) {
  return max(1u, min(min(budget, gridDim.x), places));
}
// The next place of such a search, which visits each place once, wherever it begins.
__device__ inline unsigned onward(unsigned place, unsigned step, unsigned places) {
  return place + step < places ? place + step : (place + 1) % step;
}
// Takes an unfinished tile, if there is one.
// task: the tile, the block to begin with, the slot that has its registers; tile -1: end.
// Unfinished tiles come before new ones.  The first search begins at the worker's own slot, which
// must be free when the worker leaves.  Later searches begin elsewhere (`done` counts the tiles
// that it has stored), because there may be fewer workers than slots.  There are thousands of
// slots, so a search ends when no tile is unfinished any more, or when the worker must leave.
__device__ inline int left_behind(const Turn &t, int *task, unsigned budget, unsigned done) {
  const unsigned step = step_of(budget, t.workers);
  unsigned slot = (blockIdx.x + step * done) % t.workers;
  for (int n = 0; n < t.workers; n++, slot = onward(slot, step, t.workers)) {
    unsigned *const at = t.slots + SLOT * slot;
    const unsigned state = seen(at);
    const int left = seen(t.words + LEFT);
    budget = budget_of(t);
    if (state == SAVED && atomicCAS(at, SAVED, TAKEN) == SAVED) {
      add(t.words + LEFT, -1u);
      __threadfence();
      task[0] = seen(at + 1), task[1] = seen(at + 2), task[2] = slot;
      const int following = seen(at + 3);
      if (task[1] == 0) free_slot(t, slot);
      return following;
    }
    if (left <= 0 || blockIdx.x >= budget) break;
  }
  return NONE;
}
// Claims the first tile of a worker and returns the previous claim.  If that is not less than
// `claimed`, another worker has the tile.  Claims grow from kernel to kernel, so they need no reset
// within an inference.
__device__ inline unsigned claimed(const Turn &t) { return t.number + 1u; }
__device__ inline unsigned claim(const Turn &t, int tile) {
  return atomicMax(t.slots + SLOT * tile + CLAIM, claimed(t));
}
// CLAIMED never exceeds the number of claimed first tiles, so no worker skips an unclaimed one.
__device__ inline void begin_first(const Turn &t, int *task, int tile) {
  add(t.words + CLAIMED, 1u);
  task[0] = tile, task[1] = 0;
}
// Finds a first tile whose worker is not running, or has given its claim back.  The search starts
// at tile `own`, and ends as the search for unfinished tiles does.
__device__ inline void unclaimed(const Turn &t, int *task, int own) {
  const unsigned firsts = t.firsts;
  unsigned budget = budget_of(t), begun = seen(t.words + CLAIMED);
  const unsigned step = step_of(budget, firsts);
  unsigned tile = min(own < t.firsts ? own : blockIdx.x, firsts - 1);
  for (unsigned n = 0; n < firsts && begun < firsts && blockIdx.x < budget; n++) {
    const unsigned older = claim(t, tile);
    budget = budget_of(t), begun = seen(t.words + CLAIMED);
    if (older < claimed(t)) return begin_first(t, task, tile);
    tile = onward(tile, step, firsts);
  }
}
// ALIVE counts running workers.  A kernel that waits for workers to leave reads it
// (hosts/cuda_tasks.py: Settle).
__device__ inline void counted_out(const Turn &t) { add(t.budget + ALIVE, -1u); }
// Chooses a worker's first task.  The worker claims its own first tile before it knows whether it
// may begin, so that all reads are under way at the same time.  A worker that may not begin, or
// that continues an unfinished tile, gives the claim back.  If the previous kernel is unfinished,
// this one does nothing.
__device__ __forceinline__ Worker first_task(const Turn &t, int *task) {
  add(t.budget + ALIVE, 1u);
  const unsigned older = blockIdx.x < (unsigned)t.firsts ? claim(t, blockIdx.x) : claimed(t);
  const int before = seen(t.before);
  const unsigned budget = budget_of(t);
  const int left = seen(t.words + LEFT);
  Worker w{NONE, budget, 0};
  task[0] = -1;
  bool idle = before >= t.needed && blockIdx.x < budget;
  if (idle && left > 0) {
    w.following = left_behind(t, task, budget, 0), w.budget = 0;
    // the budget may have fallen meanwhile; the search counted its own reads, so this one is not
    idle = task[0] < 0 && blockIdx.x < seen(t.budget);
  }
  if (older < claimed(t)) {
    if (idle) return begin_first(t, task, blockIdx.x), w;
    atomicExch(t.slots + SLOT * blockIdx.x + CLAIM, older);
  }
  if (idle && t.firsts < t.tiles) {
    w.following = draw(t);
    if (w.following < t.tiles - t.firsts) {
      task[0] = t.firsts + w.following, task[1] = 0;
      w.following = NONE;
      return w;
    }
  }
  if (idle) unclaimed(t, task, blockIdx.x);
  if (task[0] < 0) counted_out(t);
  return w;
}
// Reads the budget and draws a ticket when the tile `own` begins.  Both are needed when it ends, so
// the worker does not wait for them.  All tiles but the last `firsts` draw a ticket.  Tiles with
// low numbers began first, on different multiprocessors, so the last tiles are spread over these.
__device__ __forceinline__ void ask_ahead(const Turn &t, Worker &w, int own) {
  if (w.budget != 0) w.budget = budget_of(t);
  if (w.following == NONE && own < t.tiles - t.firsts) w.following = draw(t);
}
__device__ inline void wait_for_own_slot(const Turn &t) {
  while (seen(t.slots + SLOT * blockIdx.x) != FREE) __nanosleep(100);
}
// Leaves a tile unfinished in the worker's slot.  LEFT is never less than the number of slots that
// hold a tile, so no worker overlooks its own.
__device__ inline void leave(const Turn &t, int tile, int next, int following) {
  unsigned *const at = t.slots + SLOT * blockIdx.x;
  at[1] = tile, at[2] = next, at[3] = following;
  add(t.words + LEFT, 1u);
  __threadfence();
  atomicExch(at, SAVED);
}
// Chooses the task after tile `own`.  A worker that saw a lower budget reads it again.  With
// `reread` every worker does, because the tile took long.
__device__ __forceinline__ void next_task(const Turn &t, int *task, Worker &w, int own,
                                          bool reread) {
  const bool more = w.following < t.tiles - t.firsts;
  task[0] = -1, w.done++;
  if (w.budget < (unsigned)t.firsts) w.budget = 0;
  // All workers have begun, and this one has seen none sent away.  A tile that is left unfinished
  // from now on waits for the next launch.
  if (!more && w.budget >= (unsigned)t.firsts && gridDim.x >= (unsigned)t.firsts)
    return counted_out(t);
  // read before the budget, so that both reads are under way at the same time
  const int left = more ? 0 : (int)seen(t.words + LEFT);
  const unsigned budget = reread || w.budget == 0 ? budget_of(t) : w.budget;
  if (blockIdx.x >= budget) {
    if (more) wait_for_own_slot(t), leave(t, t.firsts + w.following, 0, NONE);
    return counted_out(t);
  }
  if (more) {
    task[0] = t.firsts + w.following, task[1] = 0;
    w.following = NONE;
    return;
  }
  if (left > 0) {
    const int following = left_behind(t, task, budget, w.done);
    if (task[0] >= 0) {
      w.following = following, w.budget = 0;
      return;
    }
  }
  unclaimed(t, task, own);
  if (task[0] < 0) counted_out(t);
}
// Counts the tiles that a leaving worker has stored.  Counting each by itself would make it wait
// each time.  The next kernel sees the count, and the results, when this whole kernel has ended.
__device__ inline void finish(const Turn &t, unsigned done) {
  if (t.completed == nullptr) {
    if (done) add(t.words + DONE, done);
    return;
  }
  __threadfence();
  if (done == 0 || atomicAdd(t.words + DONE, done) + done != (unsigned)t.tiles) return;
  // fences for the device are enough: the host asks the device for the results after this
  __threadfence();
  *(volatile unsigned *)t.completed = t.number + 1;
}
""".replace("_LOOKS", str(LOOKS))
    .replace("_ALIVE", str(ALIVE))
    .replace("_SLOT", str(SAVE_AREA_WORDS))
)
