"""ONNX operators that move elements without computing.

Input: operand nodes and attributes; shapes and axes given as operands must be known.
Output: nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import prod

import numpy as np

from tilewright.base.dtypes import BOOL
from tilewright.base.errors import InvalidModel, ShapeError, UnsupportedOp
from tilewright.base.model_limits import check_limit
from tilewright.frontend import arithmetic as al
from tilewright.frontend.arithmetic import gather_positions
from tilewright.frontend.operator_table import operator
from tilewright.graph import node as gr
from tilewright.graph.node import Node


@operator("Reshape")
def reshape(x: Node, shape: Node, *, allowzero: int = 0) -> Node:
    """0 keeps the operand's extent (unless allowzero), -1 is inferred."""
    wanted = list(al.known_ints(shape, "the shape"))
    if not allowzero:
        if 0 in wanted[x.rank :]:
            raise ShapeError(f"{wanted} keeps an axis that the operand lacks", shape=x.shape)
        wanted = [x.shape[i] if n == 0 else n for i, n in enumerate(wanted)]
    if wanted.count(-1) == 1:
        rest = prod(n for n in wanted if n != -1)
        if rest and x.size % rest == 0:
            wanted[wanted.index(-1)] = x.size // rest
    if prod(wanted) != x.size or any(n < 0 for n in wanted):
        raise ShapeError(f"cannot reshape {list(x.shape)} to {wanted}", shape=x.shape)
    return gr.reshape(x, wanted)


@operator("Transpose")
def transpose(x: Node, *, perm: Sequence[int] | None = None) -> Node:
    order = tuple(reversed(range(x.rank))) if perm is None else tuple(perm)
    if sorted(order) != list(range(x.rank)):
        raise ShapeError(f"{list(order)} is not a permutation of {x.rank} axes", shape=x.shape)
    return gr.transpose(x, order)


@operator("Flatten")
def flatten(x: Node, *, axis: int = 1) -> Node:
    border = axis + x.rank if axis < 0 else axis
    if not 0 <= border <= x.rank:
        raise ShapeError(f"axis {axis} does not exist in a tensor of rank {x.rank}", axis=axis)
    return gr.reshape(x, (prod(x.shape[:border]), prod(x.shape[border:])))


@operator("Squeeze")
def squeeze(x: Node, axes: Node | None = None) -> Node:
    if axes is None:
        return al.squeeze(x, [i for i, n in enumerate(x.shape) if n == 1])
    return al.squeeze(x, al.known_ints(axes, "axes"))


@operator("Unsqueeze")
def unsqueeze(x: Node, axes: Node) -> Node:
    return al.unsqueeze(x, al.known_ints(axes, "axes"))


@operator("Expand")
def expand(x: Node, shape: Node) -> Node:
    wanted = al.known_ints(shape, "the shape")
    return gr.broadcast(x, gr.broadcast_shape([x.shape, wanted]))


@operator("Tile")
def tile(x: Node, repeats: Node) -> Node:
    """Each axis repeated as a whole: a new axis before it, broadcast and merged."""
    times = al.known_ints(repeats, "the repeats")
    if len(times) != x.rank:
        raise ShapeError(f"{len(times)} repeats for {x.rank} axes", shape=x.shape)
    paired = gr.reshape(x, [n for extent in x.shape for n in (1, extent)])
    wide = [n for pair in zip(times, x.shape, strict=True) for n in pair]
    return gr.reshape(
        gr.broadcast(paired, tuple(wide)), [t * n for t, n in zip(times, x.shape, strict=True)]
    )


@operator("Concat")
def concat(first: Node, *more: Node, axis: int) -> Node:
    parts = (first, *more)
    if len({p.dtype for p in parts}) > 1:
        raise InvalidModel("operands have different dtypes", dtype=[p.dtype.name for p in parts])
    return gr.concat(parts, al.axis_of(axis, first.rank))


@operator("Split", since=13)
def split_equal(
    x: Node, sizes: Node | None = None, *, axis: int = 0, outputs: int
) -> tuple[Node, ...]:
    """Without sizes: `outputs` equal parts."""
    return split(x, sizes, axis=axis, num_outputs=outputs)


@operator("Split", since=18)
def split(
    x: Node,
    sizes: Node | None = None,
    *,
    axis: int = 0,
    num_outputs: int | None = None,
    outputs: int = 0,
) -> tuple[Node, ...]:
    """Parts along an axis; of equal parts the last one may be smaller."""
    along = al.axis_of(axis, x.rank)
    extent = x.shape[along]
    if sizes is not None:
        parts = al.known_ints(sizes, "the sizes")
    else:
        count = num_outputs or outputs
        each = -(-extent // count)
        parts = tuple(
            max(min(each, extent - each * i), 0) for i in range(min(count, outputs or count))
        )
    if sum(parts) > extent or (sizes is not None and sum(parts) != extent):
        raise ShapeError(f"cannot split {extent} elements into {list(parts)}", shape=x.shape)
    starts = accumulate(parts, initial=0)
    return tuple(al.take(x, along, s, n) for s, n in zip(starts, parts, strict=False))


@operator("Slice")
def slice_(
    x: Node, starts: Node, ends: Node, axes: Node | None = None, steps: Node | None = None
) -> Node:
    """Python's slices; a negative step reads the flipped axis."""
    first, last = al.known_ints(starts, "starts"), al.known_ints(ends, "ends")
    over = tuple(range(len(first))) if axes is None else al.known_ints(axes, "axes")
    by = (1,) * len(first) if steps is None else al.known_ints(steps, "steps")
    if not len(first) == len(last) == len(over) == len(by):
        raise InvalidModel("starts, ends, axes and steps have different lengths")
    for start, end, axis, step in zip(first, last, over, by, strict=True):
        x = _slice_axis(x, al.axis_of(axis, x.rank), start, end, step)
    return x


def _slice_axis(x: Node, axis: int, start: int, end: int, step: int) -> Node:
    if not step:
        raise InvalidModel("the step of a slice must not be 0")
    picked = range(x.shape[axis])[start:end:step]
    if step > 0 or not picked:
        return al.take(x, axis, picked.start if picked else 0, len(picked), max(step, 1))
    mirrored = x.shape[axis] - 1 - picked.start
    return al.take(gr.flip(x, (axis,)), axis, mirrored, len(picked), -step)


@operator("Pad")
def pad(
    x: Node,
    pads: Node,
    value: Node | None = None,
    axes: Node | None = None,
    *,
    mode: str = "constant",
) -> Node:
    """Pads both ends of each axis; negative amounts crop."""
    amounts = al.known_ints(pads, "the pads")
    over = range(x.rank) if axes is None else al.axes_of(al.known_ints(axes, "axes"), x.rank)
    if len(amounts) != 2 * len(over):
        raise InvalidModel(f"{len(amounts)} amounts do not pad both ends of {len(over)} axes")
    before, after = [0] * x.rank, [0] * x.rank
    for i, axis in enumerate(over):
        before[axis], after[axis] = amounts[i], amounts[i + len(over)]
    if mode != "constant":
        return _pad_by_index(x, before, after, mode)
    filler = 0 if value is None else al.known_number(value, "the padding value")
    return pad_or_crop(x, before, after, bool(filler) if x.dtype == BOOL else filler)


def pad_or_crop(x: Node, before: Sequence[int], after: Sequence[int], value: al.Number = 0) -> Node:
    """Pad where the amount is positive, crop where it is negative."""
    cut = [max(-b, 0) for b in before]
    kept = [n - c - max(-a, 0) for n, c, a in zip(x.shape, cut, after, strict=True)]
    if min(kept, default=0) < 0:
        raise ShapeError(
            "Pad crops more elements than the axis has", shape=x.shape, before=before, after=after
        )
    x = gr.slice_(x, cut, kept)
    return gr.pad(x, [max(b, 0) for b in before], [max(a, 0) for a in after], value)


#: ONNX's padding modes that read other elements, with NumPy's names.
_PAD_MODES = ("reflect", "edge", "wrap")


def _pad_by_index(x: Node, before: Sequence[int], after: Sequence[int], mode: str) -> Node:
    """Pads with the operand's own elements; negative amounts crop before anything is repeated."""
    if mode not in _PAD_MODES:
        raise UnsupportedOp(f"padding mode {mode!r} is not supported")
    x = pad_or_crop(x, [min(b, 0) for b in before], [min(a, 0) for a in after])
    for axis, (b, a) in enumerate(zip(before, after, strict=True)):
        grown = max(b, 0), max(a, 0)
        if grown == (0, 0):
            continue
        check_limit("table", x.shape[axis] + sum(grown), f"the padding of axis {axis}")
        if not x.shape[axis]:
            raise ShapeError(
                f"axis {axis} has no elements to pad with",
                hint="This mode copies elements of the axis, and all are cropped",
                shape=x.shape, axis=axis,
            )  # fmt: skip
        places = np.pad(np.arange(x.shape[axis]), grown, mode=mode)  # type: ignore[call-overload]
        x = gather_positions(x, places, axis)
    return x


def _blocks(x: Node, size: int, mode: str) -> tuple[int, ...]:
    """The four extents of an operand that is cut into blocks."""
    if mode not in ("DCR", "CRD"):
        raise InvalidModel(f"the mode {mode!r} is unknown", hint="ONNX knows DCR and CRD")
    if size < 1:
        raise InvalidModel("the size of a block must be at least 1", blocksize=size)
    return al.extents(x, 4)


@operator("DepthToSpace")
def depth_to_space(x: Node, *, blocksize: int, mode: str = "DCR") -> Node:
    n, c, h, w = _blocks(x, blocksize, mode)
    b, deep = blocksize, c // blocksize**2
    if c % b**2:
        raise ShapeError(f"{c} channels cannot be cut into blocks of {b} x {b}", shape=x.shape)
    if mode == "DCR":
        blocks = gr.transpose(gr.reshape(x, (n, b, b, deep, h, w)), (0, 3, 4, 1, 5, 2))
    else:
        blocks = gr.transpose(gr.reshape(x, (n, deep, b, b, h, w)), (0, 1, 4, 2, 5, 3))
    return gr.reshape(blocks, (n, deep, h * b, w * b))


@operator("SpaceToDepth")
def space_to_depth(x: Node, *, blocksize: int, mode: str = "DCR") -> Node:
    n, c, h, w = _blocks(x, blocksize, mode)
    b = blocksize
    if h % b or w % b:
        raise ShapeError(
            f"{h} x {w} elements cannot be cut into blocks of {b} x {b}", shape=x.shape
        )
    blocks = gr.reshape(x, (n, c, h // b, b, w // b, b))
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return gr.reshape(gr.transpose(blocks, order), (n, c * b * b, h // b, w // b))


@operator("Dropout", ignore=("seed",))
def dropout(
    x: Node, ratio: Node | None = None, training_mode: Node | None = None, *, outputs: int
) -> tuple[Node, ...]:
    """Nothing is dropped in inference; the mask keeps everything."""
    training = training_mode is not None and al.known_number(training_mode, "training_mode")
    if training and (ratio is None or al.known_number(ratio, "ratio")):
        raise UnsupportedOp(
            "Dropout in training mode is not supported", hint="Export the model in eval mode"
        )
    return (x, al.full(True, x.shape, BOOL))[: max(outputs, 1)]
