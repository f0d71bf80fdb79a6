"""One-node models of old opsets: for every operator that changed, each way to write it.

Input: nothing.  Output: `CASES`, each with the opsets at which it is written this way, and
`changed()`, the operators that ONNX's own history of definitions asks for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, defs, helper, numpy_helper

from tilewright.frontend.operator_table import supported
from tilewright.frontend.opsets import OLDEST, RULES
from tilewright.frontend.subgraphs import CONTROL

Array = np.ndarray[Any, np.dtype[Any]]
NEWEST_OLD = RULES - 1


@dataclass(frozen=True)
class Case:
    """A node: operands x0, x1, ... are `inputs`, the others `weights` (None: left out)."""

    op: str
    inputs: tuple[Array, ...]
    weights: tuple[Array | None, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    since: int = OLDEST
    until: int = NEWEST_OLD
    outputs: int = 1
    operands: tuple[str, ...] | None = None

    def __str__(self) -> str:
        words = (f"{k}={v}" for k, v in self.attributes.items() if not hasattr(v, "name"))
        return "-".join([self.op, *words]).replace(" ", "")

    def model(self, opset: int) -> onnx.ModelProto:
        given = {f"x{k}": x for k, x in enumerate(self.inputs)}
        held = {f"w{k}": w for k, w in enumerate(self.weights)}
        names = [*given, *(k if w is not None else "" for k, w in held.items())]
        made = [f"y{k}" for k in range(self.outputs)]
        reads = names if self.operands is None else self.operands
        graph = helper.make_graph(
            [helper.make_node(self.op, reads, made, **self.attributes)],
            "case",
            [helper.make_tensor_value_info(k, _kind(x), x.shape) for k, x in given.items()],
            [helper.make_empty_tensor_value_info(k) for k in made],
            [numpy_helper.from_array(w, k) for k, w in held.items() if w is not None],
        )
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=7
        )


def _kind(x: Array) -> int:
    return int(helper.np_dtype_to_tensor_dtype(x.dtype))


def changed() -> dict[tuple[str, int], range]:
    """(operator, since) of every old definition of ours that opset `RULES` replaces: its opsets."""
    ours = {name for name in supported() if "." not in name} | set(CONTROL) | {"Upsample"}
    found: dict[tuple[str, int], list[int]] = {}
    for name in ours:
        for opset in range(OLDEST, RULES):
            if not defs.has(name, opset):
                continue
            since = defs.get_schema(name, opset).since_version
            new = defs.get_schema(name, RULES).since_version if defs.has(name, RULES) else None
            if since != new:
                found.setdefault((name, since), []).append(opset)
    return {key: range(opsets[0], opsets[-1] + 1) for key, opsets in found.items()}


def _floats(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _ints(*shape: int, top: int = 9) -> Array:
    return np.random.default_rng(1).integers(0, top, shape)


def _list(*values: int) -> Array:
    return np.array(values, np.int64)


def _graph(
    nodes: Sequence[onnx.NodeProto], inputs: Mapping[str, int], outputs: Sequence[str]
) -> onnx.GraphProto:
    """The graph that a node holds; `inputs` gives their element types, floats have any shape."""
    given = [
        helper.make_tensor_value_info(n, kind, None if kind == TensorProto.FLOAT else [])
        for n, kind in inputs.items()
    ]
    made = [helper.make_empty_tensor_value_info(n) for n in outputs]
    return helper.make_graph(list(nodes), "inner", given, made)


def _branch(op: str) -> onnx.GraphProto:
    """A reduction of the outer x0 over its last axis, as old opsets write it."""
    return _graph([helper.make_node(op, ["x0"], ["t"], axes=[2], keepdims=0)], {}, ["t"])


def _body(in_loop: bool) -> onnx.GraphProto:
    """state, element e -> state + the old softmax of e; the sum of that.  In a Loop e is x1."""
    nodes = [
        helper.make_node("Softmax", ["x1" if in_loop else "e"], ["p"], axis=0),
        helper.make_node("Add", ["state", "p"], ["next"]),
        helper.make_node("ReduceSum", ["next"], ["total"], axes=[0], keepdims=0),
    ]
    if not in_loop:
        inputs = {"state": TensorProto.FLOAT, "e": TensorProto.FLOAT}
        return _graph(nodes, inputs, ["next", "total"])
    nodes.append(helper.make_node("Identity", ["going"], ["go on"]))
    inputs = {"i": TensorProto.INT64, "going": TensorProto.BOOL, "state": TensorProto.FLOAT}
    return _graph(nodes, inputs, ["go on", "next", "total"])


X = _floats(2, 3, 4)
IMAGE = _floats(2, 4, 10, 6)
POSITIVE = np.abs(X) + np.float32(0.1)
CHANNELS = tuple(np.abs(_floats(4, seed=k)) + np.float32(0.5) for k in range(4))
WINDOWS = ({"strides": [2, 1], "pads": [1, 0, 1, 1]}, {"auto_pad": "SAME_LOWER", "strides": [2, 2]})
REDUCTIONS = [
    f"Reduce{k}" for k in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum",
                           "SumSquare")
]  # fmt: skip


def _elementwise() -> Iterator[Case]:
    for op in ("Abs", "Ceil", "Exp", "Floor", "Identity", "Neg", "Relu", "Sigmoid", "Tanh"):
        yield Case(op, (X,))
    for op in ("Log", "Reciprocal", "Sqrt"):
        yield Case(op, (POSITIVE,))
    for op in ("Erf", "Sign"):
        yield Case(op, (X,), since=9)
    yield Case("IsNaN", (np.where(X > 0, X, np.nan).astype(np.float32),), since=9)
    for op in ("Add", "Sub", "Mul", "Div", "Greater", "Less"):
        yield Case(op, (X, _floats(3, 1, seed=1)))
    for op in ("Greater", "Less"):
        yield Case(op, (_ints(2, 3), _ints(3)), since=9)
    for axis in (0, -1):
        yield Case("TopK", (X,), attributes={"k": 2, "axis": axis}, until=9, outputs=2)
        yield Case("TopK", (X,), (np.array([2]),), {"axis": axis}, since=10, outputs=2)
    yield Case("Pow", (POSITIVE, _floats(3, 1, seed=1)))
    yield Case("Pow", (POSITIVE,), (np.array(2, np.int64),), since=12)
    yield Case("Equal", (_ints(2, 3, top=2), _ints(3, top=2)))
    yield Case("Equal", (np.round(X), np.round(_floats(4, seed=1))), since=11)
    yield Case("Mod", (_ints(2, 3), _ints(3) + 1), since=10)
    for op in ("Max", "Min", "Mean", "Sum"):
        yield Case(op, (X, _floats(2, 3, 4, seed=1), _floats(2, 3, 4, seed=2)))
        yield Case(op, (X, _floats(3, 1, seed=1)), since=8)
    yield Case("Max", (_ints(2, 3), _ints(3)), since=12)
    yield Case("Min", (_ints(2, 3), _ints(3)), since=12)
    for to in (TensorProto.INT32, TensorProto.BOOL, TensorProto.DOUBLE):
        yield Case("Cast", (X * 3,), attributes={"to": to})
    wide = X * np.float32(np.inf)
    for bounds in ({"min": -0.5, "max": 0.5}, {"max": 0.5}, {"min": 0.0}, {}):
        yield Case("Clip", (X,), attributes=bounds, until=10)
        yield Case("Clip", (wide,), attributes=bounds, until=10)
    low, high = np.float32(-0.5), np.float32(0.5)
    for limits in ((low, high), (None, high), (low,), ()):
        yield Case("Clip", (X,), tuple(limits), since=11)
    yield Case("PRelu", (X,), (_floats(3, 1, seed=1),))


def _neural() -> Iterator[Case]:
    for a in WINDOWS:
        a = {"kernel_shape": [3, 2], **a}
        yield Case("Conv", (IMAGE,), (_floats(6, 2, 3, 2), _floats(6)), {"group": 2, **a})
        yield Case("ConvTranspose", (IMAGE,), (_floats(4, 3, 3, 2), _floats(3)), a)
        for op in ("AveragePool", "LpPool", "MaxPool"):
            yield Case(op, (IMAGE,), attributes=a)
    square = {"kernel_shape": [3, 3], "strides": [2, 2]}
    yield Case(
        "AveragePool", (IMAGE,), attributes=square | {"count_include_pad": 1, "pads": [1] * 4}
    )
    yield Case("AveragePool", (IMAGE,), attributes=square | {"ceil_mode": 1}, since=10)
    yield Case("MaxPool", (IMAGE,), attributes=square | {"ceil_mode": 1}, since=10)
    yield Case("MaxPool", (IMAGE,), attributes=square | {"dilations": [2, 2]}, since=10)
    yield Case("BatchNormalization", (IMAGE,), CHANNELS, {"epsilon": 1e-3, "momentum": 0.8})
    yield Case("BatchNormalization", (IMAGE,), CHANNELS, {"spatial": 1}, until=8)
    yield Case("LRN", (IMAGE,), attributes={"size": 3, "alpha": 0.1, "beta": 0.7, "bias": 1.5})
    yield Case("MeanVarianceNormalization", (IMAGE,), since=9)
    yield Case("Dropout", (X,), attributes={"ratio": 0.3}, until=11)
    yield Case("Dropout", (X,), until=11)
    yield Case("Dropout", (X,), (np.float32(0.3),), since=12)
    yield Case("MatMul", (X, _floats(2, 4, 5, seed=1)))
    yield Case("Gemm", (_floats(3, 4),), (_floats(5, 4), _floats(5)), {"transB": 1, "alpha": 0.5})
    yield Case("Gemm", (_floats(3, 4),), (_floats(4, 5),), since=11)
    quantised, scale, zero = _ints(2, 3, top=255).astype(np.uint8), np.float32(0.05), np.uint8(120)
    for shape in ((), (1,)):
        one = (scale.reshape(shape), zero.reshape(shape))
        yield Case("QuantizeLinear", (X,), one, since=10)
        yield Case("DequantizeLinear", (quantised,), one, since=10)


def _rows() -> Iterator[Case]:
    """Softmax and its kin: before opset 13 all axes from `axis` on are one row."""
    for op in ("Softmax", "LogSoftmax", "Hardmax"):
        yield Case(op, (X,))
        for rank in (1, 2, 3, 4):
            x = _floats(*(2, 3, 4, 5)[:rank])
            for axis in range(rank):
                yield Case(op, (x,), attributes={"axis": axis})
                yield Case(op, (x,), attributes={"axis": axis - rank}, since=11)


def _reductions() -> Iterator[Case]:
    for op in REDUCTIONS:
        for a in ({}, {"axes": [1]}, {"axes": [0, 2], "keepdims": 0}):
            yield Case(op, (POSITIVE,), attributes=a)
        yield Case(op, (POSITIVE,), attributes={"axes": [-1]}, since=11)
    for op in ("ArgMax", "ArgMin"):
        for a in ({}, {"axis": 1, "keepdims": 0}):
            yield Case(op, (np.round(X),), attributes=a)
        yield Case(op, (np.round(X),), attributes={"axis": -1}, since=11)
        yield Case(op, (np.round(X),), attributes={"axis": 2, "select_last_index": 1}, since=12)


def _movement() -> Iterator[Case]:
    yield Case("Concat", (X, _floats(2, 1, 4)), attributes={"axis": 1})
    yield Case("Concat", (X, _floats(2, 3, 1)), attributes={"axis": -1}, since=11)
    yield Case("Expand", (_floats(3, 1),), (_list(2, 1, 4),), since=8)
    for axis in (0, 1, 2, 3):
        yield Case("Flatten", (X,), attributes={"axis": axis})
    yield Case("Flatten", (X,))
    yield Case("Flatten", (X,), attributes={"axis": -1}, since=11)
    yield Case("Gather", (X,), (_list(2, 0),), {"axis": 1})
    yield Case("Gather", (X,), (_list(-1, 0),), {"axis": -1}, since=11)
    yield Case("GatherElements", (X,), (_ints(2, 3, 2, top=4),), {"axis": 2}, since=11)
    yield Case("ScatterElements", (X,), (_list(2, -1).reshape(1, 1, 2), _floats(1, 1, 2)),
               {"axis": 2}, since=11)  # fmt: skip
    yield Case("ScatterND", (X,), (_list(1, -2).reshape(1, 2), _floats(1, 4)), since=11)
    yield Case("GatherND", (X,), (_ints(2, 5, 2, top=2),), since=11)
    yield Case("GatherND", (X,), (_ints(2, 5, 2, top=2),), {"batch_dims": 1}, since=12)
    yield Case("Reshape", (X,), (_list(0, -1),))
    yield Case("Shape", (X,))
    yield Case("Size", (X,))
    yield Case("Tile", (X,), (_list(2, 1, 3),))
    yield Case("Transpose", (X,), attributes={"perm": [2, 0, 1]})
    blocks = _floats(1, 8, 2, 4)
    yield Case("DepthToSpace", (blocks,), attributes={"blocksize": 2})
    yield Case("DepthToSpace", (blocks,), attributes={"blocksize": 2, "mode": "CRD"}, since=11)
    yield Case("SpaceToDepth", (blocks,), attributes={"blocksize": 2})
    for axes in ([0], [0, 3]):
        yield Case("Squeeze", (_floats(1, 2, 3, 1),), attributes={"axes": axes})
        yield Case("Unsqueeze", (X,), attributes={"axes": axes})
    yield Case("Squeeze", (_floats(1, 2, 3, 1),))
    yield Case("Squeeze", (_floats(1, 2, 3, 1),), attributes={"axes": [-1]}, since=11)
    yield Case("Unsqueeze", (X,), attributes={"axes": [-1, 0]}, since=11)
    yield Case("Split", (X,), attributes={"split": [1, 3], "axis": 2}, outputs=2)
    yield Case("Split", (X,), attributes={"axis": 1}, outputs=3)
    yield Case("Split", (X,), outputs=2)
    yield Case("Split", (X,), attributes={"axis": -1}, outputs=2, since=11)
    for a in ({"starts": [1], "ends": [2]}, {"starts": [-3, 0], "ends": [9, -1], "axes": [2, 1]}):
        yield Case("Slice", (X,), attributes=a, until=9)
        yield Case("Slice", (X,), tuple(_list(*v) for v in a.values()), since=10)
    yield Case("Slice", (X,), (_list(3), _list(0), _list(2), _list(-2)), since=10)
    amounts = [0, 1, 2, 0, 0, 1]
    yield Case("Pad", (X,), attributes={"pads": [0, -1, 2, 0, 1, -1]}, until=10)
    yield Case("Pad", (X,), attributes={"pads": amounts, "value": 1.5}, until=10)
    yield Case("Pad", (X,), (_list(*amounts), np.float32(1.5)), since=11)
    for mode in ("edge", "reflect"):
        old = {"pads": amounts, "mode": mode}
        yield Case("Pad", (X,), attributes=old, until=10)
        yield Case("Pad", (X,), attributes=old | {"value": 0.0}, until=10)
        yield Case("Pad", (X,), (_list(*amounts),), {"mode": mode}, since=11)
    off_on, depth = np.array([-1, 2], np.float32), np.array(4)
    yield Case("OneHot", (_ints(2, 3, top=4),), (depth, off_on), {"axis": 1}, since=9)
    yield Case("OneHot", (_ints(2, 3, top=4) - 4,), (depth, off_on), since=9)
    for value in (np.float32(1.5), _list(3, 4), _floats(5, 7)):
        tensor = numpy_helper.from_array(np.asarray(value))
        yield Case("Constant", (), attributes={"value": tensor})
    yield Case("Constant", (), attributes={"value_ints": [3, 4]}, since=12)


def _resizes() -> Iterator[Case]:
    for mode in ("nearest", "linear"):
        for scales in ([1.0, 1.0, 2.0, 3.0], [1.0, 1.0, 1.5, 2.3], [1.0, 1.0, 1.3, 1.2]):
            by = np.array(scales, np.float32)
            yield Case("Upsample", (IMAGE,), attributes={"mode": mode, "scales": scales}, until=8)
            yield Case("Upsample", (IMAGE,), (by,), {"mode": mode}, since=9, until=9)
            yield Case("Resize", (IMAGE,), (by,), {"mode": mode}, since=10, until=10)
            yield Case("Resize", (IMAGE,), (_floats(0), by), {"mode": mode}, since=11)
        for scales in ([1, 1, 0.6, 0.5], [1, 1, 0.3, 1.7]):
            by = np.array(scales, np.float32)
            yield Case("Resize", (IMAGE,), (by,), {"mode": mode}, since=10, until=10)
            yield Case("Resize", (IMAGE,), (_floats(0), by), {"mode": mode}, since=11)
    yield Case("Upsample", (IMAGE,), attributes={"scales": [1.0, 1.0, 2.0, 2.0]}, until=8)
    sizes = _list(2, 4, 13, 4)
    for places in ("asymmetric", "align_corners", "pytorch_half_pixel", "tf_half_pixel_for_nn"):
        a = {"coordinate_transformation_mode": places, "nearest_mode": "floor"}
        yield Case("Resize", (IMAGE,), (_floats(0), _floats(0), sizes), a, since=11)


def _subgraphs() -> Iterator[Case]:
    branches = {"then_branch": _branch("ReduceSum"), "else_branch": _branch("ReduceMax")}
    for taken in (True, False):
        yield Case("If", (X,), (np.array(taken),), branches, operands=("w0",))
    yield Case(
        "Loop", (_floats(3, 4), _floats(3, 4, seed=1)), (np.array(5), np.array(True)),
        {"body": _body(in_loop=True)}, operands=("w0", "w1", "x0"), outputs=2,
    )  # fmt: skip
    yield Case(
        "Scan", (_floats(3, 4), _floats(6, 3, 4)), (),
        {"body": _body(in_loop=False), "num_scan_inputs": 1}, outputs=2, since=9,
    )  # fmt: skip


CASES = [
    case
    for part in (_elementwise, _neural, _rows, _reductions, _movement, _resizes, _subgraphs)
    for case in part()
]
