"""Quantised weights: constants that are (whole - zero) * scale, where whole holds small integers.

Input: a constant node.  Output: the three factors, if it has them.  It rewrites nothing:
passes/pack_blocks.py keeps integers for products, narrow.py for files.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.base.dtypes import F32, I8, I16, U8
from tilewright.graph import ops
from tilewright.graph.node import Node, broadcast, constant, is_constant, node


@dataclass(frozen=True)
class QuantisedWeight:
    """(whole - zero) * scale: three nodes of one shape; zero and scale repeat what they hold."""

    whole: Node
    zero: Node
    scale: Node


def weights(x: Node) -> QuantisedWeight | None:
    """How a constant is made of integers of 8 bits or less, if it is; seen through views."""
    path = []
    while isinstance(x.op, ops.VIEWS):
        path.append(x)
        x = x.inputs[0]
    found = factors(x)
    if found is None:
        return None
    parts = (found.whole, found.zero, found.scale)
    for outer in reversed(path):
        parts = tuple(node(outer.op, p) for p in parts)  # type: ignore[assignment]
    return QuantisedWeight(*parts)


def factors(x: Node) -> QuantisedWeight | None:
    """The same for what is no view."""
    if not (is_call(x, "mul") and is_constant(x) and x.dtype == F32):
        return None
    for centred, scale in (x.inputs, x.inputs[::-1]):
        zero = constant(0.0, F32)
        centred_already = is_call(centred, "sub")
        if centred_already:
            centred, zero = centred.inputs
        if not is_call(centred, "cast"):
            continue
        whole = centred.inputs[0]
        if whole.dtype == I16 and is_call(whole, "sub"):
            if centred_already:
                continue
            whole, zero = whole.inputs
        if whole.dtype == I16 and is_call(whole, "cast"):
            whole = whole.inputs[0]
        if is_call(zero, "cast") and zero.inputs[0].dtype in (I8, U8):
            (zero,) = zero.inputs
        if whole.dtype in (I8, U8):
            return QuantisedWeight(whole, broadcast(zero, x.shape), scale)
    return None


def is_call(n: Node, fn: str) -> bool:
    return isinstance(n.op, ops.Elementwise) and n.op.fn == fn
