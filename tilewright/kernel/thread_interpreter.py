"""One thread of the reference interpreter, step by step: variables, registers, what statements do.

Input: statements of the loop IR, buffers as lists of Python numbers.  Output: the buffers, changed.
Every f32 result is rounded to f32, every access is checked against its buffer.  What several
threads do together is in interpreter.py.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from tilewright.base.dtypes import DType
from tilewright.base.errors import CompilerBug, OutOfRange
from tilewright.base.scalars import SCALARS, Number
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
    PairSums,
    Reciprocal,
    Reg,
    Shuffle,
    Splat,
    Subvector,
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
    Set,
    Stmt,
    Store,
)


def convert(value: Number, dtype: DType) -> Number:
    """A number as `dtype` holds it: rounded to f32, truncated and saturated to integers."""
    if dtype.kind == "bool":
        return bool(value)
    if dtype.is_float:
        if dtype.size == 8:
            return float(value)
        try:
            (rounded,) = struct.unpack(dtype.code, struct.pack(dtype.code, value))
            return float(rounded)
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


class ThreadInterpreter:
    """One thread: its variables and registers, and the memory that it works on."""

    def __init__(self, buffers: list[list[Number]], known: Mapping[str, int]) -> None:
        self.buffers = buffers
        self.vars = dict(known)
        self.regs: dict[str, list[Number]] = {}

    def block(self, stmts: tuple[Stmt, ...]) -> None:
        for s in stmts:
            self.stmt(s)

    def span(self, s: For) -> range:
        span = range(self.at(s.begin), self.at(s.end), s.step)
        if not span and s.at_least_once:
            raise CompilerBug(f"loop {s.var} must run at least once")
        return span

    def stmt(self, s: Stmt) -> None:
        match s:
            case Let(var, value):
                self.vars[var.name] = self.at(value)
            case LetMin(var, a, b):
                self.vars[var.name] = min(self.at(a), self.at(b))
            case LetGather(var, value, check):
                found = int(self.value(value)[0])
                if not 0 <= found < var.extent:
                    raise OutOfRange(check or 0, found)
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
                raise CompilerBug(f"unknown statement {s}")

    def store(self, buffer: int, at: int, lanes: list[Number], valid: int) -> None:
        kept, target = lanes[: valid or len(lanes)], self.buffers[buffer]
        if not 0 <= at <= len(target) - len(kept):
            raise CompilerBug(f"store at {at} of {len(target)}")
        target[at : at + len(kept)] = kept

    def load(self, buffer: int, at: int, count: int) -> list[Number]:
        source = self.buffers[buffer]
        if not 0 <= at <= len(source) - count:
            raise CompilerBug(f"load b{buffer}[{at}] of {len(source)}")
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
                raise CompilerBug(f"unresolved {atom}")
        return total

    def holds(self, bounds: tuple[Bound, ...]) -> bool:
        return all(0 <= self.at(b.index) < b.extent for b in bounds)

    def value(self, e: Expr) -> list[Number]:
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
                if len(self.regs[name]) != lanes:
                    raise CompilerBug(f"register {name} has other lanes")
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
            case PairSums(a, b):
                both = self.value(a) + self.value(b)
                return [convert(x + y, e.dtype) for x, y in zip(both[::2], both[1::2], strict=True)]
            case _:
                return self.parts(e)

    def parts(self, e: Expr) -> list[Number]:
        """A value that consists of what other values have."""
        match e:
            case Nibbles(words, upper):
                places = range(4 if upper else 0, 32, 8)
                return [int(word) >> at & 15 for word in self.value(words) for at in places]
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
                raise CompilerBug(f"unknown expression {e}")
