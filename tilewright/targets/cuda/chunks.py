"""Splits a tile's reduction loop into chunks.  An elastic kernel can stop and resume between two.

Input: the loop nest of one tile.  Output: the parts of the tile below and the registers that live
from one pass of the loop to the next, or None if the tile can only be computed as a whole.

    before;  refill;  for block in 0 .. end: (inside;  barrier);  after

The loop must end with a barrier, or be marked as a loop that a worker may leave (`For.chunk`).

A worker that resumes a tile runs `before` again, which also fills the shared memory that the loop
only reads.  It then restores the registers and starts the loop at the next block.  Where blocks are
copied ahead of their use, `refill` copies those that the first pass expects in shared memory.
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
from tilewright.targets.brace_text import registers
from tilewright.targets.cuda.clock_model import passes_per_chunk


@dataclass(frozen=True)
class Chunks:
    """A tile whose reduction is split into chunks of several passes.

    refill: statements that depend on the block at which the loop begins, a variable
    every: passes of a chunk, that is, between two checks of the budget (clock_model.py).  Where
        passes end with barriers and nothing is copied ahead, threads may also leave between two
        passes.
    live: name, type and lanes of each register that a pass, or `after`, reads before it writes it
    matrices: the same for matrix results: name, type, and the number of elements that a thread has
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
        """The largest number of chunks of a tile."""
        return ceil(self.loop.var.extent / (self.every * self.loop.step))

    @property
    def pass_body(self) -> tuple[l.Stmt, ...]:
        """The statements of a pass, without the barrier at its end."""
        return self.loop.body[:-1] if self.ends_with_barrier else self.loop.body

    @property
    def ends_with_barrier(self) -> bool:
        """True if each pass ends with a barrier of all threads."""
        return _ends_with_barrier(self.loop)

    @property
    def bytes(self) -> int:
        """Bytes that one thread saves when its worker leaves."""
        return sum(dtype.size * lanes for _, dtype, lanes in (*self.live, *self.matrices))

    @property
    def first(self) -> str:
        """Name of the variable that holds the loop's first block; "" if the loop begins at 0."""
        return str(self.loop.begin) if self.refill else ""

    @property
    def copies_ahead(self) -> bool:
        """True if asynchronous copies may be unfinished when a pass ends."""
        return any(isinstance(s, l.CommitCopies) for s in self.loop.body)


def chunks_of(fn: l.TileFn) -> Chunks | None:
    """The chunks of a tile; None if it has fewer than two.

    None, too, if no loop may be left, or if a pass hands on more than registers to the next.
    """
    stmts = (*fn.prologue, *fn.body)
    for n, s in enumerate(stmts):
        if isinstance(s, l.For) and (
            _ends_with_barrier(s) or (s.chunk and s.end.variables <= {*fn.scalars})
        ):
            before, refill, after = *_split(stmts[:n], s), stmts[n + 1 :]
            known = s.begin == Index() or refill
            several = s.chunk > 1 and (s.step > 1 or _ends_with_barrier(s))
            every = s.chunk if s.chunk > 1 else passes_per_chunk(fn, s.body)
            if not known or several or ceil(s.var.extent / s.step) <= every:
                return None
            if not _no_pass_reads_earlier_shared_writes(fn, before, s) or not (
                fn.thread or _threads_reach_barriers(fn, stmts, after)
            ):
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
    """Splits the statements before a loop at the one that names its first block: (before,
    refill)."""
    for n, s in enumerate(stmts):
        if isinstance(s, l.Let) and loop.begin == index(s.var):
            return stmts[:n], stmts[n + 1 :]
    return stmts, ()


def _ends_with_barrier(loop: l.For) -> bool:
    """True if each pass ends with a barrier of all threads."""
    return bool(loop.body) and isinstance(loop.body[-1], l.Barrier)


def _threads_reach_barriers(fn: l.TileFn, stmts: Sequence[l.Stmt], after: Sequence[l.Stmt]) -> bool:
    """True if threads that compute a tile each can all reach the loop's barriers: none returns
    early at an index out of range, all state is in registers, and all stores come after the
    loop."""
    stores = [
        sum(isinstance(s, l.Store) for s in l.every_statement(part)) for part in (stmts, after)
    ]
    ends = any(l.gathers(stmts))
    return not (fn.scratch or ends or stores[0] > stores[1])


def _no_pass_reads_earlier_shared_writes(
    fn: l.TileFn, before: Sequence[l.Stmt], loop: l.For
) -> bool:
    """True if a pass never reads shared memory that an earlier pass wrote, except what `refill`
    copies again."""
    first = len(fn.buffers)
    inside = list(_accesses(loop.body))
    for area in range(first, first + len(fn.scratch)):
        uses = [written for number, written in inside if number == area]
        if True in uses and (not uses[0] or (area, True) in _accesses(before)):
            return False
    # The output must be stored after the loop: a pass that is repeated must not store twice.
    return not any(number < first and written for number, written in inside)


def _accesses(stmts: Sequence[l.Stmt]) -> Iterator[tuple[int, bool]]:
    """The number of each buffer that statements access, in order; True where they write it."""
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
    """Registers that are read before they are certainly written.  Adds the written ones to
    `written`."""
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
