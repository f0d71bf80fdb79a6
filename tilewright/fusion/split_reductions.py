"""Splits long reductions of few rows: many tiles compute partial results, one kernel combines them.

Input: a kernel.  Output: the kernels that compute the same in parts; the kernel itself if it has
enough rows for a device.  A round of reductions first gives partial, then whole results; the rest
of the kernel is elementwise.  Targets and plans are not considered.

    r0 = sum x;  r1 = sum (x - r0/N)^2;  y = f(x, r0, r1)
 -> parts:  p0 = sum of n of x;  p1 = sum of n of (x - p0/n)^2      one tile per n elements
    whole:  r0 = sum p0;  r1 = sum (p1 + n (p0/n - r0/N)^2);  values that y needs of them
    map:    y

Squares are centred before they are summed: each part uses its own mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from tilewright.base.dtypes import F32, I32, DType
from tilewright.kernel.collapse import collapse
from tilewright.kernel.expr import (
    Acc,
    Bound,
    Call,
    Const,
    Expr,
    Guard,
    Load,
    dtype_of,
    identity,
    is_expensive,
)
from tilewright.kernel.form import Reduction, RowWise, Windows, classify
from tilewright.kernel.index import Gathered, Index, Var, flatten, index, stride
from tilewright.kernel.spec import Buffer, Kernel, Stage
from tilewright.kernel.tree import rewrite, walk


@dataclass(frozen=True)
class _Limits:
    """Limits that decide which reductions are split, and how finely.

    rows, length: a kernel is split if it has at most `rows` rows of at least `length` elements.
                  With a tile per row it would leave most of a device idle, and take longer than the
                  two steps that splitting adds.
    part:         elements of a part
    """

    rows: int
    length: int
    part: int


#: The limits for rows that are contiguous in memory, and for rows whose elements are strided.
ALONG, ACROSS = _Limits(128, 1 << 14, 2048), _Limits(1024, 1 << 11, 1024)
#: The most parts of a row.
MOST_PARTS = 1024
#: The least number of adjacent elements that fill a sector of memory.
SECTOR = 8
#: Elements of a tile of the final map; from ENOUGH rows on, a tile per row is enough.
TILE, ENOUGH = 4096, 64
#: The most results that are stored once per column of a group, so that they have the elements'
#: layout.
MOST_REPEATED = 1 << 13


@dataclass(frozen=True)
class Fragment:
    """One of the kernels.  reads: numbers of the buffers that it reads; buffers of the unsplit
    kernel come first, then the results of earlier parts."""

    kernel: Kernel
    reads: tuple[int, ...]


@lru_cache(maxsize=1024)
def parts_of(kernel: Kernel) -> tuple[Fragment, ...]:
    """The kernels that replace a kernel, its output last; only itself if it is not split."""
    cut = _cut(kernel) if _suits(kernel) else None
    if cut is None:
        return (Fragment(kernel, tuple(range(1, len(kernel.buffers)))),)
    return tuple(_Maker(kernel, cut).parts())


def _suits(kernel: Kernel) -> bool:
    """True for reductions of fixed size over values in memory.

    Expensive terms that the stored value needs again stay in one kernel, which keeps them
    (softmax).
    """
    stages = kernel.stages
    if not isinstance(classify(kernel), (RowWise, Reduction, Windows)) or kernel.extents:
        return False
    axes = {tuple(v.extent for v in stage.axes) for stage in stages}
    parts = [e for v in (*(s.value for s in stages), kernel.value) for e in walk(v)]
    atoms = [atom for e in parts if isinstance(e, Load) for atom, _ in e.index.terms]
    kept = any(_is_kept(kernel, stage) for stage in stages)
    known = all(dtype_of(stage.value) in (F32, I32) for stage in stages)
    gathered = any(isinstance(atom, Gathered) for atom in atoms)
    return len(axes) == 1 and known and not kept and not gathered


def _is_kept(kernel: Kernel, stage: Stage) -> bool:
    """True if the stored value needs the stage's expensive terms again."""
    cols = kernel.axes[len(kernel.rows) :]
    if [v.extent for v in cols] != [v.extent for v in stage.axes]:
        return False
    term = stage.value.substitute(dict(zip(stage.axes, map(index, cols), strict=True)))
    return is_expensive(term) and term in list(walk(kernel.value))


# ---- how a kernel is split -----------------------------------------------------------------------


@dataclass(frozen=True)
class _Axis:
    """A reduced axis in `count` pieces of `size`; `rest`: elements of the last piece."""

    extent: int
    size: int

    @property
    def count(self) -> int:
        return -(-self.extent // self.size)

    @property
    def rest(self) -> int:
        return self.extent - (self.count - 1) * self.size


@dataclass(frozen=True)
class _Cut:
    """How the axes of every stage are split, and the load whose memory order the parts follow."""

    axes: tuple[_Axis, ...]
    load: Load

    def pieces(self, name: str) -> tuple[Var, ...]:
        """A variable for the pieces of each axis."""
        return tuple(Var(f"{name}{n}", a.count) for n, a in enumerate(self.axes))

    def count(self, pieces: Sequence[Var]) -> Expr:
        """Elements of a part."""
        whole = prod(a.size for a in self.axes)
        found: Expr = Const(float(whole), F32)
        for s, a in zip(pieces, self.axes, strict=True):
            if a.rest < a.size:
                short = Const(float(whole // a.size * a.rest), F32)
                found = Guard((Bound(index(s), a.count - 1),), found, short)
        return found


def _cut(kernel: Kernel) -> _Cut | None:
    """Splits the outermost axes until there are enough parts; None if there are enough rows.

    If fewer than `SECTOR` elements of a part would be adjacent in memory, the innermost axis is not
    reduced in the parts, so that neighbouring tiles read neighbouring elements.
    """
    stage = kernel.stages[0]
    loads = [e for e in walk(stage.value) if isinstance(e, Load)]
    load = max(loads, key=lambda e: len(e.variables.intersection(stage.axes)), default=None)
    if load is None:
        return None
    steps = [stride(load.index, v) or 0 for v in stage.axes]
    rows, length = (prod(v.extent for v in axes) for axes in (kernel.rows, stage.axes))
    run = next((v.extent for v, step in zip(stage.axes, steps, strict=True) if step == 1), 1)
    kept = run if run < SECTOR else 1
    limits = ACROSS if run < SECTOR else ALONG
    if rows * kept > limits.rows or length < limits.length:
        return None
    side = rows * kept if run < SECTOR else 1
    wanted = min(side * length // kept // limits.part, MOST_PARTS // kept, length // kept // 2)
    made = {}
    for n in sorted(range(len(steps)), key=lambda n: -abs(steps[n])):
        extent = stage.axes[n].extent
        if steps[n] == 1 and run < SECTOR:
            made[n] = _Axis(extent, 1)
            continue
        made[n] = _Axis(extent, _even(extent, -(-extent // max(1, min(extent, wanted)))))
        wanted //= made[n].count
    found = _Cut(tuple(made[n] for n in range(len(steps))), load)
    return found if prod(a.count for a in found.axes) > kept else None


def _even(extent: int, about: int) -> int:
    """A divisor of `extent` near the size `about`, if possible a multiple of a vector; without a
    divisor, `about` itself."""
    near = range(max(1, -(-about // 2)), min(extent, 2 * about) + 1)
    fits = [n for n in near if extent % n == 0]
    wide = [n for n in fits if n % 4 == 0]
    return min(wide or fits, key=lambda n: abs(n - about), default=about)


def _rounds(kernel: Kernel) -> list[list[int]]:
    """Groups of stages whose partial results one kernel computes.  No stage of a group needs the
    whole result of another one, except to centre the values that it sums."""
    rounds: list[list[int]] = []
    values = [stage.value for stage in kernel.stages]
    for n, value in enumerate(values):
        needed = {e.stage for e in walk(value) if isinstance(e, Acc)}
        now = rounds[-1] if rounds else []
        alike = bool(now) and dtype_of(values[now[0]]) == dtype_of(value)
        if alike and (needed.isdisjoint(now) or _centred(kernel, values, n, now)):
            now.append(n)
        else:
            rounds.append([n])
    return rounds


@dataclass(frozen=True)
class _Centred:
    """A sum of x - center, or of its square, together with the sum of x, which is stage `of`."""

    of: int
    x: Expr
    center: Expr
    squared: bool

    def around(self, center: Expr) -> Expr:
        away = Call("sub", (self.x, center), F32)
        return Call("mul", (away, away), F32) if self.squared else away


def _centred(
    kernel: Kernel, values: Sequence[Expr], n: int, numbers: Sequence[int]
) -> _Centred | None:
    """How stage `n` is centred, if the sum that its mean comes from is one of these stages; else
    None."""
    value, stage = values[n], kernel.stages[n]
    square = isinstance(value, Call) and value.fn == "mul" and len(set(value.operands)) == 1
    away = value.operands[0] if isinstance(value, Call) and square else value
    if stage.op != "sum" or not isinstance(away, Call) or (away.fn, away.dtype) != ("sub", F32):
        return None
    x, center = away.operands
    fixed = center.variables.isdisjoint(stage.axes)
    reads = any(isinstance(e, Acc) and e.stage in numbers for e in walk(x))
    for of in numbers:
        other = kernel.stages[of]
        axes = dict(zip(other.axes, map(index, stage.axes), strict=True))
        if fixed and not reads and other.op == "sum" and values[of].substitute(axes) == x:
            return _Centred(of, x, center, square)
    return None


# ---- the parts -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Partial:
    """The buffer of a round's partial results; one axis numbers the stages."""

    numbers: tuple[int, ...]
    axes: tuple[Var, ...]
    side: bool
    buffer: int
    dtype: DType

    @property
    def which(self) -> Var:
        return Var("p", len(self.numbers))

    @property
    def size(self) -> int:
        return prod(v.extent for v in (*self.axes, self.which))

    def at(self, values: Mapping[Var, Index], which: Index) -> Index:
        """The index of a partial result in its buffer.  values: the index of each axis;  which: the
        number of the stage"""
        places = {**values, self.which: which}
        cut = len(self.axes) - self.side
        axes = (*self.axes[:cut], self.which, *self.axes[cut:])
        return flatten((places[v] for v in axes), (v.extent for v in axes))

    def load(self, of: int, values: Mapping[Var, Index]) -> Expr:
        return Load(self.buffer, self.at(values, index(self.numbers.index(of))), self.dtype)

    def local(self, e: Expr) -> Expr:
        """The expression with loads of this round's results replaced by the kernel's own stages."""

        def change(x: Expr) -> Expr:
            return replace(x, stage=self.numbers.index(x.stage)) if isinstance(x, Acc) else x

        return rewrite(e, change)


class _Maker:
    """Makes the parts of one kernel.

    values:  the expressions of its stages, then that of its output; once a part has computed a
             result, they load it
    buffers: the kernel's own, then one for each part
    """

    def __init__(self, kernel: Kernel, cut: _Cut) -> None:
        self.kernel, self.cut = kernel, cut
        self.values = [*(stage.value for stage in kernel.stages), kernel.value]
        self.buffers = list(kernel.buffers)

    def parts(self) -> Iterator[Fragment]:
        rounds = _rounds(self.kernel)
        for numbers in rounds:
            made, partial = self._partial(tuple(numbers))
            yield self._part(made)
            stages = tuple(self._whole(n, partial) for n in numbers)
            last = numbers is rounds[-1]
            if last and not self.kernel.cols:
                value = partial.local(self.values[-1])
                yield self._part(replace(self.kernel, stages=stages, value=value))
            else:
                yield self._part(self._results(stages, partial, last))
        if self.kernel.cols:
            yield self._part(self._map())

    def _part(self, kernel: Kernel) -> Fragment:
        """The kernel in normal form, with only the buffers that it reads."""
        values = [*(stage.value for stage in kernel.stages), kernel.value]
        used = sorted({e.buffer for v in values for e in walk(v) if isinstance(e, Load)})
        numbers = {old: new for new, old in enumerate(used, 1)}

        def moved(e: Expr) -> Expr:
            return replace(e, buffer=numbers[e.buffer]) if isinstance(e, Load) else e

        stages = tuple(replace(s, value=rewrite(s.value, moved)) for s in kernel.stages)
        buffers = (kernel.buffers[0], *(self.buffers[old] for old in used))
        self.buffers.append(kernel.buffers[0])
        value = rewrite(kernel.value, moved)
        made = collapse(replace(kernel, stages=stages, value=value, buffers=buffers))
        return Fragment(made if stages else _in_tiles(made), tuple(used))

    def _partial(self, numbers: tuple[int, ...]) -> tuple[Kernel, _Partial]:
        """The kernel of the partial results of a round."""
        kernel, pieces = self.kernel, self.cut.pieces("s")
        steps = zip(kernel.stages[0].axes, pieces, self.cut.axes, strict=True)
        begin = self.cut.load.index.substitute({v: index(s) * a.size for v, s, a in steps})
        axes = sorted(
            (v for v in (*kernel.rows, *pieces) if v.extent > 1),
            key=lambda v: -abs(stride(begin, v) or 0),
        )
        side, dtype = stride(begin, axes[-1]) == 1, dtype_of(self.values[numbers[0]])
        partial = _Partial(numbers, tuple(axes), side, len(self.buffers), dtype)
        stages = tuple(self._piece(n, pieces, numbers) for n in numbers)
        value = _chosen([Acc(i, dtype) for i in range(len(numbers))], partial.which)
        store = partial.at({v: index(v) for v in axes}, index(partial.which))
        made = Kernel(
            f"parts_{kernel.name}", (*axes, partial.which), stages, value, store,
            (Buffer(dtype, partial.size),), 1,
        )  # fmt: skip
        return made, partial

    def _piece(self, n: int, pieces: Sequence[Var], numbers: Sequence[int]) -> Stage:
        """A reduction over one part; centred terms are centred on the mean of the part."""
        stage, value = self.kernel.stages[n], self.values[n]
        if (centred := _centred(self.kernel, self.values, n, numbers)) is not None:
            total = Acc(numbers.index(centred.of), F32)
            value = centred.around(Call("div", (total, self.cut.count(pieces)), F32))
        axes, at, bounds = [], {}, []
        for v, s, a in zip(stage.axes, pieces, self.cut.axes, strict=True):
            axes.append(Var(v.name, a.size))
            at[v] = index(s) * a.size + index(axes[-1])
            bounds += [Bound(at[v], a.extent)] if a.rest < a.size else []
        value = value.substitute(at)
        if bounds:
            value = Guard(tuple(bounds), value, identity(stage.op, dtype_of(value), 1))
        return Stage(stage.op, tuple(axes), value)

    def _whole(self, n: int, partial: _Partial) -> Stage:
        """A reduction over the partial results of a row."""
        pieces = self.cut.pieces(f"r{n}s")
        at = dict(zip(self.cut.pieces("s"), map(index, pieces), strict=True))
        at |= {v: index(v) for v in self.kernel.rows}
        value = partial.load(n, at)
        if (centred := _centred(self.kernel, self.values, n, partial.numbers)) is not None:
            count, total = self.cut.count(pieces), partial.load(centred.of, at)
            mean, center = Call("div", (total, count), F32), partial.local(centred.center)
            moved = replace(centred, x=mean).around(center)
            value = Call("add", (value, Call("mul", (count, moved), F32)), F32)
        return Stage(self.kernel.stages[n].op, pieces, value)

    def _results(self, stages: tuple[Stage, ...], partial: _Partial, last: bool) -> Kernel:
        """The kernel that stores the results of a round that later parts need; from then on these
        load them."""
        kernel, wanted = self.kernel, self._wanted(partial.numbers)
        rows = sorted(kernel.rows, key=lambda v: -abs(stride(kernel.store, v) or 0))
        repeated = self._repeated() if last else ()
        which, dtype = Var("p", len(wanted)), dtype_of(wanted[0])
        size = prod(v.extent for v in (*rows, *repeated))
        spot = flatten(map(index, (*rows, *repeated)), (v.extent for v in (*rows, *repeated)))
        buffer = len(self.buffers)
        loads: dict[Expr, Expr] = {
            e: Load(buffer, spot + n * size, dtype) for n, e in enumerate(wanted)
        }
        self.values = [rewrite(value, lambda e: loads.get(e, e)) for value in self.values]
        value = _chosen([partial.local(e) for e in wanted], which)
        return Kernel(
            f"whole_{kernel.name}", (*rows, which, *repeated), stages, value,
            index(which) * size + spot, (Buffer(dtype, len(wanted) * size),), 1 + len(repeated),
        )  # fmt: skip

    def _wanted(self, numbers: Sequence[int]) -> list[Expr]:
        """The parts of later values that depend on a round and are constant over a row."""
        rows, done = frozenset(self.kernel.rows), frozenset(numbers)
        found = [e for value in self.values for e in _settled(value, rows, done)]
        if len({dtype_of(e) for e in found}) > 1:
            found = [e for value in self.values for e in walk(value)
                     if isinstance(e, Acc) and e.stage in done]  # fmt: skip
        return list(dict.fromkeys(found))

    def _repeated(self) -> tuple[Var, ...]:
        """The last column, if it is adjacent to the rows in memory, as channels of a group are.
        Results are then stored once per column, in the layout of the elements that they are applied
        to."""
        kernel, last = self.kernel, self.kernel.axes[-1]
        rows = prod(v.extent for v in kernel.rows)
        continued = any(stride(kernel.store, v) == last.extent for v in kernel.rows)
        fits = stride(kernel.store, last) == 1 and rows * last.extent <= MOST_REPEATED
        return (last,) if continued and fits and kernel.cols > 1 else ()

    def _map(self) -> Kernel:
        """The elementwise rest of the kernel, in memory order."""
        kernel = self.kernel
        axes = sorted(kernel.axes, key=lambda v: -abs(stride(kernel.store, v) or 0))
        return replace(kernel, axes=tuple(axes), stages=(), value=self.values[-1], cols=0)


def _settled(e: Expr, rows: frozenset[Var], done: frozenset[int]) -> Iterator[Expr]:
    """The largest subexpressions that contain only results of these stages, and no axis but the
    rows."""
    stages = {x.stage for x in walk(e) if isinstance(x, Acc)}
    if stages and stages <= done and e.variables <= rows:
        yield e
    elif stages:
        for part in e.args:
            yield from _settled(part, rows, done)


def _chosen(values: Sequence[Expr], which: Var) -> Expr:
    """The value with number `which`."""
    found = values[-1]
    for n, value in reversed(list(enumerate(values[:-1]))):
        found = Guard((Bound(index(which), n + 1),), value, found)
    return found


def _in_tiles(kernel: Kernel) -> Kernel:
    """The kernel with its last axis split in two if there are only few, long rows."""
    *outer, last = kernel.axes
    rows = prod(v.extent for v in outer)
    size = _even(last.extent, TILE)
    if not 1 < rows < ENOUGH or last.extent < 2 * TILE or last.extent % size:
        return kernel
    part, inside = Var(f"{last.name}s", last.extent // size), Var(last.name, size)
    at = {last: index(part) * size + index(inside)}
    return replace(
        kernel, axes=(*outer, part, inside), value=kernel.value.substitute(at),
        store=kernel.store.substitute(at),
    )  # fmt: skip
