"""Builds loop nests: nested scopes in which index values are named as far outside as possible.

Input: calls that open loops and add statements.  Output: statement tuples of the loop IR.  Values
that do not change inside a loop are bound before it (`Let`), so that the innermost loop has only an
induction variable and constants.  Gathered indices are read once, as far outside as possible.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from math import ceil, prod

from tilewright.base.dtypes import I32
from tilewright.kernel import loops as l
from tilewright.kernel.expr import (
    Acc,
    Bound,
    Call,
    Const,
    Expr,
    Guard,
    IndexValue,
    Load,
    Reg,
    SubgroupBroadcast,
    dtype_of,
)
from tilewright.kernel.extents import Number, RuntimeNumber, bound_of, scalar_of
from tilewright.kernel.gathers import with_guarded_reads
from tilewright.kernel.index import Div, Gathered, Index, Mod, Var, index, unflatten
from tilewright.kernel.loops import Scratch, Stmt, TileFn
from tilewright.kernel.spec import Kernel
from tilewright.kernel.tree import read_by, rewrite

#: The values of index variables at some point of a nest.
Values = dict[Var, Index]


@dataclass
class _Frame:
    """A scope: the variables bound in it, its statements, the variables that name values in it.

    places: the sums of `address`, by the terms that they stand for
    """

    bound: set[Var]
    stmts: list[Stmt] = field(default_factory=list)
    named: dict[object, Var] = field(default_factory=dict)
    places: dict[object, Index] = field(default_factory=dict)
    conditional: bool = False


class Builder:
    """One loop nest under construction.  Frame 0 runs once per call, frame 1 once per tile."""

    def __init__(
        self,
        scalars: Mapping[Var, Number],
        tiles: Number,
        kernel: Kernel | None = None,
        threads: int = 1,
    ) -> None:
        """`kernel` is needed if some of its axes end at run time."""
        extents = kernel.extents if kernel is not None else ()
        self._kernel = kernel
        self._scalars: dict[Var, Number] = {**scalars, **{v: scalar_of(v) for v in extents}}
        self._tiles = tiles
        self._tile = Var("tile", bound_of(tiles))
        self._thread = Var("thread", threads)
        self._frames = [_Frame(set(self._scalars)), _Frame({self._tile, self._thread})]
        self._count = 0

    @property
    def tile(self) -> Index:
        """The number of the tile to compute."""
        return index(self._tile)

    @property
    def threads(self) -> int:
        """How many threads compute one tile together."""
        return self._thread.extent

    @property
    def thread(self) -> Index:
        """The number of this thread."""
        return index(self._thread)

    def finish(self, kernel: Kernel, scratch: tuple[Scratch, ...] = ()) -> TileFn:
        prologue, body = (tuple(frame.stmts) for frame in self._frames)
        numbers = (self._tiles, *self._scalars.values())
        counts = tuple(n if isinstance(n, RuntimeNumber) else None for n in numbers)
        tiles, *values = map(bound_of, numbers)
        return TileFn(
            name=kernel.name,
            buffers=kernel.buffers,
            scalars=tuple(self._scalars),
            scratch=scratch,
            tile=self._tile,
            prologue=prologue,
            body=body,
            tiles=tiles,
            values=tuple(values),
            thread=self._thread if self.threads > 1 else None,
            counts=counts if any(counts) else (),
        )

    def limited(self, axis: Var) -> bool:
        """True if the axis ends at run time."""
        return self._kernel is not None and self._kernel.limit(axis) is not None

    def end(self, axis: Var) -> Index:
        """The end of an axis: its extent, or a scalar of the argument block."""
        limit = self._kernel.limit(axis) if self._kernel is not None else None
        if limit is None:
            return index(axis.extent)
        return self.let(index(limit.extent) * limit.times, "end")

    def fresh(self, stem: str, extent: int) -> Var:
        """An index with a name of its own; b1, b2, … are buffers in the text of targets."""
        self._count += 1
        return Var(f"{stem}{'_' if stem == 'b' else ''}{self._count}", extent)

    def add(self, stmt: Stmt) -> None:
        self._frames[-1].stmts.append(stmt)

    def set(self, name: str, value: Expr) -> None:
        self.add(l.Set(name, self.resolve(value)))

    def compute(self, name: str, value: Expr) -> None:
        """Like `set`, with equal calls inside the expression computed once."""
        self.add(l.Set(name, self._share(self.resolve(value))))

    def store(self, buffer: int, at: Index, value: Expr, valid: int = 0) -> None:
        resolved = self._share(self.resolve(value))
        self.add(l.Store(buffer, self.address(at), resolved, valid))

    def async_copy(
        self, buffer: int, at: Index, load: Load, bounds: tuple[Bound, ...] = ()
    ) -> None:
        """Like `store` of a load, or of zeroes unless all bounds hold (`AsyncCopy`)."""
        unsure = tuple(self._bound(b) for b in bounds if not b.always)
        there = self.address(load.index)
        self.add(l.AsyncCopy(buffer, self.address(at), load.buffer, there, load.lanes, unsure))

    def hoist(self, e: Expr, moving: frozenset[Var], evaluate: Callable[[Expr], Expr]) -> Expr:
        """Computes now, once, the largest parts of `e` that no variable in `moving` changes.

        a[row, c] - r0 / 384   ->   t1 := r0 / 384;  a[row, c] - t1
        """
        known: dict[Expr, Reg] = {}

        def visit(e: Expr) -> Expr:
            if isinstance(e, (Const, Acc, Reg, Guard)):
                return e
            if not moving & e.variables:
                if e not in known:
                    self._count += 1
                    known[e] = Reg(f"t{self._count}", dtype_of(e))
                    self.set(known[e].name, evaluate(e))
                return known[e]
            if isinstance(e, Call):
                return Call(e.fn, tuple(map(visit, e.operands)), e.dtype, e.lanes)
            return e

        return visit(e)

    def _share(self, e: Expr) -> Expr:
        """Compute equal calls inside one expression once.

        erf(x + b) * (x + b)   ->   u0 := x + b;  erf(u0) * u0
        """
        calls = calls_of(e)
        if len({call.fn for call in calls}) == len(calls):
            return e
        numbers = numbers_of(e)
        seen = Counter(numbers[id(call)] for call in calls)
        if len(seen) == len(calls):
            return e
        named: dict[int, Reg] = {}

        def visit(node: Expr) -> Expr:
            if not isinstance(node, Call):
                return node
            number = numbers[id(node)]
            if number in named:
                return named[number]
            call = Call(node.fn, tuple(map(visit, node.operands)), node.dtype, node.lanes)
            if seen[number] == 1:
                return call
            name = f"u{len(named)}{node.dtype}x{node.lanes}"
            self.add(l.Set(name, call))
            named[number] = Reg(name, node.dtype, node.lanes)
            return named[number]

        return visit(e)

    @contextmanager
    def loop(
        self,
        stem: str,
        begin: Index,
        end: Index,
        step: int = 1,
        extent: int | None = None,
        chunk: int = 0,
    ) -> Iterator[Index]:
        """Opens a loop and gives its variable; nothing is emitted if the loop cannot run.

        A loop that runs once is emitted as its body.  chunk: as in `For`
        """
        if begin.is_const and end.is_const and begin.const < end.const <= begin.const + step:
            yield begin
            return
        top = extent if extent is not None else end.bounds[1]
        var = self.fresh(stem, max(top, 1))
        self._frames.append(_Frame({var}))
        yield index(var)
        frame = self._frames.pop()
        certain = begin.bounds[1] < end.bounds[0]
        if begin.is_const and end.is_const and not certain:
            return
        self.add(l.For(var, begin, end, step, tuple(frame.stmts), certain, chunk))

    @contextmanager
    def branch(self) -> Iterator[_Frame]:
        """Collect statements for one arm of an `If`."""
        frame = _Frame(set(), conditional=True)
        self._frames.append(frame)
        yield frame
        self._frames.pop()

    def choose(self, bounds: tuple[Bound, ...], then: _Frame, orelse: _Frame | None = None) -> None:
        tail = tuple(orelse.stmts) if orelse is not None else ()
        self.add(l.If(tuple(self._bound(b) for b in bounds), tuple(then.stmts), tail))

    def either(
        self, bound: Bound, then: Callable[[], None], orelse: Callable[[], None] | None = None
    ) -> None:
        """`then` if the bound holds, else `orelse`; only one of them if the bound is certain."""
        if bound.always:
            then()
            return
        with self.branch() as yes:
            then()
        with self.branch() as no:
            if orelse is not None:
                orelse()
        self.choose((bound,), yes, no)

    @contextmanager
    def only_if(self, bounds: tuple[Bound, ...]) -> Iterator[None]:
        """Statements added meanwhile run only if all bounds hold.  Bounds that always hold cost
        nothing."""
        unsure = tuple(bound for bound in bounds if not bound.always)
        if not unsure:
            yield
            return
        with self.branch() as then:
            yield
        self.choose(unsure, then)

    @contextmanager
    def only_below(self, number: Index, count: int) -> Iterator[Index]:
        """Gives the number as an index below `count`.  Statements added meanwhile run only if it is
        below."""
        bound = Bound(number, count)
        if bound.always:
            yield number
            return
        with self.branch() as then:
            yield self.within(number, count)
        self.choose((bound,), then)

    def points_of_thread(self, shape: tuple[int, ...]) -> Iterator[tuple[int, tuple[Index, ...]]]:
        """Assigns the points of a shape to threads: yields a number and this thread's point, in
        turn.

        Neighbouring threads have neighbouring points.  Statements added meanwhile run only if the
        point exists.
        """
        for n in range(ceil(prod(shape) / self.threads)):
            with self.only_below(self.thread + n * self.threads, prod(shape)) as flat:
                yield n, unflatten(flat, shape)

    def let(self, value: Index, stem: str = "i") -> Index:
        """Name an index value, in the outermost scope that knows all its variables."""
        if value.is_const or (len(value.terms) == 1 and _is_plain(value)):
            return value
        value = self._atoms(value)
        frame = self._frames[self._depth(value.variables)]
        key = (value.terms, value.const)
        if key not in frame.named:
            var = self.fresh(stem, value.bounds[1] + 1)
            frame.stmts.append(l.Let(var, value))
            frame.named[key] = var
            frame.bound.add(var)
        return Index(((frame.named[key], 1),))

    def within(self, value: Index, extent: int, stem: str = "w") -> Index:
        """Names an index value that is known to be in [0, extent), even if its terms alone allow
        more."""
        if extent <= 1:
            return Index()
        var = self.fresh(stem, extent)
        self._frames[-1].stmts.append(l.Let(var, value))
        self._frames[-1].bound.add(var)
        return index(var)

    def uniform(self, value: Expr, extent: int, stem: str = "n", least: int = 0) -> Index:
        """Name an integer that all threads share, kept within [least, least + extent)."""
        value = Call("sub", (value, Const(least, I32)), I32) if least else value
        var = self.fresh(stem, extent)
        self._frames[-1].stmts.append(l.LetUniform(var, self.resolve(value)))
        self._frames[-1].bound.add(var)
        return index(var) + least

    def read(self, value: Expr, extent: int, stem: str = "g") -> Index:
        """Names an integer at this point, of this thread alone; traps unless 0 <= it < extent."""
        var = self.fresh(stem, extent)
        self._frames[-1].stmts.append(l.LetGather(var, self.resolve(value)))
        self._frames[-1].bound.add(var)
        return index(var)

    def let_min(self, a: Index, b: Index, stem: str = "e") -> Index:
        """Names the smaller of two index values, in the outermost scope that has both, unless their
        ranges decide which one it is."""
        for small, large in ((a, b), (b, a)):
            if small.bounds[1] <= large.bounds[0]:
                return small
        var = self.fresh(stem, min(a.bounds[1], b.bounds[1]) + 1)
        frame = self._frames[self._depth(a.variables | b.variables)]
        frame.stmts.append(l.LetMin(var, a, b))
        frame.bound.add(var)
        return index(var) if var.extent > 1 else Index()

    def address(self, at: Index) -> Index:
        """Splits an index: the part that the innermost loop does not change is named outside it."""
        at = self._atoms(at)
        frame = self._frames[-1]
        known = frame.places.get(at.terms)
        if known is not None:
            return known + at.const
        fixed = Index(tuple([term for term in at.terms if term[0] not in frame.bound]))
        moving = Index(tuple([term for term in at.terms if term[0] in frame.bound]))
        if not fixed.terms:
            return at
        if fixed.bounds[0] < 0:  # a flipped axis: its constant makes the sum positive again
            fixed += at.const
            return at if fixed.bounds[0] < 0 else self.let(fixed, "p") + moving
        known = frame.places[at.terms] = self.let(fixed, "p") + moving
        return known + at.const

    def resolve(self, e: Expr) -> Expr:
        """The expression with every index named and every gathered index read."""

        def visit(e: Expr) -> Expr:
            if isinstance(e, Call):
                return Call(e.fn, tuple(map(visit, e.operands)), e.dtype, e.lanes)
            return self._named(e) if isinstance(e, (Load, Reg)) else rewrite(e, self._named)

        return visit(with_guarded_reads(e))

    def _named(self, e: Expr) -> Expr:
        """The same for one node, whose parts are done."""
        if isinstance(e, Load):
            return e.at(self.address(e.index))
        if isinstance(e, IndexValue):
            return IndexValue(self.address(e.index), e.dtype)
        if isinstance(e, SubgroupBroadcast):
            return SubgroupBroadcast(e.value, self.address(e.thread))
        if isinstance(e, Guard):
            return Guard(tuple(map(self._bound, e.bounds)), e.value, e.default)
        return e

    def _bound(self, b: Bound) -> Bound:
        return Bound(self.address(b.index), b.extent)

    def _atoms(self, value: Index) -> Index:
        """Gathered indices are read into variables; the inside of a division is named."""
        if value.is_affine:
            return value
        total = Index((), value.const)
        for atom, c in value.terms:
            total = total + self._atom(atom) * c
        return total

    def _atom(self, atom: Var | Div | Mod | Gathered) -> Index:
        if isinstance(atom, (Div, Mod)):
            inner = self._atoms(atom.value)
            return inner // atom.by if isinstance(atom, Div) else inner % atom.by
        if not isinstance(atom, Gathered):
            return Index(((atom, 1),))
        depth = max(self._depth(atom.value.variables), self._last_condition())
        frame = self._frames[depth]
        if atom not in frame.named:
            var = self.fresh("g", atom.extent)
            inner_frames = self._frames[depth + 1 :]
            del self._frames[depth + 1 :]
            value = self.resolve(read_by(atom))
            frame.stmts.append(l.LetGather(var, value, atom.check))
            self._frames += inner_frames
            frame.named[atom] = var
            frame.bound.add(var)
        return Index(((frame.named[atom], 1),))

    def _last_condition(self) -> int:
        """A read may not move out of the branch that protects it."""
        depths = [i for i, f in enumerate(self._frames) if f.conditional]
        return depths[-1] if depths else 0

    def _depth(self, variables: frozenset[Var]) -> int:
        depth = 0
        for i, frame in enumerate(self._frames):
            if variables & frame.bound:
                depth = i
        return depth


@contextmanager
def nest(b: Builder, axes: tuple[Var, ...], values: Values, chunk: int = 0) -> Iterator[Values]:
    """Loops over `axes`, outermost first; gives `values` with their variables added.

    chunk: innermost passes, about, after which a worker may leave the tile; 0: it may not leave
    """
    with ExitStack() as loops:
        inside, outer = dict(values), next((a for a in axes if a.extent > 1), None)
        steps = prod(a.extent for a in axes) // (outer.extent if outer else 1)
        for axis in axes:
            passes = -(-chunk // steps) if axis is outer else 0
            loop = b.loop(axis.name, Index(), b.end(axis), extent=axis.extent, chunk=passes)
            inside[axis] = loops.enter_context(loop)
        yield inside


def _is_plain(value: Index) -> bool:
    atom, c = value.terms[0]
    return isinstance(atom, Var) and c == 1


def calls_of(e: Expr) -> list[Call]:
    """The calls of an expression that are certainly evaluated (none below a guard)."""
    found = [e] if isinstance(e, Call) else []
    for call in found:  # grows on the way
        found += [arg for arg in call.operands if isinstance(arg, Call)]
    return found


def numbers_of(e: Expr) -> dict[int, int]:
    """A number for each part of an expression by its identity; equal parts have equal numbers.

    A call is known by the numbers of its operands, so no part is compared as a whole tree.
    """
    numbers: dict[int, int] = {}
    kinds: dict[object, int] = {}

    def visit(node: Expr) -> int:
        key: object = node
        if isinstance(node, Call):
            key = node.fn, tuple(map(visit, node.operands)), node.dtype, node.lanes
        number = numbers[id(node)] = kinds.setdefault(key, len(kinds))
        return number

    visit(e)
    return numbers
