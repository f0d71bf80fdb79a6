"""The reference interpreter of the loop IR: what it does is what the IR means.

Input: a `TileFn`, buffers as lists of Python numbers, tile numbers.  Output: the buffers, changed.
Slow and exact: every f32 result is rounded to f32, every access is checked against its buffer.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
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
    Pairs,
    Reg,
    Shuffle,
    Splat,
)
from tilewright.kernel.index import Div, Index, Mod, Var
from tilewright.kernel.loops import (
    Barrier,
    For,
    If,
    Let,
    LetGather,
    LetMin,
    Set,
    Stmt,
    Store,
    TileFn,
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
    machine = _Machine([*buffers, *([0] * s.size for s in fn.scratch)])
    count, *values = numbers_at(fn, extents)
    machine.vars.update(zip((v.name for v in fn.scalars), values, strict=True))
    machine.block(fn.prologue)
    for tile in range(count) if tiles is None else tiles:
        machine.vars[fn.tile.name] = tile
        machine.block(fn.body)


def convert(value: Any, dtype: DType) -> Any:
    """A number as `dtype` holds it: rounded to f32, truncated and saturated to integers."""
    if dtype.kind == "bool":
        return bool(value)
    if dtype.is_float:
        if dtype.size == 8:
            return float(value)
        try:
            return struct.unpack("f", struct.pack("f", value))[0]
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
    def __init__(self, buffers: list[list[Any]]) -> None:
        self.buffers = buffers
        self.vars: dict[str, int] = {}
        self.regs: dict[str, list[Any]] = {}

    def block(self, stmts: tuple[Stmt, ...]) -> None:
        for s in stmts:
            self.stmt(s)

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
            case Set(name, value):
                self.regs[name] = self.value(value)
            case Store(buffer, at, value, valid):
                self.store(self.buffers[buffer], self.at(at), self.value(value), valid)
            case For(var, begin, end, step, body, at_least_once):
                span = range(self.at(begin), self.at(end), step)
                assert span or not at_least_once, f"loop {var} promised to run"
                for i in span:
                    self.vars[var.name] = i
                    self.block(body)
            case If(bounds, then, orelse):
                self.block(then if self.holds(bounds) else orelse)
            case Barrier():
                pass
            case _:
                raise AssertionError(f"unknown statement {s}")

    @staticmethod
    def store(buffer: list[Any], at: int, lanes: list[Any], valid: int) -> None:
        kept = lanes[: valid or len(lanes)]
        assert 0 <= at <= len(buffer) - len(kept), f"store at {at} of {len(buffer)}"
        buffer[at : at + len(kept)] = kept

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
                source, at, count = self.buffers[buffer], self.at(index), valid or lanes
                assert 0 <= at <= len(source) - count, f"load b{buffer}[{at}] of {len(source)}"
                empty = convert(0, dtype)
                return source[at : at + count] + [empty] * (lanes - count)
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
            case Join(parts):
                return [x for part in parts for x in self.value(part)]
            case Lane(value, lane):
                return [self.value(value)[lane]]
            case Shuffle(a, b, picks):
                both = self.value(a) + self.value(b)
                return [both[i] for i in picks]
            case _:
                raise AssertionError(f"unknown expression {e}")
