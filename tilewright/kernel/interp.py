"""The reference interpreter of the loop IR: what it does is what the IR means.

Input: a `TileFn`, buffers as lists of Python numbers, tile numbers.  Output: the buffers, changed.
Slow and exact: every f32 result is rounded to f32, every access is checked against its buffer.
The threads of a tile run in turn from barrier to barrier, and races between them are errors.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import mul
from typing import Any

from tilewright.base.dtypes import DType
from tilewright.base.errors import KernelTrap
from tilewright.base.scalars import SCALARS
from tilewright.kernel.expr import (
    Bound,
    Call,
    Const,
    Dot,
    Expr,
    Guard,
    IndexValue,
    Join,
    Lane,
    Lanes,
    Load,
    Nibbles,
    Pairs,
    Reciprocal,
    Reg,
    Shuffle,
    Splat,
    Subvector,
    Swapped,
)
from tilewright.kernel.index import Div, Index, Mod, Var
from tilewright.kernel.loops import (
    Barrier,
    For,
    If,
    Let,
    LetGather,
    LetMin,
    LetUniform,
    LoadMatrix,
    MatrixStmt,
    MatrixUnit,
    MultiplyMatrices,
    Set,
    Stmt,
    Store,
    StoreMatrix,
    TileFn,
    ZeroMatrix,
    numbers_at,
)


def run(
    fn: TileFn,
    buffers: Sequence[list[Any]],
    tiles: Iterable[int] | None = None,
    extents: Sequence[int] = (),
) -> None:
    """Compute `tiles` (default: all, in order) of the kernel on `buffers`, the output first.

    extents: the run-time numbers of the plan; without them, their bounds
    """
    memory = [*buffers, *([0] * s.size for s in fn.scratch)]
    count, *values = numbers_at(fn, extents)
    known = dict(zip((v.name for v in fn.scalars), values, strict=True))
    chosen = range(count) if tiles is None else tiles
    if fn.thread is None:
        machine = _Machine(memory, known)
        machine.block(fn.prologue)
        for tile in chosen:
            machine.vars[fn.tile.name] = tile
            machine.block(fn.body)
        return
    touched: _Touched = {}
    threads = [_Thread(memory, known, touched, fn.thread, n, fn.unit) for n in range(fn.threads)]
    for thread in threads:
        thread.peers = threads
        thread.block(fn.prologue)
    for tile in chosen:
        _together(threads, fn, tile)


def _together(threads: Sequence[_Thread], fn: TileFn, tile: int) -> None:
    """All threads compute one tile: each runs to the next barrier, then the next one does."""
    for thread in threads:
        thread.vars[fn.tile.name] = tile
    running = [thread.phases(fn.body) for thread in threads]
    arrived: list[Barrier | Set | None] = []
    while not arrived or arrived[0] is not None:
        if not (arrived and isinstance(arrived[0], Set)):
            threads[0].touched.clear()
        arrived = [next(thread, None) for thread in running]
        assert len(set(map(id, arrived))) == 1, "not all threads arrive at one barrier"
        if isinstance(arrived[0], Set) and isinstance(arrived[0].value, Swapped):
            bits = arrived[0].value.bits
            assert 0 < bits < fn.subgroup, f"a subgroup has {fn.subgroup} threads: {arrived[0]}"
            for thread in threads:
                thread.taken = threads[thread.number ^ bits].offered


def convert(value: Any, dtype: DType) -> Any:
    """A number as `dtype` holds it: rounded to f32, truncated and saturated to integers."""
    if dtype.kind == "bool":
        return bool(value)
    if dtype.is_float:
        if dtype.size == 8:
            return float(value)
        try:
            return struct.unpack(dtype.code, struct.pack(dtype.code, value))[0]
        except OverflowError:
            return float("inf") if value > 0 else float("-inf")
    bits, signed = dtype.size * 8, dtype.kind == "int"
    if isinstance(value, float):
        if value != value:
            return 0
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        return int(min(max(value, low), high))
    wrapped = int(value) & ((1 << bits) - 1)
    return wrapped - (1 << bits) if signed and wrapped >> (bits - 1) else wrapped


class _Machine:
    """One thread: its variables and registers, and the memory that it works on."""

    def __init__(self, buffers: list[list[Any]], known: Mapping[str, int]) -> None:
        self.buffers = buffers
        self.vars = dict(known)
        self.regs: dict[str, list[Any]] = {}

    def block(self, stmts: tuple[Stmt, ...]) -> None:
        for s in stmts:
            self.stmt(s)

    def span(self, s: For) -> range:
        span = range(self.at(s.begin), self.at(s.end), s.step)
        assert span or not s.at_least_once, f"loop {s.var} promised to run"
        return span

    def stmt(self, s: Stmt) -> None:
        match s:
            case Let(var, value):
                self.vars[var.name] = self.at(value)
            case LetMin(var, a, b):
                self.vars[var.name] = min(self.at(a), self.at(b))
            case LetGather(var, value):
                found = int(self.value(value)[0])
                if not 0 <= found < var.extent:
                    raise KernelTrap("gathered index out of range", limit=var.extent, index=found)
                self.vars[var.name] = found
            case LetUniform(var, value):
                self.vars[var.name] = min(max(int(self.value(value)[0]), 0), var.extent - 1)
            case Set(name, value):
                self.regs[name] = self.value(value)
            case Store(buffer, at, value, valid):
                self.store(buffer, self.at(at), self.value(value), valid)
            case For(var, _, _, _, body, _):
                for i in self.span(s):
                    self.vars[var.name] = i
                    self.block(body)
            case If(bounds, then, orelse):
                self.block(then if self.holds(bounds) else orelse)
            case Barrier():
                pass
            case _:
                raise AssertionError(f"unknown statement {s}")

    def store(self, buffer: int, at: int, lanes: list[Any], valid: int) -> None:
        kept, target = lanes[: valid or len(lanes)], self.buffers[buffer]
        assert 0 <= at <= len(target) - len(kept), f"store at {at} of {len(target)}"
        target[at : at + len(kept)] = kept

    def load(self, buffer: int, at: int, count: int) -> list[Any]:
        source = self.buffers[buffer]
        assert 0 <= at <= len(source) - count, f"load b{buffer}[{at}] of {len(source)}"
        return source[at : at + count]

    def at(self, i: Index) -> int:
        total = i.const
        for atom, c in i.terms:
            if isinstance(atom, Var):
                total += c * self.vars[atom.name]
            elif isinstance(atom, Div):
                total += c * (self.at(atom.value) // atom.by)
            elif isinstance(atom, Mod):
                total += c * (self.at(atom.value) % atom.by)
            else:
                raise AssertionError(f"unresolved {atom}")
        return total

    def holds(self, bounds: tuple[Bound, ...]) -> bool:
        return all(0 <= self.at(b.index) < b.extent for b in bounds)

    def value(self, e: Expr) -> list[Any]:
        match e:
            case Const(value, dtype, lanes):
                return [convert(value, dtype)] * lanes
            case Load(buffer, index, dtype, lanes, valid):
                count = valid or lanes
                missing = [convert(0, dtype)] * (lanes - count)
                return self.load(buffer, self.at(index), count) + missing
            case Call(fn, operands, dtype, _):
                args = zip(*(self.value(a) for a in operands), strict=True)
                return [convert(SCALARS[fn].meaning(*lane), dtype) for lane in args]
            case IndexValue(index, dtype, _):
                return [convert(self.at(index), dtype)]
            case Guard(bounds, value, default):
                return self.value(value if self.holds(bounds) else default)
            case Reg(name, _, lanes):
                assert len(self.regs[name]) == lanes, f"register {name} has other lanes"
                return self.regs[name]
            case Splat(value, lanes):
                return self.value(value) * lanes
            case Lanes(values):
                return [self.value(v)[0] for v in values]
            case Dot(acc, row, col):
                sums, a, b = self.value(acc), self.value(row), self.value(col)
                products = [a[i % len(a)] * x for i, x in enumerate(b)]
                groups = zip(*[iter(products)] * (len(b) // len(sums)), strict=True)
                return [convert(s + sum(g), e.dtype) for s, g in zip(sums, groups, strict=True)]
            case Pairs(a, b):
                both = self.value(a) + self.value(b)
                return [convert(x + y, e.dtype) for x, y in zip(both[::2], both[1::2], strict=True)]
            case _:
                return self.parts(e)

    def parts(self, e: Expr) -> list[Any]:
        """A value that consists of what other values have."""
        match e:
            case Nibbles(words, upper):
                places = range(4 if upper else 0, 32, 8)
                return [word >> at & 15 for word in self.value(words) for at in places]
            case Reciprocal(value):
                return [convert(SCALARS["div"].meaning(1.0, x), e.dtype) for x in self.value(value)]
            case Join(parts):
                return [x for part in parts for x in self.value(part)]
            case Lane(value, lane):
                return [self.value(value)[lane]]
            case Subvector(value, first, lanes):
                return self.value(value)[first : first + lanes]
            case Shuffle(a, b, picks):
                both = self.value(a) + self.value(b)
                return [both[i] for i in picks]
            case _:
                raise AssertionError(f"unknown expression {e}")


#: By element of a buffer, since the last barrier: who touched it, and whether anyone wrote it.
_Touched = dict[tuple[int, int], tuple[frozenset[int], bool]]


class _Thread(_Machine):
    """One of several threads: what it writes nobody else may touch before the next barrier."""

    def __init__(
        self,
        buffers: list[list[Any]],
        known: Mapping[str, int],
        touched: _Touched,
        name: Var,
        number: int,
        unit: MatrixUnit | None,
    ) -> None:
        super().__init__(buffers, {**known, name.name: number})
        self.number = number
        self.touched = touched
        self.unit = unit
        self.offered: list[Any] = []
        self.taken: list[Any] = []
        self.peers: Sequence[_Thread] = ()
        self.reached: list[tuple[MatrixStmt, int]] = []
        self.matrices: dict[str, list[list[Any]]] = {}

    def stmt(self, s: Stmt) -> None:
        if isinstance(s, MatrixStmt):
            assert self.unit is not None, f"no matrix unit: {s}"
            # the first thread of a subgroup stands for all of them
            leader = self.peers[self.number - self.number % self.unit.threads]
            place = self.at(s.index) if isinstance(s, LoadMatrix | StoreMatrix) else 0
            self.reached.append((s, place))
            if leader is self:
                self.matrix(s, self.unit)
            same = leader.reached[len(self.reached) - 1]
            assert same == (s, place), f"threads of a subgroup part at {s}: {place}, {same[1]}"
            return
        super().stmt(s)

    def matrix(self, s: MatrixStmt, unit: MatrixUnit) -> None:
        match s:
            case ZeroMatrix(name):
                self.matrices[name] = [[convert(0, unit.result)] * unit.n for _ in range(unit.m)]
            case LoadMatrix(name, right, buffer, at, stride, across):
                begin, runs = self.at(at), unit.n if right else unit.m
                count, each = (unit.k, runs) if across else (runs, unit.k)
                found = [self.load(buffer, begin + i * stride, each) for i in range(count)]
                self.matrices[name] = list(map(list, zip(*found, strict=True))) if across else found
            case MultiplyMatrices(name, left, right):
                rows, columns = self.matrices[left], self.matrices[right]
                self.matrices[name] = [
                    [
                        convert(total + sum(map(mul, row, column)), unit.result)
                        for total, column in zip(sums, columns, strict=True)
                    ]
                    for sums, row in zip(self.matrices[name], rows, strict=True)
                ]
            case StoreMatrix(buffer, at, name, stride):
                begin = self.at(at)
                for i, row in enumerate(self.matrices[name]):
                    self.store(buffer, begin + i * stride, row, 0)

    def phases(self, stmts: tuple[Stmt, ...]) -> Iterator[Barrier | Set]:
        """Runs on to the next barrier, or to what threads swap, and gives it, until none is
        left."""
        for s in stmts:
            if isinstance(s, Barrier):
                yield s
            elif isinstance(s, Set) and isinstance(s.value, Swapped):
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

    def store(self, buffer: int, at: int, lanes: list[Any], valid: int) -> None:
        self._touch(buffer, at, valid or len(lanes), wrote=True)
        super().store(buffer, at, lanes, valid)

    def load(self, buffer: int, at: int, count: int) -> list[Any]:
        self._touch(buffer, at, count, wrote=False)
        return super().load(buffer, at, count)

    def _touch(self, buffer: int, at: int, count: int, wrote: bool) -> None:
        for element in range(at, at + count):
            who, written = self.touched.get((buffer, element), (frozenset[int](), False))
            others = who - {self.number}
            assert not others or not (wrote or written), (
                f"thread {self.number} races with {min(others)} for b{buffer}[{element}]"
            )
            self.touched[buffer, element] = who | {self.number}, wrote or written


def _waits(stmts: tuple[Stmt, ...]) -> bool:
    """Whether threads wait for each other among these statements, at any depth."""
    return any(
        isinstance(s, Barrier)
        or (isinstance(s, Set) and isinstance(s.value, Swapped))
        or (isinstance(s, For) and _waits(s.body))
        or (isinstance(s, If) and _waits((*s.then, *s.orelse)))
        for s in stmts
    )
