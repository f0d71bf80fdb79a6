"""ONNX operators that read at computed positions: the gathers.

Input: operand nodes and attributes.  Output: nodes.  Indices may count from the end in ONNX and may
not in the graph, so they are wrapped here.
"""

from __future__ import annotations

from math import prod

from tilewright.base.dtypes import BOOL, I64
from tilewright.base.errors import ShapeError
from tilewright.frontend import algebra as al
from tilewright.frontend.table import operator
from tilewright.graph.node import Node, cast, gather, iota, reshape


def wrapped(indices: Node, extent: int) -> Node:
    """Indices in [0, extent): negative ones count from the end."""
    if indices.dtype == BOOL or not indices.dtype.kind == "int":
        raise ShapeError("indices must be integers", dtype=indices.dtype)
    value = indices.value
    if value is not None and (value.size == 0 or value.min() >= 0):
        return indices
    return al.where(al.less(indices, 0), al.add(indices, extent), indices)


@operator("Gather")
def take(x: Node, indices: Node, *, axis: int = 0) -> Node:
    along = al.axis_of(axis, x.rank)
    return gather(x, wrapped(indices, x.shape[along]), along)


@operator("GatherElements")
def take_elements(x: Node, indices: Node, *, axis: int = 0) -> Node:
    """x at (own position, but the index along `axis`): one gather from the flat operand."""
    along = al.axis_of(axis, x.rank)
    if indices.rank != x.rank:
        raise ShapeError("operand and indices must have one rank", shape=[x.shape, indices.shape])
    where = cast(wrapped(indices, x.shape[along]), I64)
    flat = al.mul(where, prod(x.shape[along + 1 :]))
    for i in range(x.rank):
        if i != along and indices.shape[i] > 1:
            flat = al.add(flat, al.mul(iota(indices.shape, i), prod(x.shape[i + 1 :])))
    return gather(reshape(x, (x.size,)), flat, 0)


@operator("GatherND")
def take_nd(x: Node, indices: Node, *, batch_dims: int = 0) -> Node:
    """x at index tuples (the last axis of `indices`): one gather from the operand's flat part."""
    depth = indices.shape[-1]
    lead = indices.shape[:-1]
    end = batch_dims + depth
    if not 0 <= batch_dims < indices.rank or end > x.rank:
        raise ShapeError(
            f"the operand has no {batch_dims} axes of batches and {depth} of indices",
            shape=[x.shape, indices.shape],
            hint="batch_dims counts axes that operand and indices share",
        )
    flat = al.full(0, lead, I64)
    for i in range(batch_dims):
        flat = al.add(flat, al.mul(iota(lead, i), prod(x.shape[i + 1 : end])))
    for i in range(depth):
        extent = x.shape[batch_dims + i]
        part = al.squeeze(al.take(indices, indices.rank - 1, i, 1), (-1,))
        stride = prod(x.shape[batch_dims + i + 1 : end])
        flat = al.add(flat, al.mul(cast(wrapped(part, extent), I64), stride))
    rows = reshape(x, (prod(x.shape[:end]), *x.shape[end:]))
    return gather(rows, flat, 0)
