"""Elementwise kernels, and all reductions that no other file computes.

Input: a kernel, and a schedule.  Output: a `TileFn`.  Each output point is computed independently:
a loop for each outer axis, and vectors along the axis on which results are contiguous.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from math import prod

from tilewright.base.dtypes import I8, U8
from tilewright.kernel.builder import Builder, Values, nest
from tilewright.kernel.expr import Bound, Const, Expr, Guard, Load, Reg, dtype_of, identity, step
from tilewright.kernel.extents import bound_of, capped, ceil_parts, limited_first, points
from tilewright.kernel.form import Reduction, classify
from tilewright.kernel.index import Index, Var, index, stride, unflatten
from tilewright.kernel.loops import TileFn
from tilewright.kernel.spec import Kernel
from tilewright.kernel.tree import rewrite, walk
from tilewright.targets.simd.machine import TILE_ELEMENTS, Machine
from tilewright.targets.simd.spans import (
    SpanRules,
    SpanSchedule,
    SumsSchedule,
    reduced,
    rows_per_tile,
)
from tilewright.targets.simd.vectorize import BYTES, scalar, storable, vector

#: The most pieces into which guards cut a kernel.
MOST_SEGMENTS = 9

#: The shortest axis that is computed in vectors.
SHORTEST = 4


@dataclass(frozen=True)
class MapSchedule(SpanSchedule):
    """Maps: rows, or elements, of a tile."""

    tag = "map"
    lanes: int = 4


@dataclass(frozen=True)
class ReduceSchedule(SumsSchedule):
    """Reductions: rows, or elements, of a tile; r0 vectors of results beside each other."""

    tag = "reduce"


def vectors_fit(kernel: Kernel) -> bool:
    """True if a reduction's results can be stored as vectors; otherwise its rows are computed
    singly."""
    if not kernel.cols:
        return storable(kernel.dtype)
    form = classify(kernel)
    return isinstance(form, Reduction) and form.axis.extent >= SHORTEST


def default_map(kernel: Kernel, machine: Machine) -> MapSchedule:
    return MapSchedule(_span(kernel, machine), machine.lanes)


def default_reduce(kernel: Kernel, machine: Machine) -> ReduceSchedule:
    return ReduceSchedule(_span(kernel, machine), lanes=machine.lanes)


def rules(
    kernel: Kernel, default: MapSchedule | ReduceSchedule, machine: Machine
) -> SpanRules[MapSchedule | ReduceSchedule]:
    *outer, last = [v.extent for v in _walked(kernel).rows]
    return SpanRules(kernel, default, machine, prod(outer) if prod(outer) > 1 else last)


def one_row(kernel: Kernel) -> bool:
    """True if there is one row only, so that tiles are spans of its elements."""
    return prod(v.extent for v in _walked(kernel).rows[:-1]) == 1


def _span(kernel: Kernel, machine: Machine) -> int:
    if one_row(kernel):
        return max(4 * machine.lanes, TILE_ELEMENTS // max(reduced(kernel), 1))
    return rows_per_tile(kernel)


def _walked(kernel: Kernel) -> Kernel:
    """The kernel with at least one axis, the last of which is the one that its output is contiguous
    on.

    softmax over a middle axis: out[a, j, n], rows (a, n): vectors run along n
    """
    if not kernel.axes:
        return replace(kernel, axes=(Var("one", 1),))
    form = classify(kernel)
    if not isinstance(form, Reduction):
        return kernel
    rows = (*(r for r in kernel.rows if r != form.axis), form.axis)
    return replace(kernel, axes=rows + kernel.axes[len(rows) :])


def lower(kernel: Kernel, schedule: MapSchedule | ReduceSchedule) -> TileFn:
    """Loops with tiles of `x1` rows (points of the outer axes), or elements if there is one row."""
    kernel = _walked(kernel)
    last, outer = kernel.rows[-1], limited_first(kernel, kernel.rows[:-1])
    results = (kernel.dtype, *(dtype_of(s.value) for s in kernel.stages))
    wide = all(map(storable, results)) and last.extent >= schedule.lanes
    wide = wide and stride(kernel.store, last) == 1
    lanes = schedule.lanes if wide else 1
    side = schedule.r0 if isinstance(schedule, ReduceSchedule) else 1
    rows = points(kernel, outer)
    parts = _segments(kernel, last) if lanes > 1 else []
    if rows == 1 and len(parts) < 2:
        return _lower_line(kernel, last, schedule.x1, lanes, side)
    count = Var("rows", bound_of(rows) + 1)
    b = Builder({count: rows}, ceil_parts(rows, schedule.x1), kernel)
    first = b.let(b.tile * schedule.x1, "first")
    end = b.let_min(first + schedule.x1, index(count))
    with b.loop("row", first, end, extent=bound_of(rows)) as row:
        at = unflatten(row, tuple(v.extent for v in outer))
        values = {v: b.let(i) for v, i in zip(outer, at, strict=True)}
        for part in parts or [kernel]:
            axis, start = part.rows[-1], 0
            for step, width in _passes(part, lanes, side):
                groups = (axis.extent - start) // step
                if groups:
                    with b.loop("u", Index(), _groups(b, part, axis, start, step, groups)) as u:
                        base = u * step + start
                        _points(b, part, axis, base, step // width, width, values, 0)
                start += groups * step
            if part.limit(axis) is None:
                _remainder(b, part, axis, start, lanes, values)
            else:
                there = Bound(b.end(axis) - (start + 1), axis.extent)
                b.either(there, partial(_remainder, b, part, axis, start, lanes, values))
    return b.finish(kernel)


def _groups(b: Builder, kernel: Kernel, axis: Var, start: int, step: int, most: int) -> Index:
    """The number of steps that the axis needs from `start` on; the last may pass a run-time end."""
    if kernel.limit(axis) is None:
        return index(most)
    return b.let_min(index(most), b.let((b.end(axis) + (step - 1 - start)) // step))


def _segments(kernel: Kernel, axis: Var) -> list[Kernel]:
    """The kernel in pieces along `axis`, cut where a guard starts or stops to hold; [] without
    guards.

    x[n-1] if 0 <= n-1 < 6 else 0, n<8   ->   0, n<1;   x[n], n<6;   0, n<1
    """
    exprs = [*(s.value for s in kernel.stages), kernel.value]
    bounds = {b for e in exprs for g in walk(e) if isinstance(g, Guard) for b in g.bounds}
    cuts = {0, axis.extent}
    for bound in bounds:
        if bound.index.terms == ((axis, 1),):
            cuts |= {-bound.index.const, bound.extent - bound.index.const}
    edges = sorted(c for c in cuts if 0 <= c <= axis.extent)
    if len(edges) == 2 or len(edges) > MOST_SEGMENTS:
        return []
    return [_segment(kernel, axis, a, b) for a, b in pairwise(edges)]


def _segment(kernel: Kernel, axis: Var, start: int, end: int) -> Kernel:
    """The kernel at [start, end) of `axis`, without guards that always hold or never hold there."""
    part = Var(axis.name, end - start)
    moved = {axis: index(part) + start}

    def settle(e: Expr) -> Expr:
        if not isinstance(e, Guard):
            return e
        if any(b.never for b in e.bounds):
            return e.default
        left = tuple(b for b in e.bounds if not b.always)
        return Guard(left, e.value, e.default) if left else e.value

    def cut(e: Expr) -> Expr:
        return rewrite(e, settle, moved)

    stages = tuple(replace(s, value=cut(s.value)) for s in kernel.stages)
    rows = tuple(part if v == axis else v for v in kernel.rows)
    return replace(
        kernel,
        axes=rows + kernel.axes[len(rows) :],
        stages=stages,
        value=cut(kernel.value),
        store=kernel.store.substitute(moved),
    )


def _step(kernel: Kernel, lanes: int, side: int) -> int:
    """Points per pass: reductions take `side` vectors at once, so that sums do not wait for
    themselves."""
    return lanes * (max(1, side) if kernel.stages and lanes > 1 else 1)


def _passes(kernel: Kernel, lanes: int, side: int) -> list[tuple[int, int]]:
    """(points, lanes) of each loop along a row; bytes that are only copied fill whole vectors."""
    usual = (_step(kernel, lanes, side), lanes)
    moves = lanes > 1 and not kernel.stages and _only_moves(kernel.value, kernel.rows[-1])
    return [(BYTES, BYTES), usual] if moves else [usual]


def _only_moves(e: Expr, axis: Var) -> bool:
    """True for bytes that are copied along `axis` without a condition or a gather."""
    if isinstance(e, Guard):
        moving = any(axis in b.index.variables for b in e.bounds)
        return not moving and all(_only_moves(a, axis) for a in e.args)
    if isinstance(e, Load):
        return e.dtype in (I8, U8) and stride(e.index, axis) == 1
    return isinstance(e, Const) and e.dtype in (I8, U8)


def _remainder(
    b: Builder, kernel: Kernel, axis: Var, start: int, lanes: int, values: Values
) -> None:
    """Computes the points from `start` on that fill no pass: whole vectors, then single points."""
    groups, rest = divmod(axis.extent - start, lanes)
    if groups:
        _points(b, kernel, axis, index(start), groups, lanes, values, 0)
    if rest:
        _points(b, kernel, axis, index(start + groups * lanes), 1, lanes, values, rest)


def _lower_line(kernel: Kernel, axis: Var, elements: int, lanes: int, side: int) -> TileFn:
    """A kernel with one row: tiles of `elements`; the last tile also has the points of no
    vector."""
    step = _step(kernel, lanes, side)
    groups = axis.extent // step
    per_tile = max(1, elements // step)
    tiles = max(1, -(-groups // per_tile))
    count = Var("groups", groups + 1)
    points_of = points(kernel, (axis,))
    needed = capped(ceil_parts(points_of, step), groups)
    b = Builder({count: needed}, capped(ceil_parts(points_of, per_tile * step), tiles), kernel)
    first = b.let(b.tile * per_tile, "first")
    end = b.let_min(first + per_tile, index(count))
    if groups:
        with b.loop("u", first, end, extent=groups) as u:
            _points(b, kernel, axis, u * step, step // lanes, lanes, {}, 0)
    if axis.extent % step:
        with b.branch() as tail:
            _remainder(b, kernel, axis, groups * step, lanes, {})
        b.choose((Bound(b.tile * -1 + (tiles - 1), 1),), tail)
    return b.finish(kernel)


def _points(
    b: Builder,
    kernel: Kernel,
    axis: Var,
    base: Index,
    count: int,
    lanes: int,
    values: Values,
    valid: int,
) -> None:
    """Computes and stores `count` vectors of points of `axis` from `base` on (`valid` lanes
    each)."""
    accs: list[dict[int, Expr]] = [{} for _ in range(count)]

    def value(part: int, e: Expr, inside: Values) -> Expr:
        at = base + part * lanes
        if lanes == 1:
            return scalar(e, {**inside, axis: at}, accs[part])
        return vector(e, axis, at, lanes, inside, accs[part], valid)

    for number, stage in enumerate(kernel.stages):
        dtype = dtype_of(stage.value)
        regs = [Reg(f"r{number}_{part}", dtype, lanes) for part in range(count)]
        for reg in regs:
            b.set(reg.name, identity(stage.op, dtype, lanes))
        with nest(b, stage.axes, values) as inside:
            for part, reg in enumerate(regs):
                b.set(reg.name, step(stage.op, reg, value(part, stage.value, inside)))
        for part, reg in enumerate(regs):
            accs[part][number] = reg
    with nest(b, kernel.axes[len(kernel.rows) :], values) as inside:
        for part in range(count):
            at = kernel.store.substitute({**inside, axis: base + part * lanes})
            b.store(0, at, value(part, kernel.value, inside), valid)
