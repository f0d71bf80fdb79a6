"""Imports ONNX nodes as graph nodes, by the operator table.

Input: a model and values for its dynamic dimensions.  Output: a `Graph` with static shapes; graphs
of several sizes share the nodes that do not depend on the size.  Errors name the node, operator and
opset.  It reads no weights and compiles nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, defs

from tilewright.base.errors import InvalidModel, TilewrightError, UnsupportedOp
from tilewright.frontend.float16_types import Types, following, outputs_of
from tilewright.frontend.initializers import check_bytes, check_halves, dtype_of
from tilewright.frontend.inline_functions import body_of, written
from tilewright.frontend.operator_table import Results, find, typed
from tilewright.frontend.opsets import RULES, check_attributes, current, is_old
from tilewright.frontend.read import Model, load
from tilewright.frontend.shapes import Shapes, resolve
from tilewright.frontend.structure_checks import describe, domain_of
from tilewright.frontend.subgraphs import CONTROL, Visible
from tilewright.graph.node import Graph, ModelNode, Node, graph_input, with_source
from tilewright.graph.ops import Shape
from tilewright.graph.rounding import rounded_to, with_rounded_outputs


def import_model(
    source: str | Path | ModelProto | Model,
    dims: Mapping[str, int] | None = None,
    shapes: Shapes | None = None,
) -> Graph:
    """The model as a graph; `dims` and `shapes` as in shapes.resolve.

    Raises InvalidModel, UnsupportedOp, UnsupportedDType, ShapeError.
    """
    return Importer(load(source)).graph(dims, shapes)


class Importer:
    """Graphs of one model at several sizes.

    A node with the same operands as in an earlier graph is not imported again: both graphs have the
    same node, so the results of passes (folding, packing, digests) are shared too.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self._inputs: dict[tuple[str, Shape], Node] = {}
        self._known: dict[tuple[object, ...], Visible] = {}

    def graph(self, dims: Mapping[str, int] | None = None, shapes: Shapes | None = None) -> Graph:
        """The model as a graph; `dims` and `shapes` as in shapes.resolve."""
        model = self.model
        values = self._initial(resolve(model, dims, shapes))
        for position, node in enumerate(model.nodes):
            if node.op_type in CONTROL:  # its subgraphs may read any value
                step(model, node, values)
                continue
            key = (position, *map(values.get, node.input))
            if key not in self._known:
                step(model, node, values)
                self._known[key] = {name: values[name] for name in node.output if name in values}
            values.update(self._known[key])
        inputs = tuple((i.name, values[i.name]) for i in model.inputs)
        outputs = tuple((o, value_of(values, o)) for o in model.outputs)
        declared = {values[name]: kind for name, kind in model.types.items() if name in values}
        return with_rounded_outputs(Graph(model.name, inputs, outputs), outputs_of(model), declared)

    def _initial(self, shapes: Mapping[str, Shape]) -> Visible:
        """The tensors that exist before the first node: inputs and weights."""
        values: Visible = {}
        for i in self.model.inputs:
            key = i.name, shapes[i.name]
            if key not in self._inputs:
                self._inputs[key] = graph_input(*key, i.dtype, i.widened_from or "")
            values[i.name] = self._inputs[key]
        for name, tensor in self.model.weights.items():
            values[name] = self.model.constant(tensor)
        return values


def run(model: Model, nodes: Sequence[NodeProto], values: Visible) -> None:
    """Apply every node in order and name its results."""
    for node in nodes:
        step(model, node, values)


def step(model: Model, node: NodeProto, values: Visible) -> None:
    """Apply one node; any error tells where it happened."""
    operands = []
    try:
        operands = [value_of(values, name) if name else None for name in node.input]
        for name in node.input:
            check_halves(node.op_type, model.weights.get(name))
        operands = _as_declared(model.types, node, operands)
        with with_source(ModelNode(describe(node), node.op_type, _opset(model, node))):
            results = _narrow(model.types, node, _results(model, node, operands, values))
    except Exception as error:
        raise _located(typed(error, node.op_type), model, node, operands) from error
    for name, result in zip(node.output, results, strict=False):
        if name:
            values[name] = result


#: Operators that are not continuous: a rounded operand may change their result much.
_JUMPS = frozenset({"Floor", "Ceil", "Round", "Sign", "Mod", "Hardmax"})
_CASTS = frozenset({"Cast", "CastLike"})


def _as_declared(types: Types, node: NodeProto, operands: list[Node | None]) -> list[Node | None]:
    """The operands, with those declared f16 or bf16 rounded to that type, if the results have
    another type or the operator is in `_JUMPS`.  All other operators compute on in f32, as in
    onnxruntime (docs/decisions/0063-where-halves-round.md).
    """
    kinds = [types.get(name, "") for name in node.input]
    results = {types.get(name, "") for name in node.output if name}
    if not any(kinds) or node.op_type in CONTROL:
        return operands
    return [
        rounded_to(x, kind)
        if x is not None and kind and (results != {kind} or node.op_type in _JUMPS)
        else x
        for x, kind in zip(operands, kinds, strict=True)
    ]


def _narrow(types: Types, node: NodeProto, results: Results) -> Results:
    """The results, rounded if the node casts to f16 or bf16 from another type."""
    if node.op_type not in _CASTS:
        return results
    kind = types.get(node.output[0], "")
    casts = kind and kind != types.get(node.input[0])
    return tuple(rounded_to(x, kind) for x in results) if casts else results


def value_of(values: Visible, name: str) -> Node:
    if name not in values:
        raise InvalidModel(f"tensor {name!r} is read before it is defined")
    return values[name]


def _results(
    model: Model, node: NodeProto, operands: list[Node | None], values: Visible
) -> Results:
    domain = domain_of(node.domain)
    if domain not in model.opsets:
        raise InvalidModel(f"the model uses domain {domain!r} but imports no opset of it")
    opset = model.opsets[domain]
    if not domain and is_old(node, opset):
        return _converted(model, node, operands)
    if not domain and node.op_type in CONTROL:
        check_attributes(node, defs.get_schema(node.op_type, opset))
        return CONTROL[node.op_type](node, operands, values, partial(_inside, model))
    return _apply(model, node, operands, opset if domain else max(opset, RULES))


def _converted(model: Model, node: NodeProto, operands: list[Node | None]) -> Results:
    """The results of a node of an old opset, by equivalent nodes of a newer one."""
    inner: dict[str, Node | None] = {f"i{k}": x for k, x in enumerate(operands)}
    inner[""] = None
    for part in current(node, model.opsets[""], operands, _used(node)):
        made = _apply(model, part, [inner[name] for name in part.input], RULES)
        inner |= dict(zip(part.output, made, strict=False))
    return tuple(x for k in range(_used(node)) if (x := inner[f"o{k}"]) is not None)


def _used(node: NodeProto) -> int:
    """The number of outputs that the rule must make: all up to the last one that the model
    names."""
    return max((i for i, name in enumerate(node.output, 1) if name), default=1)


def _apply(model: Model, node: NodeProto, operands: list[Node | None], opset: int) -> Results:
    domain = domain_of(node.domain)
    rule = find(domain, node.op_type, opset)
    while operands and operands[-1] is None:
        operands.pop()
    if rule is not None:
        attributes = {a.name: _attribute(a, model, node) for a in node.attribute}
        if len(attributes) < len(node.attribute):
            raise InvalidModel(f"an attribute of {node.op_type} is given twice")
        return rule.apply(operands, attributes, _used(node))
    kinds = [model.types.get(name, "") for name in node.input]
    body = body_of(node, opset, operands, kinds)
    if body is None:
        raise UnsupportedOp(
            f"operator {node.op_type} has no rule",
            hint="Add one (docs/add-an-operator.md), or export the model without it",
            domain=domain or None,
        )
    return _by_body(model, node, body, operands)


def _by_body(
    model: Model, node: NodeProto, body: FunctionProto, operands: Sequence[Node | None]
) -> Results:
    """The results of an operator that ONNX defines by a body of others, which have their own
    opset."""
    own = {domain_of(entry.domain): int(entry.version) for entry in body.opset_import}
    opsets = {**model.opsets, **own}
    given = zip(body.input, operands, strict=False)
    values: Visible = {name: x for name, x in given if x is not None}
    call = NodeProto(op_type=node.op_type, output=body.output)
    call.input.extend(name if name in values else "" for name in body.input)
    parts = written(call, body, "")
    kinds = zip(body.input, (model.types.get(name, "") for name in node.input), strict=False)
    types = following(parts, opsets, dict(kinds))
    inside = replace(model, opsets=opsets, inside=types)
    for part in parts:
        try:
            taken = [value_of(values, name) if name else None for name in part.input]
            taken = _as_declared(types, part, taken)
            made = _narrow(types, part, _results(inside, part, taken, values))
        except Exception as cause:
            raise _with(typed(cause, part.op_type), {"inside": part.op_type}) from cause
        values |= dict(zip(part.output, made, strict=False))
    results = list(zip(body.output, node.output, strict=False))[: _used(node)]
    missing = [read for name, read in results if read and name not in values]
    if missing:
        raise UnsupportedOp(
            f"{node.op_type} does not make its result {missing[0]!r} from these operands",
            hint="Export the model without using it",
        )
    unread = next(iter(values.values()))
    return tuple(values.get(name, unread) for name, _ in results)


def _inside(model: Model, graph: GraphProto, around: Mapping[str, Node]) -> Results:
    """The outputs of a node's subgraph, which may read all values of the outer graph."""
    inner = dict(around)
    for tensor in graph.initializer:
        check_bytes(tensor, model.folder)
        dtype_of(tensor.data_type)  # 4-bit weights are supported in the main graph only
        inner[tensor.name] = model.constant(tensor)
    run(model, graph.node, inner)
    return tuple(value_of(inner, o.name) for o in graph.output)


def _attribute(attribute: AttributeProto, model: Model, node: NodeProto) -> object:
    """An attribute as a number, text, tuple or (for a tensor) node; other kinds stay as ONNX has
    them."""
    if attribute.ref_attr_name:
        raise InvalidModel(
            f"attribute {attribute.name} refers to a function's, but is in no function",
            attribute=attribute.name,
        )
    match attribute.type:
        case AttributeProto.INT:
            return int(attribute.i)
        case AttributeProto.FLOAT:
            return float(attribute.f)
        case AttributeProto.STRING:
            return attribute.s.decode("utf-8", "replace")
        case AttributeProto.STRINGS:
            return tuple(s.decode("utf-8", "replace") for s in attribute.strings)
        case AttributeProto.INTS:
            return tuple(attribute.ints)
        case AttributeProto.FLOATS:
            return tuple(attribute.floats)
        case AttributeProto.TENSOR:
            check_bytes(attribute.t, model.folder)
            dtype_of(attribute.t.data_type)
            return model.constant(attribute.t, name=describe(node))
    return attribute


def _located(
    error: TilewrightError, model: Model, node: NodeProto, operands: Sequence[Node | None]
) -> TilewrightError:
    """The error with facts about the node, operator, opset and operands that it is about."""
    if "node" in error.facts:
        return error  # from a subgraph: the innermost node says more
    given = [x for x in operands if x is not None]
    facts: dict[str, object] = {
        "node": describe(node),
        "op": node.op_type,
        "opset": _opset(model, node),
        "dtype": [x.dtype.name for x in given],
        "shape": [list(x.shape) for x in given],
    }
    return _with(error, facts)


def _opset(model: Model, node: NodeProto) -> int | None:
    return model.opsets.get(domain_of(node.domain))


def _with(error: TilewrightError, facts: Mapping[str, object]) -> TilewrightError:
    """The error with more facts; if it has a fact already, that one stays."""
    return type(error)(error.message, hint=error.hint, **{**facts, **error.facts})
