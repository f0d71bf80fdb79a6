"""The reference interpreter of the loop IR; it defines the meaning of the IR.

Input: a `TileFn`, buffers as lists of Python numbers, tile numbers.  Output: the buffers, changed.
It is slow and exact: every f32 result is rounded to f32, and every access is checked.  The threads
of a tile run in turn from barrier to barrier.  Races between them are errors, and so are stores to
one place by threads of several tiles.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import mul

from tilewright.base.errors import CompilerBug, ensure, required
from tilewright.base.scalars import Number
from tilewright.kernel.expr import ShuffleXor, SubgroupBroadcast, SubgroupExchange
from tilewright.kernel.index import Var
from tilewright.kernel.loops import (
    AsyncCopy,
    Barrier,
    CommitCopies,
    EndProducts,
    For,
    If,
    LoadMatrix,
    MatrixStmt,
    MatrixUnit,
    MultiplyMatrices,
    Set,
    Stmt,
    StoreMatrix,
    TileFn,
    WaitForCopies,
    ZeroMatrix,
    numbers_at,
)
from tilewright.kernel.thread_interpreter import ThreadInterpreter, convert


def run(
    fn: TileFn,
    buffers: Sequence[list[Number]],
    tiles: Iterable[int] | None = None,
    extents: Sequence[int] = (),
    whole: Mapping[int, int] | None = None,
) -> None:
    """Computes `tiles` (default: all, in order) of the kernel on `buffers`, the output first.

    extents: the run-time numbers of the plan; without them, their bounds
    whole:   the vector length of buffers in which a write to one element may touch its whole
             vector; such a vector counts as one place
    """
    scratch: list[list[Number]] = [[0] * s.size for s in fn.scratch]
    memory = [*buffers, *scratch]
    count, *values = numbers_at(fn, extents)
    known = dict(zip((v.name for v in fn.scalars), values, strict=True))
    chosen = range(count) if tiles is None else tiles
    if fn.thread is None:
        machine = ThreadInterpreter(memory, known)
        machine.block(fn.prologue)
        for tile in chosen:
            machine.vars[fn.tile.name] = tile
            machine.block(fn.body)
        return
    shared = _Shared(len(fn.buffers), whole or {}, fn.shares_output)
    threads = [_Thread(memory, known, shared, fn.thread, n, fn.unit) for n in range(fn.threads)]
    for thread in threads:
        thread.peers = threads
        thread.block(fn.prologue)
    for tile in chosen:
        _together(threads, fn, tile)


def _together(threads: Sequence[_Thread], fn: TileFn, tile: int) -> None:
    """All threads compute one tile: each runs to the next barrier, then the next one does."""
    for thread in threads:
        thread.tile = thread.vars[fn.tile.name] = tile
    running = [thread.phases(fn.body) for thread in threads]
    arrived: list[Barrier | Set | None] = []
    while not arrived or arrived[0] is not None:
        last = arrived[0] if arrived else Barrier()
        if isinstance(last, Barrier) and last.subgroup_only and fn.unit:
            threads[0].shared.settle(fn.unit.threads)
        elif isinstance(last, Barrier):
            threads[0].shared.touched.clear()
        arrived = [next(thread, None) for thread in running]
        ensure(len(set(map(id, arrived))) == 1, "not all threads arrive at one barrier")
        if isinstance(arrived[0], Set) and isinstance(arrived[0].value, SubgroupExchange):
            for thread in threads:
                other = thread.other(arrived[0].value, fn.subgroup)
                thread.taken = threads[other].offered


#: A buffer and an element of it, or a vector.
_Place = tuple[int, int]


@dataclass(frozen=True)
class _Shared:
    """The state of memory that threads share.

    buffers: the number of buffers that outlive the tile;  whole: as in `run`
    touched: for each place since the last barrier: the thread that accessed it, and whether one
             wrote
    shares_output: as in `TileFn`: places then belong to the tile instead of a thread
    owners:  for all tiles, the tile and thread that stored to a place of those buffers
    awaited: elements of asynchronous copies that may not have arrived
    """

    buffers: int
    whole: Mapping[int, int]
    shares_output: bool
    touched: dict[_Place, tuple[frozenset[int], bool]] = field(default_factory=dict)
    owners: dict[_Place, tuple[int, int]] = field(default_factory=dict)
    awaited: set[_Place] = field(default_factory=set)

    def settle(self, threads: int) -> None:
        """Orders the accesses so far among subgroups of this size, whose threads are numbered below
        0 here."""
        for place, (who, wrote) in self.touched.items():
            groups = frozenset(n if n < 0 else -1 - n // threads for n in who)
            self.touched[place] = groups, wrote


class _Thread(ThreadInterpreter):
    """One of several threads.  Until the next barrier no other thread may access the elements that
    it writes."""

    def __init__(
        self,
        buffers: list[list[Number]],
        known: Mapping[str, int],
        shared: _Shared,
        name: Var,
        number: int,
        unit: MatrixUnit | None,
    ) -> None:
        super().__init__(buffers, {**known, name.name: number})
        self.number, self.tile = number, 0
        self.shared = shared
        self.unit = unit
        self.offered: list[Number] = []
        self.taken: list[Number] = []
        self.peers: Sequence[_Thread] = ()
        self.reached: list[tuple[MatrixStmt, int]] = []
        self.matrices: dict[str, list[list[Number]]] = {}
        #: Results of an asynchronous unit that are not available yet.
        self.unfinished: set[str] = set()
        #: Batches of copies that have not been done: buffer, index and elements of each.
        self.batches: list[list[tuple[int, int, list[Number]]]] = [[]]

    def stmt(self, s: Stmt) -> None:
        if isinstance(s, AsyncCopy | CommitCopies | WaitForCopies):
            self.copy(s)
            return
        if isinstance(s, MatrixStmt):
            unit = required(self.unit, "no matrix unit", statement=s)
            # the first thread of a subgroup stands for all of them
            leader = self.peers[self.number - self.number % unit.threads]
            place = self.at(s.index) if isinstance(s, LoadMatrix | StoreMatrix) else 0
            self.reached.append((s, place))
            if leader is self:
                self.matrix(s, unit)
            same = leader.reached[len(self.reached) - 1]
            if same != (s, place):
                raise CompilerBug(f"threads of a subgroup disagree at {s}: {place}, {same[1]}")
            return
        super().stmt(s)

    def copy(self, s: Stmt) -> None:
        match s:
            case AsyncCopy(buffer, index, source, at, lanes, bounds):
                begin = self.at(index)
                found: list[Number] = [0] * lanes
                if self.holds(bounds):
                    found = self.load(source, self.at(at), lanes)
                self._touch(buffer, begin, lanes, wrote=True)
                self.shared.awaited.update((buffer, begin + i) for i in range(lanes))
                self.batches[-1].append((buffer, begin, found))
            case CommitCopies():
                self.batches.append([])
            case WaitForCopies(behind):
                done = max(len(self.batches) - 1 - behind, 0)
                for buffer, begin, found in chain(*self.batches[:done]):
                    places = {(buffer, begin + i) for i in range(len(found))}
                    self.shared.awaited.difference_update(places)
                    self.store(buffer, begin, found, 0)
                del self.batches[:done]

    def matrix(self, s: MatrixStmt, unit: MatrixUnit) -> None:
        match s:
            case ZeroMatrix(name):
                self.matrices[name] = [[convert(0, unit.result)] * unit.n for _ in range(unit.m)]
            case LoadMatrix(name, right, buffer, at, stride, across, group):
                begin, runs = self.at(at), unit.n if right else unit.m
                count, each = (unit.k // group, runs * group) if across else (runs, unit.k)
                run = s.run or each
                found = [
                    [
                        x
                        for part in range(0, each, run)
                        for x in self.load(buffer, begin + i * stride + part // run * s.apart, run)
                    ]
                    for i in range(count)
                ]
                if unit.fraction:
                    found = [[_cut(x, unit.fraction) for x in line] for line in found]
                if across:
                    parts = range(0, runs * group, group)
                    found = [[x for step in found for x in step[i : i + group]] for i in parts]
                self.matrices[name] = found
            case EndProducts(names):
                self.unfinished.difference_update(names)
            case MultiplyMatrices(name, left, right):
                self.unfinished |= {name} if unit.asynchronous else set()
                rows, columns = self.matrices[left], self.matrices[right]
                self.matrices[name] = [
                    [
                        convert(total + sum(map(mul, row, column)), unit.result)
                        for total, column in zip(sums, columns, strict=True)
                    ]
                    for sums, row in zip(self.matrices[name], rows, strict=True)
                ]
            case StoreMatrix(buffer, at, name, stride):
                if name in self.unfinished:
                    raise CompilerBug(f"{name} is stored before it was computed")
                begin = self.at(at)
                for i, row in enumerate(self.matrices[name]):
                    self.store(buffer, begin + i * stride, row, 0)

    def phases(self, stmts: tuple[Stmt, ...]) -> Iterator[Barrier | Set]:
        """Runs to the next barrier or exchange between threads and yields it, until none is
        left."""
        for s in stmts:
            if isinstance(s, Barrier):
                yield s
            elif isinstance(s, Set) and isinstance(s.value, SubgroupExchange):
                self.offered = self.value(s.value.value)
                yield s
                self.regs[s.name] = self.taken
            elif isinstance(s, For) and _waits(s.body):
                for i in self.span(s):
                    self.vars[s.var.name] = i
                    yield from self.phases(s.body)
            elif isinstance(s, If) and _waits((*s.then, *s.orelse)):
                yield from self.phases(s.then if self.holds(s.bounds) else s.orelse)
            else:
                self.stmt(s)

    def other(self, e: SubgroupExchange, subgroup: int) -> int:
        """The number of the thread that sends this one its value."""
        first, number = self.number - self.number % max(1, subgroup), 0
        if isinstance(e, ShuffleXor):
            if e.bits <= 0:
                raise CompilerBug(f"nothing is swapped: {e}")
            number = (self.number - first) ^ e.bits
        elif isinstance(e, SubgroupBroadcast):
            number = self.at(e.thread)
            same = self.peers[first].at(e.thread)
            if number != same:
                raise CompilerBug(f"threads of a subgroup ask for {number} and {same}: {e}")
        if not 0 <= number < subgroup:
            raise CompilerBug(f"a subgroup has {subgroup} threads: {e}")
        return first + number

    def store(self, buffer: int, at: int, lanes: list[Number], valid: int) -> None:
        self._touch(buffer, at, valid or len(lanes), wrote=True)
        super().store(buffer, at, lanes, valid)

    def load(self, buffer: int, at: int, count: int) -> list[Number]:
        self._touch(buffer, at, count, wrote=False)
        return super().load(buffer, at, count)

    def _touch(self, buffer: int, at: int, count: int, wrote: bool) -> None:
        for element in range(at, at + count):
            place = buffer, element
            if place in self.shared.awaited:
                raise CompilerBug(f"b{buffer}[{element}] is not there yet")
        each = self.shared.whole.get(buffer, 1)
        for number in range(at // each, (at + count - 1) // each + 1):
            self._touch_place((buffer, number), wrote)
            if wrote and buffer < self.shared.buffers:
                own = self.tile, -1 if self.shared.shares_output else self.number
                found = self.shared.owners.setdefault((buffer, number), own)
                if found != own:
                    where = f"b{buffer}[{number * each}]"
                    raise CompilerBug(f"{own} races with {found} for {where}")

    def _touch_place(self, place: _Place, wrote: bool) -> None:
        """A place belongs to this thread from its write to the next barrier, or to all its
        readers."""
        touched = self.shared.touched
        who, written = touched.get(place, (frozenset[int](), False))
        group = {-1 - self.number // self.unit.threads} if self.unit else set[int]()
        others = who - {self.number} - group
        if others and (wrote or written):
            raise CompilerBug(
                f"thread {self.number} races with {min(others)} for place {place[1]} of b{place[0]}"
            )
        touched[place] = who | {self.number}, wrote or written


def _cut(value: float, fraction: int) -> float:
    """An f32 with this number of fraction bits: the nearest such number, ties away from 0."""
    if value - value != 0:
        return value
    dropped = 23 - fraction
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    kept = bits + (1 << dropped - 1) >> dropped << dropped
    rounded: float = struct.unpack("<f", struct.pack("<I", kept))[0]
    return rounded


def _waits(stmts: tuple[Stmt, ...]) -> bool:
    """True if threads wait for each other in these statements, at any depth."""
    return any(
        isinstance(s, Barrier)
        or (isinstance(s, Set) and isinstance(s.value, SubgroupExchange))
        or (isinstance(s, For) and _waits(s.body))
        or (isinstance(s, If) and _waits((*s.then, *s.orelse)))
        for s in stmts
    )
