"""The rewriter: applies a table of local rules to a graph until none applies.

Input: a `Graph` and rules.  Output: a `Graph` with the same outputs.  A rule sees one node whose
operands are already in normal form; equal nodes become one, since each is built once.  The rules
are in `passes/`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tilewright.graph import ops
from tilewright.graph.node import Graph, Node, node, with_source
from tilewright.graph.scan import Scan

RuleFn = Callable[[Node], Node | None]


def rewrite(graph: Graph, rules: tuple[RuleFn, ...]) -> Graph:
    """Apply the rules to every node, operands first, until none fits; equal nodes become one."""
    return Rewriter(rules).graph(graph)


class Rewriter:
    """Normal forms of nodes, in any number of graphs; their common parts are rewritten once.

    Graphs that have inputs of one name and shape must share the nodes of these inputs.

    done:   the normal form of every node seen so far
    shared: one node for each group of equal ones
    """

    def __init__(self, rules: tuple[RuleFn, ...]) -> None:
        self._rules = rules
        self._done: dict[Node, Node] = {}
        self._shared: dict[object, Node] = {}
        self._scans: dict[Scan, Scan] = {}

    def graph(self, graph: Graph) -> Graph:
        """The graph with its outputs in normal form."""
        outputs = tuple((name, self._of(n)) for name, n in graph.outputs)
        return Graph(graph.name, graph.inputs, outputs)

    def _of(self, root: Node) -> Node:
        """The normal form of a node, depth first with an explicit stack.  The result of a rule is
        put on the stack until it is in normal form itself."""
        done, pending = self._done, [root]
        becomes: dict[Node, tuple[Node, Node]] = {}  # (over normal forms, the rule's)
        while pending:
            n = pending[-1]
            if n in done:
                pending.pop()
            elif n in becomes:
                m, better = becomes.pop(n)
                done[n] = done[m] = done[better]
            elif missing := [i for i in n.inputs if i not in done]:
                pending += reversed(missing)
            else:
                m = self._rebuilt(n)
                better = done.get(m) or self._better(m)
                if better is m or better in done:
                    done[n] = done[m] = done.get(better, m)
                else:
                    becomes[n] = m, better
                    pending.append(better)
        return done[root]

    def _better(self, n: Node) -> Node:
        """The result of the first rule that applies to a node, with the node's source."""
        with with_source(n.source):
            return next(filter(None, (rule(n) for rule in self._rules)), n)

    def _rebuilt(self, n: Node) -> Node:
        """The node over the normal forms of its operands, or the equal node that exists already."""
        inputs, op = tuple([self._done[i] for i in n.inputs]), self._op(n.op)
        same = op is n.op and all(a is b for a, b in zip(inputs, n.inputs, strict=True))
        m = n if same else node(op, *inputs, source=n.source)
        return self._shared.setdefault(_key(m), m)

    def _op(self, op: ops.Op) -> ops.Op:
        """The op; a loop's body is a graph of its own, and is rewritten too."""
        if not isinstance(op, Scan):
            return op
        if op not in self._scans:
            made = replace(op, body=rewrite(op.body, self._rules))
            self._scans[op] = self._scans[made] = made
        return self._scans[op]


def _key(n: Node) -> object:
    """A key of a node over normal forms; nodes with equal keys are equal tensors."""
    if isinstance(n.op, ops.Constant):
        value = n.op.value
        return ("constant", value.dtype.str, value.shape, value.tobytes())
    if isinstance(n.op, ops.Weight):
        return ("weight", id(n.op))
    return (type(n.op), ops.attributes(n.op), tuple(id(i) for i in n.inputs))
