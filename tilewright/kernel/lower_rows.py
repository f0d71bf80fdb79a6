"""Row-wise kernels: softmax, layer norm, means: reductions along a contiguous row, then the row.

Input: a kernel whose stages run along memory.  Output: a `TileFn` of `x1` rows per tile.
Per row and stage: `r0` vectors of partial results, combined across lanes, then a scalar tail; at
last the columns, in vectors.  What stages share is computed again: it is in L1 and costs no memory.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from tilewright.kernel.builder import Builder
from tilewright.kernel.expr import Expr, Reg, dtype_of
from tilewright.kernel.index import Index, Var, index, unflatten
from tilewright.kernel.loops import TileFn
from tilewright.kernel.reduction import Values, across_lanes, identity, nest, step
from tilewright.kernel.schedule import Schedule
from tilewright.kernel.spec import Kernel, Stage
from tilewright.kernel.vectorize import scalar, storable, stride, vector


def lower_rows(kernel: Kernel, schedule: Schedule) -> TileFn:
    """`x1` rows per tile; a row is one point of the axes that the stages depend on."""
    rows = prod(v.extent for v in kernel.rows)
    count = Var("rows", rows + 1)
    b = Builder({count: rows}, -(-rows // schedule.x1))
    first = b.let(b.tile * schedule.x1, "first")
    end = b.let_min(first + schedule.x1, index(count))
    with b.loop("row", first, end, extent=rows) as row:
        at = unflatten(row, tuple(v.extent for v in kernel.rows))
        values = {v: b.let(i) for v, i in zip(kernel.rows, at, strict=True)}
        accs: dict[int, Expr] = {}
        for number, stage in enumerate(kernel.stages):
            accs[number] = _reduce(b, stage, f"r{number}", schedule, values, accs)
        _columns(b, kernel, schedule, values, accs)
    return b.finish(kernel)


def _reduce(
    b: Builder,
    stage: Stage,
    name: str,
    schedule: Schedule,
    values: Values,
    accs: dict[int, Expr],
) -> Reg:
    """One reduction of the current row, into a scalar register."""
    dtype = dtype_of(stage.value)
    result = Reg(name, dtype)
    *outer, inner = stage.axes or (Var("one", 1),)
    lanes = schedule.lanes if storable(dtype) else 1
    parts = max(1, schedule.r0)
    if lanes == 1 or inner.extent < lanes:
        b.set(name, identity(stage.op, dtype, 1))
        with nest(b, stage.axes, values) as inside:
            b.set(name, step(stage.op, result, scalar(stage.value, inside, accs)))
        return result
    groups, rest = divmod(inner.extent, lanes)
    parts = min(parts, groups)
    sums = [Reg(f"{name}_{i}", dtype, lanes) for i in range(parts)]
    for part in sums:
        b.set(part.name, identity(stage.op, dtype, lanes))
    b.set(name, identity(stage.op, dtype, 1))

    body = b.hoist(stage.value, frozenset(stage.axes), lambda e: scalar(e, values, accs))

    def add(part: Reg, group: Index, inside: Values) -> None:
        value = vector(body, inner, group * lanes, lanes, inside, accs)
        b.set(part.name, step(stage.op, part, value))

    with nest(b, tuple(outer), values) as inside:
        with b.loop("u", Index(), index(groups // parts)) as u:
            for i, part in enumerate(sums):
                add(part, u * parts + i, inside)
        for i in range(groups % parts):
            add(sums[i], index(groups - groups % parts + i), inside)
        for i in range(rest):
            at = {**inside, inner: index(groups * lanes + i)}
            b.set(name, step(stage.op, result, scalar(body, at, accs)))
    for part in sums[1:]:
        b.set(sums[0].name, step(stage.op, sums[0], part))
    whole = across_lanes(stage.op, sums[0])
    b.set(name, step(stage.op, result, whole) if rest else whole)
    return result


def _columns(
    b: Builder, kernel: Kernel, schedule: Schedule, values: Values, accs: dict[int, Expr]
) -> None:
    """Store the row: one scalar, or every column in vectors."""
    cols = kernel.axes[len(kernel.rows) :]
    if not cols:
        b.store(0, kernel.store.substitute(values), scalar(kernel.value, values, accs))
        return
    *outer, last = cols
    wide = storable(kernel.dtype) and stride(kernel.store, last) == 1
    lanes = schedule.lanes if wide and last.extent >= schedule.lanes else 1
    groups, rest = divmod(last.extent, lanes)
    value = b.hoist(kernel.value, frozenset(cols), lambda e: scalar(e, values, accs))
    kernel = replace(kernel, value=value)
    with nest(b, tuple(outer), values) as inside:
        with b.loop("c", Index(), index(groups)) as u:
            _store_columns(b, kernel, last, u * lanes, lanes, inside, accs, 0)
        if rest:
            _store_columns(b, kernel, last, index(groups * lanes), lanes, inside, accs, rest)


def _store_columns(
    b: Builder,
    kernel: Kernel,
    axis: Var,
    base: Index,
    lanes: int,
    values: Values,
    accs: dict[int, Expr],
    valid: int,
) -> None:
    at = {**values, axis: base}
    if lanes == 1:
        value = scalar(kernel.value, at, accs)
    else:
        value = vector(kernel.value, axis, base, lanes, values, accs, valid)
    b.store(0, kernel.store.substitute(at), value, valid)


