"""Value expressions: what a kernel computes for one element, and what loops compute on lanes.

Input: constants, loads at indices, scalar functions.  Output: frozen trees, hashable and printable.
The first group serves kernel specifications and loops alike; the second exists only in loops, where
values have lanes (a vector of `lanes` elements of one dtype).  No statement lives here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

from tilewright.base.dtypes import I32, I64, DType
from tilewright.kernel.index import Index, Var


@dataclass(frozen=True)
class Bound:
    """The condition 0 <= index < extent."""

    index: Index
    extent: int

    def substitute(self, values: Mapping[Var, Index]) -> Bound:
        return Bound(self.index.substitute(values), self.extent)

    @property
    def always(self) -> bool:
        lo, hi = self.index.bounds
        return lo >= 0 and hi < self.extent

    @property
    def never(self) -> bool:
        lo, hi = self.index.bounds
        return hi < 0 or lo >= self.extent

    def __str__(self) -> str:
        return f"0 <= {self.index} < {self.extent}"


@dataclass(frozen=True)
class Expr:
    """Base of all value expressions."""

    @property
    def args(self) -> tuple[Expr, ...]:
        return ()

    @cached_property
    def variables(self) -> frozenset[Var]:
        """Every index variable that the value depends on."""
        below = [i.variables for i in _indices(self)] + [a.variables for a in self.args]
        return frozenset().union(*below)

    def substitute(self, values: Mapping[Var, Index]) -> Expr:
        """The expression with index variables replaced."""
        return rewrite(self, lambda e: e, values)


@dataclass(frozen=True)
class Const(Expr):
    """A literal.  With lanes > 1, the same value in every lane."""

    value: float | int | bool
    dtype: DType
    lanes: int = 1

    def __str__(self) -> str:
        return f"{self.value}:{self.dtype}" + (f"x{self.lanes}" if self.lanes > 1 else "")


@dataclass(frozen=True)
class Load(Expr):
    """`lanes` consecutive elements of buffer number `buffer`, from element `index` on.

    Only the first `valid` lanes are read (0 means all); the others are 0.
    """

    buffer: int
    index: Index
    dtype: DType
    lanes: int = 1
    valid: int = 0

    def __str__(self) -> str:
        lanes = f" x{self.lanes}" if self.lanes > 1 else ""
        valid = f" first {self.valid}" if self.valid else ""
        return f"b{self.buffer}[{self.index}{lanes}{valid}]"


@dataclass(frozen=True)
class Call(Expr):
    """A scalar function of the table in base/scalars.py, lane by lane."""

    fn: str
    operands: tuple[Expr, ...]
    dtype: DType
    lanes: int = 1

    @property
    def args(self) -> tuple[Expr, ...]:
        return self.operands

    def __str__(self) -> str:
        tail = f":{self.dtype}" if self.fn == "cast" else ""
        return f"{self.fn}({', '.join(map(str, self.operands))}){tail}"


@dataclass(frozen=True)
class IndexValue(Expr):
    """An index as a number (ONNX Range, position ids).  Scalar."""

    index: Index
    dtype: DType = I64
    lanes: int = 1

    def __str__(self) -> str:
        return f"int({self.index})"


@dataclass(frozen=True)
class Guard(Expr):
    """`value` where all bounds hold, else `default`.  `value` is not evaluated where they fail."""

    bounds: tuple[Bound, ...]
    value: Expr
    default: Expr

    @property
    def args(self) -> tuple[Expr, ...]:
        return (self.value, self.default)

    @property
    def dtype(self) -> DType:
        return self.value.dtype  # type: ignore[attr-defined,no-any-return]

    @property
    def lanes(self) -> int:
        return self.value.lanes  # type: ignore[attr-defined,no-any-return]

    def __str__(self) -> str:
        return f"({self.value} if {' and '.join(map(str, self.bounds))} else {self.default})"


@dataclass(frozen=True)
class Acc(Expr):
    """The result of the kernel's reduction number `stage` (specifications only)."""

    stage: int
    dtype: DType
    lanes: int = 1

    def __str__(self) -> str:
        return f"r{self.stage}"


# ---- only in loops -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reg(Expr):
    """The current value of a register, written by `Set`."""

    name: str
    dtype: DType
    lanes: int = 1

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Splat(Expr):
    """A scalar repeated in every lane."""

    value: Expr
    lanes: int

    @property
    def args(self) -> tuple[Expr, ...]:
        return (self.value,)

    @property
    def dtype(self) -> DType:
        return dtype_of(self.value)

    def __str__(self) -> str:
        return f"splat{self.lanes}({self.value})"


@dataclass(frozen=True)
class Lanes(Expr):
    """A vector built from one scalar per lane (a strided or gathered read)."""

    values: tuple[Expr, ...]

    @property
    def args(self) -> tuple[Expr, ...]:
        return self.values

    @property
    def dtype(self) -> DType:
        return dtype_of(self.values[0])

    @property
    def lanes(self) -> int:
        return len(self.values)

    def __str__(self) -> str:
        return f"lanes({', '.join(map(str, self.values))})"


@dataclass(frozen=True)
class Lane(Expr):
    """One lane of a vector, as a scalar."""

    value: Expr
    lane: int

    @property
    def args(self) -> tuple[Expr, ...]:
        return (self.value,)

    @property
    def dtype(self) -> DType:
        return dtype_of(self.value)

    @property
    def lanes(self) -> int:
        return 1

    def __str__(self) -> str:
        return f"{self.value}.{self.lane}"


@dataclass(frozen=True)
class Shuffle(Expr):
    """Lanes picked from two vectors laid end to end: `picks[i]` is the source of lane i."""

    a: Expr
    b: Expr
    picks: tuple[int, ...]

    @property
    def args(self) -> tuple[Expr, ...]:
        return (self.a, self.b)

    @property
    def dtype(self) -> DType:
        return dtype_of(self.a)

    @property
    def lanes(self) -> int:
        return len(self.picks)

    def __str__(self) -> str:
        return f"shuffle({self.a}, {self.b}, {' '.join(map(str, self.picks))})"


@dataclass(frozen=True)
class Dot(Expr):
    """acc + sums of products of neighbouring lanes, in i32, exactly.

    `col` has p times as many lanes as `acc`; lane l gains the sum over j < p of
    row[(l * p + j) mod lanes of row] * col[l * p + j]: a short `row` repeats.
    `small` promises that sums of two neighbouring products fit 16 bits.
    """

    acc: Expr
    row: Expr
    col: Expr
    small: bool = False

    @property
    def args(self) -> tuple[Expr, ...]:
        return (self.acc, self.row, self.col)

    @property
    def dtype(self) -> DType:
        return I32

    @property
    def lanes(self) -> int:
        return lanes_of(self.acc)

    @property
    def depth(self) -> int:
        """Products per lane."""
        return lanes_of(self.col) // lanes_of(self.acc)

    def __str__(self) -> str:
        return f"dot{self.depth}({self.row}, {self.col}, {self.acc})"


@dataclass(frozen=True)
class Pairs(Expr):
    """Sums of neighbouring lanes: (a0+a1, a2+a3, ..., b0+b1, b2+b3, ...)."""

    a: Expr
    b: Expr

    @property
    def args(self) -> tuple[Expr, ...]:
        return (self.a, self.b)

    @property
    def dtype(self) -> DType:
        return dtype_of(self.a)

    @property
    def lanes(self) -> int:
        return lanes_of(self.a)

    def __str__(self) -> str:
        return f"pairs({self.a}, {self.b})"


@dataclass(frozen=True)
class Join(Expr):
    """The lanes of several vectors as one longer vector (to be stored)."""

    parts: tuple[Expr, ...]

    @property
    def args(self) -> tuple[Expr, ...]:
        return self.parts

    @property
    def dtype(self) -> DType:
        return dtype_of(self.parts[0])

    @property
    def lanes(self) -> int:
        return sum(map(lanes_of, self.parts))

    def __str__(self) -> str:
        return f"join({', '.join(map(str, self.parts))})"


def zipped(a: Expr, b: Expr, unit: int, upper: bool) -> Shuffle:
    """Runs of `unit` lanes of a and b by turns, of their lower or upper half."""
    lanes = lanes_of(a)
    start = lanes // 2 if upper else 0
    runs = range(start, start + lanes // 2, unit)
    return Shuffle(a, b, tuple(x + j for i in runs for x in (i, i + lanes) for j in range(unit)))


def dtype_of(e: Expr) -> DType:
    return e.dtype  # type: ignore[attr-defined,no-any-return]


def lanes_of(e: Expr) -> int:
    return e.lanes  # type: ignore[attr-defined,no-any-return]


def walk(e: Expr) -> Iterator[Expr]:
    """Every node of the tree, parents first, loads inside gathered indices included."""
    yield e
    for arg in e.args:
        yield from walk(arg)
    for i in _indices(e):
        yield from _walk_index(i)


def _indices(e: Expr) -> Iterator[Index]:
    if isinstance(e, (Load, IndexValue)):
        yield e.index
    elif isinstance(e, Guard):
        for b in e.bounds:
            yield b.index


def _walk_index(i: Index) -> Iterator[Expr]:
    for atom, _ in i.terms:
        inner = getattr(atom, "value", None)
        if isinstance(inner, Index):
            yield from _walk_index(inner)
        elif isinstance(inner, Expr):
            yield from walk(inner)


def rewrite(
    e: Expr, change: Callable[[Expr], Expr], values: Mapping[Var, Index] | None = None
) -> Expr:
    """Rebuild the tree bottom up: substitute index variables, then apply `change` to each node."""
    new: dict[str, Any] = {}
    for field in fields(e):
        old = getattr(e, field.name)
        fresh = _rewrite_field(old, change, values or {})
        if fresh is not old:
            new[field.name] = fresh
    return change(replace(e, **new) if new else e)


def _rewrite_field(
    old: object, change: Callable[[Expr], Expr], values: Mapping[Var, Index]
) -> object:
    if isinstance(old, Expr):
        return rewrite(old, change, values)
    if isinstance(old, (Index, Bound)):
        return old.substitute(values)
    if isinstance(old, tuple) and old and isinstance(old[0], (Expr, Bound)):
        return tuple(_rewrite_field(x, change, values) for x in old)
    return old
