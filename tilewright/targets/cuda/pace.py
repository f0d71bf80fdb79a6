"""A rough estimate of the clocks that a tile's statements take on a multiprocessor of their own.

Input: statements of one tile. Output: clocks. It decides how often an elastic kernel checks its
budget. It does not choose schedules: those are measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from tilewright.base.invariants import required
from tilewright.kernel import loops as l
from tilewright.kernel.expr import Call, Dot, Load
from tilewright.kernel.tree import walk
from tilewright.targets.gpu.target import group_of

#: Of a multiprocessor in a clock: operations; products of a matrix unit whose operands have a byte;
#: bytes from beyond it (public figures of cards from 2017 on are within a factor of two).
OPERATIONS, PRODUCTS, BYTES = 128, 2048, 32
#: What reads memory takes so long at least.
LATENCY = 128
#: From one look at the budget to the next: about a microsecond for each group that a multiprocessor
#: has, and more than the answer takes.
CLOCKS = 2048


def is_long(fn: l.TileFn) -> bool:
    """True if a whole tile takes longer than from one look to the next."""
    return clocks(fn, fn.body) > CLOCKS


def passes(fn: l.TileFn, body: Sequence[l.Stmt]) -> int:
    """How many passes of a loop take about `CLOCKS`: a power of two."""
    return 1 << max(1, int(CLOCKS / max(1.0, clocks(fn, body)))).bit_length() - 1


def clocks(fn: l.TileFn, stmts: Sequence[l.Stmt]) -> float:
    """Of all threads of a group."""
    operations, products, read = _counts(fn, stmts)
    taken = max(operations / OPERATIONS + products / PRODUCTS, read / BYTES) * group_of(fn)
    return max(taken, LATENCY) if read else taken


def _counts(fn: l.TileFn, stmts: Sequence[l.Stmt]) -> tuple[float, float, float]:
    """Of a thread: operations, products of matrix units by an operand's bytes, bytes read."""
    operations = products = read = 0.0
    for s in stmts:
        match s:
            case l.For():
                times = ceil(s.var.extent / s.step)
                inner = _counts(fn, s.body)
            case l.If():
                times, inner = 1, _counts(fn, (*s.then, *s.orelse))
            case l.MultiplyMatrices():
                unit, times = required(fn.unit, "no matrix unit", kernel=fn.name), 1
                share = unit.m * unit.n * unit.k / unit.threads
                inner = 0.0, share * unit.operand.size, 0.0
            case l.CopyAhead():
                times, inner = 1, (0.0, 0.0, s.lanes * fn.buffers[s.source].dtype.size)
            case _:
                times, inner = 1, _of_values(fn, s)
        operations, products, read = (
            total + times * more
            for total, more in zip((operations, products, read), inner, strict=True)
        )
    return operations, products, read


def _of_values(fn: l.TileFn, s: l.Stmt) -> tuple[float, float, float]:
    operations = read = 0.0
    match s:
        case (
            l.Set(_, value)
            | l.Store(_, _, value, _)
            | l.LetGather(_, value)
            | l.LetUniform(_, value)
        ):
            for e in walk(value):
                match e:
                    case Call() | Dot():
                        operations += e.lanes
                    case Load() if e.buffer < len(fn.buffers):
                        read += e.lanes * e.dtype.size
    return operations, 0.0, read
