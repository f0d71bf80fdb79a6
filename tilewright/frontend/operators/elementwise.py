"""ONNX arithmetic, comparison, logic and casts as scalar functions.

Input: operand nodes and attributes.  Output: nodes.  Activations of neural networks are in
activation.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce as fold
from math import inf, log, nan

from onnx import TensorProto

from tilewright.base.dtypes import BOOL, F64, DType
from tilewright.base.errors import InvalidModel, UnsupportedDType
from tilewright.frontend import arithmetic as al
from tilewright.frontend.initializers import dtype_of
from tilewright.frontend.operator_table import operator
from tilewright.graph import ops
from tilewright.graph.node import Node, cast, node

_UNARY = {
    "Abs": "abs", "Neg": "neg", "Floor": "floor", "Ceil": "ceil", "Round": "round",
    "Sqrt": "sqrt", "Exp": "exp", "Log": "log", "Sin": "sin", "Cos": "cos", "Tan": "tan",
    "Tanh": "tanh", "Erf": "erf", "Not": "not",
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
        raise UnsupportedDType(
            f"integers ({x.dtype}) are not supported here",
            hint="Put a Cast to float before the operator",
            dtype=x.dtype,
        )


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


def _odd(x: Node, size: Node) -> Node:
    """f(x) of an odd function f.  size: f(|x|).  Zeros keep their sign."""
    return al.where(al.less(0, x), size, al.where(al.less(x, 0), al.apply("neg", size), x))


#: Above this |x|, sinh and cosh are computed as exp(|x| / 2)² / 2: exp(|x|) may overflow where the
#: result does not.
_STEEP = 80.0
#: Above this x, x + 1 rounds to x, and x² + 1 to x².
_FAR = 2.0**26


@operator("Sinh")
def sinh(x: Node) -> Node:
    """sinh(x) as (e + e / (e + 1)) / 2 with e = exp(|x|) - 1, which loses no digits near 0."""
    size = al.apply("abs", x)
    steep = al.less(_STEEP, size)
    e = al.apply("expm1", al.where(steep, al.mul(size, 0.5), size))
    half = al.mul(e, 0.5)
    return _odd(x, al.where(steep, al.mul(half, e), al.add(half, al.div(half, al.add(e, 1.0)))))


@operator("Cosh")
def cosh(x: Node) -> Node:
    size = al.apply("abs", x)
    steep = al.less(_STEEP, size)
    e = al.exp(al.where(steep, al.mul(size, 0.5), size))
    half = al.mul(e, 0.5)
    return al.where(steep, al.mul(half, e), al.add(half, al.div(0.5, e)))


@operator("Asinh")
def asinh(x: Node) -> Node:
    """log(1 + (|x| + x² / (1 + sqrt(x² + 1)))); for large |x|, where x² would overflow, log(2
    |x|)."""
    size = al.apply("abs", x)
    square = al.square(size)
    beyond = al.div(square, al.add(al.sqrt(al.add(square, 1.0)), 1.0))
    return _odd(x, _log_of_sum(size, size, beyond))


@operator("Acosh")
def acosh(x: Node) -> Node:
    """acosh(x) as log(1 + (t + sqrt(t (t + 2)))) with t = x - 1."""
    t = al.sub(x, 1.0)
    root = al.sqrt(al.mul(t, al.add(t, 2.0)))
    return al.where(al.less(x, 1.0), nan, _log_of_sum(x, t, root))


def _log_of_sum(x: Node, a: Node, b: Node) -> Node:
    """log(1 + a + b), where 1 + a + b is about 2 x; for large x, log(2 x)."""
    far = al.less(_FAR, x)
    found = al.apply("log1p", al.where(far, x, al.add(a, b)))
    return al.where(far, al.add(found, log(2)), found)


@operator("Atanh")
def atanh(x: Node) -> Node:
    """log(1 + 2 |x| / (1 - |x|)) / 2"""
    size = al.apply("abs", x)
    ratio = al.div(al.add(size, size), al.sub(1.0, size))
    return _odd(x, al.mul(al.apply("log1p", ratio), 0.5))


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
    """The remainder with the sign of `a`: exact, however large the quotient."""
    if a.dtype.is_float:
        return al.apply("rem", a, b)
    return al.sub(a, al.mul(al.div(a, b), b))


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
    if not (x.constant and exponent.constant):
        raise UnsupportedDType(
            f"Pow of integers ({x.dtype}) is supported for one exponent that is known, from 0 to "
            f"{_LONGEST_PRODUCT - 1}",
            hint="Make the exponent a constant of the model, or put a Cast to float before Pow",
            dtype=x.dtype,
        )  # fmt: skip
    # integers go through f64, which is exact up to 2**53
    return cast(al.apply("pow", cast(x, F64), cast(exponent, F64)), x.dtype)


#: Integer powers below this exponent are products, which are exact as long as they fit.
_LONGEST_PRODUCT = 64


def _product_of(x: Node, exponent: int) -> Node:
    """x ** exponent by repeated squaring."""
    if 1 <= exponent <= 4:
        return fold(al.mul, [x] * exponent)
    half = _product_of(x, exponent // 2) if exponent else al.full(1, x.shape, x.dtype)
    return al.mul(al.square(half), x) if exponent % 2 else al.square(half)


def _power_of(x: Node, exponent: float) -> Node | None:
    if exponent in (1.0, 2.0, 3.0, 4.0):
        return _product_of(x, int(exponent))
    if not x.dtype.is_float and exponent in range(_LONGEST_PRODUCT):
        return _product_of(x, int(exponent))
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
        # the model casts to f32, so products must not round their other operand
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
