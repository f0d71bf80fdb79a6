"""The node tests that come with ONNX, on the graph interpreter, and cases that they leave out.

Input: `onnx.backend.test` cases, in memory.  Every case passes or is refused with a typed error;
none gives a wrong result.  The number that passes may only grow.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
from frontend_factory import Array, model, reference, run
from onnx import TensorProto, helper, numpy_helper

from tilewright.base.errors import TilewrightError, UnsupportedOp
from tilewright.frontend import import_model
from tilewright.frontend.table import supported
from tilewright.graph.node import Graph, render

#: Measured with onnx 1.23.2 (1884 cases).  Raise it when more operators get a rule.
# (24 more would pass here in f64, where kernels have f32 only: those models are refused.)
FLOOR = 1313

#: Operators whose every case of an opset and dtype that we have must pass.
COMPLETE = """
    Add And ArgMax ArgMin AveragePool BatchNormalization Clip Concat Conv ConvTranspose CumSum
    DepthToSpace Div Einsum Elu Equal Erf Exp Expand Flatten Gather GatherElements GatherND Gelu
    GRU Gemm GlobalAveragePool GroupNormalization HardSigmoid HardSwish InstanceNormalization LRN
    LSTM LayerNormalization LeakyRelu Less Log LogSoftmax MatMul Max Mean Min Mish Mod Mul Neg Not
    OneHot PRelu Pad Pow RMSNormalization RNN Range ReduceL1 ReduceL2 ReduceMax ReduceMean ReduceMin
    ReduceProd ReduceSum Relu Reshape Shape Sigmoid Sign Slice Softmax Softplus SpaceToDepth
    Split Sqrt Squeeze Sub Sum Tanh Tile Transpose Trilu Unsqueeze Where Xor
""".split()  # noqa: SIM905

HALF = ("float16", "bfloat16")


@dataclass(frozen=True)
class Outcome:
    """What came of one case: "passed", an error's code, or "wrong"."""

    name: str
    ops: tuple[str, ...]
    result: str
    reason: str = ""


def array(value: Any) -> Array:
    return (
        numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)
    )


def widened(value: Array) -> Array:
    return value.astype(np.float32) if value.dtype.name in HALF else value


def frozen(proto: onnx.ModelProto, values: Sequence[Array]) -> onnx.ModelProto:
    """Operands that decide shapes as weights, as they come in real models."""
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    del made.graph.input[:]
    for i, (info, value) in enumerate(zip(proto.graph.input, values, strict=True)):
        if value.dtype.kind in "iub" or (value.size <= 16 and (i or not value.ndim)):
            made.graph.initializer.append(numpy_helper.from_array(value, info.name))
        else:
            made.graph.input.append(info)
    return made


def imported(proto: onnx.ModelProto, values: Sequence[Array]) -> Graph:
    def graph_of(model: onnx.ModelProto) -> Graph:
        names = {i.name for i in model.graph.input}
        every = zip(proto.graph.input, values, strict=True)
        return import_model(model, shapes={i.name: v.shape for i, v in every if i.name in names})

    try:
        return graph_of(proto)
    except UnsupportedOp as error:
        if "at run time" not in error.message:
            raise
        return graph_of(frozen(proto, values))


def agrees(ours: Array, theirs: Array, case: Any) -> bool:
    half = theirs.dtype.name in HALF
    rtol, atol = (1e-2, 1e-3) if half else (case.rtol, case.atol)
    close = np.allclose(
        ours.astype(np.float64), theirs.astype(np.float64), rtol=rtol, atol=atol, equal_nan=True
    )
    return ours.shape == theirs.shape and (half or ours.dtype == theirs.dtype) and bool(close)


def outcome(case: Any) -> Outcome:
    ops = tuple(sorted({n.op_type for n in case.model.graph.node}))
    given, wanted = case.data_sets[0]
    if any(isinstance(v, (list, tuple)) or v is None for v in (*given, *wanted)):
        return Outcome(case.name, ops, "unsupported-op", "sequences and optional values")
    values = [array(v) for v in given]
    try:
        graph = imported(case.model, values)
    except TilewrightError as error:
        return Outcome(case.name, ops, error.code, error.message)
    inputs = {i.name: widened(v) for i, v in zip(case.model.graph.input, values, strict=True)}
    pairs = zip(run(graph, inputs), wanted, strict=True)
    good = all(agrees(ours, array(theirs), case) for ours, theirs in pairs)
    return Outcome(case.name, ops, "passed" if good else "wrong")


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ONNX computes some expected values with overflow
        from onnx.backend.test.case.node import collect_testcases

        return [outcome(case) for case in collect_testcases(None)]


def test_no_case_gives_a_wrong_result(outcomes: list[Outcome]) -> None:
    assert [o.name for o in outcomes if o.result == "wrong"] == []


def test_the_number_of_passing_cases_only_grows(outcomes: list[Outcome]) -> None:
    """The reasons of the rest are printed: `pytest -rP` shows them."""
    results = Counter(o.result for o in outcomes)
    print(dict(results), "of", len(outcomes))
    for (result, reason), count in Counter((o.result, o.reason) for o in outcomes).most_common():
        if result != "passed":
            print(f"{count:4d}  {result}: {reason}")
    assert results["passed"] >= FLOOR
    assert set(results) <= {"passed", "unsupported-op", "unsupported-dtype", "invalid-model"}


def test_common_operators_pass_every_case(outcomes: list[Outcome]) -> None:
    known = set(supported())
    assert set(COMPLETE) <= known
    missed = [
        (o.name, o.reason)
        for o in outcomes
        if len(o.ops) == 1
        and o.ops[0] in COMPLETE
        and o.result not in ("passed", "unsupported-dtype")
        and "opset" not in o.reason
        and "training mode" not in o.reason
    ]
    assert missed == []


@pytest.mark.parametrize("exponent", [0, 1, 5, 6, 15, 21])
def test_a_known_power_of_integers_is_exact(exponent: int) -> None:
    """No target need have a `pow` of 64 bits for it."""
    nodes = [
        helper.make_node("Cast", ["x"], ["i"], to=TensorProto.INT64),
        helper.make_node("Pow", ["i", "e"], ["y"]),
    ]
    graph = import_model(model(nodes, {"x": [3]}, ["y"], {"e": np.array(exponent)}))
    assert "pow" not in render(graph)
    (y,) = run(graph, {"x": np.array([-3, 0, 7], np.float32)})
    assert y.tolist() == [(-3) ** exponent, 0**exponent, 7**exponent]


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin", "Sign"])
def test_nan_is_treated_as_by_the_reference(op: str) -> None:
    x = np.array([[1, np.nan, 3, np.nan], [np.nan, 0, -2, 1], [3, 1, 4, 1]], np.float32)
    attributes = {} if op == "Sign" else {"axis": 1}
    proto = model([helper.make_node(op, ["x"], ["y"], **attributes)], {"x": [3, 4]}, ["y"])
    wanted = np.sign(x) if op == "Sign" else getattr(np, op.lower())(x, axis=1)[:, None]
    np.testing.assert_array_equal(run(import_model(proto), {"x": x})[0], wanted)


@pytest.mark.parametrize("size", [64, 65, 100, 384, 4097])
@pytest.mark.parametrize("attributes", [{}, {"exclusive": 1}, {"reverse": 1},
                                        {"exclusive": 1, "reverse": 1}])  # fmt: skip
def test_long_running_sums(size: int, attributes: dict[str, int]) -> None:
    """Long axes are summed in blocks; whole numbers make every order of sums equal."""
    node = helper.make_node("CumSum", ["x", "axis"], ["y"], **attributes)
    proto = model([node], {"x": [2, size, 3]}, ["y"], {"axis": np.array(1)})
    x = np.random.default_rng(size).integers(-9, 9, (2, size, 3)).astype(np.float32)
    line = x[:, ::-1] if attributes.get("reverse") else x
    want = np.cumsum(line, 1) - (line if attributes.get("exclusive") else 0)
    want = want[:, ::-1] if attributes.get("reverse") else want
    np.testing.assert_array_equal(run(import_model(proto), {"x": x})[0], want)


@pytest.mark.parametrize(("size", "scale"), [(10, 1.3), (6, 1.2), (16, 1.7), (33, 0.7), (10, 2.1)])
@pytest.mark.parametrize("nearest", ["floor", "ceil", "round_prefer_floor"])
def test_resize_rounds_as_the_reference(size: int, scale: float, nearest: str) -> None:
    """In f32 10 * 1.3 is 13, in f64 a little less; and 6 / 1.2 is 5 or the one before."""
    for places in ("asymmetric", "half_pixel", "pytorch_half_pixel"):
        node = helper.make_node(
            "Resize", ["x", "", "s"], ["y"], mode="nearest", nearest_mode=nearest,
            coordinate_transformation_mode=places,
        )  # fmt: skip
        by = np.array([1, scale], np.float32)
        proto = model([node], {"x": [1, size]}, ["y"], {"s": by})
        x = np.arange(size, dtype=np.float32)[None]
        (want,) = reference(proto.SerializeToString(), {"x": x})
        np.testing.assert_array_equal(run(import_model(proto), {"x": x})[0], want)
