"""A decoder that an exporter merged of two: one branch without caches, one with them.

Input: a model with a flag that chooses between branches.  Output: the model of one branch alone;
also a model without the nodes that some of its results do not need.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from onnx import GraphProto, NodeProto, TensorProto, helper

from tilewright.base.errors import InvalidModel
from tilewright.frontend.read import Model
from tilewright.frontend.structure_checks import describe, subgraphs
from tilewright.frontend.subgraphs import names_read

#: The flag of Optimum's merged decoders: whether there are past tokens.
FLAG = "use_cache_branch"


def is_merged(model: Model) -> bool:
    """Whether a flag chooses between branches."""
    return any(decl.name == FLAG for decl in model.inputs)


def branch_of(model: Model, flag: bool) -> Model:
    """The branch for this value of the flag.  Raises InvalidModel."""
    nodes: list[NodeProto] = []
    weights: dict[str, TensorProto] = {**model.weights}
    for each in model.nodes:
        if each.op_type != "If" or each.domain or list(each.input) != [FLAG]:
            nodes.append(each)
            continue
        body = _body(each, "then_branch" if flag else "else_branch")
        weights |= {tensor.name: tensor for tensor in body.initializer}
        nodes += body.node
        nodes += [
            helper.make_node("Identity", [inner.name], [outer], f"{describe(each)}/{outer}")
            for inner, outer in zip(body.output, each.output, strict=True)
            if inner.name != outer
        ]
    inputs = tuple(decl for decl in model.inputs if decl.name != FLAG)
    return replace(model, nodes=nodes, weights=weights, inputs=inputs, _constants={})


def only_for(model: Model, outputs: Sequence[str]) -> Model:
    """The model with these outputs alone."""
    needed, kept = {*outputs}, list[NodeProto]()
    for each in reversed(model.nodes):
        if needed & {*each.output}:
            kept.append(each)
            needed |= {*each.input}.union(*map(names_read, subgraphs(each)))
    return replace(model, nodes=kept[::-1], outputs=tuple(outputs), _constants={})


def _body(each: NodeProto, name: str) -> GraphProto:
    found: list[GraphProto] = [a.g for a in each.attribute if a.name == name]
    body = found[0] if found else None
    if body is None or len(body.output) != len(each.output):
        raise InvalidModel(f"{each.op_type} has no whole {name}", node=describe(each))
    return body
