"""TopK against NumPy: every size of blocks, ties, both orders, any axis."""

from __future__ import annotations

import numpy as np
import pytest
from frontend_factory import run
from onnx import TensorProto, helper, numpy_helper

from tilewright.base.errors import InvalidModel
from tilewright.frontend import import_model

KINDS = {TensorProto.FLOAT: "f4", TensorProto.INT32: "i4"}


@pytest.mark.parametrize("largest", [1, 0])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("shape", "axis", "k"),
    [
        ((7,), 0, 3), ((1,), 0, 1), ((2, 256), -1, 256), ((2, 257), 1, 5), ((3, 1000, 2), 1, 40),
        ((700,), 0, 300), ((5000,), 0, 1),
    ],
)  # fmt: skip
def test_the_best_in_order(
    shape: tuple[int, ...], axis: int, k: int, kind: int, largest: int
) -> None:
    x = np.random.default_rng(k).integers(-40, 40, shape).astype(KINDS[kind])
    want = np.argsort(-x if largest else x, axis=axis, kind="stable").take(range(k), axis)
    proto = model_of(shape, axis, k, kind, largest)
    values, places = run(import_model(proto), {"x": x})
    np.testing.assert_array_equal(places, want)
    np.testing.assert_array_equal(values, np.take_along_axis(x, want, axis))


def test_infinite_values_are_elements_like_others() -> None:
    x = np.full(300, -np.inf, "f4")
    x[[7, 280]] = 1, np.inf
    proto = model_of((300,), 0, 4, TensorProto.FLOAT, 1)
    values, places = run(import_model(proto), {"x": x})
    assert places.tolist() == [280, 7, 0, 1]
    assert values.tolist() == [np.inf, 1, -np.inf, -np.inf]


def test_more_than_there_are_is_refused() -> None:
    with pytest.raises(InvalidModel, match="TopK of 8"):
        import_model(model_of((7,), 0, 8, TensorProto.FLOAT, 1))


def model_of(shape: tuple[int, ...], axis: int, k: int, kind: int, largest: int):
    node = helper.make_node("TopK", ["x", "k"], ["v", "i"], axis=axis, largest=largest)
    outputs = [("v", kind), ("i", TensorProto.INT64)]
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info(n, t, None) for n, t in outputs],
        [numpy_helper.from_array(np.array([k], "i8"), "k")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
