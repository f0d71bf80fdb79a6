"""The plan driver: the generated module by which any number of workers run a whole inference.

Input: the number of slots and pages to ask for.  Output: module bytes.  It is the same for every
model and number of threads; docs/bundle.md describes plan image and control block.

    run(plan, first, last, workers) -> code    worker 0: publishes a run and takes part in it
    serve(worker)                              others: take part in each run until told to stop
    abort(workers) -> code                     after a trap of worker 0: waits until all have left

The state of a run is one 64-bit word, POSITION = (number of the open step, next ticket), and DONE,
the number of tickets finished.  Every worker, as often as it wants work:

    if a ticket of the open step is left:  take it by compare-and-swap, run its tiles, count it
    elif the next step need not wait, or DONE says that all before it is finished:
                                           open the next step and take its first ticket, likewise
    else:                                  spin for a while, then sleep on DONE
"""

from __future__ import annotations

from tilewright.base.abi import (
    ABORT,
    ARGS,
    BACK,
    BEFORE,
    COMING,
    DONE,
    EPOCH,
    FIRST,
    FLAGS,
    GRAIN,
    HEADER,
    IDLE,
    JOINED,
    LAST,
    OUTSIDE,
    PATIENCE,
    PLAN,
    POSITION,
    PREEMPT,
    PROGRESS,
    QUIET,
    RECORD,
    SEEN,
    SKIP,
    SLEEPERS,
    SLOT,
    SPIN,
    STALLED,
    STEP,
    STOP,
    TICKETS,
    TILES,
    TRAP,
    TRAPPED,
    WAITS,
    WIDEST,
    WORKER_BYTES,
    WORKER_LINES,
    WORKERS,
)
from tilewright.targets.simd.machine import Machine
from tilewright.targets.wasm.emit import SLOT_TYPE, assemble, flatten
from tilewright.targets.wasm.ir import (
    Assign,
    Block,
    BrIf,
    Effect,
    Expr,
    Func,
    If,
    Invoke,
    Load,
    Local,
    Loop,
    Op,
    Run,
    Stmt,
    add,
    const,
    for_loop,
    op,
    times,
)
from tilewright.targets.wasm.isa import ISA
from tilewright.targets.wasm.module import Import, Module, encode_module
from tilewright.targets.wasm.resize import resize
from tilewright.targets.wasm.target import WasmTarget

#: Looks at the state before a waiting worker sleeps: some 50 microseconds.
DEFAULT_SPIN = 8192

#: How often a wait of PERIOD may pass without any worker's progress before the run is given up.
DEFAULT_PATIENCE = 100
PERIOD = 100_000_000
PREEMPT_PERIOD = 10_000_000
IDLE_PERIOD = 10_000_000_000
TIMED_OUT = 2


def _i64(value: int) -> Op:
    return Op("i64.const", (), (value,))


def _atomic(name: str, address: int, *args: Expr, base: Expr | None = None) -> Op:
    """An atomic instruction on a word of the control block, or of a worker's line at `base`."""
    return Op(name, (base or const(0), *args), (ISA[name].align, address))


def _get(address: int, base: Expr | None = None) -> Op:
    return _atomic("i32.atomic.load", address, base=base)


def _set(address: int, value: Expr, base: Expr | None = None) -> Effect:
    return Effect(_atomic("i32.atomic.store", address, value, base=base))


def _bump(address: int, by: int) -> Effect:
    return Effect(_atomic("i32.atomic.rmw.add", address, const(by)))


def _wake(address: int) -> Effect:
    return Effect(_atomic("memory.atomic.notify", address, const(-1)))


def _wait(address: int, expected: Expr, period: int) -> Op:
    return _atomic("memory.atomic.wait32", address, expected, _i64(period))


def _line(worker: Expr) -> Expr:
    return add(const(WORKER_LINES), times(worker, WORKER_BYTES))


def _or_default(value: Expr, default: int) -> Expr:
    return op("select", value, const(default), value)


def _min(a: Expr, b: Expr) -> Expr:
    return op("select", a, b, op("i32.lt_s", a, b))


def _locals(names: str) -> list[Local]:
    return [Local(name, "i32") for name in names.split()]


def _hold() -> Func:
    """Sleeps while the preempt word is set.  Returns the abort word: zero means go on."""
    (word,) = _locals("word")
    body = Block(
        (
            Loop(
                (
                    BrIf(1, _get(ABORT)),
                    Assign(word, _get(PREEMPT)),
                    BrIf(1, op("i32.eqz", word)),
                    Effect(_wait(PREEMPT, word, PREEMPT_PERIOD)),
                    BrIf(0, const(1)),
                )
            ),
        )
    )
    return Func("hold", (), (body,), _get(ABORT))


def _stalled() -> Func:
    """Called by worker 0 after a wait that timed out: the abort word, set if nothing moves.

    Time alone says nothing: a device sleeps, a tab is frozen.  Only waits are counted in which no
    worker finished a ticket although nobody had stopped them.
    """
    workers, worker, total = _locals("workers worker total")
    count = Assign(total, add(total, _get(PROGRESS, _line(worker))))
    moved = op("i32.or", op("i32.ne", total, _get(SEEN)), op("i32.ne", _get(PREEMPT), const(0)))
    body: tuple[Stmt, ...] = (
        Assign(total, const(0)),
        for_loop(worker, const(0), workers, 1, (count,), False),
        If(
            moved,
            (_set(SEEN, total), _set(QUIET, const(0))),
            (
                _bump(QUIET, 1),
                If(
                    op("i32.ge_u", _get(QUIET), _or_default(_get(PATIENCE), DEFAULT_PATIENCE)),
                    (_set(ABORT, const(STALLED)),),
                ),
            ),
        ),
    )
    return Func("stalled", (workers,), body, _get(ABORT))


def _rest() -> Func:
    """Sleeps until DONE is no longer `seen`.  Worker 0 gets the abort word if nothing moves."""
    seen, workers, result = _locals("seen workers result")
    body: tuple[Stmt, ...] = (
        _bump(SLEEPERS, 1),
        Assign(result, op("i32.eq", _wait(DONE, seen, PERIOD), const(TIMED_OUT))),
        _bump(SLEEPERS, -1),
        If(op("i32.and", result, op("i32.ne", workers, const(0))),
           (Assign(result, Invoke("stalled", (workers,), "i32")),),
           (Assign(result, const(0)),)),
    )  # fmt: skip
    return Func("rest", (seen, workers), body, result)


def _work() -> Func:
    """Takes part in a run from wherever it is now until nothing is left to take.

    `workers` is 0 but for worker 0, who also waits until everything is finished.  A run that is
    over, or another one, shows in POSITION; so late and slow workers can do no harm.
    """
    plan, first, last, base, workers, line = _locals("plan first last base workers line")
    step, record, ticket, finished, done = _locals("step record ticket finished done")
    spins, stop, begin, code = _locals("spins stop begin code")
    position, target = Local("position", "i64"), Local("target", "i64")

    def word(field: int) -> Load:
        return Load("i32.load", record, HEADER + field, -1)

    def flag(bit: int) -> Op:
        return op("i32.and", word(FLAGS), const(bit))

    def signals(leave: int) -> If:
        look = op("i64.ne", _atomic("i64.atomic.load", PREEMPT), _i64(0))
        return If(look, (Assign(code, Invoke("hold", (), "i32")), BrIf(leave + 1, code)))

    place = Assign(record, add(plan, times(step, RECORD)))
    sequence = op("i32.wrap_i64", op("i64.shr_u", position, _i64(32)))
    mirrored = op("i32.sub", op("i32.sub", word(TICKETS), const(1)), ticket)
    opened = op("i64.extend_i32_u", add(base, op("i32.sub", step, first)))
    count = (
        Assign(done, add(_atomic("i32.atomic.rmw.add", DONE, finished), finished)),
        Assign(finished, const(0)),
        If(op("i32.and", op("i32.eq", done, word(BEFORE)), op("i32.ne", _get(SLEEPERS), const(0))),
           (_wake(DONE),)),
    )  # fmt: skip
    # depths: the innermost of these blocks is 0
    wait = (  # if wait, if waits, if exhausted, loop, block
        BrIf(4, op("i32.and", op("i32.eq", step, last), op("i32.eqz", workers))),
        Assign(spins, add(spins, const(1))),
        BrIf(3, op("i32.lt_u", spins, _or_default(_get(SPIN), DEFAULT_SPIN))),
        Assign(code, Invoke("rest", (done, workers), "i32")),
        BrIf(4, code),
        BrIf(3, const(1)),
    )
    following = (  # if exhausted, loop, block
        Assign(step, _min(add(step, word(SKIP)), last)),
        place,
        If(
            op("i32.or", flag(WAITS), op("i32.eq", step, last)),
            (
                If(finished, count, (Assign(done, _get(DONE)),)),
                If(op("i32.lt_s", op("i32.sub", done, word(BEFORE)), const(0)), wait),
            ),
        ),
        BrIf(2, op("i32.eq", step, last)),
        Assign(ticket, const(0)),
        Assign(target, op("i64.or", op("i64.shl", opened, _i64(32)), _i64(1))),
    )
    tiles = (  # loop of one ticket, loop, block
        _set(STEP, add(step, const(1)), line),
        Assign(begin, op("i32.mul", op("select", mirrored, ticket, flag(BACK)), word(GRAIN))),
        Run(
            SLOT_TYPE,
            (word(ARGS), begin, _min(add(begin, word(GRAIN)), word(TILES))),
            word(SLOT),
        ),
        Assign(finished, add(finished, const(1))),
        _set(PROGRESS, add(_get(PROGRESS, line), const(1)), line),
        Assign(step, add(step, const(1))),
        Assign(record, add(record, const(RECORD))),
        # a chain of serial steps goes with one ticket
        If(op("i32.lt_s", step, stop), (signals(3), BrIf(1, const(1)))),
    )
    again = (  # loop, block
        signals(1),
        Assign(position, _atomic("i64.atomic.load", POSITION)),
        Assign(step, op("i32.sub", sequence, base)),
        BrIf(1, op("i32.ge_u", step, op("i32.sub", last, first))),
        Assign(step, add(step, first)),
        place,
        Assign(ticket, op("i32.wrap_i64", position)),
        Assign(target, op("i64.add", position, _i64(1))),
        If(op("i32.ge_u", ticket, word(TICKETS)), following),
        BrIf(
            0,
            op(
                "i64.ne",
                _atomic("i64.atomic.rmw.cmpxchg", POSITION, position, target),
                position,
            ),
        ),
        Assign(spins, const(0)),
        Assign(stop, _min(add(step, word(SKIP)), last)),
        Loop(tiles),
        BrIf(0, const(1)),
    )
    body: tuple[Stmt, ...] = (
        _set(STEP, const(JOINED), line),
        Block((Loop(again),)),
        _set(STEP, const(OUTSIDE), line),
        # after an abort worker 0 waits for this
        If(code, (Effect(_atomic("memory.atomic.notify", STEP, const(-1), base=line)),)),
    )
    return Func("work", (plan, first, last, base, workers, line), body, code)


def _settle() -> Func:
    """Waits until no worker but the first is inside a run.  Returns ABORT: STALLED if one stays."""
    workers, worker, line, word, quiet = _locals("workers worker line word quiet")
    patience = _or_default(_get(PATIENCE), DEFAULT_PATIENCE)
    asleep = _atomic("memory.atomic.wait32", STEP, word, _i64(PERIOD), base=line)
    one = (  # loop, block, loop over workers
        Assign(word, _get(STEP, line)),
        BrIf(1, op("i32.eqz", word)),
        Assign(quiet, add(quiet, op("i32.eq", asleep, const(TIMED_OUT)))),
        BrIf(0, op("i32.lt_u", quiet, patience)),
        _set(ABORT, const(STALLED)),
    )
    each = (Assign(line, _line(worker)), Block((Loop(one),)))
    body: tuple[Stmt, ...] = (_wake(DONE), for_loop(worker, const(1), workers, 1, each, False))
    return Func("settle", (workers,), body, _get(ABORT))


def _abort() -> Func:
    """Worker 0 trapped: makes all others leave and waits for it."""
    (workers,) = _locals("workers")
    line = const(WORKER_LINES)
    body = (_set(ABORT, const(TRAP)), _set(STEP, const(OUTSIDE), line))
    return Func("abort", (workers,), body, Invoke("settle", (workers,), "i32"))


def _run() -> Func:
    plan, first, last, workers, base, code = _locals("plan first last workers base code")
    start = Load("i32.load", add(plan, times(first, RECORD)), HEADER + BEFORE, -1)
    wide = op("i32.gt_u", Load("i32.load", plan, WIDEST, -1), const(1))
    moved = op("i64.shl", op("i64.extend_i32_u", base), _i64(32))
    given = (plan, first, last, workers)
    body: tuple[Stmt, ...] = (
        Assign(workers, op("select", workers, const(1), wide)),
        Assign(base, add(add(_get(EPOCH), op("i32.sub", _get(LAST), _get(FIRST))), const(1))),
        # who reads the words below while they change sees that, and leaves them
        _set(COMING, base),
        # from here on, who still looks at the run before finds nothing to take
        Effect(_atomic("i64.atomic.store", POSITION, moved)),
        _set(DONE, start),
        *(_set(word, const(0)) for word in (ABORT, TRAPPED, QUIET)),
        *(_set(word, v) for word, v in zip((PLAN, FIRST, LAST, WORKERS), given, strict=True)),
        _set(EPOCH, base),
        If(op("i32.and", op("i32.gt_s", workers, const(1)), op("i32.ne", _get(IDLE), const(0))),
           (_wake(EPOCH),)),
        Assign(code, Invoke("work", (*given[:3], base, workers, const(WORKER_LINES)), "i32")),
        If(code, (Assign(code, Invoke("settle", (workers,), "i32")),)),
    )  # fmt: skip
    return Func("run", given, body, code)


def _serve() -> Func:
    worker, seen, epoch, spins, done = _locals("worker seen epoch spins done")
    plan, first, last, workers = _locals("plan first last workers")
    sleep = (
        _bump(IDLE, 1),
        Effect(_wait(EPOCH, seen, IDLE_PERIOD)),
        _bump(IDLE, -1),
    )
    look = (  # loop, block, outer loop, outer block
        BrIf(3, _get(STOP)),
        # read first: who sees a new epoch sees all that was written before it
        Assign(epoch, _get(EPOCH)),
        BrIf(1, op("i32.ne", epoch, seen)),
        Assign(spins, add(spins, const(1))),
        BrIf(0, op("i32.lt_u", spins, _or_default(_get(SPIN), DEFAULT_SPIN))),
        *sleep,
        BrIf(0, const(1)),
    )
    run = (plan, first, last, epoch, const(0), _line(worker))
    words = zip((plan, first, last, workers), (PLAN, FIRST, LAST, WORKERS), strict=True)
    body = Block(
        (
            Loop(
                (
                    Assign(spins, const(0)),
                    Block((Loop(look),)),
                    Assign(seen, epoch),
                    *(Assign(local, _get(word)) for local, word in words),
                    # words of two runs would make one that never was
                    BrIf(0, op("i32.ne", _get(COMING), epoch)),
                    BrIf(0, op("i32.ge_u", worker, workers)),
                    Assign(done, Invoke("work", run, "i32")),
                    BrIf(0, const(1)),
                )
            ),
        )
    )
    return Func("serve", (worker,), (body,))


def driver(slots: int, memory_pages_min: int = 1, extents: bool = False) -> bytes:
    """The driver's module; with `extents`, plans can be resized (resize.py)."""
    target = WasmTarget("any", frozenset({"threads"}), Machine())
    inner = (_hold(), _stalled(), _rest(), _work(), _settle())
    exported = (_abort(), _run(), _serve(), *([resize()] if extents else []))
    code = assemble([flatten(f) for f in (*inner, *exported)], target)
    imports = (Import("memory", "memory", memory_pages_min), Import("table", "table", slots))
    names = tuple((f.name, n) for n, f in enumerate(exported, len(inner)))
    return encode_module(Module(imports, code, names))
