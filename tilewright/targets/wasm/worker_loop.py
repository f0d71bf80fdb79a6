"""The driver's function `work`: how one worker takes part in a run (see driver.py).

Input: nothing.  Output: a function of the driver's module.  The parts of its loop share its locals,
so the locals belong to this file.  Each part says which blocks it is inside of, innermost first;
`BrIf` counts them in that order, from 0.
"""

from __future__ import annotations

from tilewright.base.abi import (
    ARGS,
    BACK,
    BEFORE,
    DONE,
    FLAGS,
    GRAIN,
    HEADER,
    JOINED,
    OUTSIDE,
    POSITION,
    PREEMPT,
    PROGRESS,
    RECORD,
    SKIP,
    SLEEPERS,
    SLOT,
    STEP,
    TICKETS,
    TILES,
    WAITS,
)
from tilewright.targets.wasm.control_words import (
    atomic,
    get,
    i32_locals,
    i64,
    minimum,
    polls_again,
    put,
    wake,
)
from tilewright.targets.wasm.emit import SLOT_TYPE
from tilewright.targets.wasm.ir import (
    Assign,
    Block,
    BrIf,
    Effect,
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
    op,
    times,
)

# The parameters, then all other locals.
plan, first, last, base, workers, line = i32_locals("plan first last base workers line")
step, record, ticket, finished, done = i32_locals("step record ticket finished done")
spins, stop, begin, code = i32_locals("spins stop begin code")
position, target = Local("position", "i64"), Local("target", "i64")


def work() -> Func:
    """Takes part in a run, from its current position, until no ticket is left.

    `workers` is 0 except for worker 0, which also waits until every ticket is finished.  POSITION
    shows whether the run has ended or another one has begun, so late and slow workers do no harm.
    """
    body: tuple[Stmt, ...] = (
        put(STEP, const(JOINED), line),
        Block((Loop(_one_ticket()),)),
        put(STEP, const(OUTSIDE), line),
        # After an abort, worker 0 waits for this notification.
        If(code, (Effect(atomic("memory.atomic.notify", STEP, const(-1), base=line)),)),
    )
    return Func("work", (plan, first, last, base, workers, line), body, code)


def _one_ticket() -> tuple[Stmt, ...]:
    """Takes the next ticket and runs its tiles.  Inside: loop, block."""
    sequence = op("i32.wrap_i64", op("i64.shr_u", position, i64(32)))
    taken = atomic("i64.atomic.rmw.cmpxchg", POSITION, position, target)
    return (
        _leave_or_hold(1),
        Assign(position, atomic("i64.atomic.load", POSITION)),
        Assign(step, op("i32.sub", sequence, base)),
        BrIf(1, op("i32.ge_u", step, op("i32.sub", last, first))),
        Assign(step, add(step, first)),
        _find_record(),
        Assign(ticket, op("i32.wrap_i64", position)),
        Assign(target, op("i64.add", position, i64(1))),
        If(op("i32.ge_u", ticket, _field(TICKETS)), _following_step()),
        BrIf(0, op("i64.ne", taken, position)),
        Assign(spins, const(0)),
        Assign(stop, minimum(add(step, _field(SKIP)), last)),
        Loop(_tiles()),
        BrIf(0, const(1)),
    )


def _following_step() -> tuple[Stmt, ...]:
    """Opens the step after one without tickets, if it need not wait.  Inside: if, loop, block."""
    opened = op("i64.extend_i32_u", add(base, op("i32.sub", step, first)))
    return (
        Assign(step, minimum(add(step, _field(SKIP)), last)),
        _find_record(),
        If(
            op("i32.or", _flag(WAITS), op("i32.eq", step, last)),
            (
                If(finished, _count_finished(), (Assign(done, get(DONE)),)),
                If(op("i32.lt_s", op("i32.sub", done, _field(BEFORE)), const(0)), _wait()),
            ),
        ),
        BrIf(2, op("i32.eq", step, last)),
        Assign(ticket, const(0)),
        Assign(target, op("i64.or", op("i64.shl", opened, i64(32)), i64(1))),
    )


def _count_finished() -> tuple[Stmt, ...]:
    """Adds this worker's tickets to DONE, and wakes the workers that sleep until this number."""
    reached = op("i32.eq", done, _field(BEFORE))
    return (
        Assign(done, add(atomic("i32.atomic.rmw.add", DONE, finished), finished)),
        Assign(finished, const(0)),
        If(op("i32.and", reached, op("i32.ne", get(SLEEPERS), const(0))), (wake(DONE),)),
    )


def _wait() -> tuple[Stmt, ...]:
    """Spins, then sleeps, then looks again.  Inside: if, if, if, loop, block."""
    return (
        BrIf(4, op("i32.and", op("i32.eq", step, last), op("i32.eqz", workers))),
        Assign(spins, add(spins, const(1))),
        BrIf(3, polls_again(spins)),
        Assign(code, Invoke("rest", (done, workers), "i32")),
        BrIf(4, code),
        BrIf(3, const(1)),
    )


def _tiles() -> tuple[Stmt, ...]:
    """Runs the tiles of a ticket, step by step of its chain.  Inside: loop, loop, block."""
    mirrored = op("i32.sub", op("i32.sub", _field(TICKETS), const(1)), ticket)
    end = minimum(add(begin, _field(GRAIN)), _field(TILES))
    return (
        put(STEP, add(step, const(1)), line),
        Assign(begin, op("i32.mul", op("select", mirrored, ticket, _flag(BACK)), _field(GRAIN))),
        Run(SLOT_TYPE, (_field(ARGS), begin, end), _field(SLOT)),
        Assign(finished, add(finished, const(1))),
        put(PROGRESS, add(get(PROGRESS, line), const(1)), line),
        Assign(step, add(step, const(1))),
        Assign(record, add(record, const(RECORD))),
        # A chain of serial steps belongs to one ticket.
        If(op("i32.lt_s", step, stop), (_leave_or_hold(3), BrIf(1, const(1)))),
    )


def _leave_or_hold(block: int) -> If:
    """Sleeps while the run is preempted, and leaves the outermost block if it was aborted.

    block: the depth of that block where this statement is
    """
    # One load of 64 bits reads both words: PREEMPT and ABORT.
    signal = op("i64.ne", atomic("i64.atomic.load", PREEMPT), i64(0))
    return If(signal, (Assign(code, Invoke("hold", (), "i32")), BrIf(block + 1, code)))


def _find_record() -> Assign:
    """Sets `record` to the place of `step` in the plan image."""
    return Assign(record, add(plan, times(step, RECORD)))


def _field(name: int) -> Load:
    """A field of the step's record."""
    return Load("i32.load", record, HEADER + name, -1)


def _flag(bit: int) -> Op:
    """A bit of the step's flags."""
    return op("i32.and", _field(FLAGS), const(bit))
