"""Transposes: elementwise kernels whose operand is contiguous along another axis than the output.

Input: a kernel without reductions.  Output: a `TileFn` whose inner step transposes a square of
vectors by shuffles.  It has as few loads and stores as a copy, not a load for each element.

    out[c, n] = f(x[n, c])   ->   rows n..n+3 of x at c, transposed; stores at c..c+3, from n on
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from tilewright.kernel.builder import Builder, Values
from tilewright.kernel.expr import Acc, Expr, Load, Reg
from tilewright.kernel.form import Transposition, classify, transposed_loads
from tilewright.kernel.index import Index, Var, index, unflatten
from tilewright.kernel.loops import TileFn
from tilewright.kernel.spec import Kernel
from tilewright.kernel.tree import rewrite
from tilewright.targets.simd.machine import Machine
from tilewright.targets.simd.spans import SpanRules, SpanSchedule, rows_per_tile
from tilewright.targets.simd.vectorize import LANES, storable, transposed, vector

#: Rows and columns of a block: its cache lines of both tensors fit L1 whatever their distance.
BLOCK = 16


@dataclass(frozen=True)
class TransposeSchedule(SpanSchedule):
    """x1: rows of the transposed axis in one tile, in whole blocks."""

    tag = "transpose"


def suits(kernel: Kernel) -> bool:
    """True if there are squares to transpose, of types that vectors hold, and no run-time end."""
    fits = storable(kernel.dtype) and kernel.axes[-1].extent >= LANES and not kernel.extents
    return fits and bool(_axes(kernel))


def default(kernel: Kernel, machine: Machine) -> TransposeSchedule:
    del machine
    return TransposeSchedule(rows_per_tile(kernel))


def rules(
    kernel: Kernel, default: TransposeSchedule, machine: Machine
) -> SpanRules[TransposeSchedule]:
    extent = _axes(kernel)[0].extent
    others = prod(v.extent for v in kernel.axes[:-1]) // extent
    return SpanRules(kernel, default, machine, extent, BLOCK, others)


def _axes(kernel: Kernel) -> list[Var]:
    """The axes along which squares may be transposed."""
    form = classify(kernel)
    axes = form.axes if isinstance(form, Transposition) else ()
    return [c for c in axes if c.extent >= LANES and _turned(kernel, c)]


def _turned(kernel: Kernel, c: Var) -> list[Load]:
    return [x for x in transposed_loads(kernel, c) if storable(x.dtype)]


def lower(kernel: Kernel, schedule: TransposeSchedule) -> TileFn:
    """Tiles of at least BLOCK points of `c` (`x1` if larger) and the whole last axis."""
    n, lanes, c = kernel.axes[-1], LANES, _axes(kernel)[0]
    outer = tuple(v for v in kernel.axes[:-1] if v != c)
    span = max(BLOCK, -(-schedule.x1 // BLOCK) * BLOCK)
    grid = (*(v.extent for v in outer), -(-c.extent // span))
    b = Builder({}, prod(grid))
    *at, part = (b.let(i) for i in unflatten(b.tile, grid))
    values = dict(zip(outer, at, strict=True))
    first = b.let(part * span)
    squares, odd = divmod(c.extent, lanes)
    end = b.let_min((first + span) // lanes, index(squares))
    loads = _turned(kernel, c)
    value = rewrite(kernel.value, lambda e: Acc(loads.index(e), e.dtype) if e in loads else e)
    body = replace(kernel, value=value)
    whole, rest = divmod(n.extent, BLOCK)
    start = b.let(first // lanes)

    def columns(base: Index, count: int) -> None:
        with b.loop("c", start, end, extent=squares) as square:
            with b.loop("s", Index(), index(count // lanes)) as s:
                _square(b, body, loads, {**values, c: square * lanes}, c, base + s * lanes)
            for i in range(lanes if count % lanes else 0):
                moved = {**values, c: square * lanes + i}
                _row(b, kernel, moved, base + count // lanes * lanes, count % lanes)

    with b.loop("n", Index(), index(whole)) as block:
        columns(block * BLOCK, BLOCK)
    if rest:
        columns(index(whole * BLOCK), rest)
    if odd:
        begin = b.let_min(first + span, index(squares * lanes))
        with b.loop("odd", begin, b.let_min(first + span, index(c.extent))) as row:
            groups, rest = divmod(n.extent, lanes)
            with b.loop("u", Index(), index(groups)) as u:
                _row(b, kernel, {**values, c: row}, u * lanes, 0)
            if rest:
                _row(b, kernel, {**values, c: row}, index(groups * lanes), rest)
    return b.finish(kernel)


def _square(
    b: Builder, kernel: Kernel, loads: list[Load], values: Values, c: Var, base: Index
) -> None:
    """A square of points: lanes of `c` from its value on, lanes of the last axis from `base` on."""
    n, lanes = kernel.axes[-1], LANES
    columns: list[list[Expr]] = []
    for number, load in enumerate(loads):
        rows = [
            vector(load, c, values[c], lanes, {**values, n: base + i}, {}) for i in range(lanes)
        ]
        turned = transposed(b, rows)
        regs = [Reg(f"turned{number}_{i}", load.dtype, lanes) for i in range(lanes)]
        for reg, column in zip(regs, turned, strict=True):
            b.set(reg.name, column)
        columns.append([*regs])
    for i in range(lanes):
        known = {number: column[i] for number, column in enumerate(columns)}
        _row(b, kernel, {**values, c: values[c] + i}, base, 0, known)


def _row(
    b: Builder,
    kernel: Kernel,
    values: Values,
    base: Index,
    valid: int,
    known: dict[int, Expr] | None = None,
) -> None:
    """One vector of the output, its first `valid` lanes."""
    n = kernel.axes[-1]
    value = vector(kernel.value, n, base, LANES, values, known or {}, valid)
    b.store(0, kernel.store.substitute({**values, n: base}), value, valid)
