"""The plan driver: the generated module with which any number of workers run a whole inference.

Input: the number of slots and of memory pages.  Output: module bytes.  They are the same for every
model and number of threads; docs/bundle-wasm.md describes plan image and control block.

    run(plan, first, last, workers) -> code    worker 0: starts a run and takes part in it
    serve(worker)                              others: take part in each run until told to stop
    abort(workers) -> code                     after a trap of worker 0: waits until all have left

The state of a run is one 64-bit word, POSITION = (number of the open step, next ticket), and DONE,
the number of tickets finished.  Every worker repeats:

    if a ticket of the open step is left:  take it by compare-and-swap, run its tiles, count it
    elif the next step does not wait, or DONE shows that all steps before it are finished:
                                           open the next step and take its first ticket, likewise
    else:                                  spin for a while, then sleep on DONE
"""

from __future__ import annotations

from tilewright.base.abi import (
    ABORT,
    BEFORE,
    COMING,
    DONE,
    EPOCH,
    FIRST,
    HEADER,
    IDLE,
    LAST,
    OUTSIDE,
    PLAN,
    POSITION,
    PREEMPT,
    PROGRESS,
    QUIET,
    RECORD,
    SEEN,
    SLEEPERS,
    STALL_LIMIT,
    STALLED,
    STEP,
    STOP,
    TRAP,
    TRAPPED,
    WIDEST,
    WORKER_LINES,
    WORKERS,
)
from tilewright.targets.simd.machine import Machine
from tilewright.targets.wasm.control_words import (
    atomic,
    bump,
    get,
    i32_locals,
    i64,
    line_of,
    or_default,
    polls_again,
    put,
    sleep_on,
    wake,
)
from tilewright.targets.wasm.emit import assemble, flatten
from tilewright.targets.wasm.extent_change import resize
from tilewright.targets.wasm.ir import (
    Assign,
    Block,
    BrIf,
    Effect,
    Func,
    If,
    Invoke,
    Load,
    Loop,
    Stmt,
    add,
    const,
    for_loop,
    op,
    times,
)
from tilewright.targets.wasm.module import Import, Module, encode_module
from tilewright.targets.wasm.variant import WasmVariant
from tilewright.targets.wasm.worker_loop import work

#: The number of waits of PERIOD nanoseconds without any progress after which the run is aborted.
DEFAULT_STALL_LIMIT = 100
PERIOD = 100_000_000
PREEMPT_PERIOD = 10_000_000
IDLE_PERIOD = 10_000_000_000
TIMED_OUT = 2


def _hold() -> Func:
    """Sleeps while the preempt word is set.  Returns the abort word; 0 means to go on."""
    (word,) = i32_locals("word")
    body = Block(
        (
            Loop(
                (
                    BrIf(1, get(ABORT)),
                    Assign(word, get(PREEMPT)),
                    BrIf(1, op("i32.eqz", word)),
                    Effect(sleep_on(PREEMPT, word, PREEMPT_PERIOD)),
                    BrIf(0, const(1)),
                )
            ),
        )
    )
    return Func("hold", (), (body,), get(ABORT))


def _stalled() -> Func:
    """Called by worker 0 after a wait timed out.  Sets the abort word if no worker makes progress,
    and returns it.

    Elapsed time is not a criterion, since a device may sleep and a tab may be frozen.  Only waits
    count during which no worker finished a ticket and the run was not preempted.
    """
    workers, worker, total = i32_locals("workers worker total")
    count = Assign(total, add(total, get(PROGRESS, line_of(worker))))
    moved = op("i32.or", op("i32.ne", total, get(SEEN)), op("i32.ne", get(PREEMPT), const(0)))
    body: tuple[Stmt, ...] = (
        Assign(total, const(0)),
        for_loop(worker, const(0), workers, 1, (count,), False),
        If(
            moved,
            (put(SEEN, total), put(QUIET, const(0))),
            (
                bump(QUIET, 1),
                If(
                    op("i32.ge_u", get(QUIET), or_default(get(STALL_LIMIT), DEFAULT_STALL_LIMIT)),
                    (put(ABORT, const(STALLED)),),
                ),
            ),
        ),
    )
    return Func("stalled", (workers,), body, get(ABORT))


def _rest() -> Func:
    """Sleeps until DONE differs from `seen`.  Worker 0 gets the abort word if nothing
    progresses."""
    seen, workers, result = i32_locals("seen workers result")
    body: tuple[Stmt, ...] = (
        bump(SLEEPERS, 1),
        Assign(result, op("i32.eq", sleep_on(DONE, seen, PERIOD), const(TIMED_OUT))),
        bump(SLEEPERS, -1),
        If(op("i32.and", result, op("i32.ne", workers, const(0))),
           (Assign(result, Invoke("stalled", (workers,), "i32")),),
           (Assign(result, const(0)),)),
    )  # fmt: skip
    return Func("rest", (seen, workers), body, result)


def _settle() -> Func:
    """Waits until only worker 0 is inside a run.  Returns ABORT, which is STALLED if another
    stays."""
    workers, worker, line, word, quiet = i32_locals("workers worker line word quiet")
    limit = or_default(get(STALL_LIMIT), DEFAULT_STALL_LIMIT)
    asleep = atomic("memory.atomic.wait32", STEP, word, i64(PERIOD), base=line)
    one = (  # in: loop, block, loop over workers
        Assign(word, get(STEP, line)),
        BrIf(1, op("i32.eqz", word)),
        Assign(quiet, add(quiet, op("i32.eq", asleep, const(TIMED_OUT)))),
        BrIf(0, op("i32.lt_u", quiet, limit)),
        put(ABORT, const(STALLED)),
    )
    each = (Assign(line, line_of(worker)), Block((Loop(one),)))
    body: tuple[Stmt, ...] = (wake(DONE), for_loop(worker, const(1), workers, 1, each, False))
    return Func("settle", (workers,), body, get(ABORT))


def _abort() -> Func:
    """Called after a trap of worker 0: makes all others leave and waits for them."""
    (workers,) = i32_locals("workers")
    line = const(WORKER_LINES)
    body = (put(ABORT, const(TRAP)), put(STEP, const(OUTSIDE), line))
    return Func("abort", (workers,), body, Invoke("settle", (workers,), "i32"))


def _run() -> Func:
    plan, first, last, workers, base, code = i32_locals("plan first last workers base code")
    start = Load("i32.load", add(plan, times(first, RECORD)), HEADER + BEFORE, -1)
    wide = op("i32.gt_u", Load("i32.load", plan, WIDEST, -1), const(1))
    moved = op("i64.shl", op("i64.extend_i32_u", base), i64(32))
    given = (plan, first, last, workers)
    body: tuple[Stmt, ...] = (
        Assign(workers, op("select", workers, const(1), wide)),
        Assign(base, add(add(get(EPOCH), op("i32.sub", get(LAST), get(FIRST))), const(1))),
        # A worker that reads the words below while they change sees this value and ignores them.
        put(COMING, base),
        # From here on, a worker that is still in the old run finds no ticket.
        Effect(atomic("i64.atomic.store", POSITION, moved)),
        put(DONE, start),
        *(put(word, const(0)) for word in (ABORT, TRAPPED, QUIET)),
        *(put(word, v) for word, v in zip((PLAN, FIRST, LAST, WORKERS), given, strict=True)),
        put(EPOCH, base),
        If(op("i32.and", op("i32.gt_s", workers, const(1)), op("i32.ne", get(IDLE), const(0))),
           (wake(EPOCH),)),
        Assign(code, Invoke("work", (*given[:3], base, workers, const(WORKER_LINES)), "i32")),
        If(code, (Assign(code, Invoke("settle", (workers,), "i32")),)),
    )  # fmt: skip
    return Func("run", given, body, code)


def _serve() -> Func:
    worker, seen, epoch, spins, done = i32_locals("worker seen epoch spins done")
    plan, first, last, workers = i32_locals("plan first last workers")
    sleep = (
        bump(IDLE, 1),
        Effect(sleep_on(EPOCH, seen, IDLE_PERIOD)),
        bump(IDLE, -1),
    )
    look = (  # in: loop, block, outer loop, outer block
        BrIf(3, get(STOP)),
        # The epoch is read first: a worker that sees a new one also sees all earlier writes.
        Assign(epoch, get(EPOCH)),
        BrIf(1, op("i32.ne", epoch, seen)),
        Assign(spins, add(spins, const(1))),
        BrIf(0, polls_again(spins)),
        *sleep,
        BrIf(0, const(1)),
    )
    run = (plan, first, last, epoch, const(0), line_of(worker))
    words = zip((plan, first, last, workers), (PLAN, FIRST, LAST, WORKERS), strict=True)
    body = Block(
        (
            Loop(
                (
                    Assign(spins, const(0)),
                    Block((Loop(look),)),
                    Assign(seen, epoch),
                    *(Assign(local, get(word)) for local, word in words),
                    # The words read may belong to two runs; then start over.
                    BrIf(0, op("i32.ne", get(COMING), epoch)),
                    BrIf(0, op("i32.ge_u", worker, workers)),
                    Assign(done, Invoke("work", run, "i32")),
                    BrIf(0, const(1)),
                )
            ),
        )
    )
    return Func("serve", (worker,), (body,))


def driver(slots: int, memory_pages_min: int = 1, extents: bool = False) -> bytes:
    """The driver's module; with `extents`, plans can be resized (extent_change.py)."""
    variant = WasmVariant("any", frozenset({"threads"}), Machine())
    inner = (_hold(), _stalled(), _rest(), work(), _settle())
    exported = (_abort(), _run(), _serve(), *([resize()] if extents else []))
    code = assemble([flatten(f) for f in (*inner, *exported)], variant)
    imports = (Import("memory", "memory", memory_pages_min), Import("table", "table", slots))
    names = tuple((f.name, n) for n, f in enumerate(exported, len(inner)))
    return encode_module(Module(imports, code, names))
