"""Checks the structure that a file claims, before anything else reads it.

Input: a parsed `ModelProto`.  Output: nothing, or a typed error for names that are not UTF-8, and
for subgraphs and functions that are too deep, too many or call themselves.  ONNX's own library
recurses over subgraphs and writes out functions, so it is called only after this.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto

from tilewright.base.errors import InvalidModel
from tilewright.base.model_limits import LIMITS, check_limit

#: Domain, name and overload of a function.
Key = tuple[str, str, str]

#: Equations that ONNX's shape inference can parse; some other texts make it run for ever.
_EINSUM = re.compile(r"[a-zA-Z, ]*(\.\.\.)?[a-zA-Z, ]*"
                     r"((\.\.\.)[a-zA-Z, ]*)*(->[a-zA-Z ]*(\.\.\.)?[a-zA-Z ]*)?")  # fmt: skip


@dataclass
class _Part:
    """The nodes of the model or a function, with those of their subgraphs."""

    nodes: int = 0
    nesting: int = 0
    calls: list[Key] = field(default_factory=list)


def check_bounds(proto: ModelProto) -> None:
    """Raises InvalidModel or ModelLimit."""
    try:
        functions = {key_of(f.domain, f.name, f): _part(f.node) for f in proto.functions}
        graph = _part(proto.graph.node)
        _check_texts(proto)
    except UnicodeError as cause:
        raise InvalidModel(
            "a name in the file is not UTF-8", hint="The file is damaged: export the model again"
        ) from cause
    whole = _expanded(graph, functions)
    check_limit("nodes", whole.nodes, "the number of nodes")
    check_limit("nesting", whole.nesting, "the nesting of subgraphs and functions")


def domain_of(name: str) -> str:
    """A domain's name; the default domain is "" here, though ONNX also calls it "ai.onnx"."""
    return "" if name == "ai.onnx" else name


def key_of(domain: str, name: str, at: object) -> Key:
    """The key of a function.  at: the function, or a call of it"""
    return (domain_of(domain), name, str(getattr(at, "overload", "")))


def _check_texts(proto: ModelProto) -> None:
    """Raises UnicodeError for names outside of nodes that are not UTF-8, and InvalidModel for
    inputs or outputs without distinct names."""
    graph = proto.graph
    given, made = [i.name for i in graph.input], [o.name for o in graph.output]
    for names in (given, made):
        if len(set(names)) < len(names) or not all(names):
            raise InvalidModel(
                "inputs or outputs of the model have the same name, or none",
                hint="Export the model again, with a name for each",
            )
    _read(graph.name, *given, *made)
    for entry in (*proto.opset_import, *(f for f in proto.functions)):
        _read(entry.domain)
    for info in (*graph.input, *graph.output, *graph.value_info):
        _read(info.name, *(d.dim_param for d in info.type.tensor_type.shape.dim))
    for tensor in graph.initializer:
        _read(tensor.name, *(text for e in tensor.external_data for text in (e.key, e.value)))


def _read(*texts: str | bytes) -> None:
    """Raises UnicodeError for a text that is not UTF-8: protobuf then returns bytes."""
    for text in texts:
        if isinstance(text, bytes):
            text.decode()


def _part(nodes: Iterable[NodeProto]) -> _Part:
    """Counts nodes, with those of subgraphs, and reads their texts."""
    made = _Part()
    level: list[NodeProto] = list(nodes)
    while level:
        made.nesting += 1
        check_limit("nesting", made.nesting, "the nesting of subgraphs")
        made.nodes += len(level)
        check_limit("nodes", made.nodes, "the number of nodes")
        deeper: list[NodeProto] = []
        for node in level:
            made.calls.append(key_of(node.domain, node.op_type, node))
            _check_node(node)
            for graph in subgraphs(node):
                _read(*(v.name for v in (*graph.input, *graph.output, *graph.initializer)))
                deeper += graph.node
        level = deeper
    return made


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs among a node's attributes."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def describe(node: NodeProto) -> str:
    """The node's name, or its first output's."""
    return str(node.name or next(filter(None, node.output), node.op_type))


def _check_node(node: NodeProto) -> None:
    _read(node.name, node.op_type, node.domain, *node.input, *node.output)
    for attribute in node.attribute:
        _read(attribute.name, attribute.ref_attr_name, attribute.t.name)
        if node.op_type == "Einsum" and attribute.name == "equation":
            text = attribute.s.decode("utf-8", "replace")
            if len(text) > 1000 or not _EINSUM.fullmatch(text):
                raise InvalidModel("the equation of Einsum is not valid", op="Einsum")


def _expanded(graph: _Part, functions: dict[Key, _Part]) -> _Part:
    """Counts the model's nodes as if every function were written out at each of its calls."""
    done: dict[Key, _Part] = {}
    waiting: set[Key] = set()
    root: Key = ("", "", "")
    parts = {**functions, root: graph}
    stack = [root]
    while stack:
        key = stack[-1]
        part = parts[key]
        called = [c for c in part.calls if c in functions]
        missing = [] if key in done else [c for c in dict.fromkeys(called) if c not in done]
        if missing:
            waiting.add(key)
            if again := next((c for c in missing if c in waiting), None):
                raise InvalidModel(
                    f"function {again[1]!r} calls itself",
                    hint="ONNX functions must not be recursive: export the model again",
                    domain=again[0],
                )
            stack.append(missing[0])
            continue
        stack.pop()
        waiting.discard(key)
        deepest = max((done[c].nesting for c in called), default=0)
        nodes = part.nodes + sum(done[c].nodes for c in called)
        done[key] = _Part(min(nodes, LIMITS.nodes + 1), part.nesting + deepest)
    return done[root]
