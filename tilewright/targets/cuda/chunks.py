"""Splits a tile's reduction loop into chunks, at whose ends an elastic kernel can stop and resume.

Input: the loop nest of one tile. Output: its three parts and the registers that live between two
passes, or None if a tile can only be computed as a whole.

    before;  refill;  for block in 0 .. end: (inside;  barrier);  after

The loop ends with a barrier of its own, or is marked as one that may be left (`For.chunk`).

A worker that resumes a tile runs `before` again, which also fills shared memory that the loop only
reads. It then restores the registers and starts the loop at the next block. Where blocks are copied
ahead, `refill` copies those that the first pass expects in shared memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from tilewright.base.dtypes import DType
from tilewright.kernel import loops as l
from tilewright.kernel.expr import Expr, Load, Reg
from tilewright.kernel.index import Index, index
from tilewright.kernel.tree import walk
from tilewright.targets.cuda.pace import passes
from tilewright.targets.text import registers


@dataclass(frozen=True)
class Chunks:
    """A tile by passes.

    refill: from the block on with which the loop begins, a variable of that name
    every: passes from one question about the budget to the next (pace.py); where passes end with
           barriers, and nothing is copied ahead, threads may leave at each of them
    live: by name, type and lanes of the registers that a pass, or what is after, reads first
    matrices: the same of results, each with its type and a thread's part of its elements
    """

    before: tuple[l.Stmt, ...]
    refill: tuple[l.Stmt, ...]
    loop: l.For
    after: tuple[l.Stmt, ...]
    every: int
    live: tuple[tuple[str, DType, int], ...]
    matrices: tuple[tuple[str, DType, int], ...] = ()

    @property
    def count(self) -> int:
        """Chunks of a tile, at most."""
        return ceil(self.loop.var.extent / (self.every * self.loop.step))

    @property
    def inside(self) -> tuple[l.Stmt, ...]:
        """A pass without the barrier at its end."""
        return self.loop.body[:-1] if self.met else self.loop.body

    @property
    def met(self) -> bool:
        """True if all threads meet at the end of each pass."""
        return _met(self.loop)

    @property
    def bytes(self) -> int:
        """What one thread saves."""
        return sum(dtype.size * lanes for _, dtype, lanes in (*self.live, *self.matrices))

    @property
    def first(self) -> str:
        """The variable with which the loop begins; "" if that is 0."""
        return str(self.loop.begin) if self.refill else ""

    @property
    def ahead(self) -> bool:
        """Whether copies may be on their way when a pass ends."""
        return any(isinstance(s, l.EndCopies) for s in self.loop.body)


def chunks_of(fn: l.TileFn) -> Chunks | None:
    """None if no loop of the tile may be left, if it has one chunk, or if more than registers is
    carried from pass to pass."""
    stmts = (*fn.prologue, *fn.body)
    for n, s in enumerate(stmts):
        if isinstance(s, l.For) and (_met(s) or (s.chunk and s.end.variables <= {*fn.scalars})):
            before, refill, after = *_split(stmts[:n], s), stmts[n + 1 :]
            known = s.begin == Index() or refill
            several = s.chunk > 1 and (s.step > 1 or _met(s))
            every = s.chunk if s.chunk > 1 else passes(fn, s.body)
            if not known or several or ceil(s.var.extent / s.step) <= every:
                return None
            if not _fresh(fn, before, s) or not (fn.thread or _apart(fn, stmts, after)):
                return None
            kinds, live = registers(stmts), _read_first((*s.body, *after), set())
            matrices = tuple(
                (name, fn.unit.result, fn.unit.m * fn.unit.n // fn.unit.threads)
                for name in sorted(live - set(kinds))
                if fn.unit
            )
            saved = tuple((name, *kinds[name]) for name in sorted(live & set(kinds)))
            return Chunks(before, refill, s, after, every, saved, matrices)
    return None


def _split(stmts: tuple[l.Stmt, ...], loop: l.For) -> tuple[tuple[l.Stmt, ...], tuple[l.Stmt, ...]]:
    """What is before a loop, and from where its first block is named: what depends on it."""
    for n, s in enumerate(stmts):
        if isinstance(s, l.Let) and loop.begin == index(s.var):
            return stmts[:n], stmts[n + 1 :]
    return stmts, ()


def _met(loop: l.For) -> bool:
    """True if all threads meet at the end of each pass."""
    return bool(loop.body) and isinstance(loop.body[-1], l.Barrier)


def _apart(fn: l.TileFn, stmts: Sequence[l.Stmt], after: Sequence[l.Stmt]) -> bool:
    """True if a thread that computes its tile alone can meet others all the way: it does not end
    at an index out of range, keeps nothing beside registers, and stores in the end."""
    stores = [sum(isinstance(s, l.Store) for s in l.each(part)) for part in (stmts, after)]
    ends = any(l.gathers(stmts))
    return not (fn.scratch or ends or stores[0] > stores[1])


def _fresh(fn: l.TileFn, before: Sequence[l.Stmt], loop: l.For) -> bool:
    """True if every shared area is written by a pass before the pass reads it, or by no pass, or is
    refilled."""
    first = len(fn.buffers)
    inside = list(_accesses(loop.body))
    for area in range(first, first + len(fn.scratch)):
        uses = [written for number, written in inside if number == area]
        if True in uses and (not uses[0] or (area, True) in _accesses(before)):
            return False
    # a tile's output is stored after the loop
    return not any(number < first and written for number, written in inside)


def _accesses(stmts: Sequence[l.Stmt]) -> Iterator[tuple[int, bool]]:
    """Buffers that are read (False) and written (True), in the order of the text."""
    for s in stmts:
        match s:
            case l.For():
                yield from _accesses(s.body)
            case l.If():
                yield from _accesses(s.then)
                yield from _accesses(s.orelse)
            case l.Set(_, value) | l.LetGather(_, value) | l.LetUniform(_, value):
                yield from _loads(value)
            case l.LoadMatrix():
                yield s.buffer, False
            case l.StoreMatrix():
                yield s.buffer, True
            case l.Store(buffer, _, value, _):
                yield from _loads(value)
                yield buffer, True


def _loads(value: Expr) -> Iterator[tuple[int, bool]]:
    yield from ((e.buffer, False) for e in walk(value) if isinstance(e, Load))


def _read_first(stmts: Sequence[l.Stmt], written: set[str]) -> set[str]:
    """Registers that are read before they are certainly written; `written` grows by the latter."""
    found: set[str] = set()
    for s in stmts:
        match s:
            case l.For():
                inside = set(written)
                found |= _read_first(s.body, inside)
                written |= inside if s.at_least_once else set()
            case l.If():
                then, orelse = set(written), set(written)
                found |= _read_first(s.then, then) | _read_first(s.orelse, orelse)
                written |= then & orelse
            case l.Set(name, value):
                found |= _registers_of(value) - written
                written.add(name)
            case l.Store(_, _, value, _) | l.LetGather(_, value) | l.LetUniform(_, value):
                found |= _registers_of(value) - written
            case l.ZeroMatrix(name) | l.LoadMatrix(name):
                written.add(name)
            case l.MultiplyMatrices(name, left, right):
                found |= {name, left, right} - written
                written.add(name)
            case l.StoreMatrix():
                found |= {s.name} - written
    return found


def _registers_of(value: Expr) -> set[str]:
    return {e.name for e in walk(value) if isinstance(e, Reg)}
