"""Rounds f32 tensors that stand for f16 or bf16, unless all their numbers are of that type already.

Input: a node or a graph, and the type's name.  Output: the same with each number rounded to the
nearest number of the type.  The importer decides which tensors of a model are rounded
(docs/decisions/0063-where-halves-round.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from tilewright.base.dtypes import BOOL, F32, I8, U8
from tilewright.base.numpy_scalars import NUMPY_SCALARS
from tilewright.graph import ops
from tilewright.graph.node import Graph, Node, elementwise, fact, node, toposort
from tilewright.graph.ops import Array

#: The types; they are also names of the scalar functions that round to them.
ROUNDED_TYPES = frozenset({"f16", "bf16"})
#: Movements for which rounding before or after is the same; a slice reads only a part.
_MOVES = (
    ops.Reshape, ops.Transpose, ops.Broadcast, ops.Flip, ops.Unfold, ops.Realize, ops.Concat,
    ops.Update,
)  # fmt: skip
#: Functions whose result is one of their operands, its negative, or an integer near it.
_KEEP = frozenset({"max", "min", "neg", "abs", "floor", "ceil", "round", "where"})


def _moved(n: Node) -> tuple[Node, ...]:
    """The operands whose numbers a node only moves: the node contains all of them and no others."""
    if isinstance(n.op, ops.Gather):
        return n.inputs[:1]
    if isinstance(n.op, ops.Update):
        return tuple(x for x in n.inputs if x.dtype == F32)
    return n.inputs if isinstance(n.op, _MOVES) else ()


def _kept(n: Node) -> tuple[Node, ...]:
    """The operands from which a node takes its numbers, perhaps not all of them; () if it computes
    new ones."""
    if isinstance(n.op, (ops.Slice, ops.Pad)) or (
        isinstance(n.op, ops.Reduce) and n.op.fn in ("max", "min")
    ):
        return n.inputs
    if isinstance(n.op, ops.Elementwise) and n.op.fn in _KEEP:
        return n.inputs[1:] if n.op.fn == "where" else n.inputs
    return _moved(n)


@fact(_kept)
def exact_types(n: Node, operands: list[frozenset[str]]) -> frozenset[str]:
    """The types that can represent every number of an f32 node."""
    match n.op:
        case ops.Input() | ops.Weight():
            return ROUNDED_TYPES & {n.op.stored}
        case ops.Constant(value):
            return _types_of_values(value)
        case ops.Elementwise(fn, _) if fn in ROUNDED_TYPES:
            return frozenset({fn})
        case ops.Elementwise("cast", _) if n.inputs[0].dtype in (BOOL, I8, U8):
            return ROUNDED_TYPES
        case ops.Pad(_, _, value):
            operands = [*operands, _types_of_values(np.asarray(value, np.float32))]
    return frozenset.intersection(*operands) if operands else frozenset()


def _types_of_values(value: Array) -> frozenset[str]:
    if value.dtype != np.float32:
        return frozenset()
    return frozenset(
        kind for kind in ROUNDED_TYPES
        if np.array_equal(NUMPY_SCALARS[kind](value), value, equal_nan=True)
    )  # fmt: skip


def _unrounded_operands(n: Node, kind: str) -> tuple[Node, ...]:
    """The operands to round instead of a node that only moves their numbers."""
    return tuple(x for x in _moved(n) if kind not in exact_types(x))


def rounded_to(n: Node, kind: str) -> Node:
    """The node with each number rounded to the type `kind`.  The rounding is done before
    movements."""
    if kind in exact_types(n):
        return n
    made: dict[Node, Node] = {}
    for x in toposort([n], lambda m: _unrounded_operands(m, kind)):
        if _unrounded_operands(x, kind):
            made[x] = node(x.op, *(made.get(i, i) for i in x.inputs), source=x.source)
        else:
            made[x] = elementwise(kind, x)
    return made[n]


def _unrounded(n: Node, kind: str) -> Iterator[Node]:
    """The nodes below movements that compute numbers not of the type."""
    if kind in exact_types(n):
        return
    for x in toposort([n], lambda m: _unrounded_operands(m, kind)):
        if not _unrounded_operands(x, kind):
            yield x


def with_rounded_outputs(
    graph: Graph, kinds: Mapping[str, str], declared: Mapping[Node, str]
) -> Graph:
    """The graph with some outputs rounded.

    kinds: the type of each output to round, by name;  declared: nodes of the model that have such a
           type

    All readers of a number that is rounded for an output, or for a reader of a declared node, get
    the rounded number: it is stored once, and a state that grows in place stays one.
    """
    wanted = {
        x: kinds[name]
        for name, n in graph.outputs if name in kinds
        for x in _unrounded(n, kinds[name])
    }  # fmt: skip
    rounded = ((n, rounded_type(n)) for n in graph.nodes())
    wanted |= {n.inputs[0]: k for n, k in rounded if k and declared.get(n.inputs[0]) == k}
    if not wanted:
        return graph
    names, nodes = zip(*graph.outputs, strict=True)
    pairs = zip(names, _replaced(nodes, wanted), strict=True)
    outputs = tuple((c, rounded_to(n, kinds[c]) if c in kinds else n) for c, n in pairs)
    return Graph(graph.name, graph.inputs, outputs)


def rounded_type(n: Node) -> str:
    """The type to which a node rounds; "" if it does not."""
    return n.op.fn if isinstance(n.op, ops.Elementwise) and n.op.fn in ROUNDED_TYPES else ""


def _replaced(roots: tuple[Node, ...], kinds: Mapping[Node, str]) -> list[Node]:
    """The roots with some of the nodes below them rounded, each once."""
    made: dict[Node, Node] = {}
    for n in toposort(roots):
        inputs = tuple(made[i] for i in n.inputs)
        same = all(a is b for a, b in zip(inputs, n.inputs, strict=True))
        made[n] = n if same else node(n.op, *inputs, source=n.source)
        if n in kinds:
            made[n] = elementwise(kinds[n], made[n], source=n.source)
        elif (kind := rounded_type(n)) and kind in exact_types(inputs[0]):
            made[n] = inputs[0]
    return [made[r] for r in roots]
