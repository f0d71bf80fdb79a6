"""Few long rows on every host: norms over groups and channels in both layouts, reductions, lengths
that no part divides.  NumPy in f64 is the judge.

The pictures are far from 0, so that a variance by squares of what is not centred would be wrong.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from conftest import BundleOf, RunBundle
from onnx import ModelProto, TensorProto, helper, numpy_helper

from tilewright.compiler import compile_model
from tilewright.frontend import load

PICTURE, PLANE, LINE = (1, 3, 64, 48), (2, 2, 131, 67), (2, 20011)
CHANNELS, GROUPS, SMALL_GROUPS = 16, 2, 8
#: Outputs with their shapes.
SHAPES = {
    "exported": (1, CHANNELS, *PICTURE[2:]), "small": (1, CHANNELS, *PICTURE[2:]),
    "channels": (1, CHANNELS, *PICTURE[2:]), "pooled": (1, CHANNELS, 1, 1),
    "plane_norm": PLANE, "plane_max": (2, 1, 1, 1), "mean": (), "total": (2,), "length": (2,),
    "largest": (2,), "soft": LINE, "layer": LINE,
}  # fmt: skip


def weights() -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(6)
    f32 = np.float32
    return {
        "filters": rng.standard_normal((CHANNELS, PICTURE[1], 1, 1), f32),
        "shift": 100 + rng.standard_normal(CHANNELS, f32),
        "scale": rng.standard_normal(CHANNELS, f32), "bias": rng.standard_normal(CHANNELS, f32),
        "ones": np.ones(GROUPS, f32), "zeros": np.zeros(GROUPS, f32),
        "two": np.array([1.5, -2.0], f32), "along": rng.standard_normal(LINE[1], f32),
        "wide": rng.standard_normal((CHANNELS, 1, 1), f32),
        "split": np.array([0, GROUPS, -1]), "whole": np.array(SHAPES["exported"]),
        "last": np.array([1]), "most": np.array([1, 2, 3]),
    }  # fmt: skip


def model() -> ModelProto:
    make = helper.make_node
    norm, group = "InstanceNormalization", "GroupNormalization"
    nodes = [
        make("Conv", ["picture", "filters", "shift"], ["x"]),
        # as PyTorch's exporter writes a group norm, then SiLU
        make("Reshape", ["x", "split"], ["groups"]),
        make(norm, ["groups", "ones", "zeros"], ["normed"]),
        make("Reshape", ["normed", "whole"], ["joined"]),
        make("Mul", ["joined", "wide"], ["scaled"]),
        make("Sigmoid", ["scaled"], ["gate"]),
        make("Mul", ["scaled", "gate"], ["exported"]),
        make(group, ["x", "scale", "bias"], ["small_normed"], num_groups=SMALL_GROUPS),
        make("Add", ["small_normed", "x"], ["small"]),
        make(norm, ["x", "scale", "bias"], ["channels"]),
        make("GlobalAveragePool", ["x"], ["pooled"]),
        make(group, ["plane", "two", "two"], ["plane_norm"], num_groups=1),
        make("ReduceMax", ["plane", "most"], ["plane_max"]),
        make("ReduceMean", ["plane"], ["mean"], keepdims=0),
        make("ReduceSum", ["line", "last"], ["total"], keepdims=0),
        make("ReduceL2", ["line", "last"], ["length"], keepdims=0),
        make("ArgMax", ["line"], ["largest"], axis=1, keepdims=0),
        make("LogSoftmax", ["line"], ["soft"], axis=1),
        make("LayerNormalization", ["line", "along"], ["layer"]),
    ]
    kinds = {"largest": TensorProto.INT64}
    graph = helper.make_graph(
        nodes, "long_rows",
        [
            helper.make_tensor_value_info(n, TensorProto.FLOAT, shape)
            for n, shape in (("picture", PICTURE), ("plane", PLANE), ("line", LINE))
        ],
        [
            helper.make_tensor_value_info(n, kinds.get(n, TensorProto.FLOAT), shape)
            for n, shape in SHAPES.items()
        ],
        [numpy_helper.from_array(value, name) for name, value in weights().items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def standard(x: np.ndarray, groups: int) -> np.ndarray:
    parts = x.reshape(x.shape[0], groups, -1)
    centred = parts - parts.mean(2, keepdims=True)
    return (centred / np.sqrt((centred**2).mean(2, keepdims=True) + 1e-5)).reshape(x.shape)


def wanted(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    w = {name: value.astype(np.float64) for name, value in weights().items()}
    picture, plane, line = (inputs[n].astype(np.float64) for n in ("picture", "plane", "line"))
    x = np.einsum("oi,nihw->nohw", w["filters"][..., 0, 0], picture)
    x += w["shift"].reshape(-1, 1, 1)
    scale, bias = (w[n].reshape(-1, 1, 1) for n in ("scale", "bias"))
    scaled, two = standard(x, GROUPS) * w["wide"], w["two"].reshape(-1, 1, 1)
    moved = line - line.max(1, keepdims=True)
    return {
        "exported": scaled / (1 + np.exp(-scaled)),
        "small": standard(x, SMALL_GROUPS) * scale + bias + x,
        "channels": standard(x, CHANNELS) * scale + bias,
        "pooled": x.mean((2, 3), keepdims=True),
        "plane_norm": standard(plane, 1) * two + two,
        "plane_max": plane.max((1, 2, 3), keepdims=True),
        "mean": plane.mean(),
        "total": line.sum(1),
        "length": np.sqrt((line**2).sum(1)),
        "largest": line.argmax(1),
        "soft": moved - np.log(np.exp(moved).sum(1, keepdims=True)),
        "layer": standard(line, 1) * w["along"],
    }


def bundle(bundle_of: BundleOf) -> Any:
    return bundle_of("long_rows", lambda options: compile_model(load(model()), options).contents)


@pytest.mark.by_turns
def test_few_long_rows(run_bundle: RunBundle, bundle_of: BundleOf) -> None:
    rng = np.random.default_rng(5)
    shapes = {"picture": PICTURE, "plane": PLANE, "line": LINE}
    inputs = {n: rng.standard_normal(s, np.float32) for n, s in shapes.items()}
    inputs["plane"] += np.float32(1000)
    found = run_bundle(bundle(bundle_of), inputs)
    for name, want in wanted(inputs).items():
        got = found[name].astype(np.float64)
        assert got.shape == SHAPES[name], name
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-3, err_msg=name)


@pytest.mark.by_turns
def test_equal_whole_numbers_in_long_rows(run_bundle: RunBundle, bundle_of: BundleOf) -> None:
    """A norm of them is its bias, and their mean is that number, exactly."""
    shapes = {"picture": PICTURE, "plane": PLANE, "line": LINE}
    found = run_bundle(bundle(bundle_of), {n: np.full(s, 7, np.float32) for n, s in shapes.items()})
    two = np.array([1.5, -2.0], np.float32).reshape(-1, 1, 1)
    np.testing.assert_array_equal(found["plane_norm"], np.broadcast_to(two, PLANE))
    np.testing.assert_array_equal(found["mean"], np.float32(7))
    np.testing.assert_array_equal(found["total"], np.full(2, 7 * prod(LINE[1:]), np.float32))
    np.testing.assert_array_equal(found["layer"], np.zeros(LINE, np.float32))
