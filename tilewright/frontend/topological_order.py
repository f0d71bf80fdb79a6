"""Sorts the nodes of a graph: each node reads only results of earlier nodes.

Input: a graph of a model file.  Output: the same graph, in the file's order as far as possible, or
InvalidModel: a tensor that nothing makes, or two nodes make, or a cycle.  Subgraphs too, which may
read all tensors of the graphs around them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from heapq import heapify, heappop, heappush

from onnx import GraphProto, NodeProto

from tilewright.base.errors import InvalidModel
from tilewright.frontend.structure_checks import describe, subgraphs


def put_in_order(graph: GraphProto, around: Collection[str] = frozenset()) -> None:
    """around: what the graphs around this one have.  A sorted graph stays as it is."""
    given = {x.name for x in (*graph.input, *graph.initializer)}
    makers: dict[str, int] = {}
    for at, node in enumerate(graph.node):
        for name in filter(None, node.output):
            if name in makers or name in given:
                raise InvalidModel(
                    f"tensor {name!r} is made twice",
                    hint="the file is damaged: export the model again",
                    node=describe(node), op=node.op_type,
                )  # fmt: skip
            makers[name] = at
    visible = {*around, *given, *makers}
    for node in graph.node:
        for body in subgraphs(node):
            put_in_order(body, visible)
    needed = [[*_made_here(node, makers, visible)] for node in graph.node]
    for output in graph.output:
        if output.name not in visible:
            raise InvalidModel(
                f"no node makes the output {output.name!r}",
                hint="the file is damaged, or its nodes were renamed: export the model again",
                output=output.name,
            )
    if any(before >= at for at, makes in enumerate(needed) for before in makes):
        nodes = [graph.node[at] for at in _order(graph.node, needed)]
        copies = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
        del graph.node[:]
        graph.node.extend(copies)


def _made_here(node: NodeProto, makers: dict[str, int], visible: Collection[str]) -> Iterator[int]:
    """The positions of the nodes whose results a node reads."""
    for name in _read(node):
        if name in makers:
            yield makers[name]
        elif name not in visible:
            raise InvalidModel(
                f"nothing makes the tensor {name!r}, which a node reads",
                hint="the file is damaged, or its nodes were renamed: export the model again",
                node=describe(node), op=node.op_type,
            )  # fmt: skip


def _read(node: NodeProto) -> Iterator[str]:
    """The tensors that a node reads from the graph around it, also inside its subgraphs."""
    yield from filter(None, node.input)
    for body in subgraphs(node):
        own = {x.name for x in (*body.input, *body.initializer)}
        own |= {name for inner in body.node for name in inner.output}
        reads = [*(n for inner in body.node for n in _read(inner)), *(o.name for o in body.output)]
        yield from (name for name in reads if name not in own)


def _order(nodes: Sequence[NodeProto], needed: Sequence[Sequence[int]]) -> list[int]:
    """Positions in an order that satisfies `needed`; the earlier of two goes first if it can."""
    readers: list[list[int]] = [[] for _ in nodes]
    missing = [len(set(before)) for before in needed]
    for at, before in enumerate(needed):
        for maker in set(before):
            readers[maker].append(at)
    ready = [at for at, count in enumerate(missing) if not count]
    heapify(ready)
    order: list[int] = []
    while ready:
        at = heappop(ready)
        order.append(at)
        for reader in readers[at]:
            missing[reader] -= 1
            if not missing[reader]:
                heappush(ready, reader)
    if len(order) < len(nodes):
        stuck = nodes[next(at for at, count in enumerate(missing) if count)]
        raise InvalidModel(
            "nodes need each other's results in a cycle",
            hint="the file is damaged: export the model again",
            node=describe(stuck), op=stuck.op_type,
        )  # fmt: skip
    return order
