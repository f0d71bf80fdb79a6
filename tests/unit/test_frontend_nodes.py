"""The node tests that come with ONNX, on the graph interpreter, and cases that they leave out.

Input: `onnx.backend.test` cases, in memory.  Every case passes or is refused with a typed error;
none gives a wrong result.  The number that passes may only grow.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from frontend_factory import model, reference, run
from helpers.node_cases import HALF, Shapes, attempt, cases, inputs_of, wrong_outputs
from onnx import ModelProto, TensorProto, helper

from tilewright.base.dtypes import DECLARED
from tilewright.base.errors import TilewrightError
from tilewright.frontend import import_model, load
from tilewright.frontend.float16_types import Types, narrow_of
from tilewright.frontend.operator_table import supported
from tilewright.fusion.fuse import fuse
from tilewright.fusion.kernel_specs import kernel_steps
from tilewright.graph.node import Graph, render

#: Parts of the cases, which runs take by turns: one case of so many.
PARTS = 4
#: Of each part, measured with onnx 1.23.2 (1884 cases).  Raise them when more operators get a rule.
# (24 more would pass here in f64, where kernels have f32 only: those models are refused.)
FLOORS = (348, 336, 344, 348)

#: Operators whose every case of an opset and dtype that we have must pass.
COMPLETE = """
    Add And ArgMax ArgMin AveragePool BatchNormalization Clip Concat Conv ConvTranspose CumSum
    DepthToSpace Div Einsum Elu Equal Erf Exp Expand Flatten Gather GatherElements GatherND Gelu
    GRU Gemm GlobalAveragePool GroupNormalization HardSigmoid HardSwish InstanceNormalization LRN
    LSTM LayerNormalization LeakyRelu Less Log LogSoftmax MatMul Max Mean Min Mish Mod Mul Neg Not
    OneHot PRelu Pad Pow RMSNormalization RNN Range ReduceL1 ReduceL2 ReduceMax ReduceMean ReduceMin
    ReduceProd ReduceSum Relu Reshape ScatterElements ScatterND Shape Sigmoid Sign Slice Softmax
    Softplus SpaceToDepth Split Sqrt Squeeze Sub Sum Tanh Tile TopK Transpose Trilu Unsqueeze Where
    Xor
""".split()  # noqa: SIM905


@dataclass(frozen=True)
class Outcome:
    """What came of one case: "passed", an error's code, or "wrong"."""

    name: str
    ops: tuple[str, ...]
    result: str
    reason: str = ""


def imported(proto: ModelProto, shapes: Shapes) -> tuple[Graph, Types]:
    """The graph, and which of its outputs are f16 or bf16 (nodes are f32)."""
    return import_model(proto, shapes=shapes), narrow_of(load(proto))


def outcome(case: Any) -> Outcome:
    ops = tuple(sorted({n.op_type for n in case.model.graph.node}))
    try:
        graph, kinds = attempt(case, imported)
    except TilewrightError as error:
        return Outcome(case.name, ops, error.code, error.message)
    given = {n: x.astype("float32") if x.dtype.name in HALF else x
             for n, x in inputs_of(case).items()}  # fmt: skip
    results = zip((name for name, _ in graph.outputs), run(graph, given), strict=True)
    found = [(n, x.astype(DECLARED[kinds[n]].numpy) if n in kinds else x) for n, x in results]
    return Outcome(case.name, ops, "wrong" if wrong_outputs(case, dict(found)) else "passed")


@pytest.mark.parametrize("part", range(PARTS), ids="part{}".format)
def test_cases_pass_or_are_refused(part: int) -> None:
    """The reasons of refusals are printed: `pytest -rP` shows them."""
    outcomes = [outcome(case) for case in cases()[part::PARTS]]
    assert [o.name for o in outcomes if o.result == "wrong"] == []
    results = Counter(o.result for o in outcomes)
    print(dict(results), "of", len(outcomes))
    for (result, reason), count in Counter((o.result, o.reason) for o in outcomes).most_common():
        if result != "passed":
            print(f"{count:4d}  {result}: {reason}")
    assert results["passed"] >= FLOORS[part]
    assert set(results) <= {"passed", "unsupported-op", "unsupported-dtype", "invalid-model"}
    assert missed(outcomes) == []


def missed(outcomes: list[Outcome]) -> list[tuple[str, str]]:
    """What common operators do not pass."""
    return [
        (o.name, o.reason)
        for o in outcomes
        if len(o.ops) == 1
        and o.ops[0] in COMPLETE
        and o.result not in ("passed", "unsupported-dtype")
        and "opset" not in o.reason
        and "training mode" not in o.reason
    ]


def test_common_operators_have_a_rule() -> None:
    assert set(COMPLETE) <= set(supported())


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


@pytest.mark.parametrize("size", [16, 17, 64, 65, 100, 384, 4097])
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


def running(op: str, size: int) -> Graph:
    node = helper.make_node(op, ["x", "axis"], ["y"])
    return import_model(model([node], {"x": [size]}, ["y"], {"axis": np.array(0)}, opset=26))


@pytest.mark.parametrize("op", ["CumSum", "CumProd"])
@pytest.mark.parametrize("size", [10_000, 1_000_000])
def test_running_results_take_work_in_proportion_to_the_elements(op: str, size: int) -> None:
    graph = running(op, size)
    steps = kernel_steps(graph, fuse(graph))
    assert sum(step.kernel.flops for step in steps) < 64 * size


def test_long_running_sums_are_as_exact_as_one_after_the_other() -> None:
    x = np.random.default_rng(1).uniform(0, 1, 100_000).astype(np.float32)
    exact = np.cumsum(x, dtype=np.float64)
    (sums,) = run(running("CumSum", x.size), {"x": x})
    in_turn = np.cumsum(x, dtype=np.float32)
    assert np.abs(sums - exact).max() <= np.abs(in_turn - exact).max()


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
