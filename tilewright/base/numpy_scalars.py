"""The scalar functions of base/scalars.py on NumPy arrays: same names, same meaning.

Input: arrays that broadcast.  Output: an array, which the caller converts to the result's dtype.
The only module of base/ that needs NumPy: kernel/ and targets/ must not import it.  A test compares
the two tables on every function's domain.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.base.dtypes import DType

Array = npt.NDArray[Any]


def _div(a: Array, b: Array) -> Array:
    if a.dtype.kind in "iu":  # ONNX divides integers toward zero
        safe = np.where(b == 0, 1, b)
        quotient = a // safe
        inexact = (quotient * safe != a) & ((a < 0) != (safe < 0))
        return np.where(b == 0, 0, quotient + inexact).astype(a.dtype)
    return np.asarray(a / b)


def cast(x: Array, dtype: DType) -> Array:
    """`x` as `dtype`: floats are truncated toward zero and saturated to integers, NaN becomes 0."""
    if x.dtype.kind == "f" and dtype.kind in ("int", "uint"):
        limits = np.iinfo(dtype.numpy)
        whole = np.trunc(np.nan_to_num(x.astype(np.float64), nan=0.0))
        # the largest i64 is not a float: converts only numbers that compare as smaller
        inside = (whole > limits.min) & (whole < float(limits.max))
        result = np.where(inside, whole, 0).astype(dtype.numpy)
        ends = np.where(whole > 0, limits.max, limits.min).astype(dtype.numpy)
        return np.where(inside, result, ends)
    return x.astype(dtype.numpy)


def _bits(x: Array) -> Array:
    return np.asarray(x, np.float32).view(np.int32)


#: A last axis of at most this number of elements is short (`_nibble`).
SHORT = 8


def _nibble(a: Array, b: Array) -> Array:
    """Half `b` (0 or 1) of each byte of `a`, as four bits.  NumPy's inner loop runs along the last
    axis and is slow to start, so a short last axis is computed element by element, each for all
    rows at once."""
    a, b = np.broadcast_arrays(a, b)
    if a.ndim < 2 or a.shape[-1] > SHORT:
        return np.asarray(np.right_shift(a, b) & 15)
    made = np.empty(a.shape, np.result_type(a, b))
    for i in range(a.shape[-1]):
        made[..., i] = np.right_shift(a[..., i], b[..., i]) & 15
    return made


def _nearest_f16(x: Array) -> Array:
    with np.errstate(over="ignore"):
        return x.astype(np.float16).astype(x.dtype)


def _nearest_bf16(x: Array) -> Array:
    bits = x.astype(np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return np.where(np.isfinite(x), rounded.view(np.float32), x).astype(x.dtype)


_erf = np.vectorize(math.erf, otypes=[np.float64])

NUMPY_SCALARS: dict[str, Callable[..., Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": _div,
    "max": np.maximum, "min": np.minimum, "neg": np.negative, "abs": np.abs,
    "fma": lambda a, b, c: a * b + c,
    "sqrt": np.sqrt, "floor": np.floor, "ceil": np.ceil, "round": np.rint,
    "exp": np.exp, "log": np.log, "tanh": np.tanh, "erf": _erf, "sin": np.sin, "cos": np.cos,
    "tan": np.tan, "expm1": np.expm1, "log1p": np.log1p, "rem": np.fmod, "pow": np.power,
    "f16": _nearest_f16, "bf16": _nearest_bf16,
    "lt": np.less, "le": np.less_equal, "eq": np.equal,
    "and": np.logical_and, "or": np.logical_or, "not": np.logical_not,
    "bits": _bits, "nibble": _nibble,
    "where": np.where,
}  # fmt: skip
