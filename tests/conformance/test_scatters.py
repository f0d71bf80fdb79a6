"""Operators that write at computed positions, on every host, against onnxruntime.

Indices are known to the compiler, or inputs; some repeat, and some count from the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from conftest import BundleOf, RunBundle
from onnx import ModelProto, TensorProto, helper, numpy_helper

from tilewright.base.errors import KernelTrap
from tilewright.compiler import compile_model
from tilewright.frontend import load

Array = np.ndarray[Any, Any]

X = np.arange(1, 13, dtype=np.float32).reshape(4, 3)
#: Rows, single elements, and elements along an axis: one of them twice.
INDICES = {
    "rows": ("ScatterND", [[2], [-4], [2]], (3, 3)),
    "elements": ("ScatterND", [[1, 2], [3, -3], [1, -1], [0, 0]], (4,)),
    "along": ("ScatterElements", [[0, 2, -1], [0, 1, 3]], (2, 3)),
}
REDUCTIONS = ("none", "add", "mul", "max", "min")


def model(name: str, reduction: str, known: bool) -> ModelProto:
    op, indices, shape = INDICES[name]
    given = [("x", TensorProto.FLOAT, X.shape), ("u", TensorProto.FLOAT, shape)]
    weights = []
    if known:
        weights.append(numpy_helper.from_array(np.array(indices), "i"))
    else:
        given.append(("i", TensorProto.INT64, np.shape(indices)))
    node = helper.make_node(op, ["x", "i", "u"], ["y"], name="put", reduction=reduction)
    graph = helper.make_graph(
        [node], "put", [helper.make_tensor_value_info(*each) for each in given],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, X.shape)], weights,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.by_turns
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("known", [True, False], ids=["known", "given"])
@pytest.mark.parametrize("name", INDICES)
def test_results_are_those_of_onnxruntime(
    name: str, known: bool, reduction: str, run_bundle: RunBundle, bundle_of: BundleOf
) -> None:
    _, indices, shape = INDICES[name]
    updates = np.random.default_rng(0).uniform(-9, 9, shape).astype(np.float32)
    if reduction == "none":  # which of two wins is not defined
        updates = np.full(shape, 7, np.float32)
    given = {"x": X, "u": updates} | ({} if known else {"i": np.array(indices)})
    proto = model(name, reduction, known)
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    path = bundle_of(
        f"{name}-{reduction}-{known}",
        lambda options: compile_model(load(proto), options).contents,
    )
    found: Array = run_bundle(path, given)["y"]
    np.testing.assert_allclose(found, session.run(None, given)[0], rtol=1e-6)


@pytest.mark.by_turns
def test_an_index_out_of_range_stops_the_run(run_bundle: RunBundle, bundle_of: BundleOf) -> None:
    proto = model("rows", "none", known=False)
    path = bundle_of("rows", lambda options: compile_model(load(proto), options).contents)
    given = {"x": X, "u": np.ones((3, 3), np.float32), "i": np.array([[0], [4], [1]])}
    with pytest.raises(KernelTrap) as caught:
        run_bundle(path, given)
    assert (caught.value.facts["op"], caught.value.facts["index"]) == ("ScatterND", 4)
