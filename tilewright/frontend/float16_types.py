"""Finds the tensors of a model that are f16 or bf16.  The graph computes both as f32.

Input: a model.  Output: the types by the tensors' names, and the names of nodes that compute in
f16. importer.py and graph/rounding.py decide where such a tensor is rounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Protocol

import onnx
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto

from tilewright.frontend.initializers import WIDENED
from tilewright.frontend.structure_checks import describe, domain_of, subgraphs

#: The operand whose type the results have, for operators where ONNX's schema does not say it.  For
#: operators not listed it is the first.
_TYPED_BY = {
    "DequantizeLinear": 1, "RMSNormalization": 1, "SimplifiedLayerNormalization": 1,
    "MatMulIntegerToFloat": 2, "GatherBlockQuantized": 2, "EmbedLayerNormalization": 2,
}  # fmt: skip
#: Attributes that give the results' type; 0 means that they do not.
_TYPED_SO = ("to", "dtype", "output_dtype", "output_datatype")
#: For operators with bodies, the first output of a body that is also an output of the node.
_BODIES = {"If": 0, "Loop": 1, "Scan": 0}

#: Types by the tensors' names; "" for all others.
Types = Mapping[str, str]


class Declared(Protocol):
    """An input of a model."""

    @property
    def name(self) -> str: ...

    @property
    def widened_from(self) -> str | None: ...


class Typed(Protocol):
    """The parts of a `Model` (read.py) that this module reads."""

    @property
    def inputs(self) -> Sequence[Declared]: ...

    @property
    def nodes(self) -> Sequence[NodeProto]: ...

    @property
    def weights(self) -> Mapping[str, TensorProto]: ...

    @property
    def opsets(self) -> Mapping[str, int]: ...

    @property
    def skeleton(self) -> ModelProto: ...

    @property
    def types(self) -> Types: ...


def types_of(model: Typed) -> Types:
    """The type of each tensor that is f16 or bf16.

    If bodies of control flow give one name to tensors of two types, it gets no type and is not
    rounded.
    """
    found = {i.name: i.widened_from or "" for i in model.inputs}
    found |= {name: WIDENED.get(w.data_type, "") for name, w in model.weights.items()}
    if any(found.values()) or any(map(_mentions, _all(model.nodes))):
        _follow(model.nodes, model.opsets, found)
    return {name: kind for name, kind in found.items() if kind}


def following(nodes: Iterable[NodeProto], opsets: Mapping[str, int], given: Types) -> Types:
    """As `types_of`, for the body of an operator.  given: types of its operands"""
    found = dict(given)
    _follow(nodes, opsets, found)
    return found


def outputs_of(model: Typed) -> dict[str, str]:
    """The type of each output that is f16 or bf16, as the file declares it, else as its node gives
    it."""
    kinds = {
        o.name: WIDENED.get(o.type.tensor_type.elem_type, "")
        if o.type.tensor_type.elem_type
        else model.types.get(o.name, "")
        for o in model.skeleton.graph.output
    }
    return {name: kind for name, kind in kinds.items() if kind}


def narrow_of(model: Typed) -> Types:
    """The type of each input and output that is f16 or bf16."""
    return outputs_of(model) | {i.name: i.widened_from for i in model.inputs if i.widened_from}


def nodes_in_f16(model: Typed) -> frozenset[str]:
    """Names of the nodes whose results are f16.  A name that several nodes share is left out."""
    found, others = set[str](), {describe(node) for node in _bodies(model.nodes)}
    for node in model.nodes:
        half = any(model.types.get(name) == "f16" for name in node.output)
        (found if half else others).add(describe(node))
    return frozenset(found - others)


def _mentions(node: NodeProto) -> bool:
    return any(
        (a.name in _TYPED_SO and a.i in WIDENED)
        or (a.type == AttributeProto.TENSOR and a.t.data_type in WIDENED)
        for a in node.attribute
    )


def _follow(nodes: Iterable[NodeProto], opsets: Mapping[str, int], found: dict[str, str]) -> None:
    for node in nodes:
        for body in subgraphs(node):
            for info in body.input:
                _add(found, info.name, WIDENED.get(info.type.tensor_type.elem_type, ""))
            for tensor in body.initializer:
                _add(found, tensor.name, WIDENED.get(tensor.data_type, ""))
            _follow(body.node, opsets, found)
        for name, kind in zip(node.output, _results(node, opsets, found), strict=False):
            _add(found, name, kind)


def _add(found: dict[str, str], name: str, kind: str) -> None:
    found[name] = kind if found.get(name, kind) == kind else ""


def _results(node: NodeProto, opsets: Mapping[str, int], types: Types) -> list[str]:
    """The type of each result."""
    domain = domain_of(node.domain)
    if not domain and node.op_type in _BODIES:
        first = _BODIES[node.op_type]
        (body, *_) = *subgraphs(node), onnx.GraphProto()
        return [types.get(o.name, "") for o in body.output[first:]]
    for a in node.attribute:
        if a.name in _TYPED_SO and a.i:
            return [WIDENED.get(a.i, "")] * len(node.output)
        if a.name == "value" and a.type == AttributeProto.TENSOR:  # the tensor of a Constant node
            return [WIDENED.get(a.t.data_type, "")] * len(node.output)
    given = [types.get(name, "") if name else None for name in node.input]
    formal = _schema(node.op_type, opsets.get(domain, 0), domain)
    if formal is None:
        return [_operand(given, _TYPED_BY.get(node.op_type, 0))] * len(node.output)
    inputs, outputs = formal
    return [
        _of(_at(outputs, k), inputs, given) if _at(outputs, k) in inputs
        else _operand(given, _TYPED_BY.get(node.op_type, len(given)))
        for k in range(len(node.output))
    ]  # fmt: skip


def _of(letter: str, inputs: Sequence[str], given: Sequence[str | None]) -> str:
    """The type of the first operand that has this letter in the schema."""
    places = (k for k in range(len(given)) if _at(inputs, k) == letter)
    return next((kind for k in places if (kind := given[k]) is not None), "")


def _operand(given: Sequence[str | None], at: int) -> str:
    return (given[at] or "") if at < len(given) else ""


def _at(letters: Sequence[str], number: int) -> str:
    """The letter of a parameter; the last letter stands for all parameters after it, too."""
    return letters[min(number, len(letters) - 1)]


@lru_cache(maxsize=1024)
def _schema(op: str, version: int, domain: str) -> tuple[list[str], list[str]] | None:
    """The schema's type variables, such as "T", of operands and results; None if there is no
    schema."""
    if domain or not onnx.defs.has(op, version):
        return None
    schema = onnx.defs.get_schema(op, version)
    if not schema.outputs:
        return None
    return [i.type_str for i in schema.inputs] or [""], [o.type_str for o in schema.outputs]


def _all(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    for node in nodes:
        yield node
        yield from _bodies([node])


def _bodies(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """The nodes of all bodies."""
    for node in nodes:
        for graph in subgraphs(node):
            yield from _all(graph.node)
