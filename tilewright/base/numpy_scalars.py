"""The scalar functions of base/scalars.py on NumPy arrays: same names, same meaning, vectorised.

Input: arrays of one shape.  Output: an array (its dtype is fixed by the caller's dtype rule).
The only module of base/ that needs NumPy: kernel/ and targets/ must not import it.
A test holds the two tables against each other on every function's domain.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def _div(a: Array, b: Array) -> Array:
    if a.dtype.kind in "iu":  # ONNX divides integers toward zero
        quotient = np.trunc(a.astype(np.float64) / np.where(b == 0, 1, b))
        return np.where(b == 0, 0, quotient)
    return np.asarray(a / b)


_erf = np.vectorize(math.erf, otypes=[np.float64])

NUMPY_SCALARS: dict[str, Callable[..., Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": _div,
    "max": np.maximum, "min": np.minimum, "neg": np.negative, "abs": np.abs,
    "fma": lambda a, b, c: a * b + c,
    "sqrt": np.sqrt, "floor": np.floor, "ceil": np.ceil, "round": np.rint,
    "exp": np.exp, "log": np.log, "tanh": np.tanh, "erf": _erf, "sin": np.sin, "cos": np.cos,
    "pow": np.power,
    "lt": np.less, "le": np.less_equal, "eq": np.equal,
    "and": np.logical_and, "or": np.logical_or, "not": np.logical_not,
    "where": np.where,
}  # fmt: skip
