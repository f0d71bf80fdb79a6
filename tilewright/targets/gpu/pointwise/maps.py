"""Large elementwise kernels: each thread computes four adjacent results with vector loads and
stores.

Input: an elementwise kernel and its schedule. Output: its loop nest. An operand whose four elements
are adjacent is read by one vector load. An operand that is the same for all four is loaded once.
Other operands are computed element by element. A kernel that would read a second operand in
scalars, such as a transposition, has a thread for each result instead (targets/scalar_lowering.py).

    tile = four elements of the last axis;  v0 := b1[4*tile .. 4*tile + 3];  store v0 * b2[0]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from tilewright.base.dtypes import F32, I32
from tilewright.kernel.builder import Builder, Values
from tilewright.kernel.expr import Bound, Const, Expr, Guard, Lane, Lanes, Load, Reg
from tilewright.kernel.index import Gathered, Index, Var, index, is_multiple, stride, unflatten
from tilewright.kernel.loops import TileFn
from tilewright.kernel.spec import Kernel
from tilewright.kernel.tree import rewrite, walk
from tilewright.targets.gpu.pointwise.schedule import SHORT_MAP_ELEMENTS, VectorMapSchedule
from tilewright.targets.vectors import LANES


@dataclass(frozen=True)
class _Read:
    """An operand's indices at four adjacent points: one vector, or the same element four times."""

    load: Load
    places: tuple[Index, ...]

    @property
    def same(self) -> bool:
        return len(set(self.places)) == 1

    @property
    def whole(self) -> bool:
        first = self.places[0]
        steps = all(at == first + n for n, at in enumerate(self.places))
        return steps and is_multiple(first, LANES) and self.load.dtype in (F32, I32)


def suits(kernel: Kernel) -> bool:
    """True for large maps each of whose operands is read as vectors, or once for four points."""
    points = prod(v.extent for v in kernel.axes)
    if kernel.stages or kernel.extents or not kernel.axes or points <= SHORT_MAP_ELEMENTS:
        return False
    axis = kernel.axes[-1]
    if axis.extent % LANES or stride(kernel.store, axis) != 1 or kernel.dtype not in (F32, I32):
        return False
    if kernel.buffers[0].as_f16:
        return False
    vectors = [read for read in _reads(kernel) if not read.same]
    wide = all(read.whole and not _must_stay_guarded(kernel, read.load) for read in vectors)
    return (
        bool(vectors) and wide and is_multiple(kernel.store.substitute(_points(kernel)[0]), LANES)
    )


def lower(kernel: Kernel, schedule: VectorMapSchedule) -> TileFn:
    *outer, last = (v.extent for v in kernel.axes)
    b = Builder({}, prod(outer) * last // LANES, kernel)
    *rows, part = unflatten(b.tile, (*outer, last // LANES))
    points = [dict(zip(kernel.axes, (*rows, part * LANES + n), strict=True)) for n in range(LANES)]
    known: list[dict[Expr, Expr]] = [{} for _ in points]
    for number, read in enumerate(_reads(kernel)):
        load, name = read.load, f"v{number}"
        lanes = 1 if read.same else LANES
        if _must_stay_guarded(kernel, load):
            continue
        b.set(name, _unguarded_load(kernel, load.index.substitute(points[0]), load, lanes))
        for n, (at, values) in enumerate(zip(points, known, strict=True)):
            reg = Reg(name, load.dtype, lanes)
            element = reg if read.same else Lane(reg, n)
            values[Load(load.buffer, load.index.substitute(at), load.dtype)] = element
    results = [_at(kernel.value, at, values) for at, values in zip(points, known, strict=True)]
    b.store(0, kernel.store.substitute(points[0]), Lanes(tuple(results)))
    return b.finish(kernel)


def _at(value: Expr, point: Values, known: dict[Expr, Expr]) -> Expr:
    """The value at a point; loads that were done already are replaced by their registers."""
    return rewrite(value, lambda e: known.get(e, e), point)


@lru_cache(maxsize=1024)
def _reads(kernel: Kernel) -> Sequence[_Read]:
    """Each distinct load of a kernel, at four points of which the first is a multiple of four."""
    loads = dict.fromkeys(_operands(kernel.value))
    return tuple(
        _Read(load, tuple(load.index.substitute(at) for at in _points(kernel))) for load in loads
    )


def _points(kernel: Kernel) -> Sequence[Values]:
    """Four adjacent points of a kernel."""
    axis = kernel.axes[-1]
    part = index(Var(axis.name, axis.extent // LANES)) * LANES
    return [{axis: part + n} for n in range(LANES)]


def _unguarded_load(kernel: Kernel, first: Index, load: Load, lanes: int) -> Expr:
    """A vector load that ignores the kernel's conditions, so it reads zeros beyond the buffer's
    ends."""
    read = Load(load.buffer, first, load.dtype, lanes)
    inside = Bound(first, kernel.buffers[load.buffer].size - lanes + 1)
    if inside.always or not _has_guard(kernel):
        return read
    return Guard((inside,), read, Const(0, load.dtype, lanes))


def _has_guard(kernel: Kernel) -> bool:
    return any(isinstance(e, Guard) for e in walk(kernel.value))


def _must_stay_guarded(kernel: Kernel, load: Load) -> bool:
    """True for conditional loads at an index read from memory: they must not run before the
    condition."""
    return _has_guard(kernel) and any(isinstance(atom, Gathered) for atom, _ in load.index.terms)


def _operands(e: Expr) -> Iterator[Load]:
    """Loads of a value, without those inside its gathered indices."""
    if isinstance(e, Load):
        yield e
        return
    for part in e.args:
        yield from _operands(part)
