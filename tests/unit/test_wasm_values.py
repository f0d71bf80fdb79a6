"""Every scalar function, dtype and lane count in Wasm against the reference interpreter.

The data hold what breaks naive code: NaN, infinities, signed zeros, halves, limits, overflows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from wasm_machine import run

from tilewright.base.dtypes import BOOL, DTYPES, F32, F64, I8, I16, I32, I64, U8, DType
from tilewright.base.scalars import SCALARS
from tilewright.kernel import interpreter
from tilewright.kernel.expr import Call, Const, Expr, IndexValue, Lane, Lanes, Load, Splat
from tilewright.kernel.index import Index, Var, index
from tilewright.kernel.loops import For, Stmt, Store, TileFn
from tilewright.kernel.spec import Buffer
from tilewright.targets.wasm import mathlib

NAN, INF = math.nan, math.inf
FLOATS = (
    *(0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.7, -3.7, 0.25, 7.0, -7.0, 1e-40),
    *(1e10, -1e10, 3e38, NAN, INF, -INF, 127.6, -128.7, 255.9, 2147483647.0, -2147483648.0, 5e9),
)
INTS = (0, 1, -1, 2, -2, 3, -7, 7, 100, -100, 127, -128, 1 << 20, -(1 << 20))

DATA: dict[DType, tuple[float | int, ...]] = {
    F32: FLOATS,
    F64: (*FLOATS, 1e300, -1e300, 1e19, 0.1),
    I8: (0, 1, -1, 2, 3, -7, 7, 100, -100, 127, -128),
    I16: (*INTS[:12], 32767, -32768, 1000),
    U8: (0, 1, 2, 3, 7, 100, 200, 127, 128, 255),
    I32: (*INTS, 2**31 - 1, -(2**31)),
    I64: (*INTS, 2**31, -(2**31) - 1, 2**62, -(2**63), 2**63 - 1),
    BOOL: (0, 1),
}
VECTORS = (F32, I32, I16, I8, U8, BOOL)


def spread(dtypes: Sequence[DType]) -> list[np.ndarray]:
    """One array per argument, together all pairs of special values (triples thinned out)."""
    table = [DATA[d] for d in dtypes]
    total = min(math.prod(map(len, table)), 700)
    arrays = []
    stride = 1
    for values, dtype in zip(table, dtypes, strict=True):
        picked = [values[(i // stride + i // 700) % len(values)] for i in range(total)]
        stride *= len(values)
        with np.errstate(over="ignore"):
            arrays.append(np.array(picked).astype(dtype.numpy))
    return arrays


def elementwise(
    make: Callable[..., Expr],
    arrays: Sequence[np.ndarray],
    types: Sequence[DType],
    out: DType,
    lanes: int,
) -> TileFn:
    """b0[i] = make(b1[i], b2[i], ...), in vectors with a tail of fewer lanes."""
    n = len(arrays[0])
    i = Var("i", n)
    whole = n // lanes * lanes

    def point(at: Index, valid: int) -> Stmt:
        loads = (Load(k + 1, at, t, lanes, valid) for k, t in enumerate(types))
        return Store(0, at, make(*loads), valid)

    body: list[Stmt] = []
    if whole:
        body.append(For(i, index(0), index(whole), lanes, (point(index(i), 0),)))
    if n > whole:
        body.append(point(index(whole), n - whole))
    buffers = (Buffer(out, n), *(Buffer(t, n) for t in types))
    return TileFn("f", buffers, (), (), Var("tile", 1), (), tuple(body), 1, ())


def both(fn: TileFn, arrays: Sequence[np.ndarray], target: str) -> tuple[np.ndarray, np.ndarray]:
    """What Wasm and what the interpreter compute."""
    out = np.zeros(fn.buffers[0].size, fn.buffers[0].dtype.numpy)
    got = run(fn, [out, *arrays], target)
    lists = [out.tolist(), *(a.tolist() for a in arrays)]
    interpreter.run(fn, lists)
    return got, np.array(lists[0], out.dtype)


def same(got: np.ndarray, want: np.ndarray) -> None:
    """Equal, with NaN equal to NaN and signed zeros told apart."""
    np.testing.assert_array_equal(got, want)
    if got.dtype.kind == "f":
        known = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got)[known], np.signbit(want)[known])


def cases() -> list[tuple[str, DType, int]]:
    rows = []
    for name, row in SCALARS.items():
        if name in (*mathlib.FUNCTIONS, "cast", "where", "fma", "nibble"):
            continue
        for dtype in DTYPES.values():
            logical = name in ("and", "or", "not")
            arithmetic = dtype == BOOL and not logical and name not in ("lt", "le", "eq")
            if arithmetic or (row.floats_only and not dtype.is_float):
                continue
            rows += [(name, dtype, lanes) for lanes in (1, 4) if lanes == 1 or dtype in VECTORS]
    return rows


#: Python's floor and ceil go through int, which has no negative zero; which zero max and min
#: return is not said.
ANY_ZERO = ("floor", "ceil", "max", "min")


@pytest.mark.parametrize(("name", "dtype", "lanes"), cases(), ids=str)
def test_function(name: str, dtype: DType, lanes: int) -> None:
    row = SCALARS[name]
    types = (dtype,) * row.arity
    out = row.dtype(types)
    arrays = spread(types)
    fn = elementwise(lambda *a: Call(name, a, out, lanes), arrays, types, out, lanes)
    compare = np.testing.assert_array_equal if name in ANY_ZERO else same
    compare(*both(fn, arrays, "x86"))


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("shift", range(0, 32, 4))
def test_nibble(shift: int, lanes: int) -> None:
    arrays = spread((I32,))
    by = Const(shift, I32, lanes)
    fn = elementwise(lambda x: Call("nibble", (x, by), I32, lanes), arrays, (I32,), I32, lanes)
    same(*both(fn, arrays, "x86"))


def wide(*dtypes: DType) -> list[int]:
    """The lane counts in which all dtypes exist."""
    return [1, 4] if set(dtypes) <= set(VECTORS) else [1]


@pytest.mark.parametrize(("dtype", "lanes"), [(d, n) for d in DATA for n in wide(d)], ids=str)
@pytest.mark.parametrize("target", ["x86", "x86-simd"])
def test_where(dtype: DType, lanes: int, target: str) -> None:
    types = (BOOL, dtype, dtype)
    arrays = spread(types)
    fn = elementwise(lambda *a: Call("where", a, dtype, lanes), arrays, types, dtype, lanes)
    same(*both(fn, arrays, target))


@pytest.mark.parametrize(
    ("old", "new", "lanes"), [(a, b, n) for a in DATA for b in DATA for n in wide(a, b)], ids=str
)
def test_cast(old: DType, new: DType, lanes: int) -> None:
    arrays = spread((old,))
    fn = elementwise(lambda a: Call("cast", (a,), new, lanes), arrays, (old,), new, lanes)
    same(*both(fn, arrays, "x86"))


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("target", ["x86", "x86-simd"])
def test_fma_of_whole_numbers(target: str, lanes: int) -> None:
    rng = np.random.default_rng(3)
    arrays = [rng.integers(-9, 9, 39).astype("float32") for _ in range(3)]
    fn = elementwise(lambda *a: Call("fma", a, F32, lanes), arrays, (F32,) * 3, F32, lanes)
    np.testing.assert_array_equal(*both(fn, arrays, target))


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize("first", [True, False])
def test_clip_keeps_nan(name: str, lanes: int, first: bool) -> None:
    arrays = spread((F32,))
    limit: Expr = Const(0.25, F32, lanes)

    def make(x: Expr) -> Expr:
        return Call(name, (limit, x) if first else (x, limit), F32, lanes)

    got, want = both(elementwise(make, arrays, (F32,), F32, lanes), arrays, "x86")
    assert np.isnan(got).sum() == 1
    same(got, want)


@pytest.mark.parametrize("dtype", VECTORS, ids=str)
def test_lanes_splats_and_picks(dtype: DType) -> None:
    """A vector of strided scalars, one lane picked, and a scalar repeated."""
    n = 24
    data = np.resize(np.array(DATA[dtype], dtype.numpy), n)
    at = [index(k * 5) for k in range(4)]
    vector = Lanes(tuple(Load(1, i, dtype) for i in at))
    body = (
        Store(0, index(0), vector),
        Store(0, index(4), Splat(Load(1, index(7), dtype), 4)),
        Store(0, index(8), Lane(vector, 2)),
        Store(0, index(9), Splat(Const(1, dtype), 4), 3),
        Store(0, index(12), Lane(Load(1, index(4), dtype, 4, 2), 1)),
    )
    buffers = (Buffer(dtype, n), Buffer(dtype, n))
    fn = TileFn("f", buffers, (), (), Var("tile", 1), (), body, 1, ())
    same(*both(fn, [data], "x86"))


@pytest.mark.parametrize("dtype", [I64, I32, F32, F64], ids=str)
def test_index_as_value(dtype: DType) -> None:
    i = Var("i", 9)
    body = (For(i, index(0), index(9), 1, (Store(0, index(i), IndexValue(index(i) * 3, dtype)),)),)
    fn = TileFn("f", (Buffer(dtype, 9),), (), (), Var("tile", 1), (), body, 1, ())
    same(*both(fn, [], "x86"))
