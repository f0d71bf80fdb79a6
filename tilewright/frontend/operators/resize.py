"""ONNX Resize: per axis a gather (nearest) or a product with a constant matrix (linear, cubic).

Input: operand nodes and attributes; scales and sizes must be known.  Output: nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import floor

import numpy as np

from tilewright.base.errors import InvalidModel, ShapeError, UnsupportedOp
from tilewright.base.limits import within
from tilewright.frontend import algebra as al
from tilewright.frontend.table import operator
from tilewright.graph.node import Node, constant, contract, gather, transpose
from tilewright.graph.ops import Array


@dataclass(frozen=True)
class Axis:
    """One resized axis: extents before and after, and new / old.

    Positions and extents are computed in f32, as in onnxruntime: rounding decides the nearest
    element, and whether 10 elements times 1.3 are 12 or 13.
    """

    old: int
    new: int
    scale: np.float32


#: Position in the operand of element `i` of the result.
_PLACES: dict[str, Callable[[Axis, Array], Array]] = {
    "half_pixel": lambda a, i: (i + 0.5) / a.scale - 0.5,
    "half_pixel_symmetric": lambda a, i: (
        a.old / 2 * (1 - a.new / (a.old * a.scale)) + (i + 0.5) / a.scale - 0.5
    ),
    "pytorch_half_pixel": lambda a, i: (i + 0.5) / a.scale - 0.5 if a.new > 1 else i * 0.0,
    "asymmetric": lambda a, i: i / a.scale,
    "tf_half_pixel_for_nn": lambda a, i: (i + 0.5) / a.scale,
    "align_corners": lambda a, i: i * (a.old - 1) / (a.old * a.scale - 1) if a.new > 1 else i * 0.0,
}

_NEAREST: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


@operator("Resize", ignore=("extrapolation_value",))
def resize(
    x: Node,
    _roi: Node | None = None,
    scales: Node | None = None,
    sizes: Node | None = None,
    *,
    antialias: int = 0,
    axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Node:
    if nearest_mode not in _NEAREST:
        raise InvalidModel(f"nearest_mode {nearest_mode!r} is unknown")
    place = _PLACES.get(coordinate_transformation_mode)
    if place is None or antialias or mode not in ("nearest", "linear", "cubic"):
        raise UnsupportedOp(
            "this kind of Resize is not supported",
            hint="antialias and tf_crop_and_resize have no rule yet",
            mode=mode,
            coordinates=coordinate_transformation_mode,
        )
    over = range(x.rank) if axes is None else al.axes_of(axes, x.rank)
    for axis, size in zip(
        over, _sizes(x, over, scales, sizes, keep_aspect_ratio_policy), strict=True
    ):
        if size.old == size.new and size.scale == 1:
            continue
        rows = 1 if mode == "nearest" else size.old
        within("table", size.new * rows, f"the table of positions along axis {axis}")
        where = place(size, np.arange(size.new, dtype=np.float32))
        if mode == "nearest":
            nearest = np.clip(_NEAREST[nearest_mode](where), 0, size.old - 1)
            x = gather(x, al.ints(nearest.astype(np.int64)), axis)
        else:
            taps = _linear if mode == "linear" else _cubic(cubic_coeff_a)
            x = _times(x, axis, _matrix(size, where, taps, bool(exclude_outside)))
    return x


def _sizes(
    x: Node, over: Sequence[int], scales: Node | None, sizes: Node | None, policy: str
) -> list[Axis]:
    old = [x.shape[a] for a in over]
    if policy not in ("stretch", "not_larger", "not_smaller"):
        raise InvalidModel(f"keep_aspect_ratio_policy {policy!r} is unknown")
    if scales is not None and scales.size:
        by = al.known(scales, "the scales").reshape(-1).astype(np.float32)
        if len(by) != len(old) or not (np.isfinite(by) & (by > 0)).all():
            raise InvalidModel("each axis needs a finite scale above 0", scales=by.tolist())
        return [Axis(n, floor(n * s), s) for n, s in zip(old, by, strict=True)]
    if sizes is None:
        raise UnsupportedOp("Resize needs scales or sizes")
    new = al.known_ints(sizes, "the sizes")
    if len(new) != len(old) or min(new, default=0) < 0 or 0 in old:
        raise ShapeError("each axis needs a size, and elements", shape=x.shape, sizes=list(new))
    ratios = [np.float32(m / n) for m, n in zip(new, old, strict=True)]
    if policy == "stretch":
        return [Axis(n, m, r) for n, m, r in zip(old, new, ratios, strict=True)]
    one = min(ratios) if policy == "not_larger" else max(ratios)
    return [Axis(n, floor(n * one + 0.5), one) for n in old]


Taps = Callable[[float], list[float]]


def _linear(fraction: float) -> list[float]:
    return [1 - fraction, fraction]


def _cubic(a: float) -> Taps:
    """Keys' cubic kernel on the four nearest elements."""

    def taps(t: float) -> list[float]:
        return [
            ((a * (t + 1) - 5 * a) * (t + 1) + 8 * a) * (t + 1) - 4 * a,
            ((a + 2) * t - (a + 3)) * t * t + 1,
            ((a + 2) * (1 - t) - (a + 3)) * (1 - t) * (1 - t) + 1,
            ((a * (2 - t) - 5 * a) * (2 - t) + 8 * a) * (2 - t) - 4 * a,
        ]

    return taps


def _matrix(size: Axis, where: Array, taps: Taps, exclude: bool) -> Array:
    """Row i has the weights of the operand's elements for element i of the result."""
    made = np.zeros((size.new, size.old))
    for i, position in enumerate(where):
        low = floor(position)
        weights = np.array(taps(position - low))
        first = low - len(weights) // 2 + 1
        places = np.arange(first, first + len(weights))
        if exclude:
            weights = np.where((places < 0) | (places >= size.old), 0.0, weights)
            weights = weights / weights.sum()
        np.add.at(made[i], np.clip(places, 0, size.old - 1), weights)
    return made


def _times(x: Node, axis: int, matrix: Array) -> Node:
    """The matrix applied along one axis."""
    letters = "abcdefgh"[: x.rank]
    k = letters[axis]
    moved = letters.replace(k, "") + "z"
    made = contract(f"{letters},z{k}->{moved}", x, constant(matrix, x.dtype))
    order = [*range(axis), x.rank - 1, *range(axis, x.rank - 1)]
    return transpose(made, order)
