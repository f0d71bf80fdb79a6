"""Reads rows of a table from the packed weight of a product, so that the table is stored once.

Input: a graph whose weights are packed (pack_weights.py).  Output: an equal graph, whose gathers
read the packed form of a constant if a product reads that form too.  Many language models look up
their embeddings in the table with which they compute their logits.

    gather(w, ids)  ->  gather(view of the packed w, ids)

Integers of 4 bits stay in two tables, because words of them are not a view of the integers.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.graph import ops
from tilewright.graph.node import Graph, Node, node, reshape, transpose
from tilewright.graph.views import Indices, root_of, through_views
from tilewright.kernel.index import Var, flatten, index
from tilewright.kernel.layout import ROWS


def gathered_from_packed(graph: Graph) -> Graph:
    """The graph, with gathers from packed constants where there are such."""
    tables = {n.inputs[0] for n in graph.nodes() if _is_look_up(n)}
    packed = dict(_packed_views(graph)) if tables else {}
    found = {table: packed[table] for table in tables if table in packed}
    if not found:
        return graph
    done: dict[Node, Node] = {}
    for n in graph.nodes():
        inputs = [done[i] for i in n.inputs]
        if _is_look_up(n):
            inputs[0] = found.get(n.inputs[0], inputs[0])
        same = all(new is old for new, old in zip(inputs, n.inputs, strict=True))
        done[n] = n if same else node(n.op, *inputs, source=n.source)
    return Graph(graph.name, graph.inputs, tuple((name, done[n]) for name, n in graph.outputs))


def _is_look_up(n: Node) -> bool:
    return isinstance(n.op, ops.Gather) and n.inputs[0].constant and not n.constant


def _packed_views(graph: Graph) -> Iterator[tuple[Node, Node]]:
    """Constants that a packed one contains, each with the same as a view of the packed one."""
    for n in graph.nodes():
        below = root_of(n)
        if n is below or not n.constant or not _is_packed(below):
            continue
        axes = tuple(Var(f"i{axis}", extent) for axis, extent in enumerate(n.shape))
        at = through_views(n, tuple(map(index, axes)))[1]
        table, there = _source(below.inputs[0], at)
        view = _as(table, n, axes, there) if table.size == n.size else None
        if view is not None:
            yield table, view


def _is_packed(n: Node) -> bool:
    return isinstance(n.op, ops.Realize) and n.op.layout != ROWS


def _source(x: Node, at: Indices) -> tuple[Node, Indices]:
    """The constant that was packed, and the indices there.  Only the end of an axis is padded, and
    views of the packed constant leave that out."""
    x, at = through_views(x, at)
    while isinstance(x.op, ops.Pad) and not any(x.op.before):
        x, at = through_views(x.inputs[0], at)
    return x, at


def _as(table: Node, view: Node, axes: tuple[Var, ...], at: Indices) -> Node | None:
    """The view in the table's shape, if it has the table's elements in the same order, or its axes
    in another order."""
    if flatten(at, table.shape) == flatten(tuple(map(index, axes)), view.shape):
        return reshape(view, table.shape)
    places = [next((n for n, v in enumerate(axes) if i == index(v)), -1) for i in at]
    return transpose(view, places) if sorted(places) == [*range(view.rank)] else None
