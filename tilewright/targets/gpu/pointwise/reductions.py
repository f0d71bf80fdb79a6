"""Reductions by several threads: each reduces a part, then all combine the parts.

Input: a kernel with long reductions, and a number of threads. Output: the loop nest of one tile, or
None where one thread per tile is as fast. The order of a sum is the same in every run.

    softmax:  r0 := max over columns t, t + 64, …;  b3[t] := r0;  barrier
              r0 := max over b3[0..63];  the same for the sum;  store columns t, t + 64, …

If the subgroup size is known, threads first exchange values within their subgroup. Shared memory
then has one part for each subgroup, or is not needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from math import ceil, prod

from tilewright.kernel.builder import Builder, Values
from tilewright.kernel.expr import Acc, Bound, Expr, Guard, Load, Reg, dtype_of, identity, step
from tilewright.kernel.extents import is_limited, limited_first, points
from tilewright.kernel.index import Index, Var, index, multi_index, stride, unflatten
from tilewright.kernel.loops import Barrier, Scratch, TileFn, gathers
from tilewright.kernel.spec import Kernel, Stage
from tilewright.kernel.tree import rewrite, walk
from tilewright.targets.gpu.tile.epilogue import reduce_by_shuffles

#: The number of parts that a thread combines between two barriers.
FAN_IN = 4

#: Threads of a row: the least; the most; the default where rows are not contiguous.
LEAST_ROW_THREADS, MOST_ROW_THREADS, USUAL_ROW_THREADS = 32, 256, 64

#: The least steps of a thread, and the least with few tiles: with at most `FEW_TILES` rows, more
#: threads share each row.
STEPS_OF_THREAD, STEPS_WITH_FEW_TILES, FEW_TILES = 3, 2, 256

#: The least number of contiguous elements for neighbouring threads to share a row: a quarter of a
#: cache line.
LEAST_CONTIGUOUS = 8

#: Points of a thread whose loads overlap: the most, and the least if there are that many.
POINTS_TOGETHER, LEAST_TOGETHER = 8, 3

#: With more tiles than this, one thread per tile fills the device if rows are not contiguous.
MOST_TILES = 4096

#: Values of a kernel's variables, and the conditions under which the point exists.
CheckedPoint = tuple[Values, tuple[Bound, ...]]


def _shortest(kernel: Kernel) -> int:
    """Steps of the shortest reduction."""
    return min(prod(v.extent for v in stage.axes) for stage in kernel.stages)


def _usual_threads(kernel: Kernel) -> int:
    """The default number of threads for a row; 0: one thread computes a whole row.

    If each thread read another cache line, the memory system would move a whole line for one
    element. So neighbouring threads share contiguous rows, whatever the number of rows.
    """
    tiles, steps = prod(v.extent for v in kernel.rows), _shortest(kernel)
    if steps < LEAST_ROW_THREADS:
        return 0
    each = STEPS_WITH_FEW_TILES if tiles <= FEW_TILES else STEPS_OF_THREAD
    if _along_lines(kernel):
        return max(LEAST_ROW_THREADS, min(MOST_ROW_THREADS, 1 << (steps // each).bit_length() - 1))
    threads = (
        MOST_ROW_THREADS
        if tiles <= FEW_TILES and steps >= each * MOST_ROW_THREADS
        else USUAL_ROW_THREADS
    )
    return threads if steps >= each * threads and tiles <= MOST_TILES else 0


def _along_lines(kernel: Kernel) -> bool:
    """True if all reads of each reduction are contiguous or constant along its last axis."""
    if any(stage.axes[-1].extent < LEAST_CONTIGUOUS for stage in kernel.stages):
        return False
    reads = [
        stride(e.index, stage.axes[-1])
        for stage in kernel.stages
        for e in walk(stage.value)
        if isinstance(e, Load)
    ]
    return 1 in reads and set(reads) <= {0, 1}


@lru_cache(maxsize=1024)
def lower_row_reductions(kernel: Kernel, threads: int = 0, width: int = 0) -> TileFn | None:
    """Loops with one tile per point of the leading axes, computed by `threads` threads.

    threads: a power of two; 0: the default for such rows
    width:   threads of a subgroup that exchange values; 0: threads use shared memory only
    """
    kept = any(stage.keep for stage in kernel.stages)
    if kept or not kernel.stages:
        return None
    threads = threads or _usual_threads(kernel)
    if not 1 < threads <= _shortest(kernel):
        return None
    cols = kernel.axes[len(kernel.rows) :]
    dealt = [cols, *(stage.axes for stage in kernel.stages)]
    if any(sum(is_limited(kernel, (v,)) for v in axes) > 1 for axes in dealt):
        return None  # points of two run-time axes cannot be enumerated
    outer = limited_first(kernel, kernel.rows)
    b = Builder({}, points(kernel, outer), kernel, threads)
    shape = tuple(v.extent for v in outer)
    rows: Values = dict(zip(outer, unflatten(b.tile, shape), strict=True))
    for n, stage in enumerate(kernel.stages):
        reg, area = Reg(f"r{n}", dtype_of(stage.value)), len(kernel.buffers) + n
        axes = limited_first(kernel, stage.axes)
        reduce_stage(b, stage, axes, reg, area, rows, width)
    settled = b.hoist(kernel.value, frozenset(cols), lambda e: _value(e, rows))
    with _points_of_thread(b, limited_first(kernel, cols), rows) as points_of:
        # All loads come before all stores: a compiler must assume that a store changes what is
        # loaded.
        for n, (at, bounds) in enumerate(points_of):
            with b.only_if(bounds):
                b.compute(f"value{n}", _value(settled, at))
        for n, (at, bounds) in enumerate(points_of):
            with b.only_if(bounds):
                value = Reg(f"value{n}", dtype_of(kernel.value))
                b.store(0, kernel.store.substitute(at), value)
    parts = threads // max(1, width)
    areas = tuple(Scratch(dtype_of(stage.value), parts) for stage in kernel.stages if parts > 1)
    fn = replace(b.finish(kernel, areas), subgroup=width)
    # A thread that traps returns, and the others would wait for it at the barrier.
    return None if any(gathers(fn.body)) else fn


def reduce_stage(
    b: Builder,
    stage: Stage,
    axes: tuple[Var, ...],
    reg: Reg,
    area: int,
    rows: Values,
    width: int = 0,
) -> None:
    """Reduces to `reg` over all threads, through the shared memory `area`.

    rows: values of the other variables;  width: as in `lower_row_reductions`
    """
    b.set(reg.name, identity(stage.op, reg.dtype, 1))
    settled = b.hoist(stage.value, frozenset(axes), lambda e: _value(e, rows))
    with _points_of_thread(b, axes, rows) as points_of:
        for at, bounds in points_of:
            more = step(stage.op, reg, _value(settled, at))
            b.set(reg.name, Guard(bounds, more, reg) if bounds else more)
    if width:
        _reduce_over_subgroups(b, stage, reg, area, width)
    else:
        reduce_over_threads(b, stage.op, reg, area)


def reduce_over_threads(b: Builder, op: str, reg: Reg, area: int) -> None:
    """Combines `reg` over all threads.  Others may still read the area when a thread continues."""
    b.store(area, b.thread, reg)
    b.add(Barrier())
    count = b.threads
    while count > 1:
        fan = min(FAN_IN, count)
        count //= fan
        with b.only_if((Bound(b.thread, count),)):
            for other in range(1, fan):
                part = Load(area, b.thread + other * count, reg.dtype)
                b.set(reg.name, step(op, reg, part))
            b.store(area, b.thread, reg)
        b.add(Barrier())
    b.set(reg.name, Load(area, Index(), reg.dtype))


def _reduce_over_subgroups(b: Builder, stage: Stage, reg: Reg, area: int, width: int) -> None:
    """Combines `reg` within subgroups by exchange, then over subgroups through the area."""
    reduce_by_shuffles(b, reg, f"{reg.name}_other", partial(step, stage.op), 1, width)
    if b.threads == width:
        return
    with b.only_if((Bound(b.thread % width, 1),)):
        b.store(area, b.thread // width, reg)
    b.add(Barrier())
    b.set(reg.name, identity(stage.op, reg.dtype, 1))
    with b.loop("part", Index(), index(b.threads // width)) as part:
        b.set(reg.name, step(stage.op, reg, Load(area, part, reg.dtype)))


@contextmanager
def _points_of_thread(
    b: Builder, axes: tuple[Var, ...], rows: Values
) -> Iterator[list[CheckedPoint]]:
    """A loop over this thread's points of the axes: every `threads`-th point, several at a time so
    that their loads overlap.

    Only the outermost axis may end at run time.
    """
    shape = tuple(v.extent for v in axes)
    size = prod(shape)
    whole = b.end(axes[0]) * prod(shape[1:]) if axes else index(1)
    count = ceil(size / b.threads)
    together = _points_together(count) if whole.is_const else 1
    exact = together == 1 or size % (together * b.threads) == 0
    with b.loop("point", b.thread, b.let(whole, "end"), together * b.threads, size) as first:
        found = [first + n * b.threads for n in range(together)]
        yield [
            (
                rows | dict(zip(axes, multi_index(point, shape), strict=True)),
                () if exact or not n else (Bound(point, size),),
            )
            for n, point in enumerate(found)
        ]


def _points_together(count: int) -> int:
    """The number of points to load together: a divisor of `count`, if it has a large enough one."""
    most = max(n for n in range(1, POINTS_TOGETHER + 1) if count % n == 0)
    return POINTS_TOGETHER if most < LEAST_TOGETHER < count else most


def _value(e: Expr, at: Values) -> Expr:
    """The expression at a point: variables are replaced, results of stages are in registers."""
    return rewrite(e, lambda n: Reg(f"r{n.stage}", n.dtype) if isinstance(n, Acc) else n, at)
