"""The rules of every kind of op: operands, shape, dtype, and its meaning in NumPy.

Input: an op, and facts about its operands.  Output: facts about its result.  `RULES` is the only
table; the ops themselves are in `ops.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

import numpy as np

from tilewright.base.dtypes import BOOL, BY_NUMPY, I32, I64, DType
from tilewright.base.errors import InvalidModel, ShapeError, UnsupportedDType, required
from tilewright.base.numpy_scalars import NUMPY_SCALARS, cast
from tilewright.base.scalars import SCALARS
from tilewright.graph.ops import (
    Array,
    Broadcast,
    Concat,
    Constant,
    Contract,
    Elementwise,
    Flip,
    Gather,
    Input,
    Iota,
    Op,
    Order,
    Pad,
    Realize,
    Reduce,
    Reshape,
    Shape,
    Slice,
    Transpose,
    Unfold,
    Update,
    Weight,
)


@dataclass(frozen=True)
class OpSemantics:
    """How one kind of op behaves.  `arity` None = one or more operands."""

    arity: int | None
    shape: Callable[[Any, Sequence[Shape]], Shape]
    dtype: Callable[[Any, Sequence[DType]], DType]
    numpy: Callable[..., Array]


def _same_shape(op: Op, shapes: Sequence[Shape]) -> Shape:
    if any(s != shapes[0] for s in shapes):
        raise ShapeError(f"{op} needs operands of one shape", shape=list(shapes))
    return shapes[0]


def _reshape(op: Reshape, shapes: Sequence[Shape]) -> Shape:
    if prod(op.shape) != prod(shapes[0]):
        raise ShapeError(f"cannot reshape {shapes[0]} to {op.shape}", shape=shapes[0])
    return op.shape


def _broadcast(op: Broadcast, shapes: Sequence[Shape]) -> Shape:
    fits = len(shapes[0]) == len(op.shape) and all(
        a in (1, b) for a, b in zip(shapes[0], op.shape, strict=True)
    )
    if not fits:
        raise ShapeError(f"cannot broadcast {shapes[0]} to {op.shape}", shape=shapes[0])
    return op.shape


def _one_each(given: int, shape: Shape, what: str) -> None:
    """Raises ShapeError unless an attribute has one entry for each axis."""
    if given != len(shape):
        raise ShapeError(f"{given} {what} for {len(shape)} axes", shape=shape)


def _slice(op: Slice, shapes: Sequence[Shape]) -> Shape:
    for numbers, what in ((op.starts, "starts"), (op.steps, "steps"), (op.shape, "counts")):
        _one_each(len(numbers), shapes[0], what)
    for extent, start, step, count in zip(shapes[0], op.starts, op.steps, op.shape, strict=True):
        if start < 0 or step < 1 or (count and start + (count - 1) * step >= extent):
            raise ShapeError(f"slice {op} reaches beyond its operand", shape=shapes[0])
    return op.shape


def _pad(op: Pad, shapes: Sequence[Shape]) -> Shape:
    for amounts in (op.before, op.after):
        _one_each(len(amounts), shapes[0], "amounts of padding")
    return tuple(b + n + a for b, n, a in zip(op.before, shapes[0], op.after, strict=True))


def _concat(op: Concat, shapes: Sequence[Shape]) -> Shape:
    first = shapes[0]
    for s in shapes:
        if len(s) != len(first) or any(
            x != y for i, (x, y) in enumerate(zip(s, first, strict=True)) if i != op.axis
        ):
            raise ShapeError(f"cannot join shapes along axis {op.axis}", shape=list(shapes))
    joined = sum(s[op.axis] for s in shapes)
    return (*first[: op.axis], joined, *first[op.axis + 1 :])


def _unfold(op: Unfold, shapes: Sequence[Shape]) -> Shape:
    s = shapes[0]
    if min(op.size, op.stride, op.dilation) < 1:
        raise ShapeError(f"window {op} has no size, stride or dilation", shape=s)
    windows = (s[op.axis] - (op.size - 1) * op.dilation - 1) // op.stride + 1
    if windows < 1:
        raise ShapeError(f"window {op} is larger than the axis", shape=s)
    return (*s[: op.axis], windows, *s[op.axis + 1 :], op.size)


def _contract(op: Contract, shapes: Sequence[Shape]) -> Shape:
    extents: dict[str, int] = {}
    for labels, shape in zip((op.a, op.b), shapes, strict=True):
        _one_each(len(labels), shape, "letters")
        for label, extent in zip(labels, shape, strict=True):
            if extents.setdefault(label, extent) != extent:
                raise ShapeError(
                    f"contraction {op.a},{op.b}->{op.out}: axis {label} has two extents",
                    shape=list(shapes),
                )
    return tuple(extents[label] for label in op.out)


def _gather(op: Gather, shapes: Sequence[Shape]) -> Shape:
    data, indices = shapes
    if not data[op.axis] and 0 not in indices:
        raise _nothing("a gather takes from", shapes)
    return (*data[: op.axis], *indices, *data[op.axis + 1 :])


def _np_gather(op: Gather, data: Array, indices: Array) -> Array:
    if indices.size and not 0 <= indices.min() <= indices.max() < data.shape[op.axis]:
        raise InvalidModel("a known index is out of range", limit=data.shape[op.axis])
    return np.asarray(np.take(data, indices, op.axis))


def _update(op: Update, shapes: Sequence[Shape]) -> Shape:
    data, rows, at = shapes
    others = [i for i in range(len(data)) if i != op.axis]
    fits = len(data) == len(rows) and all(data[i] == rows[i] for i in others)
    if not fits or prod(at) != 1 or not 0 < rows[op.axis] <= data[op.axis]:
        raise ShapeError(
            f"the rows do not fit along axis {op.axis}",
            hint="Rows need the other axes of the tensor that they change, and may not be longer",
            shape=list(shapes),
        )
    return data


def _order(op: Order, shapes: Sequence[Shape]) -> Shape:
    *rows, total = shapes[0]
    if not 0 < op.count <= total:
        raise ShapeError(f"cannot order {op.count} of {total} elements", shape=shapes[0])
    return (*rows, op.count)


def _np_order(op: Order, x: Array) -> Array:
    return np.argsort(x, axis=-1, kind="stable")[..., : op.count].astype(np.int32)


def _order_dtype(op: Order, dtypes: Sequence[DType]) -> DType:
    if dtypes[0] not in (I32, I64):
        raise UnsupportedDType(
            f"only i32 and i64 have an order, not {dtypes[0]}",
            hint="Order other types by integers in the same order",
            dtype=dtypes[0].name,
        )
    return I32


def _np_update(op: Update, data: Array, rows: Array, at: Array) -> Array:
    first, count = int(at.reshape(())), rows.shape[op.axis]
    if not 0 <= first <= data.shape[op.axis] - count:
        raise InvalidModel(f"{count} rows from {first} on do not fit", shape=data.shape)
    made = data.copy()
    made[(slice(None),) * op.axis + (slice(first, first + count),)] = rows
    return made


def _np_input(op: Input) -> Array:
    raise KeyError(op.name)


def _np_unfold(op: Unfold, x: Array) -> Array:
    span = (op.size - 1) * op.dilation + 1
    view = np.lib.stride_tricks.sliding_window_view(x, span, axis=op.axis)
    picked = view[..., :: op.dilation]
    chosen = [slice(None)] * picked.ndim
    chosen[op.axis] = slice(None, None, op.stride)
    return np.asarray(picked[tuple(chosen)])


def _np_slice(op: Slice, x: Array) -> Array:
    spans = zip(op.starts, op.steps, op.shape, strict=True)
    return x[tuple(slice(s, s + step * n, step) if n else slice(0, 0) for s, step, n in spans)]


def _np_iota(op: Iota) -> Array:
    line = np.arange(op.shape[op.axis], dtype=np.int64)
    bent = line.reshape([-1 if i == op.axis else 1 for i in range(len(op.shape))])
    return np.broadcast_to(bent, op.shape)


def _np_elementwise(op: Elementwise, *xs: Array) -> Array:
    with np.errstate(all="ignore"):
        if op.fn == "cast":
            return cast(xs[0], required(op.dtype, "a cast to nothing"))
        dtype = SCALARS[op.fn].dtype(tuple(BY_NUMPY[x.dtype.name] for x in xs))
        return np.asarray(NUMPY_SCALARS[op.fn](*xs)).astype(dtype.numpy, copy=False)


_NP_REDUCE: dict[str, Callable[..., Array]] = {
    "sum": np.sum, "max": np.max, "min": np.min, "prod": np.prod,
}  # fmt: skip


def _first(op: Op, dtypes: Sequence[DType]) -> DType:
    return dtypes[0]


class _Given(Protocol):
    """An op whose attributes include the shape and type of its result."""

    @property
    def shape(self) -> Shape: ...
    @property
    def dtype(self) -> DType: ...


class _Shaped(Protocol):
    @property
    def shape(self) -> Shape: ...


def _own(op: _Shaped, given: Sequence[Shape]) -> Shape:
    return op.shape


def _own_dtype(op: _Given, given: Sequence[DType]) -> DType:
    return op.dtype


def _elementwise_dtype(op: Elementwise, dtypes: Sequence[DType]) -> DType:
    fn = SCALARS[op.fn]
    alike = dtypes[1:] if op.fn == "where" else dtypes
    fits = op.fn in _MIXED or all(d == alike[0] for d in alike)
    if op.fn in _LOGICAL:
        fits = fits and dtypes[0] == BOOL
    if not fits or (fn.floats_only and not dtypes[0].is_float):
        raise UnsupportedDType(
            f"{op.fn} is not defined for {' and '.join(d.name for d in dtypes)}",
            hint="Put a Cast before the operator: it works on "
            + ("floats" if fn.floats_only else "operands of one element type"),
            dtype=[d.name for d in dtypes],
        )
    return fn.dtype(tuple(dtypes), op.dtype)


#: Functions of bool operands; functions whose operands may have different dtypes.
_LOGICAL, _MIXED = frozenset({"and", "or", "not", "where"}), frozenset({"nibble"})


def _reduced(op: Reduce, shapes: Sequence[Shape]) -> Shape:
    left = tuple(1 if i in op.axes else n for i, n in enumerate(shapes[0]))
    if op.fn in ("max", "min") and 0 in shapes[0] and 0 not in left:
        raise _nothing(f"the {op.fn} is over", shapes)
    return left


def _nothing(what: str, shapes: Sequence[Shape]) -> ShapeError:
    return ShapeError(
        f"{what} an axis without elements",
        hint="Choose input shapes and buckets that leave no axis empty.",
        shape=list(shapes),
    )


def sum_dtype(dtype: DType) -> DType:
    """The element type in which a contraction of `dtype` is summed."""
    return I32 if dtype.kind in ("int", "uint") and dtype.size < I32.size else dtype


def _np_contract(op: Contract, a: Array, b: Array) -> Array:
    spec = f"{op.a},{op.b}->{op.out}"
    if sum_dtype(BY_NUMPY[a.dtype.name]).numpy == a.dtype.name:
        return np.asarray(np.einsum(spec, a, b, optimize=True))
    # products of 16 bits and their sums are whole numbers below 2^53: f64 holds them exactly
    made = np.einsum(spec, a.astype(np.float64), b.astype(np.float64), optimize=True)
    return np.asarray(made).astype(np.int64).astype(np.int32)


SEMANTICS: dict[type[Op], OpSemantics] = {
    Input: OpSemantics(0, _own, _own_dtype, _np_input),
    Weight: OpSemantics(0, _own, _own_dtype, lambda op: op.load()),
    Constant: OpSemantics(
        0,
        lambda op, s: op.value.shape,
        lambda op, d: BY_NUMPY[op.value.dtype.name],
        lambda op: op.value,
    ),
    Iota: OpSemantics(0, _own, lambda op, d: I64, _np_iota),
    Elementwise: OpSemantics(None, _same_shape, _elementwise_dtype, _np_elementwise),
    Reduce: OpSemantics(
        1,
        _reduced,
        _first,
        lambda op, x: _NP_REDUCE[op.fn](x, axis=op.axes, keepdims=True).astype(x.dtype),
    ),
    Contract: OpSemantics(
        2,
        _contract,
        lambda op, dtypes: sum_dtype(dtypes[0]),
        _np_contract,
    ),
    Reshape: OpSemantics(1, _reshape, _first, lambda op, x: x.reshape(op.shape)),
    Transpose: OpSemantics(
        1, lambda op, s: tuple(s[0][p] for p in op.perm), _first, lambda op, x: x.transpose(op.perm)
    ),
    Broadcast: OpSemantics(1, _broadcast, _first, lambda op, x: np.broadcast_to(x, op.shape)),
    Slice: OpSemantics(1, _slice, _first, _np_slice),
    Pad: OpSemantics(
        1,
        _pad,
        _first,
        lambda op, x: np.pad(
            x, tuple(zip(op.before, op.after, strict=True)), constant_values=op.value
        ),
    ),
    Flip: OpSemantics(1, lambda op, s: s[0], _first, lambda op, x: np.flip(x, op.axes)),
    Concat: OpSemantics(None, _concat, _first, lambda op, *xs: np.concatenate(xs, op.axis)),
    Unfold: OpSemantics(1, _unfold, _first, _np_unfold),
    Gather: OpSemantics(2, _gather, _first, _np_gather),
    Update: OpSemantics(3, _update, _first, _np_update),
    Order: OpSemantics(1, _order, _order_dtype, _np_order),
    Realize: OpSemantics(1, lambda op, s: s[0], _first, lambda op, x: np.ascontiguousarray(x)),
}
