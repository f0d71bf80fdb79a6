"""Converts nodes of old opsets to the oldest opset that the rules of operators/ support.

Input: a node, the model's opset and the node's operands.  Output: a few nodes of opset `RULES`, or
UnsupportedOp.  Most nodes mean the same in both.  ONNX's version converter converts the others, one
at a time and without their tensors; the operators that it converts wrongly have functions in
`_OWN`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from onnx import AttributeProto, NodeProto, TensorProto, ValueInfoProto, defs, helper, numpy_helper
from onnx.checker import ValidationError, check_node
from onnx.onnx_cpp2py_export.checker import CheckerContext
from onnx.version_converter import convert_version

from tilewright.base.errors import InvalidModel, UnsupportedOp
from tilewright.frontend import arithmetic as al
from tilewright.frontend.operator_table import find
from tilewright.graph.node import Node

#: The oldest opset that is accepted, and the oldest that the rules support.
OLDEST, RULES = 7, 13

#: An IR version that allows all of these opsets.
_IR = 7

Operands = Sequence[Node | None]
Nodes = tuple[NodeProto, ...]


def is_old(node: NodeProto, opset: int) -> bool:
    """Whether the node must be converted.  Raises UnsupportedOp if its opset lacks the operator."""
    if opset >= RULES:
        return False
    if not _has(node.op_type, opset):
        raise UnsupportedOp(
            f"opset {opset} has no operator {node.op_type}",
            hint="The exporter wrote a wrong opset or a private operator: export the model again",
        )
    return not _reads_alike(node.op_type, opset)


def current(node: NodeProto, opset: int, operands: Operands, outputs: int) -> Nodes:
    """Nodes of opset `RULES` that are equivalent to `node` at `opset`.

    Their inputs are named i0, i1, ..., their first `outputs` results o0, o1, ...
    Raises InvalidModel, UnsupportedOp.
    """
    plain = NodeProto(op_type=node.op_type, attribute=node.attribute)
    plain.input.extend(f"i{k}" if name else "" for k, name in enumerate(node.input))
    plain.output.extend(f"o{k}" for k in range(outputs))
    check_definition(plain, opset)
    own = _OWN.get(node.op_type)
    if own is not None:
        fill_defaults(plain, defs.get_schema(node.op_type, opset))
        return own(plain, operands)
    ranks = tuple(None if x is None else x.rank for x in operands)
    return _converted(plain.SerializeToString(deterministic=True), opset, ranks)


def differing(ops: Iterable[str]) -> dict[tuple[str, int], str]:
    """The operators whose old definition means something else at `RULES`: (operator, since) → which
    converter handles it."""
    return {
        (op, defs.get_schema(op, opset).since_version): _writer(op)
        for op in ops
        for opset in range(OLDEST, RULES)
        if _has(op, opset) and not _reads_alike(op, opset)
    }


def _writer(op: str) -> str:
    if op not in _OWN:
        return "ONNX's converter"
    return "not supported" if _OWN[op] is _scan else "Tilewright"


def check_definition(node: NodeProto, opset: int) -> None:
    """Raises InvalidModel unless the node follows its opset: ONNX's library relies on it."""
    context = CheckerContext()
    context.ir_version, context.opset_imports = _IR, {"": opset}
    try:
        check_node(node, context)
    except ValidationError as cause:
        raise InvalidModel(f"{node.op_type} does not follow opset {opset}: {cause}") from cause


def fill_defaults(node: NodeProto, schema: defs.OpSchema) -> None:
    """Adds the attributes that the node leaves out, with the defaults of its opset."""
    given = {a.name for a in node.attribute}
    for name, declared in schema.attributes.items():
        if name not in given and declared.default_value.name:
            node.attribute.append(declared.default_value)


def check_attributes(node: NodeProto, schema: defs.OpSchema) -> None:
    """Raises InvalidModel, UnsupportedOp unless the attributes are of the kinds that ONNX wants."""
    for attribute in node.attribute:
        declared = schema.attributes.get(attribute.name)
        if declared is None:
            raise UnsupportedOp(f"attribute {attribute.name} of {node.op_type} is not supported")
        wanted: Any = declared.type
        kind, found = map(AttributeProto.AttributeType.Name, (wanted.value, attribute.type))
        if attribute.ref_attr_name:
            raise InvalidModel(f"attribute {attribute.name} refers to a function's, but is in none")
        if attribute.type != wanted.value:
            raise InvalidModel(
                f"attribute {attribute.name} of {node.op_type} must be {kind}, but is {found}",
                hint="The file is damaged, or its exporter is wrong: export the model again",
                attribute=attribute.name,
            )
    given = {a.name for a in node.attribute}
    for name, declared in schema.attributes.items():
        if declared.required and name not in given:
            raise InvalidModel(
                f"{node.op_type} has no attribute {name}, which it needs", attribute=name
            )


def _has(op: str, opset: int) -> bool:
    return defs.has(op, opset) and not defs.get_schema(op, opset).deprecated


def same_meaning(op: str, one: int, other: int) -> bool:
    """Whether an operator has the same rule, or the same definition, in both opsets."""
    if not (defs.has(op, one) and defs.has(op, other)):
        return not (defs.has(op, one) or defs.has(op, other))
    if defs.get_schema(op, one).since_version == defs.get_schema(op, other).since_version:
        return True
    rules = [find("", op, max(opset, RULES)) for opset in (one, other)]
    ours = all(opset >= RULES or _reads_alike(op, opset) for opset in (one, other))
    return ours and rules[0] is rules[1] is not None


@cache
def _reads_alike(op: str, opset: int) -> bool:
    """Whether every attribute and operand of `opset` has the same place and default at `RULES`.  If
    so, the newer definition only extends the old one: by element types, broadcasting or negative
    axes.
    """
    if not _has(op, RULES):
        return False
    old, new = defs.get_schema(op, opset), defs.get_schema(op, RULES)
    attributes = all(
        name in new.attributes and a.default_value == new.attributes[name].default_value
        for name, a in old.attributes.items()
    )
    operands = [i.name for i in old.inputs]
    return attributes and operands == [i.name for i in new.inputs][: len(operands)]


@lru_cache(maxsize=1024)
def _converted(plain: bytes, opset: int, ranks: tuple[int | None, ...]) -> Nodes:
    """One node by ONNX's converter.  plain: serialised;  ranks: of its operands"""
    node = NodeProto.FromString(plain)
    given = [_info(n, r) for n, r in zip(node.input, ranks, strict=True) if n]
    graph = helper.make_graph([node], "node", given, [_info(n, None) for n in node.output])
    old = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=_IR)
    try:
        made = convert_version(old, RULES).graph
    except RuntimeError as cause:
        raise _refusal(node.op_type, str(cause).rpartition("failed: ")[2]) from cause
    return (*(_constant(t.name, t) for t in made.initializer), *made.node)


def _info(name: str, rank: int | None) -> ValueInfoProto:
    dims = None if rank is None else [None] * rank
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)


def _constant(name: str, value: TensorProto) -> NodeProto:
    return helper.make_node("Constant", [], [name], value=value)


def _refusal(op: str, why: str) -> UnsupportedOp:
    return UnsupportedOp(
        f"this old {op} cannot be converted to opset {RULES}: {why}",
        hint=f"Export the model with opset {RULES} or newer",
        rules_from=RULES,
    )


def _attribute(node: NodeProto, name: str) -> AttributeProto:
    found: AttributeProto = next(a for a in node.attribute if a.name == name)
    return found


def _operand(node: NodeProto, operands: Operands, at: int) -> Node:
    x = operands[at]
    if x is None:
        raise InvalidModel(f"{node.op_type} has no operand {at + 1}")
    return x


def _held(name: str, value: ArrayLike, dtype: DTypeLike, *shape: int) -> NodeProto:
    """A node that makes a constant of this name, value, type and shape."""
    return _constant(name, numpy_helper.from_array(np.array(value, dtype).reshape(shape)))


def _clip(node: NodeProto, operands: Operands) -> Nodes:
    """Clip of old opsets has finite default bounds, so it clips infinity.  The converter drops the
    upper bound, so it is done here."""
    names, dtype = ("min", "max"), _operand(node, operands, 0).dtype.numpy
    bounds = (_held(name, _attribute(node, name).f, dtype) for name in names)
    return (*bounds, helper.make_node("Clip", ["i0", *names], ["o0"]))


def _pad(node: NodeProto, _: Operands) -> Nodes:
    """Pad of old opsets.  Done here because the converter leaves the value as an attribute."""
    pads = _held("pads", _attribute(node, "pads").ints, "int64", -1)
    value = _held("value", _attribute(node, "value").f, "float32")
    mode = _attribute(node, "mode").s
    return (pads, value, helper.make_node("Pad", ["i0", "pads", "value"], ["o0"], mode=mode))


def _dropout(node: NodeProto, _: Operands) -> Nodes:
    """Dropout of old opsets.  Raises UnsupportedOp if the mask is read: before opset 12,
    definitions and runtimes disagree on it."""
    if len(node.output) > 1:
        raise _refusal("Dropout", "its mask is read, which is ambiguous")
    return (helper.make_node("Dropout", ["i0"], ["o0"]),)


def _rows(node: NodeProto, operands: Operands) -> Nodes:
    """Softmax, LogSoftmax, Hardmax: all axes from `axis` on form one row.

    The converter does not convert Hardmax, and accepts an axis that does not exist.
    """
    rank = _operand(node, operands, 0).rank
    axis = al.axis_of(_attribute(node, "axis").i, rank)
    if axis == rank - 1:
        return (helper.make_node(node.op_type, ["i0"], ["o0"], axis=-1),)
    return (
        helper.make_node("Shape", ["i0"], ["shape"]),
        helper.make_node("Flatten", ["i0"], ["rows"], axis=axis),
        helper.make_node(node.op_type, ["rows"], ["made"], axis=-1),
        helper.make_node("Reshape", ["made", "shape"], ["o0"]),
    )


def _resize(node: NodeProto, operands: Operands) -> Nodes:
    """Upsample, and Resize of opset 10: an element's position is i / scale; the converter uses
    half-pixel centres.

    The definition does not say which element is the nearest.  In onnxruntime it is the lower one,
    or the upper one along an axis that shrinks.
    """
    if len(operands) == 1:
        by = np.array(_attribute(node, "scales").floats)
    else:
        by = al.known(_operand(node, operands, 1), "the scales").reshape(-1)
    mode = _attribute(node, "mode").s
    grow, shrink = np.maximum(by, 1), np.minimum(by, 1)
    steps = {"floor": grow, "ceil": shrink} if mode == b"nearest" else {"floor": by}
    made: list[NodeProto] = []
    for rounding, scales in steps.items():
        last = made[-1].output[0] if made else "i0"
        made += (
            _held(f"{rounding} by", scales, "float32", -1),
            helper.make_node(
                "Resize", [last, "", f"{rounding} by"], [rounding], mode=mode,
                coordinate_transformation_mode="asymmetric", nearest_mode=rounding,
            ),
        )  # fmt: skip
    made[-1].output[0] = "o0"
    return tuple(made)


def _scan(node: NodeProto, _: Operands) -> Nodes:
    raise _refusal("Scan", "its sequences have a batch axis and separate lengths")


#: Operators that the converter gets wrong or does not know.
_OWN: Mapping[str, Callable[[NodeProto, Operands], Nodes]] = {
    "Clip": _clip,
    "Dropout": _dropout,
    "Hardmax": _rows,
    "LogSoftmax": _rows,
    "Pad": _pad,
    "Resize": _resize,
    "Scan": _scan,
    "Softmax": _rows,
    "Upsample": _resize,
}
