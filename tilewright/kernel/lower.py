"""Lowering: (kernel, schedule) to the loop nest of one tile.

Input: a kernel in normal form and a schedule.  Output: a `TileFn`.  Contractions, attention,
windows, row-wise and transposing kernels have files of their own; here are elementwise kernels and
all other reductions across the contiguous axis, which share the walk over output points.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import prod

from tilewright.base.dtypes import I8, U8
from tilewright.kernel.builder import Builder
from tilewright.kernel.expr import Bound, Const, Expr, Guard, Load, Reg, dtype_of, rewrite, walk
from tilewright.kernel.index import Index, Var, index, unflatten
from tilewright.kernel.loops import TileFn
from tilewright.kernel.lower_attention import lower_attention
from tilewright.kernel.lower_contract import lower_contraction
from tilewright.kernel.lower_depth import lower_depth
from tilewright.kernel.lower_dot import BYTES, lower_dot
from tilewright.kernel.lower_rows import lower_rows
from tilewright.kernel.lower_taps import lower_taps
from tilewright.kernel.lower_transpose import lower_transpose, turned_axis
from tilewright.kernel.lower_windows import lower_windows
from tilewright.kernel.reduction import Values, identity, nest, step
from tilewright.kernel.roles import operands
from tilewright.kernel.roles_dot import byte_windows, dot_operands
from tilewright.kernel.schedule import Schedule
from tilewright.kernel.spec import Kernel
from tilewright.kernel.vectorize import scalar, storable, stride, vector
from tilewright.kernel.windows import windows

#: A kernel is cut at guards into so many pieces at most.
MOST_SEGMENTS = 9


def lower(kernel: Kernel, schedule: Schedule) -> TileFn:
    """The loop nest of one tile of `kernel` under `schedule`."""
    if kernel.anchor == "attention":
        return lower_attention(kernel, schedule)
    roles = operands(kernel)
    if roles is not None and schedule.along == "k" and roles.runs_along_depth:
        return lower_depth(kernel, schedule)
    if roles is not None:
        return lower_contraction(kernel, schedule)
    if dot_operands(kernel) is not None:
        return lower_dot(kernel, schedule)
    if byte_windows(kernel) is not None:
        return lower_taps(kernel, schedule)
    across = windows(kernel)
    if across is not None:
        return lower_windows(kernel, across, schedule)
    if kernel.stages and runs_along_rows(kernel):
        return lower_rows(kernel, schedule)
    axis = turned_axis(kernel, schedule.lanes)
    if axis is not None:
        return lower_transpose(kernel, schedule, axis)
    return _lower_points(kernel, schedule)


def runs_along_rows(kernel: Kernel) -> bool:
    """True if vectors should run along the reduction, not along the last row axis."""
    if kernel.cols:
        return stride(kernel.store, kernel.axes[-1]) == 1 or not contiguous_last(kernel)
    if not kernel.axes or not storable(kernel.dtype):
        return True
    last, inner = kernel.axes[-1], kernel.stages[0].axes[-1:]
    loads = [n for s in kernel.stages for n in walk(s.value) if isinstance(n, Load)]
    across = sum(stride(n.index, last) == 1 for n in loads)
    along = sum(bool(inner) and stride(n.index, inner[0]) == 1 for n in loads)
    return along > across


def contiguous_last(kernel: Kernel) -> Kernel | None:
    """The kernel with its contiguous row axis last, if it has one worth vectors.

    softmax over a middle axis: out[a, j, n], rows (a, n): vectors run along n
    """
    for v in kernel.rows:
        if stride(kernel.store, v) == 1 and v.extent >= 4:
            rows = (*(r for r in kernel.rows if r != v), v)
            return replace(kernel, axes=rows + kernel.axes[len(rows) :])
    return None


def _lower_points(kernel: Kernel, schedule: Schedule) -> TileFn:
    """Every output point on its own: outer axes one by one, the last axis in vectors.

    A tile is `x1` rows (points of the outer axes), or `y1` elements where there is one axis only.
    """
    kernel = replace(kernel, axes=kernel.axes or (Var("one", 1),))
    kernel = (contiguous_last(kernel) if kernel.cols else None) or kernel
    last, outer = kernel.rows[-1], kernel.rows[:-1]
    results = (kernel.dtype, *(dtype_of(s.value) for s in kernel.stages))
    wide = all(map(storable, results)) and last.extent >= schedule.lanes
    wide = wide and stride(kernel.store, last) == 1
    lanes = schedule.lanes if wide else 1
    rows = prod(v.extent for v in outer)
    parts = _segments(kernel, last) if lanes > 1 else []
    if rows == 1 and len(parts) < 2:
        return _lower_line(kernel, schedule, last, lanes)
    count = Var("rows", rows + 1)
    b = Builder({count: rows}, -(-rows // schedule.x1))
    first = b.let(b.tile * schedule.x1, "first")
    end = b.let_min(first + schedule.x1, index(count))
    with b.loop("row", first, end, extent=rows) as row:
        at = unflatten(row, tuple(v.extent for v in outer))
        values = {v: b.let(i) for v, i in zip(outer, at, strict=True)}
        for part in parts or [kernel]:
            axis, start = part.rows[-1], 0
            for step, width in _passes(part, schedule, lanes):
                groups = (axis.extent - start) // step
                if groups:
                    with b.loop("u", Index(), index(groups)) as u:
                        base = u * step + start
                        _points(b, part, axis, base, step // width, width, values, 0)
                start += groups * step
            _remainder(b, part, axis, start, lanes, values)
    return b.finish(kernel)


def _segments(kernel: Kernel, axis: Var) -> list[Kernel]:
    """The kernel cut along `axis` where a guard begins or ends to hold; none if it has no guard.

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
    """The kernel at [start, end) of `axis`, without the guards that hold or fail there."""
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


def _step(kernel: Kernel, schedule: Schedule, lanes: int) -> int:
    """Points per pass: reductions take `r0` vectors at once, so that no sum waits for itself."""
    return lanes * (max(1, schedule.r0) if kernel.stages and lanes > 1 else 1)


def _passes(kernel: Kernel, schedule: Schedule, lanes: int) -> list[tuple[int, int]]:
    """(points, lanes) of each loop along a row; bytes that are only copied fill whole vectors."""
    usual = (_step(kernel, schedule, lanes), lanes)
    moves = lanes > 1 and not kernel.stages and _only_moves(kernel.value, kernel.rows[-1])
    return [(BYTES, BYTES), usual] if moves else [usual]


def _only_moves(e: Expr, axis: Var) -> bool:
    """True for bytes that are copied, along `axis` without a condition or a gather."""
    if isinstance(e, Guard):
        moving = any(axis in b.index.variables for b in e.bounds)
        return not moving and all(_only_moves(a, axis) for a in e.args)
    if isinstance(e, Load):
        return e.dtype in (I8, U8) and stride(e.index, axis) == 1
    return isinstance(e, Const) and e.dtype in (I8, U8)


def _remainder(
    b: Builder, kernel: Kernel, axis: Var, start: int, lanes: int, values: Values
) -> None:
    """The points from `start` on that fill no pass: whole vectors, then what is left."""
    groups, rest = divmod(axis.extent - start, lanes)
    if groups:
        _points(b, kernel, axis, index(start), groups, lanes, values, 0)
    if rest:
        _points(b, kernel, axis, index(start + groups * lanes), 1, lanes, values, rest)


def _lower_line(kernel: Kernel, schedule: Schedule, axis: Var, lanes: int) -> TileFn:
    """One axis only: tiles of `y1` elements; the last tile also does what fills no vector."""
    step = _step(kernel, schedule, lanes)
    groups = axis.extent // step
    per_tile = max(1, schedule.y1 // step)
    tiles = max(1, -(-groups // per_tile))
    count = Var("groups", groups + 1)
    b = Builder({count: groups}, tiles)
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
    """Compute and store `count` vectors of points of `axis` from `base` on (`valid` lanes each)."""
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
