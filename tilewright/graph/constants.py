"""Constants that reach memory: when two of them are the same.

Input: a node without run-time inputs.  Output: a key that is equal for equal computations, also in
graphs that were imported separately (one per bucket), so that buckets share their weights.
"""

from __future__ import annotations

import hashlib
from dataclasses import fields

from tilewright.graph import ops
from tilewright.graph.node import Node


def constant_key(n: Node) -> object:
    """Equal for equal constants: the weight's name, the value's bytes, or the computation's key."""
    if isinstance(n.op, ops.Weight):
        return ("weight", n.op.name, n.shape, n.dtype.name)
    if isinstance(n.op, ops.Constant):
        value = n.op.value
        return ("constant", value.dtype.str, value.shape, hashlib.sha256(value.tobytes()).digest())
    attributes = tuple(getattr(n.op, f.name) for f in fields(n.op))
    return (type(n.op).__name__, attributes, tuple(constant_key(i) for i in n.inputs))
