"""Lowering: (kernel, schedule) to the loop nest of one tile.

Input: a kernel in normal form and a schedule.  Output: a `TileFn`.  Contractions and row-wise
kernels have files of their own; here are elementwise kernels and reductions that run across the
contiguous axis (pooling, depthwise convolution), which share the walk over output points.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from tilewright.kernel.builder import Builder
from tilewright.kernel.expr import Bound, Expr, Load, Reg, dtype_of, walk
from tilewright.kernel.index import Index, Var, index, unflatten
from tilewright.kernel.loops import TileFn
from tilewright.kernel.lower_contract import lower_contraction
from tilewright.kernel.lower_depth import lower_depth
from tilewright.kernel.lower_rows import lower_rows
from tilewright.kernel.lower_windows import lower_windows
from tilewright.kernel.reduction import Values, identity, nest, step
from tilewright.kernel.roles import operands
from tilewright.kernel.schedule import Schedule
from tilewright.kernel.spec import Kernel
from tilewright.kernel.vectorize import scalar, storable, stride, vector
from tilewright.kernel.windows import windows


def lower(kernel: Kernel, schedule: Schedule) -> TileFn:
    """The loop nest of one tile of `kernel` under `schedule`."""
    roles = operands(kernel)
    if roles is not None and schedule.along == "k" and roles.runs_along_depth:
        return lower_depth(kernel, schedule)
    if roles is not None:
        return lower_contraction(kernel, schedule)
    across = windows(kernel)
    if across is not None:
        return lower_windows(kernel, across, schedule)
    if kernel.stages and _runs_along_rows(kernel):
        return lower_rows(kernel, schedule)
    return _lower_points(kernel, schedule)


def _runs_along_rows(kernel: Kernel) -> bool:
    """True if vectors should run along the reduction, not along the last output axis."""
    if kernel.cols or not kernel.axes or not storable(kernel.dtype):
        return True
    last, inner = kernel.axes[-1], kernel.stages[0].axes[-1:]
    loads = [n for s in kernel.stages for n in walk(s.value) if isinstance(n, Load)]
    across = sum(stride(n.index, last) == 1 for n in loads)
    along = sum(bool(inner) and stride(n.index, inner[0]) == 1 for n in loads)
    return along > across


def _lower_points(kernel: Kernel, schedule: Schedule) -> TileFn:
    """Every output point on its own: outer axes one by one, the last axis in vectors.

    A tile is `x1` rows (points of the outer axes), or `y1` elements where there is one axis only.
    """
    kernel = replace(kernel, axes=kernel.axes or (Var("one", 1),))
    last, outer = kernel.axes[-1], kernel.axes[:-1]
    results = (kernel.dtype, *(dtype_of(s.value) for s in kernel.stages))
    wide = all(map(storable, results)) and last.extent >= schedule.lanes
    wide = wide and stride(kernel.store, last) == 1
    lanes = schedule.lanes if wide else 1
    rows = prod(v.extent for v in outer)
    if rows == 1:
        return _lower_line(kernel, schedule, last, lanes)
    count = Var("rows", rows + 1)
    b = Builder({count: rows}, -(-rows // schedule.x1))
    first = b.let(b.tile * schedule.x1, "first")
    end = b.let_min(first + schedule.x1, index(count))
    with b.loop("row", first, end, extent=rows) as row:
        at = unflatten(row, tuple(v.extent for v in outer))
        values = {v: b.let(i) for v, i in zip(outer, at, strict=True)}
        groups, rest = divmod(last.extent, lanes)
        with b.loop("u", Index(), index(groups)) as u:
            _point(b, kernel, last, u * lanes, lanes, values, 0)
        if rest:
            _point(b, kernel, last, index(groups * lanes), lanes, values, rest)
    return b.finish(kernel)


def _lower_line(kernel: Kernel, schedule: Schedule, axis: Var, lanes: int) -> TileFn:
    """One axis only: tiles of `y1` elements; the last tile also does what fills no vector."""
    groups, rest = divmod(axis.extent, lanes)
    per_tile = max(1, schedule.y1 // lanes)
    tiles = max(1, -(-groups // per_tile))
    count = Var("groups", groups + 1)
    b = Builder({count: groups}, tiles)
    first = b.let(b.tile * per_tile, "first")
    end = b.let_min(first + per_tile, index(count))
    with b.loop("u", first, end, extent=groups) as u:
        _point(b, kernel, axis, u * lanes, lanes, {}, 0)
    if rest:
        with b.branch() as tail:
            _point(b, kernel, axis, index(groups * lanes), lanes, {}, rest)
        b.choose((Bound(b.tile * -1 + (tiles - 1), 1),), tail)
    return b.finish(kernel)


def _point(
    b: Builder, kernel: Kernel, axis: Var, base: Index, lanes: int, values: Values, valid: int
) -> None:
    """Compute and store `lanes` output points of `axis` from `base` on (the first `valid`)."""
    accs: dict[int, Expr] = {}

    def value(e: Expr, inside: Values) -> Expr:
        if lanes == 1:
            return scalar(e, {**inside, axis: base}, accs)
        return vector(e, axis, base, lanes, inside, accs, valid)

    for number, stage in enumerate(kernel.stages):
        acc = Reg(f"r{number}", dtype_of(stage.value), lanes)
        b.set(acc.name, identity(stage.op, acc.dtype, lanes))
        with nest(b, stage.axes, values) as inside:
            b.set(acc.name, step(stage.op, acc, value(stage.value, inside)))
        accs[number] = acc
    at = kernel.store.substitute({**values, axis: base})
    b.store(0, at, value(kernel.value, values), valid)
