"""Means on every host: of equal whole numbers that number, and norms of constant planes 0."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import BundleOf, RunBundle
from onnx import ModelProto, TensorProto, helper

from tilewright.compiler import compile_model
from tilewright.frontend import load

#: The largest count.  137 counts below, times a rounded reciprocal, give less than 1, first 41.
MOST = 1024


def means() -> ModelProto:
    """Pools over windows of 1 to 1024 elements, means over 41 and 49, and norms."""

    def wide(name: str, shape: list[int]) -> helper.onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    def weight(name: str, values: list[float]) -> TensorProto:
        return helper.make_tensor(name, TensorProto.FLOAT, [len(values)], values)

    ends = {"kernel_shape": [MOST], "pads": [MOST - 1, MOST - 1]}
    plane = [1, 4, 7, 41]
    nodes = [
        helper.make_node("AveragePool", ["line"], ["windows"], **ends),
        helper.make_node(
            "AveragePool", ["line"], ["padded"], kernel_shape=[41], pads=[40, 40],
            count_include_pad=1,
        ),
        helper.make_node("GlobalAveragePool", ["plane"], ["global"]),
        helper.make_node("ReduceMean", ["plane", "last"], ["rows"]),
        helper.make_node("Mean", ["plane"] * 41, ["several"]),
        helper.make_node("InstanceNormalization", ["plane", "four", "bias"], ["instance"]),
        helper.make_node("GroupNormalization", ["plane", "four", "bias"], ["group"], num_groups=2),
        helper.make_node("LayerNormalization", ["plane", "along", "shift"], ["layer"]),
        helper.make_node("MeanVarianceNormalization", ["plane"], ["standard"]),
    ]  # fmt: skip
    shapes = {"windows": [1, 1, 2 * MOST - 1], "padded": [1, 1, MOST + 40]}
    shapes |= {"global": [1, 4, 1, 1], "rows": [1, 4, 7, 1]}
    outputs = [wide(n.output[0], shapes.get(n.output[0], plane)) for n in nodes]
    weights = [
        weight("four", [3.0, 1.0, 2.0, 0.5]), weight("bias", [0.1, -2.0, 5.5, 0.0]),
        weight("along", [1.5] * 41), weight("shift", [0.3] * 41),
        helper.make_tensor("last", TensorProto.INT64, [1], [3]),
    ]  # fmt: skip
    inputs = [wide("line", [1, 1, MOST]), wide("plane", plane)]
    graph = helper.make_graph(nodes, "means", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def wanted(value: float) -> dict[str, np.ndarray]:
    """Of numbers that are all `value`."""
    f32 = np.float32
    bias = np.array([0.1, -2.0, 5.5, 0.0], f32).reshape(1, 4, 1, 1)
    counts = np.minimum(np.arange(1, MOST + 41), np.minimum(41, np.arange(MOST + 40, 0, -1)))
    return {
        "windows": np.full((1, 1, 2 * MOST - 1), value, f32),
        "padded": (counts * value / 41).astype(f32).reshape(1, 1, -1),
        "global": np.full((1, 4, 1, 1), value, f32),
        "rows": np.full((1, 4, 7, 1), value, f32),
        "several": np.full((1, 4, 7, 41), value, f32),
        "instance": np.broadcast_to(bias, (1, 4, 7, 41)),
        "group": np.broadcast_to(bias, (1, 4, 7, 41)),
        "layer": np.full((1, 4, 7, 41), 0.3, f32),
        "standard": np.zeros((1, 4, 7, 41), f32),
    }


@pytest.mark.by_turns
@pytest.mark.parametrize("value", [1.0, 1000.0, -7.0])
def test_means_of_equal_whole_numbers(
    value: float, run_bundle: RunBundle, bundle_of: BundleOf
) -> None:
    path = bundle_of("means", lambda options: compile_model(load(means()), options).contents)
    inputs = {"line": (1, 1, MOST), "plane": (1, 4, 7, 41)}
    found = run_bundle(path, {n: np.full(s, value, np.float32) for n, s in inputs.items()})
    for name, want in wanted(value).items():
        np.testing.assert_array_equal(found[name], want, err_msg=name)
