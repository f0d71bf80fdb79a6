"""Constants that reach memory: when two of them are the same.

Input: a node without run-time inputs.  Output: a key that is equal for equal computations, also in
graphs that were imported separately (one per bucket), so that buckets share their weights.  Names
take no part: two subgraphs may give one name to different weights.
"""

from __future__ import annotations

from dataclasses import fields

from tilewright.graph import ops
from tilewright.graph.node import Node


def constant_key(n: Node) -> object:
    """Equal for equal constants: the digest of the elements, or the computation's key."""
    if isinstance(n.op, (ops.Weight, ops.Constant)):
        return (n.dtype.name, n.shape, n.op.digest)
    return (type(n.op).__name__, attributes(n.op), tuple(constant_key(i) for i in n.inputs))


def attributes(op: ops.Op) -> tuple[object, ...]:
    """The fields of an op, to be compared: 0.0 and -0.0 are equal, but not the same."""
    values = (getattr(op, f.name) for f in fields(op))
    return tuple(v.hex() if isinstance(v, float) else v for v in values)
