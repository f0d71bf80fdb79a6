"""Index algebra: integer sums of variables, floor divisions and remainders, kept in normal form.

Input: variables with known ranges and the operators + * // %.  Output: an `Index` whose equal
values compare equal, so that views (reshape, transpose, slice) fold into plain strides.
Not a general solver: what the ranges cannot simplify stays as a division or remainder.

    (b*128 + s) // 128 -> b          with 0 <= s < 128
    (h*64 + d) % 64    -> d          with 0 <= d < 64
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from tilewright.base.fast_records import computed, record


class Var(NamedTuple):
    """An integer variable in [0, extent).  A tuple, since lowering hashes it all the time."""

    name: str
    extent: int

    def __str__(self) -> str:
        return self.name


@record
class Div:
    """floor(value / by), where value >= 0 and the smallest value is below `by`."""

    value: Index
    by: int

    @property
    def extent(self) -> int:
        return self.value.bounds[1] // self.by + 1

    def __str__(self) -> str:
        return f"({self.value})//{self.by}"


@record
class Mod:
    """value mod by, where value >= 0 and the smallest value is below `by`."""

    value: Index
    by: int

    @property
    def extent(self) -> int:
        return min(self.by, self.value.bounds[1] + 1)

    def __str__(self) -> str:
        return f"({self.value})%{self.by}"


class GatheredValue(Protocol):
    """The part of an expression that this algebra uses."""

    @property
    def variables(self) -> frozenset[Var]: ...
    def substitute(self, values: Mapping[Var, Index], /) -> GatheredValue: ...


@record
class Gathered:
    """An index read from memory: an integer expression whose value must be in [0, extent).

    A kernel traps at a value outside; it never reads beyond the buffer.

    value: an `Expr` (tree.py); this algebra only substitutes its variables
    check: the number of this index among the checked ones of the kernel, for the host's message
    """

    value: GatheredValue
    extent: int
    check: int = 0

    def __str__(self) -> str:
        return f"gather({self.value})"


Atom = Var | Div | Mod | Gathered


@record
class Index:
    """`sum(coefficient * atom) + const`, atoms distinct and in a fixed order, no zero terms."""

    terms: tuple[tuple[Atom, int], ...] = ()
    const: int = 0

    @computed
    def bounds(self) -> tuple[int, int]:
        """Smallest and largest value (both inclusive) over the atoms' ranges."""
        lo = hi = self.const
        for atom, c in self.terms:
            top = c * (atom.extent - 1)
            lo, hi = lo + min(top, 0), hi + max(top, 0)
        return lo, hi

    @computed
    def variables(self) -> frozenset[Var]:
        """Every variable that the value depends on, those of a gathered load included."""
        found: set[Var] = set()
        for atom, _ in self.terms:
            if isinstance(atom, Var):
                found.add(atom)
            else:  # Index and Expr both know their variables
                found |= getattr(atom.value, "variables", frozenset())
        return frozenset(found)

    @property
    def is_const(self) -> bool:
        return not self.terms

    @property
    def is_affine(self) -> bool:
        """True if the value is a plain sum of variables: no division, remainder or gather."""
        return all(isinstance(atom, Var) for atom, _ in self.terms)

    def coefficient(self, var: Var) -> int:
        return next((c for atom, c in self.terms if atom == var), 0)

    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return Index(self.terms, self.const + other) if other else self
        if not other.terms:
            return self + other.const
        return _sum((*self.terms, *other.terms), self.const + other.const)

    def __sub__(self, other: Index | int) -> Index:
        return self + other * -1

    def __mul__(self, factor: int) -> Index:
        if factor == 1:
            return self
        if factor == 0:
            return Index()
        return Index(tuple([(a, c * factor) for a, c in self.terms]), self.const * factor)

    def __floordiv__(self, by: int) -> Index:
        """Simplify `value // by`: whole multiples leave, what fits below `by` vanishes."""
        if by == 1:
            return self
        whole, rest = self._split(by)
        lo, hi = rest.bounds
        if lo // by == hi // by:
            return whole + lo // by
        common = math.gcd(by, *(c for _, c in rest.terms))
        if common > 1:  # (g*a + c) // (g*b) = (a + c//g) // b
            smaller = Index(tuple((a, c // common) for a, c in rest.terms), rest.const // common)
            return whole + smaller // (by // common)
        whole, rest = whole + lo // by, rest - lo // by * by
        if len(rest.terms) == 1 and rest.const == 0 and rest.terms[0][1] == 1:
            atom = rest.terms[0][0]
            if isinstance(atom, Div):  # (a // b) // c = a // (b*c)
                return whole + atom.value // (atom.by * by)
        return whole + Index(((Div(rest, by), 1),))

    def __mod__(self, by: int) -> Index:
        """Simplify `value % by`: whole multiples of `by` vanish, what fits below stays."""
        if by == 1:
            return Index()
        _, rest = self._split(by)
        rest = rest - rest.bounds[0] // by * by
        if rest.bounds[1] < by:
            return rest
        common = math.gcd(by, *(c for _, c in rest.terms))
        if common > 1:  # (g*a + c) % (g*b) = g*((a + c//g) % b) + c%g
            smaller = Index(tuple((a, c // common) for a, c in rest.terms), rest.const // common)
            return (smaller % (by // common)) * common + rest.const % common
        if len(rest.terms) == 1 and rest.const == 0 and rest.terms[0][1] == 1:
            atom = rest.terms[0][0]
            if isinstance(atom, Mod) and atom.by % by == 0:  # (a % bc) % c = a % c
                return atom.value % by
        return Index(((Mod(rest, by), 1),))

    def _split(self, by: int) -> tuple[Index, Index]:
        """value = by * whole + rest, where rest keeps the terms that `by` does not divide."""
        whole = [(a, c // by) for a, c in self.terms if c % by == 0]
        rest = [term for term in self.terms if term[1] % by]
        return Index(tuple(whole)), Index(tuple(rest), self.const)

    def substitute(self, values: Mapping[Var, Index]) -> Index:
        """The index with variables replaced, simplified again."""
        terms: list[tuple[Atom, int]] = []
        const, changed = self.const, False
        for atom, c in self.terms:
            new = values.get(atom) if isinstance(atom, Var) else _substituted(atom, values)
            if new is None:
                terms.append((atom, c))
                continue
            changed = True
            const += new.const * c
            terms += [(a, inner * c) for a, inner in new.terms]
        return _sum(terms, const) if changed else self

    def __str__(self) -> str:
        parts = [f"{a}" if c == 1 else f"{a}*{c}" for a, c in self.terms]
        if self.const or not parts:
            parts.append(str(self.const))
        return " + ".join(parts)


def _substituted(atom: Div | Mod | Gathered, values: Mapping[Var, Index]) -> Index | None:
    """The replacement of an atom; None if it stays."""
    if isinstance(atom, Gathered):
        value = atom.value
        new = value.substitute(values)
        return None if new is value else Index(((Gathered(new, atom.extent, atom.check), 1),))
    inner = atom.value.substitute(values)
    if inner is atom.value:
        return None
    return inner // atom.by if isinstance(atom, Div) else inner % atom.by


def _order(term: tuple[Atom, int]) -> tuple[int, str]:
    atom, c = term
    return (-abs(c), atom[0] if type(atom) is Var else str(atom))


def _sum(terms: Iterable[tuple[Atom, int]], const: int) -> Index:
    merged: dict[Atom, int] = {}
    remainders: list[Mod] = []
    for atom, c in terms:
        merged[atom] = merged.get(atom, 0) + c
        if type(atom) is Mod:
            remainders.append(atom)
    # b*(x//b) + x%b = x: undo a split whose two halves meet again
    for atom in remainders:
        whole, c = atom.value // atom.by, merged[atom]  # (x//a)//b is x//(a*b)
        div = whole.terms[0][0] if len(whole.terms) == 1 else None
        if c and div is not None and whole == Index(((div, 1),)) and merged.get(div) == c * atom.by:
            del merged[atom], merged[div]
            return _sum(merged.items(), const) + atom.value * c
    kept = [(a, c) for a, c in merged.items() if c and (a.extent > 1 or isinstance(a, Gathered))]
    return Index(tuple(sorted(kept, key=_order) if len(kept) > 1 else kept), const)


def index(value: int | Var | Index) -> Index:
    """An `Index` from an int, a variable or an index.  A variable of extent 1 is the constant 0."""
    if isinstance(value, Index):
        return value
    if isinstance(value, int):
        return Index((), value)
    return Index(((value, 1),)) if value.extent > 1 else Index()


def stride(at: Index, axis: Var) -> int | None:
    """The change of the index per step of `axis`; None if that is not constant."""
    if axis not in at.variables:
        return 0
    if not at.is_affine:
        inside = Index(tuple((a, c) for a, c in at.terms if not isinstance(a, Var)))
        if axis in inside.variables:
            return None
    return at.coefficient(axis)


def flatten(indices: Iterable[Index], shape: Iterable[int]) -> Index:
    """Row-major offset of a multi-index in `shape`."""
    total = Index()
    for i, extent in zip(indices, shape, strict=True):
        total = total * extent + i
    return total


def unflatten(flat: Index, shape: tuple[int, ...]) -> tuple[Index, ...]:
    """The multi-index in `shape` of a row-major offset that is known to be inside."""
    result: list[Index] = []
    for extent in reversed(shape):
        result.append(flat % extent)
        flat = flat // extent
    return tuple(reversed(result))


def multi_index(flat: Index, shape: tuple[int, ...]) -> tuple[Index, ...]:
    """The multi-index of an offset.  Beyond the end only its first part grows."""
    inner = math.prod(shape[1:])
    return (flat // inner, *unflatten(flat % inner, shape[1:])) if shape else ()


def is_multiple(at: Index, of: int) -> bool:
    """True if an index is certainly a multiple of `of`."""
    return at.const % of == 0 and all(
        c % of == 0 or (isinstance(atom, Mod) and atom.by % of == 0 and is_multiple(atom.value, of))
        for atom, c in at.terms
    )


def are_adjacent(run: Sequence[Index]) -> bool:
    """True if each index is certainly one more than the index before it."""
    return all(at == run[0] + i for i, at in enumerate(run))
