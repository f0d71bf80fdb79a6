"""Functions of ONNX on every host, near 0, in their tails and far out, against f64.

Tolerance: 4 ULP, and 0 for what is smaller than the smallest normal number: hosts may keep
subnormal numbers or not.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan

import numpy as np
import pytest
from conftest import BundleOf, RunBundle
from making import Array
from onnx import ModelProto, helper

from tilewright.compiler import compile_model
from tilewright.frontend import load

TINY = 2.0**-126
LARGEST = float(np.finfo("float32").max)
CORNERS = (0.0, -0.0, inf, -inf, nan, 1.0, -1.0, 1e-20, -1e-20)


def elu(x: Array, alpha: float = 1.0, scale: float = 1.0) -> Array:
    return scale * np.where(x < 0, alpha * np.expm1(x), x)


def softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


SELU = (1.67326319217681884765625, 1.05070102214813232421875)

#: By operator: its meaning, the smallest and the largest number apart from corners, its attributes.
FUNCTIONS: dict[str, tuple[Callable[[Array], Array], float, float, dict[str, float]]] = {
    "Sinh": (np.sinh, 1e-30, 90.0, {}),
    "Cosh": (np.cosh, 1e-30, 90.0, {}),
    "Asinh": (np.arcsinh, 1e-30, LARGEST, {}),
    "Acosh": (np.arccosh, 1.0, LARGEST, {}),
    "Atanh": (np.arctanh, 1e-30, 1.0, {}),
    "Tanh": (np.tanh, 1e-30, 30.0, {}),
    "Softplus": (softplus, 1e-30, 100.0, {}),
    "Mish": (lambda x: x * np.tanh(softplus(x)), 1e-30, 91.0, {}),
    "Elu": (elu, 1e-30, 90.0, {}),
    "Celu": (lambda x: elu(x / 2) * 2, 1e-30, 180.0, {"alpha": 2.0}),
    "Selu": (lambda x: elu(x, *SELU), 1e-30, 90.0, {}),
    "Sin": (np.sin, 1e-30, LARGEST, {}),
    "Cos": (np.cos, 1e-30, LARGEST, {}),
    "Tan": (np.tan, 1e-30, LARGEST, {}),
}
COUNT = 400


def numbers(name: str) -> Array:
    """Of all exponents that the operator's numbers have, and corners."""
    _, low, high, _ = FUNCTIONS[name]
    rng = np.random.default_rng(0)
    sizes = np.exp(rng.uniform(np.log(low), np.log(high), COUNT))
    near = np.array([1 - 1e-6, 1 + 1e-6, 0.1, 17.0, 80.0, 88.7, 89.0, 2.0**26, 1e10, 1e30, high])
    own = np.concatenate([sizes, near[(near >= low) & (near <= high)]])
    return np.concatenate([own, -own, CORNERS]).astype(np.float32)


def functions() -> ModelProto:
    def tensor(name: str, of: str) -> helper.onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, helper.TensorProto.FLOAT, numbers(of).shape)

    nodes = [helper.make_node(n, [n], [f"y{n}"], **FUNCTIONS[n][3]) for n in FUNCTIONS]
    inputs = [tensor(n, n) for n in FUNCTIONS]
    graph = helper.make_graph(nodes, "g", inputs, [tensor(f"y{n}", n) for n in FUNCTIONS])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)])


def distance(got: Array, exact: Array) -> Array:
    """In units of the last place, or from 0 where that is smaller than a normal number."""
    with np.errstate(over="ignore"):
        want = exact.astype(np.float32)
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    with np.errstate(invalid="ignore"):
        unit = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(exact), TINY))) - 23)
        apart = np.abs(got - exact) / unit
    apart[(np.abs(exact) < TINY) & (np.abs(got) < TINY)] = 0
    return np.where(same, 0, np.where(np.isnan(apart), inf, apart))


@pytest.mark.by_turns
def test_functions_near_0_and_far_out(run_bundle: RunBundle, bundle_of: BundleOf) -> None:
    path = bundle_of(
        "functions", lambda options: compile_model(load(functions()), options).contents
    )
    given = {n: numbers(n) for n in FUNCTIONS}
    found = run_bundle(path, given)
    for name, (meaning, *_) in FUNCTIONS.items():
        with np.errstate(all="ignore"):
            exact = meaning(given[name].astype(np.float64))
        apart = distance(found[f"y{name}"].astype(np.float64), exact)
        at = int(np.argmax(apart))
        got = f"{found[f'y{name}'][at]}, not {exact[at]}"
        assert apart[at] <= 4, f"{name} of {given[name][at]} is {got}: {apart[at]:.3g} ULP"


def pairs(dtype: str) -> tuple[Array, Array]:
    """Every pair of some numbers."""
    if dtype == "float32":
        few = [0.1, 0.3, 7.0, 1e10, 1e30, LARGEST, 3e-38, 16777216.0, *CORNERS]
        rng = np.random.default_rng(1)
        some = np.exp(rng.uniform(-80, 85, 20)) * rng.choice([-1, 1], 20)
        values = np.concatenate([few, np.negative(few), some])
    else:
        limits = np.iinfo(dtype)
        below = [-1, -3, -7, -100] if limits.min else []
        values = np.array([0, 1, 2, 3, 7, 100, limits.max, limits.min, *below], dtype)
    a, b = np.meshgrid(values, values[values != 0] if dtype != "float32" else values)
    return a.ravel().astype(dtype), b.ravel().astype(dtype)


REMAINDERS = [
    ("float32", 1),
    *((t, f) for t in ("int8", "uint8", "int32", "int64") for f in (0, 1)),
]


def remainders() -> ModelProto:
    nodes, ends = [], []
    for dtype, fmod in REMAINDERS:
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        names = [f"{end}-{dtype}-{fmod}" for end in "abr"]
        nodes.append(helper.make_node("Mod", names[:2], names[2:], fmod=fmod))
        shape = pairs(dtype)[0].shape
        ends.append([helper.make_tensor_value_info(name, kind, shape) for name in names])
    inputs = [value for a, b, _ in ends for value in (a, b)]
    graph = helper.make_graph(nodes, "g", inputs, [r for *_, r in ends])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])


@pytest.mark.by_turns
def test_remainders_are_exact(run_bundle: RunBundle, bundle_of: BundleOf) -> None:
    """With the sign of the dividend (fmod=1) or of the divisor, however large the quotient."""
    path = bundle_of(
        "remainders", lambda options: compile_model(load(remainders()), options).contents
    )
    given = {}
    for dtype, fmod in REMAINDERS:
        given[f"a-{dtype}-{fmod}"], given[f"b-{dtype}-{fmod}"] = pairs(dtype)
    found = run_bundle(path, given)
    for dtype, fmod in REMAINDERS:
        with np.errstate(all="ignore"):
            want = (np.fmod if fmod else np.mod)(*pairs(dtype))
        got = found[f"r-{dtype}-{fmod}"]
        np.testing.assert_array_equal(got, want, err_msg=f"{dtype} with fmod={fmod}")
        if dtype == "float32":
            known = ~np.isnan(want)
            np.testing.assert_array_equal(np.signbit(got)[known], np.signbit(want)[known])
