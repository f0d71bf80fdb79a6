"""exp, log, tanh, erf, sin, cos, tan, pow, expm1, log1p: error bounds over the domain, limits,
coefficients.

Bounds are in units of the last place against f64, densely over the domain of base/scalars.py, with
fused multiply-add (relaxed SIMD) and without.  Measured worst errors (x86, with / without FMA):
exp 1.48 / 1.70, log 0.90 / 0.86, tanh 2.3 / 2.3, erf 3.3 / 3.3, sin 2.2 / 2.2, cos 2.1 / 2.1,
tan 3.0 / 3.0, pow 3.4 / 3.7, expm1 1.52 / 1.69, log1p 0.92 / 0.92.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from wasm_machine import run

from lab import mathfit
from tilewright.base.dtypes import F32, F64, DType
from tilewright.base.errors import CompilerBug
from tilewright.base.numpy_scalars import NUMPY_SCALARS
from tilewright.base.scalars import SCALARS
from tilewright.kernel.expr import Call, Const, Expr, Load
from tilewright.kernel.index import Var, index
from tilewright.kernel.loops import For, Store, TileFn
from tilewright.kernel.spec import Buffer
from tilewright.targets.wasm import mathlib

COUNT = 1 << 18
NAN, INF = math.nan, math.inf

EXACT = {
    "exp": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "expm1": np.expm1,
    "log1p": np.log1p,
    "pow": np.power,
}


def apply(
    name: str,
    arrays: list[np.ndarray],
    target: str = "x86",
    lanes: int = 4,
    dtype: DType = F32,
    fixed: bool = False,
) -> np.ndarray:
    """The function on whole arrays; their length is a multiple of 4.

    `fixed` makes the last argument a constant: its first element.
    """
    n = len(arrays[0])
    i = Var("i", n)
    args: list[Expr] = [Load(k + 1, index(i), dtype, lanes) for k in range(len(arrays))]
    if fixed:
        args[-1] = Const(float(arrays[-1][0]), dtype, lanes)
    store = Store(0, index(i), Call(name, tuple(args), dtype, lanes))
    body = (For(i, index(0), index(n), lanes, (store,)),)
    buffers = tuple(Buffer(dtype, n) for _ in range(len(arrays) + 1))
    fn = TileFn("f", buffers, (), (), Var("tile", 1), (), body, 1, ())
    return run(fn, [np.zeros(n, dtype.numpy), *arrays], target)


@cache
def samples(name: str) -> tuple[np.ndarray, ...]:
    """Dense over the domain: evenly, and evenly in the exponent."""
    low, high = SCALARS[name].domain
    rng = np.random.default_rng(1)
    if name == "pow":
        return tuple(rng.uniform(low, high, COUNT).astype("float32") for _ in range(2))
    even = np.linspace(low, high, COUNT // 2)
    if low > 0:
        scaled = np.exp(np.linspace(math.log(low), math.log(high), COUNT // 4))
        even = np.concatenate([even[::2], np.linspace(0.5, 2.0, COUNT // 4)])
        near = np.exp(rng.uniform(-1e-3, 1e-3, COUNT // 4))
        return (np.concatenate([even, scaled, near]).astype("float32"),)
    size = np.exp(rng.uniform(-20, math.log(high), COUNT // 4)) * rng.choice([-1, 1], COUNT // 4)
    near = rng.uniform(-1, 1, COUNT // 4) * min(-low, high, 100)
    # multiples of pi / 4 are where range reduction is hardest
    turns = np.pi / 4 * rng.integers(-120, 120, COUNT // 4) * min(1.0, high / 100)
    far = np.pi / 2 * rng.integers(1 << 12, 1 << 33, COUNT // 4) * (high > 2**34)
    return (np.concatenate([even, size, near, turns, far]).astype("float32").clip(low, high),)


def worst(name: str, target: str) -> float:
    """The largest error over the samples, in units of the last place."""
    arrays = samples(name)
    got = apply(name, list(arrays), target).astype(np.float64)
    want = EXACT[name](*(a.astype(np.float64) for a in arrays))
    unit = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(want), 2.0**-126))) - 23)
    return float(np.max(np.abs(got - want) / unit))


@pytest.mark.parametrize("target", ["x86", "x86-simd"])
@pytest.mark.parametrize("name", list(EXACT))
def test_error_stays_below_the_bound(name: str, target: str) -> None:
    assert worst(name, target) <= SCALARS[name].ulp


def test_the_table_knows_all_functions() -> None:
    assert set(mathlib.FUNCTIONS) == set(EXACT) | {"f16", "bf16"}


@pytest.mark.parametrize("target", ["x86", "x86-simd"])
@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_the_nearest_number_of_16_bits(name: str, target: str) -> None:
    """Every sign, exponent and upper half of a fraction, right at and beside ties."""
    upper = np.arange(1 << 16, dtype=np.uint32)[:, None] << 16
    lower = np.array([0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFF, 0x3000, 0x7FFF, 0x8000, 0x8001, 0xFFFF])
    x = (upper | lower.astype(np.uint32)).reshape(-1).view(np.float32)
    want = NUMPY_SCALARS[name](x)
    got = apply(name, [x], target)
    np.testing.assert_array_equal(got, want)
    numbers = ~np.isnan(x)
    np.testing.assert_array_equal(np.signbit(got)[numbers], np.signbit(want)[numbers])


@pytest.mark.parametrize(
    ("name", "pairs"),
    [
        ("exp", [(-INF, 0), (INF, INF), (NAN, NAN), (0, 1), (89, INF), (-104, 0), (1e38, INF)]),
        ("log", [(0, -INF), (-0.0, -INF), (INF, INF), (-1, NAN), (-INF, NAN), (NAN, NAN), (1, 0)]),
        ("tanh", [(-INF, -1), (INF, 1), (NAN, NAN), (0, 0), (-0.0, -0.0), (30, 1), (1e-40, 1e-40)]),
        ("erf", [(-INF, -1), (INF, 1), (NAN, NAN), (0, 0), (-0.0, -0.0), (30, 1), (-30, -1)]),
        ("sin", [(0, 0), (INF, NAN), (-INF, NAN), (NAN, NAN)]),
        ("cos", [(0, 1), (INF, NAN), (-INF, NAN), (NAN, NAN)]),
        ("tan", [(0, 0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (NAN, NAN), (1e-40, 1e-40)]),
        (
            "expm1",
            [(-INF, -1), (INF, INF), (NAN, NAN), (0, 0), (89, INF), (-30, -1), (1e-40, 1e-40)],
        ),
        ("log1p", [(-1, -INF), (INF, INF), (-1.5, NAN), (-INF, NAN), (NAN, NAN), (0, 0)]),
    ],
)
@pytest.mark.parametrize("target", ["x86", "x86-simd"])
def test_limits(name: str, pairs: list[tuple[float, float]], target: str) -> None:
    x = np.resize(np.array([a for a, _ in pairs], "float32"), 16)
    want = np.resize(np.array([b for _, b in pairs], "float32"), 16)
    got = apply(name, [x], target)
    np.testing.assert_array_equal(got, want)
    if name in ("tanh", "erf", "tan"):
        np.testing.assert_array_equal(np.signbit(got)[x == 0], np.signbit(want)[x == 0])


def test_log_of_denormals() -> None:
    x = np.array([1e-45, 1e-40, 1.1e-38, 1.2e-38], "float32")
    np.testing.assert_allclose(apply("log", [x]), np.log(x.astype(np.float64)), rtol=2e-7)


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_large_angles_beside_small_ones(name: str) -> None:
    """A vector with one large angle computes all four in another way: no other lane changes."""
    small = np.array([0.25, -3.0, 8192.0, -0.0], "float32")
    alone = apply(name, [small])
    # the last is the float that is nearest to a multiple of pi / 2
    for large in (8193.0, -1e10, 1e20, 3e38, INF, NAN, 16367173.0 * 2.0**72):
        for lane in range(4):
            mixed = small.copy()
            mixed[lane] = large
            got, others = apply(name, [mixed]), np.arange(4) != lane
            assert got[others].tobytes() == alone[others].tobytes()
            with np.errstate(invalid="ignore"):
                want = EXACT[name](np.float64(mixed[lane]))
            np.testing.assert_allclose(got[lane], want, rtol=4 * 2.0**-23)


@pytest.mark.parametrize("target", ["x86", "x86-simd"])
@pytest.mark.parametrize("fixed", [False, True])
def test_pow_has_the_limits_of_c(target: str, fixed: bool) -> None:
    bases = [0, -0.0, 1, -1, 2, -2, INF, -INF, NAN, 0.5, -0.5, 3e38]
    for y in (0, -0.0, 1, -1, 2, 3, -2, -3, 0.5, -0.5, INF, -INF, NAN, 2.5, 100, -100):
        x = np.array(bases, "float32")
        with np.errstate(all="ignore"):
            want = np.power(x.astype(np.float64), y).astype(np.float32)
        want[np.abs(want) < 2.0**-126] *= 0
        got = apply("pow", [x, np.full(len(x), y, "float32")], target, fixed=fixed)
        if y == 0.5:
            # NumPy takes a square root, also of -inf and -0; so does the fixed power
            got, want = abs(got[x > -INF]), abs(want[x > -INF])
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=2.0**-126, err_msg=f"power {y}")
        zero = want == 0
        np.testing.assert_array_equal(np.signbit(got)[zero], np.signbit(want)[zero])


@pytest.mark.parametrize("name", list(EXACT))
def test_scalars_and_vectors_give_the_same_bits(name: str) -> None:
    arrays = [a[:: len(a) // 400][:400].copy() for a in samples(name)]
    vector, scalar = (apply(name, arrays, lanes=n) for n in (4, 1))
    assert vector.tobytes() == scalar.tobytes()


def test_f64_is_not_computed_in_f32() -> None:
    with pytest.raises(CompilerBug, match="no Wasm for exp"):
        apply("exp", [np.array([0.5, 100.0])], lanes=1, dtype=F64)


def test_the_remainder_of_f64_is_exact() -> None:
    """Also of numbers that are smaller than every normal one, and by them."""
    tiny = [5e-324, 1.5e-323, 2.2e-308, 2.3e-308]
    few = np.array([*tiny, *np.negative(tiny), 0.1, -0.3, 7.0, 1e10, 1e300, 2.0**1023])
    x, y = (v.ravel() for v in np.meshgrid(few, few))
    got = apply("rem", [x, y], lanes=1, dtype=F64)
    assert got.tobytes() == np.fmod(x, y).tobytes()


def test_many_calls_share_one_helper() -> None:
    """A kernel that names a function often calls it, with the same bits as in place."""
    n = 32
    x = np.linspace(-3, 3, n).astype("float32")
    loads = [(index(k), Load(1, index(k), F32, 4)) for k in range(0, n, 4)]
    stores = tuple(Store(0, at, Call("erf", (x4,), F32, 4)) for at, x4 in loads)
    fn = TileFn("f", (Buffer(F32, n),) * 2, (), (), Var("tile", 1), (), stores, 1, ())
    assert not mathlib.inlined(fn)
    assert run(fn, [np.zeros(n, "float32"), x]).tobytes() == apply("erf", [x]).tobytes()


@pytest.mark.parametrize("name", list(mathfit.FITS))
def test_the_coefficients_come_from_the_fit(name: str) -> None:
    np.testing.assert_allclose(mathlib.COEFFICIENTS[name], mathfit.fit(name), rtol=1e-6)
