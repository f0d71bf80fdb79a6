"""ONNX Resize: per axis the neighbours of each position, weighted and added.

Input: operand nodes and attributes; scales, sizes and the region must be known.  Output: nodes.  A
table has at most one entry per element of an axis and neighbour.  If the new axis is a whole
multiple of the old one, the weights repeat, and positions are computed without a table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce as fold
from math import floor

import numpy as np

from tilewright.base.dtypes import F32, I8, I32, U8, DType
from tilewright.base.errors import InvalidModel, ShapeError, UnsupportedOp
from tilewright.base.model_limits import check_limit
from tilewright.frontend import arithmetic as al
from tilewright.frontend.arithmetic import gather_positions, repeat_each
from tilewright.frontend.operator_table import operator
from tilewright.graph import ops
from tilewright.graph.node import (
    Node,
    broadcast,
    cast,
    concat,
    constant,
    gather,
    node,
    reduce,
    reshape,
)
from tilewright.graph.ops import Array

#: More neighbours than these are added by a reduction, which reads a table of all weights.
FEW = 8
#: Weights that differ by at most this, through rounding of positions, count as equal.
EVEN = 2.0**-20
#: Sums that are below a whole number by at most this become that number: their weights were
#: rounded.
NEAR = 2.0**-21


@dataclass(frozen=True)
class Axis:
    """One resized axis: extents before and after, new / old, and the region that is resized, as
    shares of the old axis.

    Positions and extents are computed in f32, as in onnxruntime: rounding decides the nearest
    element, and whether 10 elements times 1.3 are 12 or 13.
    """

    old: int
    new: int
    scale: np.float32
    region: tuple[np.float32, np.float32]


def _cropped(a: Axis, i: Array) -> Array:
    start, end = a.region
    last = a.old - 1
    if a.new == 1:
        return np.asarray(i + (start + end) * np.float32(0.5) * last)
    return np.asarray(start * last + i * (end - start) * last / (a.new - 1))


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
    "tf_crop_and_resize": _cropped,
}

_NEAREST: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


@dataclass(frozen=True)
class Resizing:
    """How all axes are resized."""

    mode: str
    coordinates: str
    nearest: str
    cubic: float
    antialias: bool
    exclude: bool

    def places(self, size: Axis) -> Array:
        check_limit("table", size.new, "the positions along an axis")
        return _PLACES[self.coordinates](size, np.arange(size.new, dtype=np.float32))

    def moves(self, size: Axis) -> bool:
        """False for an axis that stays as it is."""
        return self.crops or size.old != size.new or size.scale != 1

    @property
    def crops(self) -> bool:
        return self.coordinates == "tf_crop_and_resize"

    def settled(self, x: Node, dtype: DType, last: bool) -> Node:
        """Converts sums from f32 to the operand's type; integers are rounded.

        onnxruntime drops the fraction where it weights integers, and rounds after each axis with
        antialias; ONNX's evaluator rounds to even, as here for types that onnxruntime lacks.
        """
        if dtype.is_float:
            return cast(x, dtype) if last else x
        if self.antialias:
            return _saturated(al.apply("floor", al.add(al.mul(x, 1 + NEAR), 0.5)), dtype, last)
        if not last:
            return x
        cut = self.mode == "linear" and dtype in (I8, U8, I32)
        return _saturated(al.mul(x, 1 + NEAR) if cut else al.apply("round", x), dtype, last)


def _saturated(x: Node, dtype: DType, last: bool) -> Node:
    if dtype.size < F32.size:
        x = al.apply("min", al.apply("max", x, al.lowest(dtype)), al.highest(dtype))
    return cast(x, dtype) if last else x


@operator("Resize")
def resize(
    x: Node,
    roi: Node | None = None,
    scales: Node | None = None,
    sizes: Node | None = None,
    *,
    antialias: int = 0,
    axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Node:
    known = coordinate_transformation_mode in _PLACES and nearest_mode in _NEAREST
    if not known or mode not in ("nearest", "linear", "cubic"):
        raise InvalidModel(
            "ONNX does not define this Resize",
            hint="Check mode, nearest_mode and coordinate_transformation_mode",
            mode=mode, nearest=nearest_mode, coordinates=coordinate_transformation_mode,
        )  # fmt: skip
    kind = Resizing(
        mode, coordinate_transformation_mode, nearest_mode, cubic_coeff_a,
        bool(antialias) and mode != "nearest", bool(exclude_outside),
    )  # fmt: skip
    over = range(x.rank) if axes is None else al.axes_of(axes, x.rank)
    regions = _regions(kind, len(over), roi)
    found = zip(
        over, _sizes(x, over, scales, sizes, keep_aspect_ratio_policy, regions), strict=True
    )
    resized = [(axis, size) for axis, size in found if kind.moves(size)]
    made = _nearest(x, resized, kind) if mode == "nearest" else _weighted(x, resized, kind)
    return _extrapolated(made, resized, kind, extrapolation_value) if kind.crops else made


def _nearest(x: Node, resized: Sequence[tuple[int, Axis]], kind: Resizing) -> Node:
    for axis, size in resized:
        places = np.clip(_NEAREST[kind.nearest](kind.places(size)), 0, size.old - 1)
        times, rest = divmod(size.new, size.old)
        even = not rest and np.array_equal(places, np.repeat(np.arange(size.old), times))
        views = even and _lies_last(x, axis)
        x = repeat_each(x, times, axis) if views else gather_positions(x, places, axis)
    return x


def _weighted(x: Node, resized: Sequence[tuple[int, Axis]], kind: Resizing) -> Node:
    """Resizes one axis at a time, the last one first: at that point there are the fewest rows."""
    if not resized:
        return x
    made = x if x.dtype.is_float and x.dtype.size > F32.size else cast(x, F32)
    for axis, size in reversed(resized):
        made = _along(made, axis, _taps(size, kind.places(size), kind))
        made = kind.settled(made, x.dtype, last=axis == resized[0][0])
    return made


def _extrapolated(
    x: Node, resized: Sequence[tuple[int, Axis]], kind: Resizing, value: float
) -> Node:
    """`x`, but `value` at elements whose position is outside the operand along any axis."""
    for axis, size in resized:
        places = kind.places(size)
        inside = (places >= 0) & (places <= size.old - 1)
        if not inside.all():
            shape = [size.new if i == axis else 1 for i in range(x.rank)]
            kept = broadcast(reshape(constant(inside), shape), x.shape)
            x = al.where(kept, x, value if x.dtype.is_float else int(value))
    return x


def _regions(kind: Resizing, count: int, roi: Node | None) -> list[tuple[np.float32, np.float32]]:
    if not kind.crops:
        return [(np.float32(0), np.float32(1))] * count
    if roi is None or roi.size != 2 * count:
        raise UnsupportedOp("tf_crop_and_resize needs a region: a start and an end for each axis")
    ends = al.known(roi, "the region").reshape(-1).astype(np.float32)
    return list(zip(ends[:count], ends[count:], strict=True))


def _sizes(
    x: Node,
    over: Sequence[int],
    scales: Node | None,
    sizes: Node | None,
    policy: str,
    regions: Sequence[tuple[np.float32, np.float32]],
) -> list[Axis]:
    old = [x.shape[a] for a in over]
    if policy not in ("stretch", "not_larger", "not_smaller"):
        raise InvalidModel(f"keep_aspect_ratio_policy {policy!r} is unknown")
    if scales is not None and scales.size:
        by = al.known(scales, "the scales").reshape(-1).astype(np.float32)
        if len(by) != len(old) or not (np.isfinite(by) & (by > 0)).all():
            raise InvalidModel("each axis needs a finite scale above 0", scales=by.tolist())
        return [Axis(n, floor(n * s), s, r) for n, s, r in zip(old, by, regions, strict=True)]
    if sizes is None:
        raise UnsupportedOp("Resize needs scales or sizes")
    new = al.known_ints(sizes, "the sizes")
    if len(new) != len(old) or min(new, default=0) < 0 or 0 in old:
        raise ShapeError("each axis needs a size, and elements", shape=x.shape, sizes=list(new))
    ratios = [np.float32(m / n) for m, n in zip(new, old, strict=True)]
    if policy == "stretch":
        return [Axis(*a) for a in zip(old, new, ratios, regions, strict=True)]
    one = min(ratios) if policy == "not_larger" else max(ratios)
    return [Axis(n, floor(n * one + 0.5), one, r) for n, r in zip(old, regions, strict=True)]


@operator("AffineGrid")
def affine_grid(theta: Node, size: Node, *, align_corners: int = 0) -> Node:
    """Transforms each point of a grid over [-1, 1] by a matrix per batch; coordinates are x, then
    y.

    It does not use ONNX's own function body, which drops the axis of a batch of one.  With
    align_corners, an axis of extent 1 is at position 1, as in onnxruntime.
    """
    batch, _, *spatial = al.known_ints(size, "the size") or (0, 0)
    count = len(spatial)
    if count not in (2, 3) or theta.shape != (batch, count, count + 1) or min(spatial) < 0:
        raise ShapeError(
            "AffineGrid needs a matrix for each batch, and a size with 2 or 3 spatial axes",
            shape=theta.shape, size=[batch, *spatial],
        )  # fmt: skip
    rows = reshape(theta, (batch, *[1] * count, count, count + 1))
    made = al.take(rows, rows.rank - 1, count, 1)
    for axis, extent in enumerate(spatial):
        check_limit("table", extent, "the positions along an axis")
        i = np.arange(extent)
        ends = np.where(extent > 1, 2 * i / max(extent - 1, 1) - 1, 1)
        places = ends if align_corners else (2 * i + 1) / max(extent, 1) - 1
        line = constant(places.reshape(-1, *[1] * (count - axis + 1)), theta.dtype)
        made = al.add(made, al.mul(al.take(rows, rows.rank - 1, count - 1 - axis, 1), line))
    return al.squeeze(made, [made.rank - 1])


# ---- weighted neighbours -------------------------------------------------------------------------


@dataclass(frozen=True)
class Neighbours:
    """The neighbours of each element of the new axis: positions and weights [new, neighbours]."""

    places: Array
    weights: Array

    def periodic(self, times: int) -> tuple[int, int]:
        """(begin, end) of the longest run in which, every `times` elements, neighbours move by one
        and weights repeat."""
        later, before = slice(times, None), slice(None, -times)
        places, near = self.places, np.isclose(self.weights[later], self.weights[before], 0, EVEN)
        moves = (places[later] == places[before] + 1).all(axis=1) & near.all(axis=1)
        first = np.flatnonzero(moves & (np.diff(places[:, 0], prepend=-1)[before] != 0))
        if not first.size:
            return 0, 0
        start = int(first[0])
        stops = np.flatnonzero(~moves[start:])
        run = int(stops[0]) if stops.size else len(moves) - start
        return start, start + times * (run // times + 1)

    def part(self, start: int, end: int) -> Neighbours:
        return Neighbours(self.places[start:end], self.weights[start:end])


def _linear(x: Array) -> Array:
    return np.asarray(np.maximum(1 - np.abs(x), 0))


def _cubic(a: float) -> Callable[[Array], Array]:
    """Keys' cubic kernel."""

    def weight(x: Array) -> Array:
        t = np.abs(x)
        near = ((a + 2) * t - (a + 3)) * t * t + 1
        far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
        return np.asarray(np.where(t <= 1, near, np.where(t < 2, far, 0.0)))

    return weight


def _taps(size: Axis, where: Array, kind: Resizing) -> Neighbours:
    """The neighbours and weights of each position.  With antialias, a shrinking axis uses more
    neighbours."""
    kernel, reach = (_linear, 1) if kind.mode == "linear" else (_cubic(kind.cubic), 2)
    stretch = min(float(size.scale), 1.0) if kind.antialias else 1.0
    where = where.astype(np.float64)
    if kind.mode == "linear" and not kind.antialias:
        where = np.clip(where, 0, size.old - 1)
    first = floor(-reach / stretch) + 1
    count = 2 - 2 * first
    check_limit("table", size.new * count, "the neighbours along an axis")
    places = np.floor(where).astype(np.int64)[:, None] + np.arange(first, first + count)
    weights = kernel((places - where[:, None]) * stretch)
    if kind.exclude:
        weights = np.where((places < 0) | (places >= size.old), 0.0, weights)
    if kind.exclude or kind.antialias:
        total = weights.sum(axis=1, keepdims=True)
        weights = weights / np.where(total, total, 1)
    places = np.clip(places, 0, size.old - 1)
    # if all neighbours are one element, they get equal weights: a weight of 0 times infinity is NaN
    alike = (places == places[:, :1]).all(axis=1, keepdims=True)
    weights = np.where(alike, 1 / count, weights)
    return Neighbours(places, weights.astype(np.float32))


def _along(x: Node, axis: int, taps: Neighbours) -> Node:
    """The sum of weighted neighbours along one axis."""
    new, count = taps.places.shape
    if count > FEW:
        at = gather(x, constant(taps.places.astype(np.int32)), axis)
        shape = (new, count, *[1] * (x.rank - axis - 1))
        weighed = al.mul(at, constant(taps.weights.reshape(shape), x.dtype))
        return al.squeeze(reduce("sum", weighed, [axis + 1]), [axis + 1])
    if not _lies_last(x, axis):
        return _sum(x, axis, taps)
    times, rest = divmod(new, x.shape[axis])
    start, end = (0, 0) if rest or times < 2 else taps.periodic(times)
    if 2 * (end - start) <= new:
        return node(ops.Realize(), _sum(x, axis, taps))
    before, after = (_sum(x, axis, part) for part in (taps.part(0, start), taps.part(end, new)))
    inside = _phases(x, axis, taps.part(start, end), times)
    return node(ops.Realize(), concat([before, inside, after], axis))


def _lies_last(x: Node, axis: int) -> bool:
    """True if neighbours along an axis are probably adjacent in memory.  Convolutions, for example,
    store images with adjacent channels."""
    while isinstance(x.op, (ops.Elementwise, ops.Transpose)) and x.inputs:
        axis = x.op.perm[axis] if isinstance(x.op, ops.Transpose) else axis
        x = next((i for i in x.inputs if not i.constant), x.inputs[0])
    return axis == x.rank - 1


def _sum(x: Node, axis: int, taps: Neighbours) -> Node:
    pairs = zip(taps.places.T, taps.weights.T, strict=True)
    terms = [al.mul(gather_positions(x, places, axis), _line(w, x, axis)) for places, w in pairs]
    return fold(al.add, terms)


def _phases(x: Node, axis: int, taps: Neighbours, times: int) -> Node:
    """As `_along`, if `times` elements share each neighbour and their weights repeat."""
    count = len(taps.places) // times
    terms = []
    for place, weights in zip(taps.places[0], taps.weights[:times].T, strict=True):
        rows = repeat_each(al.take(x, axis, int(place), count), times, axis)
        tiled = broadcast(constant(weights[None], x.dtype), (count, times))
        line = reshape(tiled, (count * times, *[1] * (x.rank - axis - 1)))
        terms.append(al.mul(rows, line))
    return fold(al.add, terms)


def _line(weights: Array, x: Node, axis: int) -> Node:
    return constant(weights.reshape(-1, *[1] * (x.rank - axis - 1)), x.dtype)
