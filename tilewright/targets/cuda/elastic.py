"""Writes the elastic form of a kernel: persistent workers take tiles and leave on request.

Input: a `TileFn`.  Output: text that follows prelude.py and ticket_protocol.py:

    KERNEL void k(… as the plain form …, unsigned *trap, blocks and fields of `Turn`)

A worker is a thread block.  Its leader, thread 0, takes a tile that another worker left unfinished,
else its first tile, else the next ticket.  A worker leaves between two chunks of a reduction
(targets/cuda/chunks.py), or between two tiles where a tile has no chunks.  The leader requests the
budget some passes earlier, or when the tile begins.  A leaving worker saves the state of its
unfinished tile in its own save area, and another worker resumes it.  So every chunk is computed
exactly once.  docs/elastic-form.md has the protocol.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.kernel.loops import TileFn
from tilewright.targets.brace_text import at, body, declarations, lines
from tilewright.targets.cuda.chunks import Chunks, chunks_of
from tilewright.targets.cuda.clock_model import is_long_tile, passes_per_chunk
from tilewright.targets.cuda.emit import CudaDialect, areas_of, parameters, tile_of
from tilewright.targets.cuda.mma import part_of
from tilewright.targets.gpu.gpu_target import workgroup_threads

#: Parameters of the elastic form beyond those of the plain form: the fields of `Turn`, in order.
FIELDS = (
    "unsigned *budget", "unsigned *words", "unsigned *slots", "char *saved",
    "unsigned *before", "unsigned *told", "int needed", "int number", "int tiles", "int firsts",
    "int workers", "int stride",
)  # fmt: skip
#: Macros that a host may define, since it knows the device: the number of blocks that a
#: multiprocessor must have registers for, and the groups of tiles in a task.  `RESIDENTS` is for
#: kernels whose threads compute a tile each, `ROOM` for all others.  A host leaves `ROOM` undefined
#: where the limit would spill registers.
_DEFAULTS = (
    "#ifndef RESIDENTS", "#define RESIDENTS 1", "#endif",
    "#ifndef PER_TASK", "#define PER_TASK 1", "#endif",
    "#undef BOUNDS",
)  # fmt: skip
#: Upper limit of `PER_TASK`: tile times are estimates, and a worker cannot leave within a task.
MOST_PER_TASK = 16


@dataclass(frozen=True)
class Elastic:
    """The elastic form of one kernel.

    saved:  bytes that a worker saves with an unfinished tile; 0: it leaves only between tiles
    chunks: the largest number of chunks of a tile
    per_task: the largest number of tile groups in a task; above 1 only for short tiles
    """

    text: str
    saved: int
    chunks: int
    per_task: int


def elastic(fn: TileFn) -> Elastic:
    """Writes the elastic form of a kernel; the function is named `k`."""
    d, threads, parts = CudaDialect(fn), workgroup_threads(fn), chunks_of(fn)
    given = ", ".join((*parameters(fn, d), *FIELDS))
    names = ", ".join(field.split()[-1].lstrip("*") for field in FIELDS)
    shares = parts is not None and not parts.copies_ahead
    back = "{ if (threadIdx.x == 0) all_came(); return; }" if shares else "return;"
    # Short tiles need as many workers as the plain form has blocks; for long tiles the host tries
    # it.
    bounds = (
        ("#ifdef ROOM", f"#define BOUNDS {threads}, ROOM", "#else", f"#define BOUNDS {threads}",
         "#endif")
        if fn.thread else (f"#define BOUNDS {threads}, RESIDENTS",)
    )  # fmt: skip
    text = [
        *_DEFAULTS,
        *bounds,
        f"KERNEL void __launch_bounds__(BOUNDS) k({given}) {{",
        f"  const Turn turn{{{names}}};",
        "  __shared__ int tasks[2][3];",
        *(["  __shared__ Asked asked;"] if shares else []),
        *(
            ["  __shared__ unsigned heard[2];"]
            if shares and parts and parts.ends_with_barrier
            else []
        ),
        *(f"  {area}" for area in areas_of(fn, d) if fn.thread),
        "  Worker worker{};",
        *(["  if (threadIdx.x == 0) asked.budget = NONE;"] if shares else []),
        "  if (threadIdx.x == 0) worker = first_task(turn, tasks[0]);",
        "  __syncthreads();",
        "  for (int side = 0;; side ^= 1) {",
        "    const int own = tasks[side][0], begin = tasks[side][1], slot = tasks[side][2];",
        f"    if (own < 0) {back}",
        "    if (threadIdx.x == 0) ask_ahead(turn, worker, own);",
    ]
    if parts is None:
        text += _whole(fn, d)
    else:
        text += [f"    {line}" for line in _tile(fn, d)]
        text += _by_chunks(fn, d, parts, threads)
    # The worker requested the budget when a short tile began, and need not request it again.
    reread = "true" if parts is None and is_long_tile(fn) else "false"
    text += [
        f"    if (threadIdx.x == 0) next_task(turn, tasks[side ^ 1], worker, own, {reread});",
        "    __syncthreads();",
        "    if (threadIdx.x == 0 && tasks[side ^ 1][0] < 0) finish(turn, worker.done);",
        "  }",
        "}",
        "",
    ]
    saved = parts.bytes * threads if parts else 0
    short = parts is None and not fn.thread
    per_task = min(MOST_PER_TASK, passes_per_chunk(fn, fn.body)) if short else 1
    return Elastic("\n".join(text), saved, parts.count if parts else 1, per_task)


def _whole(fn: TileFn, d: CudaDialect) -> list[str]:
    """Text of a tile without chunks.  Where each thread has its own tile, surplus threads do
    nothing."""
    if fn.thread:
        return [f"    {line}" for line in (*tile_of(fn, d, "own"), *body(fn, d, ""))]
    # A lambda: an index out of range then ends the tile, not the worker.
    return [
        "    for (int part = 0; part < PER_TASK; part++) {",
        *(f"      {line}" for line in tile_of(fn, d, "(own * PER_TASK + part)")),
        f"      if ({fn.tile.name} < count) [&] {{",
        *areas_of(fn, d),
        *(f"      {line}" for line in body(fn, d, "")),
        "      }();",
        "    }",
    ]


def _tile(fn: TileFn, d: CudaDialect) -> list[str]:
    """Names the tile of a task with chunks.  Where each thread has its own tile, surplus threads
    compute the last one again and store nothing, so that all threads reach each barrier."""
    if fn.thread:
        return tile_of(fn, d, "own")
    beyond = d.let("place", "own * blockDim.x + threadIdx.x")
    return [beyond, d.let(fn.tile.name, f"min(place, ({d.index})(count - 1))")]


def _by_chunks(fn: TileFn, d: CudaDialect, parts: Chunks, threads: int) -> list[str]:
    pad, unit, end = "    ", fn.unit, at(parts.loop.end)
    return [
        *declarations(fn, d, pad),
        *lines(parts.before, d, pad, unit),
        *([f"{pad}const int {parts.first} = begin;"] if parts.first else []),
        *lines(parts.refill, d, pad, unit),
        f"{pad}if (begin) {{",
        f"{pad}  const char *const from = turn.saved + (int64_t)slot * turn.stride;",
        *(f"{pad}  {name} = {place};" for name, place in _places(d, parts, threads, "from")),
        f"{pad}  __syncthreads();",
        f"{pad}  if (threadIdx.x == 0) free_slot(turn, slot);",
        f"{pad}}}",
        *_passes(fn, d, parts, pad, end),
        f"{pad}  if (leaves && following < {end}) {{",
        *([f"{pad}    await_copies<0>();"] if parts.copies_ahead else []),
        f"{pad}    if (threadIdx.x == 0) wait_for_own_slot(turn);",
        f"{pad}    __syncthreads();",
        f"{pad}    char *const to = turn.saved + (int64_t)blockIdx.x * turn.stride;",
        *(f"{pad}    {place} = {name};" for name, place in _places(d, parts, threads, "to")),
        f"{pad}    __threadfence();",
        f"{pad}    __syncthreads();",
        f"{pad}    if (threadIdx.x == 0) {{",
        f"{pad}      leave(turn, own, following, worker.following);",
        f"{pad}      finish(turn, worker.done), counted_out(turn);",
        f"{pad}    }}",
        *([f"{pad}    if (threadIdx.x == 0) all_came();"] if not parts.copies_ahead else []),
        f"{pad}    return;",
        f"{pad}  }}",
        f"{pad}}}",
        *([] if fn.thread else [f"{pad}if (place < count) {{"]),
        *lines(parts.after, d, pad, unit),
        *([] if fn.thread else [f"{pad}}}"]),
    ]


def _passes(fn: TileFn, d: CudaDialect, parts: Chunks, pad: str, end: str) -> list[str]:
    """Text of the loop up to the point where `leaves` has the same value in all threads and
    `following` is the next block."""
    form = (
        _copied_ahead
        if parts.copies_ahead
        else _with_barriers
        if parts.ends_with_barrier
        else _without_barriers
    )
    return [f"{pad}{line}" for line in form(fn, d, parts, end)]


def _with_barriers(fn: TileFn, d: CudaDialect, parts: Chunks, end: str) -> list[str]:
    """The loop of tiles whose passes end with a barrier.

    The leader writes the budget to shared memory before the barrier, all threads read it behind the
    barrier and act on it one pass later, so no thread waits for the read.  Two words alternate,
    since a slow thread may still read the older one.
    """
    block, step, every = parts.loop.var.name, parts.loop.step, parts.every
    first = f" && {block} % {every * step} == 0" if every > 1 else ""
    return [
        "unsigned known = NONE;",
        f"for (int {block} = begin; {block} < {end}; {block} += {step}) {{",
        "  const unsigned answered = threadIdx.x == 0 ? answer(asked) : NONE;",
        f"  if (threadIdx.x == 0{first}) ask(turn, asked);",
        *lines(parts.pass_body, d, "  ", fn.unit),
        f"  unsigned &word = heard[{block} / {step} & 1];",
        "  if (threadIdx.x == 0) word = answered;",
        "  worker.budget = min(worker.budget, answered);",
        "  __syncthreads();",
        f"  const int following = {block} + {step};",
        "  const bool leaves = blockIdx.x >= known;",
        "  known = seen(&word);",
    ]


#: The barrier that ends a chunk.  Only the leader has an answer; the barrier spreads its decision.
_ALL_KNOW = (
    "  worker.budget = min(worker.budget, answered);",
    "  const bool leaves = __syncthreads_or(blockIdx.x >= answered);",
)


def _copied_ahead(fn: TileFn, d: CudaDialect, parts: Chunks, end: str) -> list[str]:
    """The loop of tiles whose operands are copied ahead: a chunk is an inner loop of several
    passes.

    Asynchronous copies complete in order, so an asynchronous copy of the budget would wait for
    them. The leader reads the budget to a register instead, at the chunk's start, so that it has
    arrived when the chunk ends.
    """
    block, step, long = parts.loop.var.name, parts.loop.step, parts.every * parts.loop.step
    if parts.every > 1:
        var = "chunk"
        inside = [
            f"  for (int {block} = chunk; {block} < following; {block} += {step}) {{",
            *lines(parts.loop.body, d, "    ", fn.unit),
            "  }",
        ]
    else:
        var, inside = block, [*lines(parts.pass_body, d, "  ", fn.unit)]
    return [
        f"for (int {var} = begin; {var} < {end}; {var} += {long}) {{",
        "  const unsigned answered = threadIdx.x == 0 ? budget_of(turn) : NONE;",
        "  __syncwarp();",
        f"  const int following = min({var} + {long}, {end});",
        *inside,
        *_ALL_KNOW,
    ]


def _without_barriers(fn: TileFn, d: CudaDialect, parts: Chunks, end: str) -> list[str]:
    """The loop of tiles without barriers.  It stays one loop, so that the reads of several passes
    overlap.  The leader requests the budget in the middle of a chunk."""
    block, step, every = parts.loop.var.name, parts.loop.step, parts.every
    long = every * step
    middle = f" && {block} % {long} == {every // 2 * step}" if every > 1 else ""
    return [
        f"for (int {block} = begin; {block} < {end}; {block} += {step}) {{",
        f"  if (threadIdx.x == 0{middle}) ask(turn, asked);",
        f"  const int following = min({block} + {step}, {end});",
        *lines(parts.pass_body, d, "  ", fn.unit),
        *([f"  if (following % {long}) continue;"] if every > 1 else []),
        "  const unsigned answered = threadIdx.x == 0 ? answer(asked) : NONE;",
        *_ALL_KNOW,
    ]


def _places(d: CudaDialect, parts: Chunks, threads: int, area: str) -> list[tuple[str, str]]:
    """Each register with the expression of its place in the saved state: the values of one register
    lie side by side, thread by thread."""
    found, offset = [], 0
    kinds = [(*r, d.type(r[1], r[2])) for r in parts.live]
    kinds += [(*r, part_of(r[1], r[2])) for r in parts.matrices]
    for name, dtype, lanes, kind in sorted(kinds, key=lambda r: -r[1].size * r[2]):
        kind = f"const {kind}" if area == "from" else kind
        found.append((name, f"(({kind} *)({area} + {offset}))[threadIdx.x]"))
        offset += dtype.size * lanes * threads
    return found
