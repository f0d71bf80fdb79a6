"""What all lowerings of reductions share: start value, one step, the nest over the axes.

Input: a reduction's name, dtype and axes.  Output: expressions and loops through a `Builder`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from tilewright.base.dtypes import BOOL, DType
from tilewright.base.scalars import COMBINE, REDUCTIONS
from tilewright.kernel.builder import Builder
from tilewright.kernel.expr import Call, Const, Expr, Lane, Reg, dtype_of, lanes_of
from tilewright.kernel.index import Index, Var, index

Values = dict[Var, Index]
Value = Callable[[Values], Expr]


def identity(op: str, dtype: DType, lanes: int) -> Const:
    """The value that changes nothing; for integers the end of their range stands for infinity."""
    value = REDUCTIONS[op]
    if dtype.is_float:
        return Const(value, dtype, lanes)
    if op in ("max", "min"):
        signed = dtype.kind == "int"
        top = (1 << (dtype.size * 8 - signed)) - 1
        return Const(top if op == "min" else -top - 1 if signed else 0, dtype, lanes)
    return Const(int(value), dtype, lanes)


def step(op: str, acc: Expr, value: Expr) -> Call:
    """acc combined with one more value; a sum of products becomes multiply-add."""
    dtype, lanes = dtype_of(acc), lanes_of(acc)
    if op == "sum" and dtype.is_float and isinstance(value, Call) and value.fn == "mul":
        return Call("fma", (*value.operands, acc), dtype, lanes)
    return Call(COMBINE[op], (acc, value), dtype, lanes)


def larger(a: Expr, b: Expr) -> Call:
    """The larger of two numbers by one comparison: b where a < b, else a.  It may lose a NaN."""
    lanes = lanes_of(b)
    return Call("where", (Call("lt", (a, b), BOOL, lanes), b, a), dtype_of(b), lanes)


def across_lanes(op: str, acc: Reg) -> Expr:
    """One scalar from the lanes of a register, combined pairwise."""
    parts: list[Expr] = [Lane(acc, i) for i in range(acc.lanes)]
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [Call(COMBINE[op], pair, acc.dtype) for pair in pairs]
    return parts[0]


@contextmanager
def nest(b: Builder, axes: tuple[Var, ...], values: Values) -> Iterator[Values]:
    """Loops over `axes`, outermost first; gives `values` with their variables added."""
    with ExitStack() as loops:
        inside = dict(values)
        for axis in axes:
            loop = b.loop(axis.name, Index(), index(axis.extent))
            inside[axis] = loops.enter_context(loop)
        yield inside
