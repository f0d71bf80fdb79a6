"""The coverage report: which nodes of a model are supported, before anything is compiled.

Input: a model and (where given) values for its dynamic dimensions.  Output: a `Coverage`: which
nodes are supported or why not, and how much memory the model takes.  It continues after a failure
and reads no weights.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import Literal

import onnx
from onnx import ModelProto, NodeProto

from tilewright.base.errors import TilewrightError, UnsupportedDType, UnsupportedOp
from tilewright.frontend.importer import step
from tilewright.frontend.initializers import WIDENED, bytes_of, dtype_of, kind_of
from tilewright.frontend.opsets import RULES
from tilewright.frontend.read import Model, TensorDecl, load
from tilewright.frontend.shape_inference import ShapeInference
from tilewright.frontend.shapes import Shapes, resolve
from tilewright.frontend.structure_checks import describe, domain_of, subgraphs
from tilewright.frontend.subgraphs import Visible
from tilewright.graph.node import Node, graph_input
from tilewright.graph.ops import Shape

Status = Literal["supported", "unsupported", "not reached"]

#: An IR version with all element types.
_IR = 10

#: Constants of at most this number of elements may decide a shape.  ONNX's inference gets only
#: their values.
FEW = 64

#: The size of a dynamic dimension without a value: of the first one, and of others.
ASSUMED_BATCH, ASSUMED_DIM = 1, 16


@dataclass(frozen=True)
class NodeRow:
    """One node; if unsupported, with code, message and hint of the error."""

    name: str
    op: str
    status: Status
    shapes: tuple[Shape, ...] = ()
    code: str = ""
    message: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Coverage:
    """The coverage of a model and its memory; `notes` says what was assumed or changed."""

    model: str
    opsets: dict[str, int]
    inputs: dict[str, Shape]
    rows: tuple[NodeRow, ...]
    weight_bytes: int
    activation_bytes: int
    notes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return all(row.status == "supported" for row in self.rows)

    @property
    def counts(self) -> dict[str, int]:
        return dict(Counter(row.status for row in self.rows))

    @property
    def unsupported_ops(self) -> dict[str, int]:
        return dict(Counter(row.op for row in self.rows if row.status == "unsupported"))

    def to_json(self) -> dict[str, object]:
        totals = {"ok": self.ok, "counts": self.counts, "unsupported_ops": self.unsupported_ops}
        return asdict(self) | totals


def check(
    source: str | Path | ModelProto | Model,
    dims: Mapping[str, int] | None = None,
    shapes: Shapes | None = None,
) -> Coverage:
    """The report of a model; dynamic dimensions without a value are assumed, and noted."""
    model = load(source)
    wanted, notes = _assumed(model, dims or {}, shapes or {})
    inputs = resolve(model, dims, wanted)
    values, errors = _start(model, inputs)
    with ShapeInference() as inference:
        rows = tuple(_walk(model, values, errors, inference))
    return Coverage(
        model=model.name,
        opsets=dict(model.opsets),
        inputs=inputs,
        rows=rows,
        weight_bytes=_weight_bytes(model),
        activation_bytes=_activation_bytes(model, values),
        notes=(*notes, *_converted(model), *_widened(model), *_kept(model)),
    )


def _assumed(model: Model, dims: Mapping[str, int], shapes: Shapes) -> tuple[Shapes, list[str]]:
    """Shapes in which every dimension has a value."""
    made = dict(shapes)
    notes: list[str] = []
    named: dict[str, int] = dict(dims)
    for decl in model.inputs:
        if decl.name in shapes or decl.dims is None:
            for name, given in zip(decl.dims or (), shapes.get(decl.name, ()), strict=False):
                if isinstance(name, str) and isinstance(given, int):
                    named.setdefault(name, given)
    for decl in model.inputs:
        if decl.name not in shapes and decl.dims is not None:
            made[decl.name] = tuple(_size(decl, i, named, notes) for i in range(len(decl.dims)))
    return made, notes


def _size(decl: TensorDecl, at: int, named: dict[str, int], notes: list[str]) -> int:
    dim = (decl.dims or ())[at]
    if isinstance(dim, int):
        return dim
    if dim is not None and dim in named:
        return named[dim]
    size = ASSUMED_DIM if at else ASSUMED_BATCH
    if dim is not None:
        named[dim] = size
    called = f"dimension {dim!r}" if dim else f"dimension {at} of input {decl.name!r}"
    notes.append(f"{called} has no value: assumed {size}")
    return size


def _start(model: Model, inputs: Mapping[str, Shape]) -> tuple[Visible, dict[str, TilewrightError]]:
    """(inputs and weights, errors by name of the weights that have an unsupported dtype)"""
    errors: dict[str, TilewrightError] = {}
    values = {d.name: graph_input(d.name, inputs[d.name], d.dtype) for d in model.inputs}
    for name, tensor in model.weights.items():
        try:
            values[name] = model.constant(tensor)
        except UnsupportedDType as error:
            errors[name] = error
    return values, errors


def _walk(
    model: Model,
    values: Visible,
    errors: Mapping[str, TilewrightError],
    inference: ShapeInference,
) -> Iterator[NodeRow]:
    """One row per node; outputs of a failed node get the shape that ONNX infers, if any."""
    unknown = dict.fromkeys(errors, "")
    for node in model.nodes:
        row = _row(model, node, values, errors, unknown)
        if row.status != "supported":
            asks = row.code in _INFERRED
            inferred = _inferred(model, node, values, inference) if asks else {}
            for name in filter(None, node.output):
                if name in inferred:
                    values[name] = inferred[name]
                else:
                    unknown[name] = describe(node)
        yield row


#: A node that failed for these reasons follows ONNX, so ONNX can tell the shapes of its outputs.
_INFERRED = frozenset({UnsupportedOp.code, UnsupportedDType.code})


def _row(
    model: Model,
    node: NodeProto,
    values: Visible,
    errors: Mapping[str, TilewrightError],
    unknown: Mapping[str, str],
) -> NodeRow:
    name, op = describe(node), node.op_type
    missing = next((i for i in node.input if i in unknown), None)
    error = errors.get(missing or "")
    if error is not None:
        return NodeRow(name, op, "unsupported", (), error.code, error.message, error.hint)
    if missing is not None:
        text = f"operand {missing!r} comes from unsupported node {unknown[missing]!r}"
        return NodeRow(name, op, "not reached", message=text)
    try:
        step(model, node, values)
    except TilewrightError as failed:
        error = failed
        return NodeRow(name, op, "unsupported", (), error.code, error.message, error.hint)
    made = tuple(values[o].shape for o in node.output if o in values)
    return NodeRow(name, op, "supported", made)


def _inferred(
    model: Model, failed: NodeProto, values: Visible, inference: ShapeInference
) -> dict[str, Node]:
    """Placeholders for the node's outputs whose static shape ONNX's shape inference finds.

    It sees this node alone: over a whole file it may take any time and memory.
    """
    domain = domain_of(failed.domain)
    if domain or not onnx.defs.has(failed.op_type, model.opsets.get(domain, 0)):
        return {}
    if any(name and name not in values for name in failed.input) or [*subgraphs(failed)]:
        return {}
    known = {name: values[name] for name in failed.input if name}
    graph = onnx.helper.make_graph([failed], "node", [
        onnx.helper.make_tensor_value_info(name, kind_of(x.dtype), x.shape)
        for name, x in known.items()
    ], [], [
        onnx.numpy_helper.from_array(x.value, name)
        for name, x in known.items() if x.size <= FEW and x.value is not None
    ])  # fmt: skip
    opsets = [onnx.helper.make_opsetid(*entry) for entry in model.opsets.items()]
    alone = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=_IR)
    found = inference(alone)
    made = {}
    for info in found.graph.value_info if found else ():
        tensor = info.type.tensor_type
        dims = tensor.shape.dim
        if tensor.HasField("shape") and all(d.HasField("dim_value") for d in dims):
            try:
                dtype = dtype_of(tensor.elem_type)
                shape = tuple(int(d.dim_value) for d in dims)
                made[info.name] = graph_input(info.name, shape, dtype)
            except TilewrightError:
                continue
    return made


def _weight_bytes(model: Model) -> int:
    """Bytes of the weights in memory, where half precision is f32."""
    total = 0
    for tensor in model.weights.values():
        try:
            total += prod(tensor.dims) * dtype_of(tensor.data_type).size
        except TilewrightError:
            total += bytes_of(tensor)
    return total


def _activation_bytes(model: Model, values: Visible) -> int:
    """The most bytes that live node outputs take at once: an upper bound, before fusion and
    reuse."""
    last = {name: i for i, node in enumerate(model.nodes) for name in node.input}
    last |= dict.fromkeys(model.outputs, len(model.nodes))
    fixed = set(model.weights)
    live = {decl.name: _bytes(values[decl.name]) for decl in model.inputs}
    ending: dict[int, set[str]] = {}
    for name, i in last.items():
        ending.setdefault(i, set()).add(name)
    now = peak = sum(live.values())
    for i, node in enumerate(model.nodes):
        constant = all(name in fixed for name in node.input if name)
        for name in node.output:
            if constant:
                fixed.add(name)
            elif name in values:
                now += _bytes(values[name]) - live.get(name, 0)
                live[name] = _bytes(values[name])
        peak = max(peak, now)
        # an output that no node reads is freed at once
        unread = (name for name in node.output if name not in last)
        for name in {*ending.get(i, ()), *unread} & live.keys():
            now -= live.pop(name)
    return peak


def _bytes(x: Node) -> int:
    return x.size * x.dtype.size


def _converted(model: Model) -> list[str]:
    opset = model.opsets[""]
    return [f"opset {opset}, converted to {RULES}"] if opset < RULES else []


def _widened(model: Model) -> list[str]:
    """A note per element type that is computed in f32."""
    kinds = {i.widened_from for i in model.inputs}
    kinds |= {WIDENED.get(t.data_type) for t in model.weights.values()}
    return [
        f"{kind} tensors are computed in f32 and rounded where they leave it"
        for kind in sorted(filter(None, kinds))
    ]


#: The first IR version in which a weight need not be listed as an input.
_SEPARATE = 4


def _kept(model: Model) -> list[str]:
    """A note per weight that the file also lists as an input: runs cannot replace it."""
    if model.skeleton.ir_version < _SEPARATE:
        return []
    listed = [i.name for i in model.skeleton.graph.input if i.HasField("type")]
    return [
        f"input {name!r} has a value in the file: it is a weight, and runs cannot give another"
        for name in listed
        if name in model.weights
    ]
