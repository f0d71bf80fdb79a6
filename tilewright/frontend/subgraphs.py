"""ONNX operators with subgraphs: If with a known condition, Scan and Loop as scans.

Input: the node, its operands, the tensors of the outer graph, and a function that applies a graph's
nodes.  Output: nodes.  The number of iterations must be known at compile time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from onnx import GraphProto, NodeProto, helper

from tilewright.base.dtypes import BOOL
from tilewright.base.errors import InvalidModel, UnsupportedOp
from tilewright.base.model_limits import check_limit
from tilewright.frontend import arithmetic as al
from tilewright.frontend.structure_checks import subgraphs
from tilewright.graph.node import Graph, Node, constant, graph_input, transpose
from tilewright.graph.scan import element, scan

#: The tensors that nodes can name.
Visible = dict[str, Node]
#: Applies a graph's nodes to the tensors around it and those given by name; gives its outputs.
Apply = Callable[[GraphProto, Visible], tuple[Node, ...]]
Operands = Sequence[Node | None]
T = TypeVar("T")


def branch(node: NodeProto, operands: Operands, around: Visible, apply: Apply) -> tuple[Node, ...]:
    """If: the results of the branch that the known condition selects."""
    condition = _needed(operands, 1)[0]
    taken = al.known_number(condition, "the condition")
    return apply(_graph(node, "then_branch" if taken else "else_branch"), around)


def scan_over(
    node: NodeProto, operands: Operands, around: Visible, apply: Apply
) -> tuple[Node, ...]:
    """Scan (opset 9 and later): operands are states, then sequences; one step per element."""
    given = _needed(operands, 1)
    count = int(_attribute(node, "num_scan_inputs", 0))
    body = _graph(node, "body")
    if not 0 < count <= len(given) or len(body.input) != len(given):
        raise InvalidModel("Scan needs sequences and a body with an input for each operand")
    states, parts = given[: len(given) - count], given[len(given) - count :]
    results = len(body.output) - len(states)
    _check_counts(node, count, results)
    axes = _attribute(node, "scan_input_axes", [0] * count)
    sequences = [_leading(x, al.axis_of(a, x.rank)) for x, a in zip(parts, axes, strict=True)]
    backward = [
        *_attribute(node, "scan_input_directions", [0] * count),
        *_attribute(node, "scan_output_directions", [0] * results),
    ]
    names, length = [i.name for i in body.input], sequences[0].shape[0]
    made = _repeat(body, names, states, sequences, length, backward, around, apply)
    places = _attribute(node, "scan_output_axes", [0] * results)
    last, every = made[: len(states)], made[len(states) :]
    return (*last, *(_back(y, al.axis_of(a, y.rank)) for y, a in zip(every, places, strict=True)))


def _check_counts(node: NodeProto, sequences: int, results: int) -> None:
    """Raises InvalidModel unless the attributes of a Scan have an entry for each."""
    for name, count in (
        ("scan_input_axes", sequences), ("scan_input_directions", sequences),
        ("scan_output_axes", results), ("scan_output_directions", results),
    ):  # fmt: skip
        given = _attribute(node, name, [0] * max(count, 0))
        if count < 0 or len(given) != count:
            raise InvalidModel(f"{name} of Scan must have {count} entries, not {len(given)}")


def loop(node: NodeProto, operands: Operands, around: Visible, apply: Apply) -> tuple[Node, ...]:
    """Loop with a known number of iterations and no condition of its own."""
    trips, condition, *rest = (*operands, None, None)[: max(len(operands), 2)]
    states = _needed(rest, len(rest))
    if trips is None:
        raise UnsupportedOp(
            "a Loop without a number of iterations is not supported",
            hint="Export the model with a fixed number of iterations",
        )
    length = max(int(al.known_number(trips, "the number of iterations")), 0)
    if condition is not None and not al.known_number(condition, "the condition"):
        length = 0
    check_limit("repeats", length, "the number of iterations")
    body = _graph(node, "body")
    if len(body.input) != len(states) + 2 or len(body.output) < len(states) + 1:
        raise InvalidModel("the body of Loop does not match its operands")
    number, going = (i.name for i in body.input[:2])

    def endless(graph: GraphProto, values: Visible) -> tuple[Node, ...]:
        go_on, *outputs = apply(graph, {**values, going: constant(True, BOOL)})
        if not al.known_number(go_on, "the condition inside a Loop"):
            raise UnsupportedOp("a Loop that ends after its first iteration is not supported")
        return tuple(outputs)

    count = constant(np.arange(length, dtype=np.int64))
    names = [*(i.name for i in body.input[2:]), number]
    return _repeat(body, names, states, [count], length, (), around, endless)


def _repeat(
    body: GraphProto,
    names: Sequence[str],
    states: Sequence[Node],
    sequences: Sequence[Node],
    length: int,
    backward: Sequence[int],
    around: Visible,
    apply: Apply,
) -> tuple[Node, ...]:
    """Last states and results.  names: of the body's inputs for each state, then each sequence"""
    kept = [graph_input(n, s.shape, s.dtype) for n, s in zip(names, states, strict=False)]
    now = [element(n, s) for n, s in zip(names[len(states) :], sequences, strict=True)]
    fixed = {
        name: graph_input(f"outer {name}", around[name].shape, around[name].dtype)
        for name in sorted(names_read(body))
        if name in around and name not in names and not around[name].constant
    }
    inputs = dict(zip(names, (*kept, *now), strict=True)) | fixed
    outputs = apply(body, {**around, **inputs})
    graph = Graph(
        body.name,
        tuple((str(getattr(n.op, "name", "")), n) for n in inputs.values()),
        tuple((f"out{i}", n) for i, n in enumerate(outputs)),
    )
    last, every = scan(
        graph, length, states, sequences, [around[n] for n in fixed], [bool(b) for b in backward]
    )
    return (*last, *every)


def names_read(graph: GraphProto) -> set[str]:
    """Every name that a graph or its subgraphs read, including names of their own nodes."""
    found = {o.name for o in graph.output}
    for node in graph.node:
        found |= set(node.input)
        for body in subgraphs(node):
            found |= names_read(body)
    return found


def _leading(x: Node, axis: int) -> Node:
    return transpose(x, (axis, *(i for i in range(x.rank) if i != axis)))


def _back(x: Node, axis: int) -> Node:
    """The first axis moved to `axis`."""
    return transpose(x, [*range(1, axis + 1), 0, *range(axis + 1, x.rank)])


def _needed(operands: Operands, least: int) -> list[Node]:
    given = [x for x in operands if x is not None]
    if len(given) < max(least, len(operands)):
        raise InvalidModel("an operand is missing")
    return given


def _graph(node: NodeProto, name: str) -> GraphProto:
    for attribute in node.attribute:
        if attribute.name == name:
            graph: GraphProto = attribute.g
            return graph
    raise InvalidModel(f"{node.op_type} has no {name}")


def _attribute(node: NodeProto, name: str, default: T) -> T:
    """A value of the default's type, which `check_attributes` has seen to."""
    found = next((a for a in node.attribute if a.name == name), None)
    if found is None:
        return default
    value: T = helper.get_attribute_value(found)
    return value


CONTROL: Mapping[str, Callable[[NodeProto, Operands, Visible, Apply], tuple[Node, ...]]] = {
    "If": branch,
    "Loop": loop,
    "Scan": scan_over,
}
