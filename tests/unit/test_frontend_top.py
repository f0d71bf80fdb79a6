"""TopK against NumPy: ties, both orders, any axis, every element type, what is no number."""

from __future__ import annotations

import numpy as np
import pytest
from frontend_factory import run
from onnx import TensorProto, helper, numpy_helper

from tilewright.base.errors import InvalidModel, UnsupportedDType
from tilewright.frontend import import_model
from tilewright.fusion.fuse import fuse
from tilewright.fusion.kernel_specs import kernel_steps
from tilewright.graph import ops

KINDS = {
    TensorProto.FLOAT: "f4", TensorProto.INT32: "i4", TensorProto.INT64: "i8",
    TensorProto.INT8: "i1", TensorProto.UINT8: "u1",
}  # fmt: skip


@pytest.mark.parametrize("largest", [1, 0])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("shape", "axis", "k"),
    [
        ((7,), 0, 3), ((1,), 0, 1), ((2, 256), -1, 256), ((2, 257), 1, 5), ((3, 1000, 2), 1, 40),
        ((700,), 0, 300), ((5000,), 0, 1), ((3, 0, 2), 1, 0), ((2, 5), 1, 0), ((0, 5), 1, 2),
    ],
)  # fmt: skip
def test_the_best_in_order(
    shape: tuple[int, ...], axis: int, k: int, kind: int, largest: int
) -> None:
    x = np.random.default_rng(k).integers(-40, 40, shape).astype(KINDS[kind])
    wide = x.astype("i8")
    want = np.argsort(-wide if largest else wide, axis=axis, kind="stable").take(range(k), axis)
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


@pytest.mark.parametrize("k", [1, 6])
def test_what_is_no_number_is_larger_than_all(k: int) -> None:
    x = np.array([1, np.nan, -np.inf, 0, -np.nan, -0.0, np.inf], "f4")
    for largest, want in ((1, [1, 4, 6, 0, 3, 5]), (0, [2, 3, 5, 0, 6, 1])):
        values, places = run(
            import_model(model_of((7,), 0, k, TensorProto.FLOAT, largest)), {"x": x}
        )
        assert places.tolist() == want[:k]
        np.testing.assert_array_equal(values, x[want[:k]])


@pytest.mark.parametrize("kind", [TensorProto.INT32, TensorProto.INT64])
def test_the_ends_of_integers_are_in_order(kind: int) -> None:
    ends = np.iinfo(KINDS[kind])
    x = np.array([ends.max, ends.min, 5, ends.max, 0, ends.min], KINDS[kind])
    for largest, want in ((1, [0, 3, 2, 4, 1, 5]), (0, [1, 5, 4, 2, 0, 3])):
        _, places = run(import_model(model_of((6,), 0, 6, kind, largest)), {"x": x})
        assert places.tolist() == want


@pytest.mark.parametrize("size", [1000, 100_000])
def test_constants_do_not_grow_with_the_row(size: int) -> None:
    for shape in ((1, size), (2, size), (size // 10, 10)):
        graph = import_model(model_of(shape, 1, shape[1] // 2, TensorProto.FLOAT, 1))
        kernels = [step.kernel for step in kernel_steps(graph, fuse(graph))]
        constants = [n for n in graph.nodes() if isinstance(n.op, ops.Constant)]
        assert sum(n.size for n in constants) < 20
        # each reads what was given or another one has made, and nothing beside it
        assert sum(len(kernel.buffers) - 1 for kernel in kernels) <= 5


def test_more_than_there_are_is_refused() -> None:
    with pytest.raises(InvalidModel, match="TopK of 8 elements along an axis of 7") as caught:
        import_model(model_of((7,), 0, 8, TensorProto.FLOAT, 1))
    assert caught.value.facts["limit"] == 7


def test_truth_values_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedDType, match="TopK of booleans"):
        import_model(model_of((7,), 0, 2, TensorProto.BOOL, 1))


def model_of(shape: tuple[int, ...], axis: int, k: int, kind: int, largest: int):
    node = helper.make_node("TopK", ["x", "k"], ["v", "i"], axis=axis, largest=largest)
    outputs = [("v", kind), ("i", TensorProto.INT64)]
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info(n, t, None) for n, t in outputs],
        [numpy_helper.from_array(np.array([k], "i8"), "k")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
