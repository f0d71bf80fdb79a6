"""What all lowerings of reductions share: the start value and one step.

Input: a reduction's name, dtype and lanes.  Output: expressions; loops are the caller's.
"""

from __future__ import annotations

from tilewright.base.dtypes import BOOL, DType
from tilewright.base.scalars import COMBINE, REDUCTIONS
from tilewright.kernel.expr import Call, Const, Expr, dtype_of, lanes_of

#: The start of a running maximum: finite, so that exp(-inf - maximum) is 0 and no NaN.
LOWEST = -3.4028234663852886e38


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
