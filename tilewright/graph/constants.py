"""Constants that reach memory: when two of them are the same.

Input: nodes without run-time inputs.  Output: a number for each, equal for equal computations, also
in graphs that were imported separately (one per bucket), so that buckets share their weights.
Names take no part: two subgraphs may give one name to different weights.
"""

from __future__ import annotations

from tilewright.graph import ops
from tilewright.graph.node import Node, toposort


class Constants:
    """Numbers for constants: equal for equal ones."""

    def __init__(self) -> None:
        self._numbers: dict[object, int] = {}
        self._known: dict[Node, int] = {}

    def number(self, n: Node) -> int:
        if n not in self._known:
            for m in toposort([n], lambda m: (i for i in m.inputs if i not in self._known)):
                self._known[m] = self._numbers.setdefault(self._key(m), len(self._numbers))
        return self._known[n]

    def _key(self, n: Node) -> object:
        """The digest of the elements, or the computation and its operands' numbers."""
        if isinstance(n.op, (ops.Weight, ops.Constant)):
            return (n.dtype.name, n.shape, n.op.digest)
        return (type(n.op).__name__, ops.attributes(n.op), tuple(self._known[i] for i in n.inputs))
