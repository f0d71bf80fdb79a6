"""Constants that reach memory: when two of them are the same.

Input: nodes without run-time inputs.  Output: a number for each, equal for equal computations, also
in graphs that were imported separately (one per bucket), so that buckets share their weights.
"""

from __future__ import annotations

import hashlib
from dataclasses import fields

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
        """The weight's name, the value's bytes, or the computation and its operands' numbers."""
        if isinstance(n.op, ops.Weight):
            return ("weight", n.op.name, n.shape, n.dtype.name)
        if isinstance(n.op, ops.Constant):
            value = n.op.value
            digest = hashlib.sha256(value.tobytes()).digest()
            return ("constant", value.dtype.str, value.shape, digest)
        attributes = tuple(getattr(n.op, f.name) for f in fields(n.op))
        return (type(n.op).__name__, attributes, tuple(self._known[i] for i in n.inputs))
