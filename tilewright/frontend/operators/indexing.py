"""ONNX operators that read at computed positions: the gathers.

Input: operand nodes and attributes.  Output: nodes.  ONNX allows negative indices, which count from
the end; the graph does not, so they are converted here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce as fold
from math import prod

from tilewright.base.dtypes import BOOL, I64
from tilewright.base.errors import InvalidModel, ShapeError
from tilewright.frontend import arithmetic as al
from tilewright.frontend.operator_table import operator
from tilewright.graph.node import Node, cast, gather, iota, reshape, with_pick_source
from tilewright.graph.ops import Shape


def wrapped(indices: Node, extent: int, axis: int) -> Node:
    """Indices in [0, extent): negative ones count from the end.  Raises InvalidModel for known ones
    that are out of range along the axis."""
    if indices.dtype == BOOL or not indices.dtype.kind == "int":
        raise ShapeError("indices must be integers", dtype=indices.dtype)
    value = indices.value
    if value is not None:
        wrong = value[(value < -extent) | (value >= extent)]
        if wrong.size:
            raise InvalidModel(
                f"index {wrong[0]} is out of range: axis {axis} has {extent} elements",
                hint="Correct the index in the model, or export it again",
                axis=axis, length=extent, index=int(wrong[0]),
            )  # fmt: skip
        if (value >= 0).all():
            return indices
    return al.where(al.less(indices, 0), al.add(indices, extent), indices)


@operator("Gather")
def take(x: Node, indices: Node, *, axis: int = 0) -> Node:
    along = al.axis_of(axis, x.rank)
    return gather(x, wrapped(indices, x.shape[along], along), along, with_pick_source(along))


def row_of(indices: Node, extent: int, axis: int) -> Node:
    """Indices as by `wrapped`, as i64.  A kernel that reads with one out of range stops."""
    rows = wrapped(indices, extent, axis)
    value = rows.value
    if value is not None and value.size:
        return cast(rows, I64)
    return gather(al.position_along((extent,), 0), rows, 0, with_pick_source(axis))


def positions_along(indices: Node, shape: Shape, axis: int) -> Node:
    """Positions along an axis of the indices: a constant if the indices are known, else computed in
    kernels."""
    return al.position_along(shape, axis) if indices.value is None else iota(shape, axis)


def flat_offset(rows: Sequence[tuple[int, Node]], shape: Shape) -> Node:
    """The flat position of an element of `shape`, given its row along some of the axes."""
    return fold(al.add, [al.mul(row, prod(shape[axis + 1 :])) for axis, row in rows])


@operator("GatherElements")
def take_elements(x: Node, indices: Node, *, axis: int = 0) -> Node:
    """GatherElements: x at the element's own position with the index along `axis`.  One gather from
    the flat operand."""
    along = al.axis_of(axis, x.rank)
    others = [i for i in range(x.rank) if i != along]
    if indices.rank != x.rank or any(indices.shape[i] > x.shape[i] for i in others):
        raise ShapeError(
            "the indices do not fit the operand",
            hint="Both need the same rank. Except for `axis`, no axis of the indices may be longer",
            shape=[x.shape, indices.shape],
        )
    rows = [(along, row_of(indices, x.shape[along], along))]
    rows += [
        (i, positions_along(indices, indices.shape, i)) for i in others if indices.shape[i] > 1
    ]
    return gather(reshape(x, (x.size,)), flat_offset(rows, x.shape), 0)


@operator("GatherND")
def take_nd(x: Node, indices: Node, *, batch_dims: int = 0) -> Node:
    """GatherND: x at index tuples, which are the last axis of `indices`.  One gather from the flat
    operand."""
    if not indices.rank:
        raise ShapeError("the indices need an axis", shape=indices.shape)
    depth, lead = indices.shape[-1], indices.shape[:-1]
    end = batch_dims + depth
    if not 0 <= batch_dims < indices.rank or not depth > 0 or end > x.rank:
        raise ShapeError(
            f"the operand has no {batch_dims} axes of batches and {depth} of indices",
            shape=[x.shape, indices.shape],
            hint="Let batch_dims count only axes that operand and indices share",
        )
    if lead[:batch_dims] != x.shape[:batch_dims]:
        raise ShapeError(
            "operand and indices have different batches", shape=[x.shape, indices.shape]
        )
    rows = [(i, positions_along(indices, lead, i)) for i in range(batch_dims)]
    for i in range(depth):
        part = al.squeeze(al.take(indices, indices.rank - 1, i, 1), (-1,))
        axis = batch_dims + i
        rows.append((axis, row_of(part, x.shape[axis], axis)))
    flat = reshape(x, (prod(x.shape[:end]), *x.shape[end:]))
    return gather(flat, flat_offset(rows, x.shape[:end]), 0)
