"""Reductions by several threads: each takes a part of the sum, then all of them add up the parts.

Input: a kernel whose reductions are long, a number of threads.  Output: the loop nest of one tile,
or None where one thread per tile does as well; other numbers of threads as candidates.  The order
of a sum is the same in every run.

    softmax:  r0 := max over columns t, t + 64, …;  b3[t] := r0;  barrier
              r0 := max over b3[0..63];  the same for the sum;  store columns t, t + 64, …

With subgroups of a known size their threads first swap what they have, so that shared memory has
one part for each subgroup, or is not needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from math import log2, prod

from tilewright.kernel.builder import Builder, Values
from tilewright.kernel.expr import Acc, Bound, Expr, Load, Reg, Swapped, dtype_of
from tilewright.kernel.extents import is_limited, limited_first, points
from tilewright.kernel.index import Index, Var, index, unflatten
from tilewright.kernel.loops import Barrier, For, If, LetGather, Scratch, Stmt, TileFn
from tilewright.kernel.reduction import identity, step
from tilewright.kernel.spec import Kernel, Stage
from tilewright.kernel.tree import rewrite
from tilewright.targets.gpu.features import SIZES, SUBGROUPS, size_of
from tilewright.targets.gpu.schedule import MOST_THREADS, WORD
from tilewright.targets.gpu.space import UNUSUAL, Group
from tilewright.targets.gpu.staging import inside
from tilewright.targets.lite import Core
from tilewright.targets.plain import Plain
from tilewright.targets.schedule import Schedule

#: Steps of a reduction that a thread must have to make up for the barrier.
LEAST = 2
#: With more tiles than this a thread for each fills the device.
MOST_TILES = 4096


@dataclass(frozen=True)
class RowsSchedule(Schedule):
    """So many threads for a tile; width: threads of a subgroup that swap what they have, 0: none
    do."""

    form = "rows"
    threads: int = 64
    width: int = 0

    @property
    def features(self) -> frozenset[str]:
        return frozenset({SUBGROUPS, size_of(self.width)} if self.width else ())

    def objection(self, kernel: Kernel) -> str:
        if found := super().objection(kernel):
            return found
        if self.threads & (self.threads - 1) or self.threads > MOST_THREADS:
            return f"threads is a power of two up to {MOST_THREADS}"
        if self.width and (self.width not in SIZES or self.width > self.threads):
            return f"width is 0, or one of {', '.join(map(str, SIZES))} up to threads"
        if lower_rows(kernel, self.threads, self.width) is None:
            return f"the reductions are too short for {self.threads} threads"
        return ""


def suits(kernel: Kernel) -> bool:
    """True for kernels of fixed size whose reductions several threads share out."""
    return not kernel.extents and lower_rows(kernel, LEAST_THREADS) is not None


def default(kernel: Kernel) -> Schedule:
    """What the target does with any reduction."""
    return Plain()


#: Threads that are tried; beside none, the size of subgroups that a class's GPUs have.
THREADS = (32, 64, 128, 256)
LEAST_THREADS = min(THREADS)


def space(kernel: Kernel, core: Core, group: Group) -> tuple[tuple[Schedule, float], ...]:
    """The default, then other numbers of threads, with and without subgroups: the latter are
    expected to be better, with as many threads as are usual."""
    usual = RowsSchedule()
    every_one = (
        RowsSchedule(threads, width)
        for threads, width in product(THREADS, (0, *SIZES))
        if threads <= group.threads and (threads, width) != (usual.threads, usual.width)
    )

    def cost(s: RowsSchedule) -> float:
        far = abs(log2(s.threads / usual.threads))
        return float(UNUSUAL ** (far + (0 if s.width else 1) + (s.width != core.warp_width)))

    found = sorted(
        ((s, cost(s)) for s in every_one if not s.objection(kernel)),
        key=lambda pair: (pair[1], str(pair[0])),
    )
    return (default(kernel), 1.0), *found


def traffic(kernel: Kernel, schedule: Schedule) -> tuple[int, float]:
    """Bytes of shared memory; words beyond it are the same for all."""
    if not isinstance(schedule, RowsSchedule):
        return 0, 0.0
    return WORD * len(kernel.stages) * schedule.threads // max(1, schedule.width), 0.0


def lower(kernel: Kernel, schedule: RowsSchedule) -> TileFn:
    fn = lower_rows(kernel, schedule.threads, schedule.width)
    assert fn is not None, f"{kernel.name} has no long reductions"
    return fn


@lru_cache(maxsize=1024)
def lower_rows(kernel: Kernel, threads: int, width: int = 0) -> TileFn | None:
    """One tile per point of the leading axes, computed by `threads` threads.

    width: threads of a subgroup, if they swap what they have
    """
    sizes = [prod(v.extent for v in stage.axes) for stage in kernel.stages]
    tiles = prod(v.extent for v in kernel.rows)
    kept = any(stage.keep for stage in kernel.stages)
    if not sizes or kept or min(sizes) < LEAST * threads or tiles > MOST_TILES:
        return None
    cols = kernel.axes[len(kernel.rows) :]
    dealt = [cols, *(stage.axes for stage in kernel.stages)]
    if any(sum(is_limited(kernel, (v,)) for v in axes) > 1 for axes in dealt):
        return None  # points of two axes that end at run time cannot be counted through
    outer = limited_first(kernel, kernel.rows)
    b = Builder({}, points(kernel, outer), kernel, threads)
    shape = tuple(v.extent for v in outer)
    rows: Values = dict(zip(outer, unflatten(b.tile, shape), strict=True))
    for n, stage in enumerate(kernel.stages):
        reg, area = Reg(f"r{n}", dtype_of(stage.value)), len(kernel.buffers) + n
        _reduce(b, stage, limited_first(kernel, stage.axes), reg, area, rows, width)
    with _dealt(b, limited_first(kernel, cols), rows) as at:
        b.store(0, kernel.store.substitute(at), _value(kernel.value, at))
    parts = threads // width if width else threads
    areas = tuple(Scratch(dtype_of(stage.value), parts) for stage in kernel.stages if parts > 1)
    fn = replace(b.finish(kernel, areas), subgroup=width)
    # A trap ends one thread, and the others would wait for it.
    return None if _may_trap(fn.body) else fn


def _reduce(
    b: Builder, stage: Stage, axes: tuple[Var, ...], reg: Reg, area: int, rows: Values, width: int
) -> None:
    """reg := the part of this thread;  area[thread] := reg;  barrier;  reg := over the area"""
    b.set(reg.name, identity(stage.op, reg.dtype, 1))
    with _dealt(b, axes, rows) as at:
        b.set(reg.name, step(stage.op, reg, _value(stage.value, at)))
    other, bits = Reg(f"{reg.name}_other", reg.dtype), 1
    while bits < width:
        b.set(other.name, Swapped(reg, bits))
        b.set(reg.name, step(stage.op, reg, other))
        bits *= 2
    if b.threads == width:
        return
    parts = b.threads // (width or 1)
    with inside(b, (Bound(b.thread % (width or 1), 1),)):
        b.store(area, b.thread // (width or 1), reg)
    b.add(Barrier())
    b.set(reg.name, identity(stage.op, reg.dtype, 1))
    with b.loop("part", Index(), index(parts)) as part:
        b.set(reg.name, step(stage.op, reg, Load(area, part, reg.dtype)))


@contextmanager
def _dealt(b: Builder, axes: tuple[Var, ...], rows: Values) -> Iterator[Values]:
    """A loop over this thread's points of the axes: every `threads`-th one.

    Only the outermost axis may end at run time.
    """
    shape = tuple(v.extent for v in axes)
    size = prod(shape)
    end = b.let(b.end(axes[0]) * prod(shape[1:]), "end") if axes else index(1)
    with b.loop("point", b.thread, end, b.threads, size) as point:
        yield rows | dict(zip(axes, unflatten(point, shape), strict=True))


def _value(e: Expr, at: Values) -> Expr:
    """The expression at a point: variables replaced, results of stages in registers."""
    return rewrite(e, lambda n: Reg(f"r{n.stage}", n.dtype) if isinstance(n, Acc) else n, at)


def _may_trap(stmts: tuple[Stmt, ...]) -> bool:
    return any(
        isinstance(s, LetGather)
        or (isinstance(s, For) and _may_trap(s.body))
        or (isinstance(s, If) and _may_trap((*s.then, *s.orelse)))
        for s in stmts
    )
