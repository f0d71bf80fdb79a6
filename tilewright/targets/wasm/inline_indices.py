"""Undoes sharing of index arithmetic: named indices are written out at each use.

Input: a `TileFn`. Output: a `TileFn` that computes the same. It is the base of the paper's ablation
(lower.py, `placed=False`), in which no part of an address is shared or moved out of a loop. Some
names stay: a tile's coordinates (divisions of its number), which correspond to the paper's outer
loop variables, and indices that need statements (gathered, uniform, or the smaller of two).

    p = m * 384 + 8; s := load b1[p + k]   ->   s := load b1[m * 384 + k + 8]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tilewright.kernel import loops as l
from tilewright.kernel.index import Index, Var

#: Named indices by variable, expressed in unnamed variables.
_Named = dict[Var, Index]


def inline_indices(fn: l.TileFn) -> l.TileFn:
    """The function in which no sum or multiple of variables has a name."""
    named: _Named = {}
    prologue = _stmts(fn.prologue, named)
    return replace(fn, prologue=prologue, body=_stmts(fn.body, named))


def _stmts(stmts: tuple[l.Stmt, ...], named: _Named) -> tuple[l.Stmt, ...]:
    found: list[l.Stmt] = []
    for s in stmts:
        if isinstance(s, l.Let):
            value = s.value.substitute(named)
            if value.is_affine:
                named[s.var] = value
            else:
                found.append(l.Let(s.var, value))
        else:
            found.append(_RULES[type(s)](s, named) if type(s) in _RULES else s)
    return tuple(found)


def _value(s: Any, named: _Named) -> l.Stmt:
    changed: l.Stmt = replace(s, value=s.value.substitute(named))
    return changed


def _smaller(s: l.LetMin, named: _Named) -> l.Stmt:
    return replace(s, a=s.a.substitute(named), b=s.b.substitute(named))


def _store(s: l.Store, named: _Named) -> l.Stmt:
    return replace(s, index=s.index.substitute(named), value=s.value.substitute(named))


def _loop(s: l.For, named: _Named) -> l.Stmt:
    begin, end = s.begin.substitute(named), s.end.substitute(named)
    return replace(s, begin=begin, end=end, body=_stmts(s.body, named))


def _branch(s: l.If, named: _Named) -> l.Stmt:
    bounds = tuple(b.substitute(named) for b in s.bounds)
    return replace(s, bounds=bounds, then=_stmts(s.then, named), orelse=_stmts(s.orelse, named))


_RULES: Mapping[type, Callable[[Any, _Named], l.Stmt]] = {
    l.Set: _value,
    l.LetGather: _value,
    l.LetUniform: _value,
    l.LetMin: _smaller,
    l.Store: _store,
    l.For: _loop,
    l.If: _branch,
}
