"""How an operand of a tile comes to shared memory, copied by all threads of the group.

Input: a load, where the tile's rows or columns begin.  Output: statements that read a block of
steps into registers, and that write these to shared memory, steps outermost.

What a thread copies are units of 4 rows (or columns): so it writes whole vectors, even where the
operand lies along the depth and is transposed on the way.  Neighbouring threads read neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import ceil, gcd, prod

from tilewright.base.dtypes import F32
from tilewright.kernel.builder import Builder, Values
from tilewright.kernel.expr import Bound, Const, Expr, Guard, Lane, Lanes, Load, Reg
from tilewright.kernel.index import Index, Mod, Var, index, unflatten

#: Elements of a vector.
LANES = 4
#: Elements of a row that neighbouring threads read: a cache line.  With more of them, more threads
#: would write to the same banks.
LINE = 32


class Side:
    """One operand: how its block comes to shared memory, `width` rows or columns for each step.

    deep:   it does not lie along its rows or columns, but along the depth
    wide:   it is read in vectors; of a deep one, a unit then is 4 steps of 4 rows
    run:    units that lie side by side at one step: those of a panel, or all
    stride: elements from step to step in shared memory, of which `gap` is more every LANES steps
    """

    def __init__(
        self,
        b: Builder,
        name: str,
        load: Load,
        extent: int,
        steps: int,
        width: int,
        start: Index,
        area: int,
        point: Callable[[Index, Index], Values],
        *,
        apart: bool = False,
        panel: int = 1,
    ) -> None:
        """apart: steps lie so that neighbouring threads write to other banks;  panel: of columns"""
        self.b, self.name, self.load, self.extent, self.steps = b, name, load, extent, steps
        self.width, self.start, self.area, self.point = width, start, area, point
        q, k = index(Var("q", -(-extent // LANES))), index(Var("k", steps))
        self.deep = not _side_by_side([self._index(q * LANES + i, k) for i in range(LANES)])
        if self.deep:
            k = index(Var("k", -(-steps // LANES))) * LANES
            run = [self._index(index(Var("q", extent)), k + i) for i in range(LANES)]
            self.wide = steps % LANES == 0 and _side_by_side(run) and multiple(run[0])
        else:
            self.wide = extent % LANES == 0 and multiple(self._index(q * LANES, k))
        in_panels = panel > 1 and panel % LANES == 0 and width % panel == 0 and not self.deep
        self.run = panel // LANES if in_panels else width // LANES
        between = panel if in_panels else LANES if self.deep and not self.wide else 0
        self.stride = width + (between if apart else 0)
        self.gap = LANES if apart and self.deep and self.wide else 0

    def offset(self, step: Index) -> Index:
        """Where a step of the block begins in shared memory."""
        return step * self.stride + step // LANES * self.gap

    def size(self, depth: int) -> int:
        """Elements of shared memory for so many steps."""
        return depth * self.stride + ceil(depth / LANES) * self.gap

    def _index(self, place: Index, step: Index) -> Index:
        return self.load.index.substitute(self.point(place, step))

    def read(self, block: Index, depth: int) -> None:
        """Registers := this thread's units of the block, 0 beyond the ends."""
        for n, place, step in self._units(depth):
            place, step = self.start + place, block + step
            if self.deep and self.wide:
                for i in range(LANES):
                    self.b.set(self._reg(n, i).name, self._element(place + i, step, LANES))
            else:
                self.b.set(self._reg(n).name, self.unit(place, step))

    def write(self, depth: int) -> None:
        """Shared memory := the registers, steps outermost."""
        for n, place, step in self._units(depth):
            self._put(n, place, step)

    def _put(self, n: int, place: Index, step: Index) -> None:
        if not (self.deep and self.wide):
            self.b.store(self.area, self.offset(step) + place, self._reg(n))
            return
        for lane in range(LANES):
            parts = tuple(Lane(self._reg(n, i), lane) for i in range(LANES))
            self.b.store(self.area, self.offset(step + lane) + place, Lanes(parts))

    def unit(self, place: Index, step: Index) -> Expr:
        """Four neighbouring rows or columns at one step."""
        if self.wide and not self.deep:
            return self._element(place, step, LANES)
        return Lanes(tuple(self._element(place + i, step, 1) for i in range(LANES)))

    def _element(self, place: Index, step: Index, lanes: int) -> Expr:
        load = Load(self.load.buffer, self._index(place, step), F32, lanes)
        return guarded(load, (Bound(place, self.extent), Bound(step, self.steps)))

    def _shape(self, depth: int) -> tuple[int, int, int]:
        """How threads are dealt the units, the last part to neighbours: of a deep operand parts of
        the depth, places, units of such a part; else runs, steps, units of a run."""
        places, size = self.width // LANES, LANES if self.deep and self.wide else 1
        along = depth // size
        if self.deep:
            together = gcd(along, LINE // size)
            return along // together, places, together
        return places // self.run, along, self.run

    def _units(self, depth: int) -> Iterator[tuple[int, Index, Index]]:
        """Number, first place and first step of each; what follows is done by who has one."""
        shape = self._shape(depth)
        for n in range(-(-prod(shape) // self.b.threads)):
            with own(self.b, self.b.thread + n * self.b.threads, prod(shape)) as flat:
                major, middle, minor = unflatten(flat, shape)
                if self.deep:
                    place, step = middle, major * shape[2] + minor
                else:
                    place, step = major * self.run + minor, middle
                yield n, place * LANES, step * (LANES if self.deep and self.wide else 1)

    def _reg(self, n: int, part: int = 0) -> Reg:
        return Reg(f"{self.name}{n}_{part}", F32, LANES)


def guarded(load: Load, ends: tuple[Bound, ...]) -> Expr:
    """The load where all bounds hold, else 0."""
    open_ = tuple(end for end in ends if not end.always)
    return Guard(open_, load, Const(0.0, F32, load.lanes)) if open_ else load


@contextmanager
def inside(b: Builder, ends: tuple[Bound, ...]) -> Iterator[None]:
    """What is added happens where all bounds hold; no question where that is certain."""
    unsure = tuple(end for end in ends if not end.always)
    if not unsure:
        yield
        return
    with b.branch() as then:
        yield
    b.choose(unsure, then)


def spread(flat: Index, shape: tuple[int, ...]) -> tuple[Index, ...]:
    """The multi-index of an offset that may lie beyond the end: only the first part grows."""
    inner = prod(shape[1:])
    return (flat // inner, *unflatten(flat % inner, shape[1:])) if shape else ()


def multiple(at: Index) -> bool:
    """True if an index is certainly a multiple of LANES."""
    return at.const % LANES == 0 and all(
        c % LANES == 0 or (isinstance(atom, Mod) and atom.by % LANES == 0 and multiple(atom.value))
        for atom, c in at.terms
    )


@contextmanager
def own(b: Builder, number: Index, count: int) -> Iterator[Index]:
    """What is added happens where the number is below the count; gives it as such a number."""
    bound = Bound(number, count)
    if bound.always:
        yield number
        return
    with b.branch() as then:
        yield b.within(number, count)
    b.choose((bound,), then)


def _side_by_side(run: Sequence[Index]) -> bool:
    return all(at == run[0] + i for i, at in enumerate(run))
