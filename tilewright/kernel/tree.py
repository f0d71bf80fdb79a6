"""Expressions as trees: walking all nodes, and rebuilding a tree with changes.

Input: any expression of expr.py, whose base is here.  Output: its nodes, or a new expression that
shares the unchanged parts.  The operands of a node are found by the annotations of its fields, so a
new kind of expression needs no code here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from operator import attrgetter, is_
from typing import Protocol, TypeVar

from tilewright.base.errors import of_kind
from tilewright.base.fast_records import computed, record
from tilewright.kernel.index import Div, Gathered, Index, Mod, Var


class _Bound(Protocol):
    index: Index


class _Substituted(Protocol):
    """A value with indices, in which variables can be substituted."""

    def substitute(self: P, values: Mapping[Var, Index], /) -> P: ...


P = TypeVar("P", bound=_Substituted)


@record
class Expr:
    """Base of all value expressions (expr.py).  Its fields hold its operands."""

    @property
    def args(self) -> tuple[Expr, ...]:
        """The expressions right below, in order."""
        return fields_of(type(self)).args(self)

    @computed
    def variables(self) -> frozenset[Var]:
        """Every index variable that the value depends on."""
        found: set[Var] = set()
        for i in indices_of(self):
            found |= i.variables
        for e in self.args:
            found |= e.variables
        return frozenset(found)

    def substitute(self, values: Mapping[Var, Index]) -> Expr:
        """The expression with index variables replaced."""
        return rewrite(self, lambda e: e, values)


def walk(e: Expr) -> Iterator[Expr]:
    """Every node of the tree, parents first, loads inside gathered indices included."""
    found: list[Expr] = []
    _walk(e, found)
    return iter(found)


def _walk(e: Expr, found: list[Expr]) -> None:
    found.append(e)
    layout = fields_of(type(e))
    for arg in layout.args(e):
        _walk(arg, found)
    if layout.indices:
        for i in layout.indices(e):
            _walk_index(i, found)


def _walk_index(i: Index, found: list[Expr]) -> None:
    for atom, _ in i.terms:
        if isinstance(atom, Gathered):
            _walk(read_by(atom), found)
        elif isinstance(atom, (Div, Mod)):
            _walk_index(atom.value, found)


def read_by(atom: Gathered) -> Expr:
    """The expression whose value is the index."""
    return of_kind(atom.value, Expr, "an index is not an expression")


def indices_of(e: Expr) -> tuple[Index, ...]:
    """The indices right in a node, those of bounds included."""
    read = fields_of(type(e)).indices
    return read(e) if read is not None else ()


def rewrite(
    e: Expr, change: Callable[[Expr], Expr], values: Mapping[Var, Index] | None = None
) -> Expr:
    """Rebuild the tree bottom up: substitute index variables, then apply `change` to each node.

    Parts that stay as they are are shared, not copied.
    """
    layout, new = fields_of(type(e)), None
    for at, name, below in layout.parts:
        old = getattr(e, name)
        fresh = below(old, change, values)
        if fresh is not old:
            new = new or [getattr(e, n) for n in layout.names]
            new[at] = fresh
    return change(e if new is None else type(e)(*new))


def _each(below: Callable[..., object]) -> Callable[..., object]:
    """The same for a tuple; it stays the same tuple if nothing changes."""

    def of(old: tuple[object, ...], change: object, values: object) -> tuple[object, ...]:
        new = [below(part, change, values) for part in old]
        return old if all(map(is_, new, old)) else tuple(new)

    return of


def _substituted(old: P, _: object, values: Mapping[Var, Index] | None) -> P:
    return old.substitute(values) if values else old


#: How each kind of field that holds parts of a tree is rebuilt, by its annotation.
_PARTS: dict[str, Callable[..., object]] = {
    "Expr": rewrite,
    "tuple[Expr, ...]": _each(rewrite),
    "Index": _substituted,
    "tuple[Bound, ...]": _each(_substituted),
}


@dataclass(frozen=True)
class Fields:
    """What the fields of a kind of expression hold.

    names:   all fields;  parts: (position, field, how it is rebuilt) of the fields that hold trees
    args:    reads the expressions: one field that holds all of them, or a field for each
    indices: reads the indices, if the kind has any
    """

    names: tuple[str, ...]
    parts: tuple[tuple[int, str, Callable[..., object]], ...]
    args: Callable[[Expr], tuple[Expr, ...]]
    indices: Callable[[Expr], tuple[Index, ...]] | None


_FIELDS: dict[type[Expr], Fields] = {}


def fields_of(kind: type[Expr]) -> Fields:
    """The layout of a kind of expression."""
    known = _FIELDS.get(kind)
    if known is not None:
        return known
    types = {f.name: str(f.type) for f in fields(kind)}
    parts = [(at, name, _PARTS[t]) for at, (name, t) in enumerate(types.items()) if t in _PARTS]
    single = [name for name, t in types.items() if t == "Expr"]
    several = [name for name, t in types.items() if t == "tuple[Expr, ...]"]
    _FIELDS[kind] = Fields(
        tuple(types), tuple(parts), _reader(single, several), _index_reader(types)
    )
    return _FIELDS[kind]


def _reader(single: list[str], several: list[str]) -> Callable[[Expr], tuple[Expr, ...]]:
    if not single + several:
        return lambda _: ()
    if len(single) == 1:
        one: Callable[[Expr], Expr] = attrgetter(single[0])
        return lambda e: (one(e),)
    read: Callable[[Expr], tuple[Expr, ...]] = attrgetter(*single, *several)
    return read


def _index_reader(types: Mapping[str, str]) -> Callable[[Expr], tuple[Index, ...]] | None:
    for name, t in types.items():
        if t == "Index":
            read: Callable[[Expr], Index] = attrgetter(name)
            return lambda e: (read(e),)
        if t == "tuple[Bound, ...]":
            bounds: Callable[[Expr], tuple[_Bound, ...]] = attrgetter(name)
            return lambda e: tuple([bound.index for bound in bounds(e)])
    return None
