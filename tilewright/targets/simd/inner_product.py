"""Contractions with vectors along the reduction: dot products; few, or widely spaced, columns.

Input: a contraction whose operands are both contiguous along the innermost summed axis.  Output: a
`TileFn`.  A register tile holds x0 * y0 vectors of partial sums.  At its end each vector is reduced
to one number, which gets its own epilogue.  contraction.py computes matrices with enough columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from tilewright.base.dtypes import F32
from tilewright.kernel.builder import Builder, Values, nest
from tilewright.kernel.expr import Bound, Call, Expr, Load, Reg, identity, step
from tilewright.kernel.form import Contraction, classify, form_as
from tilewright.kernel.index import Index, Var, index, stride, unflatten
from tilewright.kernel.loops import Set, TileFn
from tilewright.kernel.product_operands import Operands
from tilewright.kernel.spec import Kernel
from tilewright.targets.schedule import Schedule
from tilewright.targets.simd.machine import TILE_WORK, Machine
from tilewright.targets.simd.microkernel import shifted
from tilewright.targets.simd.vectorize import across_lanes, scalar


@dataclass(frozen=True)
class InnerProductSchedule(Schedule):
    """x0 * y0 vectors of partial sums in registers; r0 vectors of steps per pass."""

    tag = "depth"
    x0: int = 1
    y0: int = 1
    r0: int = 1
    x1: int = 1
    y1: int = 1
    lanes: int = 4

    def objection(self, kernel: Kernel) -> str:
        form = classify(kernel)
        if not isinstance(form, Contraction) or not form.operands.runs_along_depth:
            return "the operands do not lie along what is summed"
        if kernel.extents:
            return "vectors along what is summed need fixed axes"
        return super().objection(kernel)


def suits(roles: Operands, machine: Machine) -> bool:
    """True if vectors should run along the reduction: it is contiguous, and columns are few or far.

    Few columns would not fill a vector.  Far columns would each be loaded alone, and too rarely to
    be copied first.
    """
    if not roles.runs_along_depth or roles.depth[-1].extent < 4 * machine.lanes:
        return False
    far = roles.col_step not in (1, None)
    return roles.n.extent < machine.lanes or (far and roles.m.extent < machine.lanes)


def default(roles: Operands, machine: Machine) -> InnerProductSchedule:
    """Enough sums to hide latency, and both operands in registers: 8x1, 6x2, 4x3, or transposed."""
    rows, cols = roles.m.extent, roles.n.extent
    few = min(rows, cols, 3)
    many = {1: 8, 2: 5, 3: 3}[few]
    x0, y0 = (few, min(cols, many)) if rows <= cols else (min(rows, many), few)
    tiles = max(1, TILE_WORK // (x0 * y0 * roles.steps))
    x1, y1 = (x0, y0 * tiles) if rows <= cols else (x0 * tiles, y0)
    return InnerProductSchedule(x0=x0, y0=y0, r0=2, x1=x1, y1=y1, lanes=machine.lanes)


def lower(kernel: Kernel, schedule: InnerProductSchedule) -> TileFn:
    """Tiles of x1 rows by y1 columns; inside, register tiles of x0 by y0 dot products."""
    ops = form_as(kernel, Contraction).operands
    rows = _Axis(ops.m, schedule.x0, schedule.x1)
    cols = _Axis(ops.n, schedule.y0, schedule.y1)
    grid = (*(v.extent for v in ops.outer), rows.groups, cols.groups)
    b = Builder({}, prod(grid))
    *outer_at, row_group, col_group = (b.let(i) for i in unflatten(b.tile, grid))
    values = dict(zip(ops.outer, outer_at, strict=True))
    dots = _Dots(b, kernel, ops, schedule.lanes, schedule.r0)

    def over_columns(row: Index, x: int) -> None:
        cols.walk(b, col_group, lambda col, y: dots.emit(row, x, col, y, values))

    rows.walk(b, row_group, over_columns)
    return b.finish(kernel)


@dataclass(frozen=True)
class _Axis:
    """An output axis in register tiles of `small` elements, and tiles of about `large`."""

    var: Var
    small: int
    large: int

    @property
    def size(self) -> int:
        return min(self.small, self.var.extent)

    @property
    def count(self) -> int:
        return -(-self.var.extent // self.size)

    @property
    def span(self) -> int:
        return max(1, min(self.large // self.size, self.count))

    @property
    def groups(self) -> int:
        return -(-self.count // self.span)

    def walk(self, b: Builder, group: Index, emit: Callable[[Index, int], None]) -> None:
        """Calls `emit` for each register tile of the group, with its first element and their
        number."""
        first = b.let(group * self.span)
        end = b.let_min(index(self.span), first * -1 + self.count)
        rest = self.var.extent % self.size
        with b.loop(self.var.name, Index(), end) as i:
            number = b.let(first + i)
            if not rest:
                emit(number * self.size, self.size)
                return
            b.either(
                Bound(number, self.count - 1),
                lambda: emit(number * self.size, self.size),
                lambda: emit(index((self.count - 1) * self.size), rest),
            )


@dataclass(frozen=True)
class _Dots:
    """Emits register tiles of dot products."""

    b: Builder
    kernel: Kernel
    ops: Operands
    lanes: int
    unroll: int

    def emit(self, row: Index, x: int, col: Index, y: int, values: Values) -> None:
        """Emits the products of rows [row, row + x) and columns [col, col + y)."""
        b = self.b
        pairs = [(i, j) for i in range(x) for j in range(y)]
        *outer, inner = self.ops.depth
        groups, rest = divmod(inner.extent, self.lanes)
        unroll = max(1, min(self.unroll, groups))
        for pair in pairs:
            b.set(self._sum(pair, self.lanes).name, identity("sum", F32, self.lanes))
            if rest:
                b.set(self._sum(pair, 1).name, identity("sum", F32, 1))

        def steps(start: Index, lanes: int, count: int, inside: Values) -> None:
            at = {**inside, inner: start}
            down = self._loads(self.ops.row, self.ops.m, row, x, at, lanes)
            across = self._loads(self.ops.col, self.ops.n, col, y, at, lanes)
            for u in range(count):
                for i, j in pairs:
                    acc = self._sum((i, j), lanes)
                    factors = shifted(down[i], u * lanes), shifted(across[j], u * lanes)
                    b.add(Set(acc.name, Call("fma", (*factors, acc), F32, lanes)))

        with nest(b, tuple(outer), values) as inside:
            with b.loop("k", Index(), index(groups // unroll)) as k:
                steps(k * (unroll * self.lanes), self.lanes, unroll, inside)
            if groups % unroll:
                start = index(groups // unroll * unroll * self.lanes)
                steps(start, self.lanes, groups % unroll, inside)
            if rest:
                steps(index(groups * self.lanes), 1, rest, inside)
        for i, j in pairs:
            self._store({**values, self.ops.m: row + i, self.ops.n: col + j}, (i, j), rest)

    def _loads(
        self, load: Load, axis: Var, first: Index, count: int, at: Values, lanes: int
    ) -> list[Expr]:
        """Loads the operand at `count` neighbouring elements of `axis`, `lanes` steps each."""
        by = stride(load.index, axis)
        if by is None:
            each = [load.index.substitute({**at, axis: first + i}) for i in range(count)]
            return [self.b.resolve(Load(load.buffer, i, F32, lanes)) for i in each]
        start = load.index.substitute({**at, axis: first})
        resolved = self.b.resolve(Load(load.buffer, start, F32, lanes))
        return [shifted(resolved, by * i) for i in range(count)]

    def _store(self, at: Values, pair: tuple[int, int], rest: int) -> None:
        whole = across_lanes("sum", self._sum(pair, self.lanes))
        total = self._sum(pair, 1)
        self.b.set(total.name, step("sum", total, whole) if rest else whole)
        value = scalar(self.kernel.value, at, {0: total})
        self.b.store(0, self.kernel.store.substitute(at), value)

    def _sum(self, pair: tuple[int, int], lanes: int) -> Reg:
        name = f"{'s' if lanes > 1 else 't'}{pair[0]}_{pair[1]}"
        return Reg(name, F32, lanes)
