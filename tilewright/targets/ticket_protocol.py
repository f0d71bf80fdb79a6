"""The protocol of an elastic kernel's workers, as CUDA C++: tickets, budget checks, saved tiles.

Input: none. Output: text for our own kernels (targets/cuda/elastic.py) and for foreign kernels
(elastic/transform). docs/elastic-form.md describes the protocol; this is its only implementation.
"""

from tilewright.base.budget import ALIVE, LOOKS, SLOT

#: States of a slot: FREE, SAVED (it holds an unfinished tile), TAKEN (a worker is reading it).
TURNS = (
    """
struct Turn {  // one launch of a kernel; docs/elastic-form.md
  unsigned *budget;  // workers with this number or more leave; behind it words of base/budget.py
  unsigned *words;   // of this kernel: ticket, tiles done, tiles left behind, first tiles claimed
  unsigned *slots;   // for each worker: state, tile, block that comes next, ticket drawn ahead,
                     // claim of its first tile
  char *saved;       // for each worker: its registers
  unsigned *before;  // tiles done of the kernel before this one
  unsigned *told;    // how many kernels are complete, where the host sees it; null: it does not ask
  int needed;        // so many tiles of the kernel before are done when this one's turn has come
  int number, tiles;
  int firsts;        // workers of a full launch that have a tile: the first ones, by their numbers
  int workers, stride;
};
enum { LOOKS = _LOOKS, ALIVE = _ALIVE, TICKET = 0, DONE, LEFT, CLAIMED };
enum { FREE, SAVED, TAKEN, CLAIM = 4, SLOT = _SLOT, NONE = 0x7fffffff };
struct Worker {  // what its leader knows
  int following;    // the ticket drawn ahead; tickets are numbers of tiles behind the first ones
  unsigned budget;  // the least since the tile began; 0: somebody was sent away while it worked, or
                    // a tile was left, so it asks before it goes
  unsigned done;    // tiles that it has stored and not yet counted
};
__device__ inline unsigned seen(const unsigned *at) { return *(const volatile unsigned *)at; }
__device__ inline unsigned budget_of(const Turn &t) {
#ifdef CUDA_ON_CPU  // the word after the budget counts looks: at the last one everybody must go
  if (atomicSub(t.budget + LOOKS, 1u) == 1u) atomicExch(t.budget, 0u);
#endif
  return seen(t.budget);
}
// An add without an answer.  For atomicAdd the compiler emits one that has an answer, though nobody
// reads it (seen in the code for Hopper).
__device__ inline void add(unsigned *at, unsigned n) {
#ifndef CUDA_ON_CPU
  asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" :: "l"(at), "r"(n) : "memory");
#else
  atomicAdd(at, n);
#endif
}
// The block of base/budget.py as it was at the last request whose answer has come.  It comes to
// shared memory by itself: who waits for a register also waits for what others wait for then.
// Nobody waits for it but who ends, since shared memory is then another's.  That a word is either
// the old one or the new one meanwhile is how devices work; PTX does not promise it.  WAITED: it is
// waited for, so that tools that look for races find those of others alone (scripts/gpu-sanitize).
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
// Workers look for work in steps of so many as there are of them, so few look at one place.
__device__ inline unsigned step_of(unsigned budget, unsigned places) {
  return max(1u, min(min(budget, gridDim.x), places));
}
// Each place once, wherever it begins.
__device__ inline unsigned onward(unsigned place, unsigned step, unsigned places) {
  return place + step < places ? place + step : (place + 1) % step;
}
// task: the tile, the block to begin with, the slot that has its registers; a tile of -1: go.
// What was left comes first, and at the worker's first search of that what it left itself: its slot
// must be free when it goes.  Later searches (`done`: tiles that it has stored) begin elsewhere
// where there are fewer workers than slots.  There are thousands of slots, so a search ends when
// nothing is left any longer, or when the worker must go.
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
// Claims the first tile of a worker.  The answer is what the claim was before; if that is not less
// than `claimed`, somebody else has the tile.  Claims grow from kernel to kernel, so nobody resets
// them within an inference.
__device__ inline unsigned claimed(const Turn &t) { return t.number + 1u; }
__device__ inline unsigned claim(const Turn &t, int tile) {
  return atomicMax(t.slots + SLOT * tile + CLAIM, claimed(t));
}
// CLAIMED is never more than the tiles that are, so nobody overlooks one that is not.
__device__ inline void begin_first(const Turn &t, int *task, int tile) {
  add(t.words + CLAIMED, 1u);
  task[0] = tile, task[1] = 0;
}
// The first tile of a worker that has not come, or that has given back its claim.  Whose tile was
// `own` looks there first.  It ends as a search for what was left does.
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
// Who waits for workers that must leave reads how many are alive (hosts/cuda_tasks.py: Settle).
__device__ inline void counted_out(const Turn &t) { add(t.budget + ALIVE, -1u); }
// The first task.  The worker's own first tile is claimed before it knows whether it may begin, so
// that all answers come at once; who must not, or goes on with a tile that was left, gives it back.
// A kernel whose turn has not come, since the one before it was left, does nothing.
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
    // the budget may have fallen meanwhile; the search has counted its looks, so this is none
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
// Asked for when the tile `own` begins, needed when it ends: nobody waits for the answers.  Each
// tile but the last `firsts` draws a ticket.  Tiles with low numbers began first, on different
// multiprocessors, so the last tiles are spread over these.
__device__ __forceinline__ void ask_ahead(const Turn &t, Worker &w, int own) {
  if (w.budget != 0) w.budget = budget_of(t);
  if (w.following == NONE && own < t.tiles - t.firsts) w.following = draw(t);
}
__device__ inline void wait_for_own_slot(const Turn &t) {
  while (seen(t.slots + SLOT * blockIdx.x) != FREE) __nanosleep(100);
}
// LEFT is never less than the slots that hold a tile, so nobody overlooks one of its own.
__device__ inline void leave(const Turn &t, int tile, int next, int following) {
  unsigned *const at = t.slots + SLOT * blockIdx.x;
  at[1] = tile, at[2] = next, at[3] = following;
  add(t.words + LEFT, 1u);
  __threadfence();
  atomicExch(at, SAVED);
}
// The task after the tile `own`.  Who saw a lower budget asks whether it must go; `looks`: who saw
// none, too, since the tile took long.
__device__ __forceinline__ void next_task(const Turn &t, int *task, Worker &w, int own,
                                          bool looks) {
  const bool more = w.following < t.tiles - t.firsts;
  task[0] = -1, w.done++;
  if (w.budget < (unsigned)t.firsts) w.budget = 0;
  // All have come and nobody was sent away that it knows of.  What somebody leaves meanwhile waits
  // for the next launch.
  if (!more && w.budget >= (unsigned)t.firsts && gridDim.x >= (unsigned)t.firsts)
    return counted_out(t);
  // asked for before the budget, so that both answers come at once
  const int left = more ? 0 : (int)seen(t.words + LEFT);
  const unsigned budget = looks || w.budget == 0 ? budget_of(t) : w.budget;
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
// A worker that goes has stored so many tiles: counted one by one, each would wait for the answer.
// The next kernel sees them, and the results, when all of this one has ended.
__device__ inline void finish(const Turn &t, unsigned done) {
  if (t.told == nullptr) {
    if (done) add(t.words + DONE, done);
    return;
  }
  __threadfence();
  if (done == 0 || atomicAdd(t.words + DONE, done) + done != (unsigned)t.tiles) return;
  // fences of the device alone: the host asks the device for results, after this
  __threadfence();
  *(volatile unsigned *)t.told = t.number + 1;
}
""".replace("_LOOKS", str(LOOKS))
    .replace("_ALIVE", str(ALIVE))
    .replace("_SLOT", str(SLOT))
)
