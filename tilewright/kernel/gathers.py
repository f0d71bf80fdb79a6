"""Gathered indices, which are read from memory: whether a kernel has any, and how guards protect
them.

Input: a kernel.  Output: True if it has gathered indices, which may be out of range.
Input: an expression.  Output: the same value, as an expression whose gathered indices may be read
before a guard above them is evaluated, as loop nests do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tilewright.kernel.expr import Bound, Const, Expr, Guard, IndexValue, Load, Reg, dtype_of
from tilewright.kernel.index import Atom, Div, Gathered, Index, Mod
from tilewright.kernel.spec import Kernel
from tilewright.kernel.tree import indices_of, read_by, rewrite, walk


def may_trap(kernel: Kernel) -> bool:
    """True if the kernel reads at an index loaded from memory, which may be out of range."""
    return any(isinstance(a, Gathered) for a in _atoms(kernel))


def _atoms(kernel: Kernel) -> list[object]:
    values = (kernel.value, *(stage.value for stage in kernel.stages))
    indices = [i for v in values for e in walk(v) for i in indices_of(e)]
    found: list[object] = []
    while indices:
        for atom, _ in indices.pop().terms:
            found.append(atom)
            if isinstance(atom, (Div, Mod)):
                indices.append(atom.value)
    return found


def with_guarded_reads(e: Expr) -> Expr:
    """x[gather(t[i-1])] if 0 <= i-1 < n   ->   x[gather(t[i-1] if 0 <= i-1 < n else 0)] if ..."""
    return rewrite(e, _guard_reads) if _has_guard(e) else e


def _has_guard(e: Expr) -> bool:
    if isinstance(e, (Load, Reg, Const)):
        return False
    return isinstance(e, Guard) or any(map(_has_guard, e.args))


def _guard_reads(e: Expr) -> Expr:
    if not isinstance(e, Guard):
        return e

    def where_it_holds(read: Expr) -> Expr:
        return Guard(e.bounds, read, Const(0, dtype_of(read)))

    def where_it_fails(read: Expr) -> Expr:
        return Guard(e.bounds, Const(0, dtype_of(read)), read)

    value = _change_reads(e.value, where_it_holds)
    return Guard(e.bounds, value, _change_reads(e.default, where_it_fails))


def _change_reads(e: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """The expression with another expression for every index that is read from memory."""

    def of_index(i: Index) -> Index:
        total = Index((), i.const)
        for atom, c in i.terms:
            total = total + of_atom(atom) * c
        return total

    def of_atom(atom: Atom) -> Index:
        if isinstance(atom, (Div, Mod)):
            inner = of_index(atom.value)
            return inner // atom.by if isinstance(atom, Div) else inner % atom.by
        if isinstance(atom, Gathered):
            atom = Gathered(change(read_by(atom)), atom.extent, atom.check)
        return Index(((atom, 1),))

    def of_node(node: Expr) -> Expr:
        if isinstance(node, (Load, IndexValue)):
            return replace(node, index=of_index(node.index))
        if isinstance(node, Guard):
            bounds = tuple(Bound(of_index(b.index), b.extent) for b in node.bounds)
            return Guard(bounds, node.value, node.default)
        return node

    return rewrite(e, of_node)
