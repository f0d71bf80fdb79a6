"""The closed set of tensor ops, each with its attributes.

Every ONNX operator is a composition of these.  `op_semantics.py` has each op's operands, result and
meaning; nothing here knows ONNX, kernels or targets.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tilewright.base.dtypes import DType
from tilewright.base.numpy_scalars import Array as Array
from tilewright.kernel.layout import ROWS, Layout

Shape = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Op:
    """Base of all tensor ops; the fields of a subclass are its attributes."""


def attributes(op: Op) -> tuple[object, ...]:
    """The fields of an op for comparison: 0.0 and -0.0 compare equal but must be distinguished."""
    values = [getattr(op, name) for name in op.__dataclass_fields__]
    return tuple([v.hex() if isinstance(v, float) else v for v in values])


@dataclass(frozen=True)
class Input(Op):
    """A tensor given at run time.

    stored: as in `Weight`: the host's values are rounded to that type
    """

    name: str
    shape: Shape
    dtype: DType
    stored: str = ""


#: Values of `Weight.loose`.  A product that may round to one of them may also round to any before
#: it.
LOOSE = ("", "tf32", "f16", "i8")


@dataclass(frozen=True, eq=False)
class Weight(Op):
    """A tensor of the model file.  Its bytes are read when they are needed; its name is for
    messages.

    stored: "f16" or "bf16" if that was its element type, so that the type represents each number
    loose:  the type to which products with this weight may round their other operand, because the
            model or the user allows it: "tf32" (f32 with 10 bits of fraction), "f16" or "i8", which
            includes "f16"; "" if none
    compact: whether memory of every target may hold it as f16: its numbers are finite numbers of
            f16, and its readers are not so many that converting costs time
    """

    name: str
    shape: Shape
    dtype: DType
    load: Callable[[], Array]
    stored: str = ""
    loose: str = ""
    compact: bool = False

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the elements; the first call reads them."""
        return _digest(self.load())


@dataclass(frozen=True, eq=False)
class Constant(Op):
    """A small tensor whose elements are in this record."""

    value: Array

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the elements."""
        return _digest(self.value)


@dataclass(frozen=True)
class Iota(Op):
    """The position along `axis`, as i64."""

    shape: Shape
    axis: int


@dataclass(frozen=True)
class Elementwise(Op):
    """A scalar function (base/scalars.py) on operands of one shape.  `dtype` only for "cast"."""

    fn: str
    dtype: DType | None = None


@dataclass(frozen=True)
class Reduce(Op):
    """One of "sum", "max", "min" and "prod" over `axes`, which stay with extent 1."""

    fn: str
    axes: tuple[int, ...]


@dataclass(frozen=True)
class Contract(Op):
    """out[o] = sum over the labels not in `out` of a[...] * b[...]: one letter per axis, as einsum.

    Letters in both operands and `out` are batch axes.  No letter twice in one operand: windows of a
    convolution are made by `Unfold` first.  Integers of 8 or 16 bits are summed in i32, exactly.

    `role` is "scores" or "context" for the two contractions of an attention, which share a kernel
    (graph/passes/find_attention.py); it changes no value.
    """

    a: str
    b: str
    out: str
    role: str = ""


@dataclass(frozen=True)
class Reshape(Op):
    shape: Shape


@dataclass(frozen=True)
class Transpose(Op):
    """Output axis i is input axis perm[i]."""

    perm: tuple[int, ...]


@dataclass(frozen=True)
class Broadcast(Op):
    """Repeat axes of extent 1; the rank stays."""

    shape: Shape


@dataclass(frozen=True)
class Slice(Op):
    """Elements start, start+step, ... (step > 0) of each axis, `shape` of them."""

    starts: tuple[int, ...]
    steps: tuple[int, ...]
    shape: Shape


@dataclass(frozen=True)
class Pad(Op):
    """`before` and `after` more elements of `value` along each axis."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    value: float | int | bool


@dataclass(frozen=True)
class Flip(Op):
    axes: tuple[int, ...]


@dataclass(frozen=True)
class Concat(Op):
    axis: int


@dataclass(frozen=True)
class Unfold(Op):
    """Windows along `axis`: [.., H, ..] -> [.., windows, .., size], the window last.

    out[.., o, .., k] = in[.., o*stride + k*dilation, ..]
    """

    axis: int
    size: int
    stride: int
    dilation: int


@dataclass(frozen=True)
class Gather(Op):
    """data[.., indices, ..]: the axes of `indices` replace `axis`.  Indices must be in range."""

    axis: int


@dataclass(frozen=True)
class Update(Op):
    """A copy of `data` in which n rows along `axis` are replaced: out[.., at : at + n, ..] = rows.

    All n rows must lie in `data`.  The result is always stored.  If `data` is a state with no other
    reader, it is updated in place: only the n rows are written.
    """

    axis: int


@dataclass(frozen=True)
class Order(Op):
    """Positions (i32) of the `count` smallest integers along the last axis, the smallest first.

    Equal integers keep their order.  The result is always stored.
    """

    count: int


@dataclass(frozen=True)
class Realize(Op):
    """The same values, stored in memory in this axis order (a packed operand, for example).

    layout: the order of the elements in memory, for kernels that read them
    """

    layout: Layout = ROWS


#: Ops that only move elements of one operand: an element is read at an index computed from its own.
VIEWS = (Reshape, Transpose, Broadcast, Slice, Flip, Unfold)


def _digest(value: Array) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(value).data).digest()
