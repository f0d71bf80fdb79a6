"""A kernel's second form, from the same loops: workers take tiles and leave when they are asked to.

Input: a `TileFn`.  Output: text that follows prelude.py and `TURNS`:

    KERNEL void k(… as the plain form …, unsigned *trap, blocks and fields of `Turn`)

A worker is a block of threads.  Its leader takes a tile that was left, or else the next one.
Between two chunks of the reduction (targets/gpu/chunks.py), or between two tiles where there are
none, it looks whether it must leave.  What it has of the tile goes to its own slot, for whoever
comes next: every chunk is computed exactly once.  docs/elastic-form.md has the protocol.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.kernel.loops import TileFn
from tilewright.targets.cuda.emit import CudaDialect, areas_of, parameters, tile_of
from tilewright.targets.gpu.chunks import Chunks, chunks_of
from tilewright.targets.gpu.target import group_of
from tilewright.targets.text import at, body, declarations, lines

#: What a slot is: FREE, SAVED (a tile was left there), TAKEN (somebody reads it).
TURNS = """
struct Turn {  // one launch of a kernel; docs/elastic-form.md
  unsigned *budget;  // workers with this number or more leave
  unsigned *words;   // of this kernel: ticket, tiles done, tiles left behind
  unsigned *slots;   // for each worker: state, tile, block that comes next
  char *saved;       // for each worker: its registers
  unsigned *complete;  // how many kernels of the plan are
  unsigned *told;      // the same, where the host sees it
  int number, tiles, workers, stride;
};
enum { FREE, SAVED, TAKEN, TICKET = 0, DONE, LEFT };
__device__ inline unsigned seen(const unsigned *at) { return *(const volatile unsigned *)at; }
__device__ inline unsigned budget_of(const Turn &t) {
#ifdef CUDA_ON_CPU  // the word after the budget counts looks: at the last one everybody must go
  if (atomicSub(t.budget + 1, 1u) == 1u) atomicExch(t.budget, 0u);
#endif
  return seen(t.budget);
}
__device__ inline bool must_leave(const Turn &t) { return blockIdx.x >= budget_of(t); }
// task: the tile, the block to begin with, the slot that has the registers; a tile of -1: go.
// A kernel whose turn has not come, since the one before it was left, takes none.
__device__ inline void take(const Turn &t, int *task) {
  const unsigned complete = seen(t.complete), budget = budget_of(t);
  const int left = seen(t.words + LEFT);
  task[0] = -1;
  if (complete < (unsigned)t.number || blockIdx.x >= budget) return;
  if (left > 0) {
    for (int n = 0; n < t.workers; n++) {  // one's own first: it must be free when one leaves
      const int slot = (blockIdx.x + n) % t.workers;
      unsigned *const at = t.slots + 4 * slot;
      if (seen(at) == SAVED && atomicCAS(at, SAVED, TAKEN) == SAVED) {
        atomicSub(t.words + LEFT, 1u);
        __threadfence();
        task[0] = at[1], task[1] = at[2], task[2] = slot;
        return;
      }
    }
  }
  const unsigned ticket = atomicAdd(t.words + TICKET, 1u);
  if (ticket < (unsigned)t.tiles) task[0] = ticket, task[1] = 0;
}
__device__ inline void wait_for_own_slot(const Turn &t) {
  while (seen(t.slots + 4 * blockIdx.x) != FREE) __nanosleep(100);
}
__device__ inline void leave(const Turn &t, int tile, int next) {
  unsigned *const at = t.slots + 4 * blockIdx.x;
  at[1] = tile, at[2] = next;
  __threadfence();
  atomicExch(at, SAVED);
  atomicAdd(t.words + LEFT, 1u);
}
__device__ inline void free_slot(const Turn &t, int slot) {
  __threadfence();
  atomicExch(t.slots + 4 * slot, FREE);
}
__device__ inline void finish(const Turn &t) {
  __threadfence();
  if (atomicAdd(t.words + DONE, 1u) + 1 != (unsigned)t.tiles) return;
  atomicExch(t.complete, t.number + 1u);
  __threadfence_system();
  *(volatile unsigned *)t.told = t.number + 1;
}
"""
#: Parameters of the second form, beyond those of the plain one: the fields of `Turn` in order.
FIELDS = (
    "unsigned *budget", "unsigned *words", "unsigned *slots", "char *saved",
    "unsigned *complete", "unsigned *told", "int number", "int tiles", "int workers", "int stride",
)  # fmt: skip


@dataclass(frozen=True)
class Elastic:
    """The second form.

    saved:  bytes that a worker leaves behind with a tile; 0: it leaves between tiles alone
    chunks: the most chunks of a tile
    """

    text: str
    saved: int
    chunks: int


def elastic(fn: TileFn) -> Elastic:
    """The second form of a kernel `k`."""
    d, threads, parts = CudaDialect(fn), group_of(fn), chunks_of(fn)
    given = ", ".join((*parameters(fn, d), *FIELDS))
    names = ", ".join(field.split()[-1].lstrip("*") for field in FIELDS)
    text = [
        f"KERNEL void __launch_bounds__({threads}) k({given}) {{",
        f"  const Turn turn{{{names}}};",
        "  __shared__ int task[3];",
        *(f"  {area}" for area in areas_of(fn, d) if fn.thread),
        "  for (;;) {",
        "    if (threadIdx.x == 0) take(turn, task);",
        "    __syncthreads();",
        "    const int own = task[0];",
        "    if (own < 0) return;",
    ]
    if parts is None:
        text += _whole(fn, d)
    else:
        text += [f"    {line}" for line in tile_of(fn, d, "own")]
        text += _by_chunks(fn, d, parts, threads)
    text += [
        "    __syncthreads();",
        "    if (threadIdx.x == 0) finish(turn);",
        "  }",
        "}",
        "",
    ]
    saved = parts.bytes * threads if parts else 0
    return Elastic("\n".join(text), saved, parts.loop.var.extent if parts else 1)


def _whole(fn: TileFn, d: CudaDialect) -> list[str]:
    """A tile that is not left; a thread of its own beyond the last tile does nothing."""
    inside = [f"    {line}" for line in (*tile_of(fn, d, "own"), *body(fn, d, ""))]
    if fn.thread:
        return inside
    first, *rest = inside
    return [first, f"    if ({fn.tile.name} < count) {{", *areas_of(fn, d), *rest, "    }"]


def _by_chunks(fn: TileFn, d: CudaDialect, parts: Chunks, threads: int) -> list[str]:
    pad, loop = "    ", parts.loop
    block = loop.var.name
    end, unit = at(loop.end), fn.unit
    return [
        *declarations(fn, d, pad),
        *lines(parts.before, d, pad, unit),
        f"{pad}const int begin = task[1];",
        f"{pad}if (begin) {{",
        f"{pad}  const char *const from = turn.saved + (int64_t)task[2] * turn.stride;",
        *(f"{pad}  {name} = {place};" for name, place in _places(d, parts, threads, "from")),
        f"{pad}  __syncthreads();",
        f"{pad}  if (threadIdx.x == 0) free_slot(turn, task[2]);",
        f"{pad}}}",
        f"{pad}for (int {block} = begin; {block} < {end}; {block} += {loop.step}) {{",
        f"{pad}  const int asked = threadIdx.x == 0 && must_leave(turn);",
        *lines(parts.inside, d, pad + "  ", unit),
        f"{pad}  if (__syncthreads_or(asked) && {block} + {loop.step} < {end}) {{",
        f"{pad}    if (threadIdx.x == 0) wait_for_own_slot(turn);",
        f"{pad}    __syncthreads();",
        f"{pad}    char *const to = turn.saved + (int64_t)blockIdx.x * turn.stride;",
        *(f"{pad}    {place} = {name};" for name, place in _places(d, parts, threads, "to")),
        f"{pad}    __threadfence();",
        f"{pad}    __syncthreads();",
        f"{pad}    if (threadIdx.x == 0) leave(turn, own, {block} + {loop.step});",
        f"{pad}    return;",
        f"{pad}  }}",
        f"{pad}}}",
        *lines(parts.after, d, pad, unit),
    ]


def _places(d: CudaDialect, parts: Chunks, threads: int, area: str) -> list[tuple[str, str]]:
    """By register, where it lies: those of one name side by side, thread by thread."""
    found, offset = [], 0
    for name, dtype, lanes in sorted(parts.live, key=lambda r: -r[1].size * r[2]):
        kind = f"{'const ' if area == 'from' else ''}{d.type(dtype, lanes)}"
        found.append((name, f"(({kind} *)({area} + {offset}))[threadIdx.x]"))
        offset += dtype.size * lanes * threads
    return found
