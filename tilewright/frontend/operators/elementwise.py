"""ONNX arithmetic, comparison, logic and casts as scalar functions.

Input: operand nodes and attributes.  Output: nodes.  Activations of neural networks are in
activation.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce as fold
from math import inf

from onnx import TensorProto

from tilewright.base.dtypes import BOOL, F64, DType
from tilewright.base.errors import InvalidModel, UnsupportedDType
from tilewright.frontend import algebra as al
from tilewright.frontend.table import operator
from tilewright.frontend.tensors import dtype_of
from tilewright.graph import ops
from tilewright.graph.node import Node, cast, node

_UNARY = {
    "Abs": "abs", "Neg": "neg", "Floor": "floor", "Ceil": "ceil", "Round": "round",
    "Sqrt": "sqrt", "Exp": "exp", "Log": "log", "Sin": "sin", "Cos": "cos", "Tanh": "tanh",
    "Erf": "erf", "Not": "not",
}  # fmt: skip

_BINARY = {
    "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "And": "and", "Or": "or",
    "Equal": "eq", "Less": "lt", "LessOrEqual": "le",
}  # fmt: skip


def _unary(fn: str) -> Callable[[Node], Node]:
    def apply(x: Node) -> Node:
        return al.apply(fn, x)

    return apply


def _binary(fn: str) -> Callable[[Node, Node], Node]:
    def apply(a: Node, b: Node) -> Node:
        one_dtype(a, b)
        return al.apply(fn, a, b)

    return apply


for _name, _fn in _UNARY.items():
    operator(_name)(_unary(_fn))
for _name, _fn in _BINARY.items():
    operator(_name)(_binary(_fn))


def one_dtype(*xs: Node) -> None:
    """Raises InvalidModel for different dtypes: ONNX has no implicit conversions."""
    if len({x.dtype for x in xs}) > 1:
        raise InvalidModel("operands have different dtypes", dtype=[x.dtype.name for x in xs])


def floats_only(x: Node) -> None:
    if not x.dtype.is_float:
        raise UnsupportedDType("this operator works on floating point only", dtype=x.dtype)


@operator("Identity")
def identity(x: Node) -> Node:
    return x


@operator("Greater")
def greater(a: Node, b: Node) -> Node:
    one_dtype(a, b)
    return al.less(b, a)


@operator("GreaterOrEqual")
def greater_or_equal(a: Node, b: Node) -> Node:
    one_dtype(a, b)
    return al.apply("le", b, a)


@operator("Xor")
def xor(a: Node, b: Node) -> Node:
    return al.apply("not", al.equal(a, b))


@operator("Where")
def where(condition: Node, a: Node, b: Node) -> Node:
    one_dtype(a, b)
    return al.where(condition, a, b)


@operator("Sign")
def sign(x: Node) -> Node:
    """-1, 0 or 1; a NaN stays."""
    found = al.sub(cast(al.less(0, x), x.dtype), cast(al.less(x, 0), x.dtype))
    return al.where(al.equal(x, x), found, x) if x.dtype.is_float else found


@operator("Reciprocal")
def reciprocal(x: Node) -> Node:
    return al.div(1.0, x)


@operator("Tan")
def tan(x: Node) -> Node:
    return al.div(al.apply("sin", x), al.apply("cos", x))


@operator("Sinh")
def sinh(x: Node) -> Node:
    return al.mul(al.sub(al.exp(x), al.exp(al.apply("neg", x))), 0.5)


@operator("Cosh")
def cosh(x: Node) -> Node:
    return al.mul(al.add(al.exp(x), al.exp(al.apply("neg", x))), 0.5)


@operator("Asinh")
def asinh(x: Node) -> Node:
    """sign(x) * log(|x| + sqrt(x² + 1)): no cancellation for negative x."""
    size = al.apply("abs", x)
    return al.mul(sign(x), al.log(al.add(size, al.sqrt(al.add(al.square(size), 1.0)))))


@operator("Acosh")
def acosh(x: Node) -> Node:
    return al.log(al.add(x, al.sqrt(al.sub(al.square(x), 1.0))))


@operator("Atanh")
def atanh(x: Node) -> Node:
    return al.mul(al.log(al.div(al.add(x, 1.0), al.sub(1.0, x))), 0.5)


@operator("IsNaN")
def is_nan(x: Node) -> Node:
    return al.apply("not", al.equal(x, x))


@operator("IsInf")
def is_inf(x: Node, *, detect_negative: int = 1, detect_positive: int = 1) -> Node:
    positive = al.equal(x, inf) if detect_positive else al.less(x, x)
    negative = al.equal(x, -inf) if detect_negative else al.less(x, x)
    return al.apply("or", positive, negative)


@operator("Mod")
def mod(a: Node, b: Node, *, fmod: int = 0) -> Node:
    """The remainder: with the sign of `a` if fmod, else with the sign of `b`."""
    one_dtype(a, b)
    rest = _remainder(a, b)
    if fmod:
        return rest
    differ = al.apply("not", al.equal(al.less(rest, 0), al.less(b, 0)))
    wrong = al.apply("and", differ, al.apply("not", al.equal(rest, 0)))
    return al.where(wrong, al.add(rest, b), rest)


def _remainder(a: Node, b: Node) -> Node:
    """The remainder with the sign of `a`; it is `a` if only `b` is infinite."""
    rest = al.sub(a, al.mul(truncate(al.div(a, b)), b))
    if not a.dtype.is_float:
        return rest
    endless = al.apply("and", is_inf(b), al.less(al.apply("abs", a), inf))
    return al.where(endless, a, rest)


def truncate(x: Node) -> Node:
    """Toward zero; integers are whole already."""
    if not x.dtype.is_float:
        return x
    return al.where(al.less(x, 0), al.apply("ceil", x), al.apply("floor", x))


@operator("Pow")
def power(x: Node, exponent: Node) -> Node:
    """x ** exponent; small known integers, 0.5 and -1 need no `pow`."""
    small = exponent.value
    if small is not None and small.size == 1 and x.rank >= exponent.rank:
        quick = _power_of(x, float(small.reshape(()).item()))
        if quick is not None:
            return quick
    if x.dtype.is_float:
        return al.apply("pow", x, cast(exponent, x.dtype))
    # Integers go through f64, which is exact up to 2**53; only known exponents can be computed.
    return cast(al.apply("pow", cast(x, F64), cast(exponent, F64)), x.dtype)


#: Integer powers below this exponent are products, which are exact as long as they fit.
_LONGEST_PRODUCT = 64


def _power_of(x: Node, exponent: float) -> Node | None:
    if exponent in (1.0, 2.0, 3.0, 4.0):
        return fold(al.mul, [x] * int(exponent))
    if not x.dtype.is_float and exponent in range(_LONGEST_PRODUCT):
        half = _power_of(x, exponent // 2) if exponent else al.full(1, x.shape, x.dtype)
        assert half is not None
        return al.mul(al.square(half), x) if exponent % 2 else al.square(half)
    if exponent == 0.5 and x.dtype.is_float:
        return al.sqrt(x)
    if exponent == -1.0 and x.dtype.is_float:
        return al.div(1.0, x)
    return None


@operator("Max")
def maximum(first: Node, *more: Node) -> Node:
    one_dtype(first, *more)
    return fold(lambda a, b: al.apply("max", a, b), more, first)


@operator("Min")
def minimum(first: Node, *more: Node) -> Node:
    one_dtype(first, *more)
    return fold(lambda a, b: al.apply("min", a, b), more, first)


@operator("Sum")
def add_all(first: Node, *more: Node) -> Node:
    one_dtype(first, *more)
    return fold(al.add, more, first)


@operator("Mean")
def mean_all(first: Node, *more: Node) -> Node:
    return al.share(add_all(first, *more), len(more) + 1)


@operator("Clip")
def clip(x: Node, low: Node | None = None, high: Node | None = None) -> Node:
    if low is not None:
        x = al.apply("max", x, low)
    return x if high is None else al.apply("min", x, high)


@operator("Cast", ignore=("saturate", "round_mode"))
def cast_to(x: Node, *, to: int) -> Node:
    if to == TensorProto.FLOAT and isinstance(x.op, ops.Weight) and x.op.loose == "f16":
        # what is multiplied with it is f32, and stays so
        return node(replace(x.op, loose=""))
    return _cast(x, dtype_of(to))


@operator("CastLike", ignore=("saturate", "round_mode"))
def cast_like(x: Node, like: Node) -> Node:
    return _cast(x, like.dtype)


def _cast(x: Node, dtype: DType) -> Node:
    """A cast; to bool means "is not zero" whatever the dtype."""
    if dtype == BOOL and x.dtype != BOOL:
        return al.apply("not", al.equal(x, 0))
    return cast(x, dtype)
