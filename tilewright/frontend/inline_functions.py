"""Writes out functions: a call becomes the nodes of the function's body.

Input: calls of functions that a model file defines, or operators that ONNX defines by a function.
Output: nodes with names of their own, or a typed error.  It applies no node.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, defs, helper

from tilewright.base.errors import InvalidModel, UnsupportedOp
from tilewright.frontend.initializers import MESSAGE, kind_of
from tilewright.frontend.opsets import check_attributes, fill_defaults, same_meaning
from tilewright.frontend.structure_checks import Key, domain_of, key_of, subgraphs
from tilewright.frontend.subgraphs import CONTROL
from tilewright.graph.node import Node

#: For the name of a tensor in a function's body, its name outside.
Names = Mapping[str, str]
#: The attributes of a call by name.
Attributes = Mapping[str, AttributeProto]


def write_out(model: ModelProto) -> None:
    """Replaces all calls of the model's own functions, also inside subgraphs and functions."""
    functions = {key_of(f.domain, f.name, f): f for f in model.functions}
    opsets = {domain_of(entry.domain): int(entry.version) for entry in model.opset_import}
    for function in functions.values():
        own = {domain_of(entry.domain): int(entry.version) for entry in function.opset_import}
        _check_opsets(function.name, function.node, functions, own, opsets)
        opsets = own | opsets
    _Writer(functions, _fresh_marks(model)).replace(model.graph)
    del model.functions[:], model.opset_import[:]
    model.opset_import.extend(helper.make_opsetid(*entry) for entry in opsets.items())


def body_of(
    node: NodeProto, opset: int, operands: Sequence[Node | None], kinds: Sequence[str]
) -> FunctionProto | None:
    """The body by which ONNX defines an operator for these operands; None if it has none.

    kinds: for each operand "f16" or "bf16" if the file declares that, else ""
    """
    if domain_of(node.domain) or not has_body(node.op_type, opset):
        return None
    schema: Any = defs.get_schema(node.op_type, opset)
    call = NodeProto()
    call.CopyFrom(node)
    check_attributes(call, schema)
    fill_defaults(call, schema)
    try:
        data = _body(schema, call, [*zip(operands, kinds, strict=False)])
    except Exception as cause:  # ONNX's library may raise any class
        raise InvalidModel(
            f"operands and attributes of {node.op_type} do not match ({cause})"[:MESSAGE]
        ) from cause
    body: FunctionProto = FunctionProto.FromString(data)
    if not body.node:  # the builder refused the operands
        raise InvalidModel(f"operands and attributes of {node.op_type} do not match")
    body.attribute_proto.extend(call.attribute)
    return body


def has_body(op: str, opset: int) -> bool:
    """Whether ONNX defines the operator by a body of other operators."""
    if not defs.has(op, opset):
        return False
    schema: Any = defs.get_schema(op, opset)
    return bool(schema.has_function or schema.has_context_dependent_function)


def _body(schema: Any, call: NodeProto, operands: Sequence[tuple[Node | None, str]]) -> bytes:
    """The newest body of an operator's definition, serialised; some bodies depend on the call."""
    if schema.has_function:
        plain: bytes = schema.get_function_with_opset_version(max(schema.function_opset_versions))
        return plain
    types = [
        b"" if x is None
        else helper.make_tensor_type_proto(kind_of(x.dtype, kind), x.shape).SerializeToString()
        for x, kind in operands
    ]  # fmt: skip
    made: bytes = schema.get_context_dependent_function_with_opset_version(
        max(schema.context_dependent_function_opset_versions), call.SerializeToString(), types
    )
    return made


def written(call: NodeProto, body: FunctionProto, mark: str) -> list[NodeProto]:
    """The nodes of one call.  mark: the suffix that makes the body's own names unique

    If the call leaves out an attribute, it has the function's default.  If there is no default,
    attributes in the body that refer to it are left out too.
    """
    if len(call.input) > len(body.input) or len(call.output) > len(body.output):
        raise InvalidModel(
            f"a call of the function {body.name!r} has more operands or results than the function",
            node=call.name or None,
        )
    names = dict.fromkeys(body.input, "") | dict(zip(body.input, call.input, strict=False))
    copied: list[NodeProto] = []
    for inside, outside in zip(body.output, call.output, strict=False):
        if outside and inside in names:  # an operand, or a result that is given twice
            copied.append(helper.make_node("Identity", [names[inside]], [outside]))
        elif outside:
            names[inside] = outside
    values = {a.name: a for a in (*body.attribute_proto, *call.attribute)}
    return [*(_renamed(node, names, values, mark) for node in body.node), *copied]


def _renamed(node: NodeProto, names: Names, values: Attributes, mark: str) -> NodeProto:
    """A node of a body with the names and attributes of a call."""
    made = NodeProto()
    made.CopyFrom(node)
    made.input[:] = [_name(n, names, mark) for n in node.input]
    made.output[:] = [_name(n, names, mark) for n in node.output]
    made.name = node.name and node.name + mark
    del made.attribute[:]
    made.attribute.extend(b for a in node.attribute if (b := _bound(a, values)) is not None)
    for graph in subgraphs(made):
        _rename(graph, names, values, mark)
    return made


def _rename(graph: GraphProto, names: Names, values: Attributes, mark: str) -> None:
    """Renames inside a subgraph.  The subgraph's own tensors hide outer ones with the same
    names."""
    own = [*graph.input, *graph.initializer]
    made = [*(x.name for x in own), *(n for node in graph.node for n in node.output)]
    names = {**names, **{n: n and n + mark for n in made}}
    nodes = [_renamed(node, names, values, mark) for node in graph.node]
    del graph.node[:], graph.value_info[:]
    graph.node.extend(nodes)
    for x in (*own, *graph.output):
        x.name = _name(x.name, names, mark)


def _name(name: str, names: Names, mark: str) -> str:
    return names.get(name, name and name + mark)


def _bound(attribute: AttributeProto, values: Attributes) -> AttributeProto | None:
    """The attribute with the value that it refers to; None if the call gives it none."""
    if not attribute.ref_attr_name:
        return attribute
    value = values.get(attribute.ref_attr_name)
    if value is None or value.ref_attr_name:
        return None
    if attribute.type not in (AttributeProto.UNDEFINED, value.type):
        raise InvalidModel(
            f"the attribute {value.name!r} of a call has another type than its function expects",
            attribute=value.name,
        )
    made = AttributeProto()
    made.CopyFrom(value)
    made.name = attribute.name
    return made


@dataclass(frozen=True)
class _Writer:
    """Replaces calls in nodes; each call gets the next mark."""

    functions: Mapping[Key, FunctionProto]
    marks: Iterator[str]

    def replace(self, graph: GraphProto) -> None:
        """Replaces the calls in a graph, if it has any."""
        if any(self._calls(node) for node in graph.node):
            made = list(self._expanded(graph.node))
            del graph.node[:]
            graph.node.extend(made)

    def _expanded(self, nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
        for node in nodes:
            function = self.functions.get(key_of(node.domain, node.op_type, node))
            if function is not None:
                yield from self._expanded(written(node, function, next(self.marks)))
                continue
            for graph in subgraphs(node):
                self.replace(graph)
            yield node

    def _calls(self, node: NodeProto) -> bool:
        return key_of(node.domain, node.op_type, node) in self.functions or any(
            self._calls(inner) for graph in subgraphs(node) for inner in graph.node
        )


def _fresh_marks(model: ModelProto) -> Iterator[str]:
    """The suffixes `__1`, `__2`, …, without those that occur in the file."""
    taken = set(re.findall(rb"__(\d+)", model.SerializeToString()))
    number = 0
    while True:
        number += 1
        if str(number).encode() not in taken:
            yield f"__{number}"


def _check_opsets(
    name: str,
    nodes: Iterable[NodeProto],
    functions: Mapping[Key, FunctionProto],
    own: Mapping[str, int],
    model: Mapping[str, int],
) -> None:
    """Raises UnsupportedOp for a node that would mean something else outside of its function."""
    for node in nodes:
        domain = domain_of(node.domain)
        called = key_of(node.domain, node.op_type, node) in functions
        if domain not in own and not called:
            raise InvalidModel(f"the function {name!r} uses domain {domain!r} but imports no opset")
        plain = not (domain or called or node.op_type in CONTROL)
        if plain and not same_meaning(node.op_type, own[""], model[""]):
            raise UnsupportedOp(
                f"{node.op_type} in the function {name!r} has another meaning in the model's opset",
                hint="Export the functions with the model's opset, or the model without functions",
                opset=model[""], function_opset=own[""],
            )  # fmt: skip
        for graph in subgraphs(node):
            _check_opsets(name, graph.node, functions, own, model)
