"""Estimates roughly how many clocks a tile's statements take on a multiprocessor of their own.

Input: statements of one tile.  Output: clocks.  The estimate decides how often an elastic kernel
checks its budget.  It does not choose schedules: those are measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from tilewright.base.errors import required
from tilewright.kernel import loops as l
from tilewright.kernel.expr import Call, Dot, Load
from tilewright.kernel.tree import walk
from tilewright.targets.gpu.gpu_target import workgroup_threads

#: What a multiprocessor does in a clock: arithmetic operations; multiply-adds of a matrix unit with
#: 8-bit operands; bytes read from L2 or memory.  Public figures of GPUs since 2017 are within a
#: factor of two.
OPERATIONS, PRODUCTS, BYTES = 128, 2048, 32
#: The least clocks of statements that read memory.
LATENCY = 128
#: Clocks between two checks of the budget: about a microsecond for each block that a multiprocessor
#: runs, and longer than the read of the budget takes.
CLOCKS = 2048


def is_long_tile(fn: l.TileFn) -> bool:
    """True if a whole tile takes longer than the time between two checks of the budget."""
    return clocks(fn, fn.body) > CLOCKS


def passes_per_chunk(fn: l.TileFn, body: Sequence[l.Stmt]) -> int:
    """The number of passes of a loop that take about `CLOCKS`, as a power of two."""
    return 1 << max(1, int(CLOCKS / max(1.0, clocks(fn, body)))).bit_length() - 1


def clocks(fn: l.TileFn, stmts: Sequence[l.Stmt]) -> float:
    """Clocks of these statements for all threads of a group."""
    operations, products, read = _counts(fn, stmts)
    taken = max(operations / OPERATIONS + products / PRODUCTS, read / BYTES) * workgroup_threads(fn)
    return max(taken, LATENCY) if read else taken


def _counts(fn: l.TileFn, stmts: Sequence[l.Stmt]) -> tuple[float, float, float]:
    """Per thread: operations, multiply-adds of matrix units times operand bytes, bytes read."""
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
            case l.AsyncCopy():
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
