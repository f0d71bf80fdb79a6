"""RNN, GRU and LSTM with every attribute, Scan and Loop, against onnxruntime.

Input: small layers with random weights.  The graph interpreter runs what the frontend made; that
kernels compute the same is shown in test_graph_scan.py and in the conformance suite.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from frontend_factory import Array, distance, reference, run
from onnx import TensorProto, helper, numpy_helper

from tilewright.base.errors import InvalidModel, UnsupportedOp
from tilewright.frontend import import_model

STEPS, BATCH, FEATURES, HIDDEN = 5, 3, 4, 6
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}

#: Name, operator, attributes, further operands of the layer.
LAYERS: list[tuple[str, str, dict[str, Any], Sequence[str]]] = [
    *((f"{op}-{way}", op, {"direction": way}, ("B",))
      for op in GATES for way in ("forward", "reverse", "bidirectional")),
    *((f"{op}-bare", op, {}, ()) for op in GATES),
    *((f"{op}-lengths", op, {"direction": "bidirectional"}, ("B", "lengths", "h")) for op in GATES),
    *((f"{op}-clip", op, {"clip": 0.3}, ("B", "h")) for op in GATES),
    ("LSTM-initial", "LSTM", {"direction": "bidirectional"}, ("B", "h", "c")),
    ("LSTM-peepholes", "LSTM", {}, ("B", "h", "c", "P")),
    ("LSTM-peepholes-lengths", "LSTM", {"direction": "reverse"}, ("B", "lengths", "h", "c", "P")),
    ("LSTM-coupled", "LSTM", {"input_forget": 1}, ("B", "h", "c")),
    ("LSTM-activations", "LSTM", {"activations": ["HardSigmoid", "ScaledTanh", "Softsign"],
     "activation_alpha": [0.3, 0.7], "activation_beta": [0.4, 0.6]}, ("B",)),
    ("GRU-after", "GRU", {"linear_before_reset": 1}, ("B", "h")),
    ("GRU-after-bare", "GRU", {"linear_before_reset": 1}, ()),
    ("GRU-after-lengths", "GRU",
     {"linear_before_reset": 1, "direction": "bidirectional"}, ("B", "lengths")),
    ("GRU-activations", "GRU", {"activations": ["Sigmoid", "LeakyRelu"],
     "activation_alpha": [0.2]}, ("B", "h")),
    ("RNN-activations", "RNN", {"direction": "bidirectional", "activations": ["Elu", "Affine"],
     "activation_alpha": [0.5, 0.8], "activation_beta": [0.1]}, ("B",)),
    ("RNN-softplus", "RNN", {"activations": ["Softplus"]}, ("B",)),
    ("RNN-relu", "RNN", {"activations": ["Relu"]}, ("B",)),
]  # fmt: skip


def layer(
    op: str, attributes: dict[str, Any], more: Sequence[str], fixed: bool = True
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """The layer with all outputs; `fixed`: weights are initializers, else inputs."""
    source = np.random.default_rng(len(more) + GATES[op])
    both = 2 if attributes.get("direction") == "bidirectional" else 1
    rows = GATES[op] * HIDDEN
    shapes = {
        "W": (both, rows, FEATURES), "R": (both, rows, HIDDEN), "B": (both, 2 * rows),
        "P": (both, 3 * HIDDEN), "h": (both, BATCH, HIDDEN), "c": (both, BATCH, HIDDEN),
    }  # fmt: skip
    order = ["X", "W", "R", "B", "lengths", "h", "c", "P"]
    taken = {"X", "W", "R", *more}
    given = [n if n in taken else "" for n in order[: max(order.index(n) for n in taken) + 1]]
    values = {n: source.standard_normal(s).astype(np.float32) * 0.7
              for n, s in shapes.items() if n in taken}  # fmt: skip
    weights = {n: v for n, v in values.items() if n in "WRBP"} if fixed else {}
    inputs = {"X": source.standard_normal((STEPS, BATCH, FEATURES)).astype(np.float32)}
    inputs |= {n: v for n, v in values.items() if n not in weights}
    if "lengths" in taken:
        inputs["lengths"] = np.array([5, 2, 3], np.int32)
    outputs = ["Y", "Yh"] + ["Yc"] * (op == "LSTM")
    node = helper.make_node(op, given, outputs, hidden_size=HIDDEN, **attributes)
    return graph_model([node], inputs, outputs, weights), inputs


def graph_model(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, Array],
    outputs: Sequence[str],
    weights: dict[str, Array],
) -> onnx.ModelProto:
    kinds = {"float32": TensorProto.FLOAT, "int32": TensorProto.INT32, "int64": TensorProto.INT64}
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info(n, kinds[v.dtype.name], v.shape) for n, v in inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
        [numpy_helper.from_array(v, n) for n, v in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def agree(proto: onnx.ModelProto, inputs: dict[str, Array]) -> None:
    ours = run(import_model(proto), inputs)
    theirs = reference(proto.SerializeToString(), inputs)
    for a, b in zip(ours, theirs, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        assert distance(a, b) < 2e-6


@pytest.mark.parametrize("case", LAYERS, ids=lambda case: case[0])
def test_layer_agrees_with_onnxruntime(
    case: tuple[str, str, dict[str, Any], Sequence[str]],
) -> None:
    _, op, attributes, more = case
    agree(*layer(op, attributes, more))


@pytest.mark.parametrize("op", GATES)
def test_weights_may_be_inputs(op: str) -> None:
    agree(*layer(op, {"direction": "bidirectional"}, ("B", "h"), fixed=False))


def test_known_full_lengths_cost_nothing() -> None:
    proto, inputs = layer("GRU", {}, ("B", "lengths"))
    del inputs["lengths"]
    kept = [i for i in proto.graph.input if i.name != "lengths"]
    del proto.graph.input[:]
    proto.graph.input.extend(kept)
    full = np.full(BATCH, STEPS, np.int32)
    proto.graph.initializer.append(numpy_helper.from_array(full, "lengths"))
    agree(proto, inputs)
    assert not any("where" in str(n.op) for n in import_model(proto).nodes())


def test_bad_attributes_are_refused() -> None:
    with pytest.raises(InvalidModel, match="direction"):
        import_model(layer("GRU", {"direction": "sideways"}, ())[0])
    with pytest.raises(UnsupportedOp, match="Swish"):
        import_model(layer("RNN", {"activations": ["Swish"]}, ())[0])
    with pytest.raises(InvalidModel, match="3 activations"):
        import_model(layer("LSTM", {"activations": ["Tanh"]}, ())[0])


# ---- Scan and Loop -------------------------------------------------------------------------------


def info(name: str, shape: Sequence[int] | None, kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def scan_model(**attributes: Any) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Two sequences, one state, one result, and a tensor of the graph around."""
    nodes = [
        helper.make_node("Mul", ["a", "outer"], ["ao"]),
        helper.make_node("Add", ["ao", "b"], ["ab"]),
        helper.make_node("Add", ["ab", "s"], ["new"]),
        helper.make_node("Tanh", ["new"], ["y"]),
    ]
    body = helper.make_graph(
        nodes, "body", [info("s", [4]), info("a", [4]), info("b", [4])],
        [info("new", [4]), info("y", [4])],
    )  # fmt: skip
    prepare = helper.make_node("Exp", ["x"], ["outer"])
    node = helper.make_node(
        "Scan", ["s0", "p", "q"], ["last", "every"], body=body, num_scan_inputs=2, **attributes
    )
    source = np.random.default_rng(3)
    axes = attributes.get("scan_input_axes", (0, 0))
    shapes = {"s0": (4,), "x": (4,), "p": (5, 4) if axes[0] == 0 else (4, 5),
              "q": (5, 4) if axes[1] == 0 else (4, 5)}  # fmt: skip
    inputs = {n: source.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    return graph_model([prepare, node], inputs, ["last", "every"], {}), inputs


@pytest.mark.parametrize("attributes", [
    {},
    {"scan_input_directions": [1, 0]},
    {"scan_input_directions": [0, 1], "scan_output_directions": [1]},
    {"scan_input_axes": [1, 0]},
    {"scan_input_axes": [1, -1], "scan_output_axes": [1]},
])  # fmt: skip
def test_scan_agrees_with_onnxruntime(attributes: dict[str, Any]) -> None:
    agree(*scan_model(**attributes))


def loop_model(trips: int, stop: bool = False) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """x times the number of the iteration, summed up; the condition is handed on."""
    nodes = [
        helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["x", "f"], ["xf"]),
        helper.make_node("Add", ["s", "xf"], ["new"]),
        helper.make_node("Identity", ["go"], ["go_on"]),
        helper.make_node("ReduceSum", ["new"], ["y"], keepdims=0),
    ]
    if stop:
        nodes[3] = helper.make_node("Not", ["go"], ["go_on"])
    body = helper.make_graph(
        nodes, "body",
        [info("i", [], TensorProto.INT64), info("go", [], TensorProto.BOOL), info("s", [4])],
        [info("go_on", [], TensorProto.BOOL), info("new", [4]), info("y", [])],
    )  # fmt: skip
    node = helper.make_node("Loop", ["trips", "", "s0"], ["last", "every"], body=body)
    source = np.random.default_rng(4)
    inputs = {n: source.standard_normal(4).astype(np.float32) for n in ("s0", "x")}
    weights = {"trips": np.array(trips, np.int64)}
    return graph_model([node], inputs, ["last", "every"], weights), inputs


@pytest.mark.parametrize("trips", [0, 1, 4])
def test_loop_agrees_with_onnxruntime(trips: int) -> None:
    agree(*loop_model(trips))


def test_a_loop_that_stops_by_itself_is_refused() -> None:
    with pytest.raises(UnsupportedOp, match="ends after its first iteration"):
        import_model(loop_model(4, stop=True)[0])
