"""The scalar table: Python meaning and NumPy meaning agree, corners included; the table is total.

Tolerance: exact for functions that the table calls exact or correctly rounded; 4 ULP of f64 for
those that go through two different math libraries.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from tilewright.base.dtypes import BOOL, DTYPES, F32, F64, I8, I32, I64, U8, DType
from tilewright.base.numpy_scalars import NUMPY_SCALARS, cast
from tilewright.base.scalars import COMBINE, REDUCTIONS, SCALARS, ScalarFn
from tilewright.kernel.expr import identity
from tilewright.kernel.interpreter import convert

CORNERS = (0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1.0, -1.0, 3.0, -3.0, 1e200, -1e200, 1e-300,
           math.inf, -math.inf, math.nan)  # fmt: skip
INTS = (0, 1, -1, 2, -2, 3, -3, 7, -7, 127, -128, 2**31 - 1, -(2**31), 2**53 + 1, 2**63 - 1,
        -(2**63))  # fmt: skip

WITH_NUMPY = [f for f in SCALARS.values() if f.name != "cast"]
by_name = pytest.mark.parametrize("fn", WITH_NUMPY, ids=lambda f: f.name)


def same(a: float, b: float, ulps: int) -> bool:
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    if a == b:
        return True
    return math.isfinite(a) and math.isfinite(b) and abs(a - b) <= ulps * math.ulp(b)


def numpy_value(fn: ScalarFn, args: tuple[object, ...], dtypes: list[str]) -> np.ndarray:
    with np.errstate(all="ignore"):
        arrays = [np.array([a], d) for a, d in zip(args, dtypes, strict=True)]
        return np.asarray(NUMPY_SCALARS[fn.name](*arrays))[0]


def test_tables_have_the_same_rows() -> None:
    assert set(NUMPY_SCALARS) == set(SCALARS) - {"cast"}
    assert set(REDUCTIONS) == set(COMBINE)
    for name, combine in COMBINE.items():
        assert SCALARS[combine].arity == 2, name


@by_name
def test_meanings_agree_on_floats_and_their_corners(fn: ScalarFn) -> None:
    if fn.name == "nibble":
        return  # of integers, and of shifts below 32 only: test_wasm_values.py
    low, high = fn.domain
    inner = np.random.default_rng(1).uniform(low, high, 12).tolist()
    ulps = 4 if fn.ulp and fn.name != "fma" else 0
    dtypes = ["bool" if fn.name == "where" and i == 0 else "float64" for i in range(fn.arity)]
    values = [*inner, *CORNERS] if fn.arity < 3 else [*inner[:3], *CORNERS]
    for args in itertools.product(values, repeat=fn.arity):
        if fn.name in ("and", "or", "not", "where") and any(map(math.isnan, args)):
            continue  # truth of NaN is nothing a model asks for
        want = fn.meaning(*args)
        got = numpy_value(fn, args, dtypes)
        assert same(float(got), float(want), ulps), (fn.name, args, got, want)
        if fn.name in ("floor", "ceil", "round", "neg", "abs", "sqrt") and want == 0:
            assert math.copysign(1, got) == math.copysign(1, want), (fn.name, args)


@by_name
def test_meanings_agree_on_integers(fn: ScalarFn) -> None:
    if fn.floats_only or fn.name == "nibble":
        return
    for dtype in (I8, U8, I32, I64):
        values = [v for v in INTS if convert(v, dtype) == v]
        out = fn.dtype((dtype,) * fn.arity)
        for args in itertools.product(values, repeat=fn.arity):
            dtypes = [dtype.numpy] * fn.arity
            if fn.name == "where":
                dtypes[0] = "bool"
            want = convert(fn.meaning(*args), out)
            got = numpy_value(fn, args, dtypes).astype(out.numpy)
            assert got == want, (fn.name, dtype.name, args, got, want)


@pytest.mark.parametrize("new", DTYPES.values(), ids=str)
@pytest.mark.parametrize("old", [F32, F64, I32, I64, U8, BOOL], ids=str)
def test_casts_saturate_alike(old: DType, new: DType) -> None:
    wide = (*CORNERS, 1e10, -1e10, 300.7, -300.7, 2.0**63, -(2.0**63), 255.9, 2.0**24 + 2)
    values = [convert(v, old) for v in (wide if old.is_float else INTS)]
    with np.errstate(all="ignore"):
        got = cast(np.array(values, old.numpy), new).tolist()
    for value, found in zip(values, got, strict=True):
        want = convert(value, new)
        assert same(float(found), float(want), 0), (value, found, want)


@pytest.mark.parametrize("op", REDUCTIONS)
@pytest.mark.parametrize("dtype", [F32, F64, I8, U8, I32, I64], ids=str)
def test_identity_changes_nothing(op: str, dtype: DType) -> None:
    start = identity(op, dtype, 1).value
    assert convert(start, dtype) == start, "the identity does not fit its dtype"
    numbers = CORNERS if dtype.is_float else [v for v in INTS if convert(v, dtype) == v]
    for x in (convert(n, dtype) for n in numbers):
        got = convert(SCALARS[COMBINE[op]].meaning(start, x), dtype)
        assert same(float(got), float(x), 0), (op, x, got)
