"""A graph as readable text, one node per line, for `tilewright show` and for people.

Input: a graph.  Output: text with the op, dtype and shape of each node, and the model's node that
it came from.  Nothing reads it back.
"""

from __future__ import annotations

from tilewright.graph import ops
from tilewright.graph.node import Graph, Node
from tilewright.graph.ops import Op


def render(graph: Graph) -> str:
    """The whole text."""
    names: dict[Node, str] = {}
    lines = [f"graph {graph.name}"]
    for i, n in enumerate(graph.nodes()):
        names[n] = f"%{i}"
        args = ", ".join(names[a] for a in n.inputs)
        tail = f"   ; {n.source.node}" if n.source else ""
        lines.append(f"  {names[n]} = {_describe(n.op)}({args}) {n.dtype}{list(n.shape)}{tail}")
    lines += [f"  output {name} = {names[n]}" for name, n in graph.outputs]
    return "\n".join(lines)


def _describe(op: Op) -> str:
    match op:
        case ops.Input(name, _, _) | ops.Weight(name, _, _, _, _):
            return f"{type(op).__name__.lower()} {name}"
        case ops.Constant(value):
            return f"constant {value.item()}" if value.size == 1 else "constant"
        case ops.Elementwise(fn, _):
            return fn
        case ops.Contract(a, b, out, role):
            return f"contract {a},{b}->{out} {role}".rstrip()
        case _:
            fields = ", ".join(f"{k}={v}" for k, v in vars(op).items())
            return f"{type(op).__name__.lower()} {fields}".strip()
