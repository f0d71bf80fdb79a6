"""Horizontal fusion: one function with the tiles of several independent kernels.

Input: functions whose tiles are computed by one thread each. Output: a function with all their
buffers, in order. Its tiles are those of the first function, then those of the second, and so on.

    if tile < 32:  (the first, tile)  else:  if tile < 96:  (the second, tile - 32)  else:  …
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from tilewright.base.errors import CompilerBug
from tilewright.kernel.expr import Bound, Expr, Load, Reg
from tilewright.kernel.index import Index, Var, index
from tilewright.kernel.loops import (
    For,
    If,
    Let,
    LetGather,
    LetMin,
    Set,
    Stmt,
    Store,
    TileFn,
    at_fixed_shape,
)
from tilewright.kernel.tree import rewrite


def suits(fn: TileFn) -> bool:
    """True for functions with a fixed number of tiles, one thread per tile, and no scratch."""
    return fn.thread is None and not fn.counts and not fn.scratch and fn.unit is None


def fuse_horizontally(functions: Sequence[TileFn]) -> TileFn:
    """One function with the tiles of all.  They must be independent: tiles run in any order."""
    ends = list(accumulate(fn.tiles for fn in functions))
    firsts = list(accumulate((len(fn.buffers) for fn in functions), initial=0))
    tile = Var("tile", ends[-1])
    body: tuple[Stmt, ...] = ()
    for n, fn in reversed(list(enumerate(functions))):
        part = _Part(n, firsts[n], Var(f"tile{n}", fn.tiles), at_fixed_shape(fn))
        own = part.statements(index(tile) - (ends[n] - fn.tiles))
        body = (If((Bound(index(tile), ends[n]),), own, body),) if body else own
    return replace(
        functions[0], name="_".join(fn.name for fn in functions),
        buffers=tuple(b for fn in functions for b in fn.buffers), scalars=(), values=(),
        tile=tile, prologue=(), body=body, tiles=ends[-1], outputs=tuple(firsts[:-1]),
    )  # fmt: skip


class _Part:
    """One of the functions, with its names made unique and its buffers numbered from `first` on."""

    def __init__(self, number: int, first: int, tile: Var, fn: TileFn) -> None:
        self.number, self.first, self.tile, self.fn = number, first, tile, fn
        self.at: Mapping[Var, Index] = {fn.tile: index(tile)}

    def statements(self, tile: Index) -> tuple[Stmt, ...]:
        """The statements that compute a tile of this function."""
        own = self._all((*self.fn.prologue, *self.fn.body))
        return (Let(self.tile, tile), *own)

    def _all(self, stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(map(self._moved, stmts))

    def _moved(self, s: Stmt) -> Stmt:
        match s:
            case Let(var, value):
                return Let(var, value.substitute(self.at))
            case LetMin(var, a, b):
                return LetMin(var, a.substitute(self.at), b.substitute(self.at))
            case LetGather(var, value, check):
                return LetGather(var, self._value(value), check, self.number)
            case Set(name, value):
                return Set(self._name(name), self._value(value))
            case Store(buffer, at, value, valid):
                return Store(self.first + buffer, at.substitute(self.at), self._value(value), valid)
            case For(_, begin, end, _, body, _):
                begin, end = begin.substitute(self.at), end.substitute(self.at)
                return replace(s, begin=begin, end=end, body=self._all(body))
            case If(bounds, then, orelse):
                own = tuple(bound.substitute(self.at) for bound in bounds)
                return If(own, self._all(then), self._all(orelse))
        raise CompilerBug(f"{type(s).__name__} beside other kernels", kernel=self.fn.name)

    def _value(self, e: Expr) -> Expr:
        def moved(e: Expr) -> Expr:
            match e:
                case Load():
                    return replace(e, buffer=self.first + e.buffer)
                case Reg():
                    return replace(e, name=self._name(e.name))
            return e

        return rewrite(e, moved, self.at)

    def _name(self, name: str) -> str:
        return f"k{self.number}_{name}"
