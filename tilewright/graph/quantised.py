"""Quantised weights: constants that are (whole - zero) * scale, where whole holds small integers.

Input: a constant node.  Output: the three factors, if it has them.  It rewrites nothing:
passes/pack_blocks.py keeps integers for products, narrow.py for files.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.base.dtypes import F32, I8, I16, U8
from tilewright.graph import ops
from tilewright.graph.node import Node, broadcast, constant, node


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
    """The same for what is no view: (f32(whole) - zero) * scale, f32(whole - zero) * scale or
    f32(whole) * scale."""
    if not (is_call(x, "mul") and x.constant and x.dtype == F32):
        return None
    for centred, scale in (x.inputs, x.inputs[::-1]):
        zero = None
        if is_call(centred, "sub"):
            centred, zero = centred.inputs
        if not is_call(centred, "cast"):
            continue
        (whole,) = centred.inputs
        if zero is None and whole.dtype == I16 and is_call(whole, "sub"):
            whole, zero = whole.inputs
        if whole.dtype == I16:
            whole = _uncast(whole)
        if whole.dtype in (I8, U8):
            zero = constant(0.0, F32) if zero is None else _uncast(zero)
            return QuantisedWeight(whole, broadcast(zero, x.shape), scale)
    return None


def _uncast(x: Node) -> Node:
    """The bytes that x is a cast of, if it is; else x."""
    return x.inputs[0] if is_call(x, "cast") and x.inputs[0].dtype in (I8, U8) else x


def is_call(n: Node, fn: str) -> bool:
    return isinstance(n.op, ops.Elementwise) and n.op.fn == fn
