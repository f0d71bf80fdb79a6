"""Row-wise kernels (softmax, layer norm, means): they reduce a contiguous row, then compute its
elements.

Input: a kernel whose stages run along memory.  Output: a `TileFn` of `x1` rows per tile.  For each
row and stage, `r0` vectors of partial results are computed and added up across lanes; a scalar loop
adds the rest of the row.  At the end the columns are computed in vectors.  Values that several
stages need are computed again, from operands in L1.  Only expensive ones that the result needs
again, such as softmax's exponentials, are kept in scratch memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import prod

from tilewright.kernel.builder import Builder, Values, nest
from tilewright.kernel.expr import (
    Acc,
    Call,
    Expr,
    Load,
    Reg,
    dtype_of,
    identity,
    is_expensive,
    lanes_of,
    larger,
    step,
)
from tilewright.kernel.extents import bound_of, ceil_parts, is_limited, limited_first, points
from tilewright.kernel.index import Index, Var, index, stride, unflatten
from tilewright.kernel.loops import Scratch, TileFn
from tilewright.kernel.spec import Kernel, Stage
from tilewright.kernel.tree import rewrite, walk
from tilewright.targets.simd.machine import Machine
from tilewright.targets.simd.spans import SpanRules, SumsSchedule, rows_per_tile
from tilewright.targets.simd.vectorize import across_lanes, scalar, storable, vector

Combine = Callable[[Expr, Expr], Call]


@dataclass(frozen=True)
class RowwiseSchedule(SumsSchedule):
    """Rows of a tile, and vectors of partial results of a row."""

    tag = "rows"


def default(kernel: Kernel, machine: Machine) -> RowwiseSchedule:
    """Eight sums hide the latency of an addition; four expensive terms fill the registers."""
    few = machine.chained or any(is_expensive(stage.value) for stage in kernel.stages)
    return RowwiseSchedule(x1=rows_per_tile(kernel), r0=4 if few else 8, lanes=machine.lanes)


def rules(kernel: Kernel, default: RowwiseSchedule, machine: Machine) -> SpanRules[RowwiseSchedule]:
    return SpanRules(kernel, default, machine, prod(v.extent for v in kernel.rows))


def lower(kernel: Kernel, schedule: RowwiseSchedule) -> TileFn:
    """`x1` rows per tile; a row is one point of the axes that the stages depend on."""
    axes = limited_first(kernel, kernel.rows)
    rows = points(kernel, axes)
    count = Var("rows", bound_of(rows) + 1)
    b = Builder({count: rows}, ceil_parts(rows, schedule.x1), kernel)
    kept, value = _kept(kernel)
    first = b.let(b.tile * schedule.x1, "first")
    end = b.let_min(first + schedule.x1, index(count))
    with b.loop("row", first, end, extent=bound_of(rows)) as row:
        at = unflatten(row, tuple(v.extent for v in axes))
        values = {v: b.let(i) for v, i in zip(axes, at, strict=True)}
        accs: dict[int, Expr] = {}
        for number, stage in enumerate(kernel.stages):
            area = len(kernel.buffers) if number == kept else 0
            row_of = _Row(b, kernel, schedule, values, accs, f"r{number}", area)
            accs[number] = _reduce(row_of, stage, _step_of(kernel, number))
        _columns(b, replace(kernel, value=value), schedule, values, accs)
    scratch = (Scratch(kernel.dtype, kernel.axes[-1].extent),) if kept is not None else ()
    return b.finish(kernel, scratch)


def _step_of(kernel: Kernel, number: int) -> Combine:
    """How the stage adds one more value.

    A maximum may drop a NaN if its users restore it: the sum of exp(x - max(x)) is NaN if any x is
    NaN, whatever the maximum was.
    """
    stage = kernel.stages[number]
    if stage.op == "max" and dtype_of(stage.value).is_float:
        users = [*(s.value for s in kernel.stages), kernel.value]
        reads = sum(n == Acc(number, dtype_of(stage.value)) for e in users for n in walk(e))
        centred = [n for e in users for n in walk(e) if _is_centred(n, stage, number)]
        if reads == len(centred) > 0:
            return larger
    return partial(step, stage.op)


def _is_centred(e: Expr, stage: Stage, number: int) -> bool:
    """True for x - r, where r is the maximum of x."""
    if not isinstance(e, Call) or e.fn != "sub" or e.operands[1] != Acc(number, e.dtype):
        return False
    x, value = e.operands[0], stage.value
    return any(
        value.substitute({stage.axes[-1]: index(v)}) == x
        for v in x.variables
        if len(stage.axes) == 1 and v.extent == stage.axes[0].extent
    )


def _kept(kernel: Kernel) -> tuple[int | None, Expr]:
    """The stage that keeps its terms in scratch, and the value that loads them from there.

    r1 = sum over j of exp(x[j] - r0); value exp(x[c] - r0) / r1   ->   value scratch[c] / r1
    """
    cols = kernel.axes[len(kernel.rows) :]
    for number, stage in enumerate(kernel.stages):
        extents = [v.extent for v in stage.axes]
        if stage.op != "sum" or len(cols) != 1 or extents != [cols[0].extent]:
            continue
        if is_limited(kernel, stage.axes) != is_limited(kernel, cols):
            continue
        term = stage.value.substitute({stage.axes[0]: index(cols[0])})
        if not is_expensive(term) or dtype_of(term) != kernel.dtype:
            continue
        if term in list(walk(kernel.value)):
            kept = Load(len(kernel.buffers), index(cols[0]), kernel.dtype)
            return number, rewrite(kernel.value, lambda e: kept if e == term else e)  # noqa: B023
    return None, kernel.value


@dataclass(frozen=True)
class _Row:
    """The row that is being reduced, and the builder of its statements.

    area: the scratch buffer in which the stage stores its terms; 0 for none
    """

    b: Builder
    kernel: Kernel
    schedule: RowwiseSchedule
    values: Values
    accs: dict[int, Expr]
    name: str
    area: int

    def keep(self, at: Index, value: Expr) -> Expr:
        """Stores a term where the columns load it again."""
        if not self.area:
            return value
        term = Reg(f"{self.name}term{lanes_of(value)}", dtype_of(value), lanes_of(value))
        self.b.set(term.name, value)
        self.b.store(self.area, at, term)
        return term


def _reduce(row: _Row, stage: Stage, step: Combine) -> Reg:
    """One reduction of the current row, into a scalar register."""
    b, schedule, values, accs, name = row.b, row.schedule, row.values, row.accs, row.name
    dtype = dtype_of(stage.value)
    result = Reg(name, dtype)
    *outer, inner = stage.axes or (Var("one", 1),)
    lanes = schedule.lanes if storable(dtype) else 1
    parts = max(1, schedule.r0)
    if lanes == 1 or inner.extent < lanes:
        b.set(name, identity(stage.op, dtype, 1))
        with nest(b, stage.axes, values) as inside:
            at = inside[inner] if stage.axes else Index()
            b.set(name, step(result, row.keep(at, scalar(stage.value, inside, accs))))
        return result
    groups, rest = divmod(inner.extent, lanes)
    parts = min(parts, groups)
    limited = row.kernel.limit(inner) is not None
    sums = [Reg(f"{name}_{i}", dtype, lanes) for i in range(parts)]
    for part in sums:
        b.set(part.name, identity(stage.op, dtype, lanes))
    b.set(name, identity(stage.op, dtype, 1))

    body = b.hoist(stage.value, frozenset(stage.axes), lambda e: scalar(e, values, accs))

    def add(part: Reg, group: Index, inside: Values) -> None:
        value = vector(body, inner, group * lanes, lanes, inside, accs)
        b.set(part.name, step(part, row.keep(group * lanes, value)))

    def add_one(at: Index, inside: Values) -> None:
        last = {**inside, inner: at}
        b.set(name, step(result, row.keep(at, scalar(body, last, accs))))

    with nest(b, tuple(outer), values) as inside:
        if limited:
            vectors, singles = partial(add, inside=inside), partial(add_one, inside=inside)
            _to_the_end(b, inner, lanes, sums, vectors, singles)
        else:
            with b.loop("u", Index(), index(groups // parts)) as u:
                for i, part in enumerate(sums):
                    add(part, u * parts + i, inside)
            for i in range(groups % parts):
                add(sums[i], index(groups - groups % parts + i), inside)
            for i in range(rest):
                add_one(index(groups * lanes + i), inside)
    for part in sums[1:]:
        b.set(sums[0].name, step(sums[0], part))
    whole = across_lanes(stage.op, sums[0])
    b.set(name, step(result, whole) if rest or limited else whole)
    return result


def _to_the_end(
    b: Builder,
    axis: Var,
    lanes: int,
    sums: list[Reg],
    add: Callable[[Reg, Index], None],
    add_one: Callable[[Index], None],
) -> None:
    """A reduction up to a run-time end: passes of all sums, then vectors, then single elements."""
    end, each = b.end(axis), len(sums) * lanes
    passes = b.let(end // each, "passes")
    groups = b.let(end // lanes, "groups")
    with b.loop("u", Index(), passes) as u:
        for i, part in enumerate(sums):
            add(part, u * len(sums) + i)
    with b.loop("u", b.let(passes * len(sums)), groups) as u:
        add(sums[0], u)
    with b.loop("u", b.let(groups * lanes), end) as u:
        add_one(u)


def _columns(
    b: Builder, kernel: Kernel, schedule: RowwiseSchedule, values: Values, accs: dict[int, Expr]
) -> None:
    """Stores the row: one scalar, or every column in vectors."""
    cols = kernel.axes[len(kernel.rows) :]
    if not cols:
        b.store(0, kernel.store.substitute(values), scalar(kernel.value, values, accs))
        return
    *outer, last = cols
    wide = storable(kernel.dtype) and stride(kernel.store, last) == 1
    lanes = schedule.lanes if wide and last.extent >= schedule.lanes else 1
    groups, rest = divmod(last.extent, lanes)
    value = b.hoist(kernel.value, frozenset(cols), lambda e: scalar(e, values, accs))
    whole = index(groups)
    if kernel.limit(last) is not None:
        whole = b.let_min(whole, b.let((b.end(last) + (lanes - 1)) // lanes))
    kernel = replace(kernel, value=value)
    with nest(b, tuple(outer), values) as inside:
        with b.loop("c", Index(), whole) as u:
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
