"""Loop nests as text of a language with braces: the code that text targets share.

Input: a scalar `TileFn` and a `Dialect`.  Output: lines of statements; the dialect puts its own
function around them.  Supported vector operations: whole loads and stores, arithmetic, and building
a vector from scalars or taking it apart.  Targets without vectors lower kernels without them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

from tilewright.base.dtypes import DType
from tilewright.base.errors import CompilerBug
from tilewright.kernel import loops as l
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
    Lanewise,
    Load,
    Nibbles,
    Reciprocal,
    Reg,
    ShuffleXor,
    Splat,
    SubgroupBroadcast,
    Subvector,
    dtype_of,
    lanes_of,
)
from tilewright.kernel.index import Div, Index, Mod, Var


class Dialect(ABC):
    """The syntax of one language.  Index values are signed integers."""

    @abstractmethod
    def literal(self, value: float | int | bool, dtype: DType) -> str: ...

    @abstractmethod
    def call(self, e: Call, args: list[str]) -> str: ...

    @abstractmethod
    def load(self, buffer: int, at: str, dtype: DType, lanes: int) -> str: ...

    @abstractmethod
    def store(self, buffer: int, at: str, value: str, dtype: DType, lanes: int) -> str: ...

    def vector(self, dtype: DType, parts: list[str]) -> str:
        """A vector of these lanes; a single part is repeated in all of them."""
        raise CompilerBug(f"no text for vectors of {dtype}")

    def lane(self, vector: str, lane: int) -> str:
        raise CompilerBug(f"no text for lane {lane} of a vector")

    def join(self, dtype: DType, parts: list[str]) -> str:
        """The lanes of several vectors, one after the other."""
        raise CompilerBug(f"no text for longer vectors of {dtype}")

    def part(self, e: Subvector, vector: str) -> str:
        raise CompilerBug(f"no text for a part of {e.value}")

    def shuffle_xor(self, value: str, bits: int) -> str:
        """The value of the thread whose number in the subgroup differs in these bits."""
        raise CompilerBug("no text for subgroups")

    def subgroup_broadcast(self, value: str, thread: Index) -> str:
        """The value of the thread with this number in the subgroup; all threads name the same
        one."""
        raise CompilerBug("no text for subgroups")

    def dot(self, e: Dot, acc: str, row: str, col: str) -> str:
        raise CompilerBug("no text for dot products")

    def nibbles(self, e: Nibbles, words: str) -> str:
        raise CompilerBug("no text for the nibbles of words")

    def matrix(self, s: l.MatrixStmt, unit: l.MatrixUnit) -> str:
        """A statement on a subgroup's matrices."""
        raise CompilerBug("no text for matrices")

    def result(self, name: str, unit: l.MatrixUnit) -> str:
        """Declares a matrix of results."""
        raise CompilerBug("no text for matrices")

    def copy(self, s: l.AsyncCopy | l.CommitCopies | l.WaitForCopies) -> str:
        """An asynchronous copy to shared memory, or a wait for such copies."""
        raise CompilerBug("no text for asynchronous copies")

    @abstractmethod
    def number(self, at: str, dtype: DType) -> str:
        """An index value as a number of a dtype."""

    @abstractmethod
    def choose(self, condition: str, value: str, default: str) -> str:
        """`value` if the condition holds, else `default`.

        The text must not fail where `value` would read outside of a buffer and the condition is
        false.
        """

    @abstractmethod
    def all(self, conditions: list[str]) -> str:
        """True if all conditions are true; they have no side effects, so all may be evaluated."""

    @abstractmethod
    def scalar(self, number: int) -> str:
        """A run-time scalar of the argument block."""

    @abstractmethod
    def declare(self, name: str, dtype: DType, lanes: int) -> str: ...

    @abstractmethod
    def let(self, name: str, value: str) -> str:
        """Names an index value; the statement may be repeated in another block."""

    @abstractmethod
    def loop(self, name: str, begin: str, end: str, step: int, most: int) -> str:
        """The head of a loop, with its brace.  If `end` is a variable, it is at most `most`."""

    def uniform(self, name: str, value: str, most: int) -> str:
        """Names an integer that all threads of the tile share, clamped to [0, most]."""
        raise CompilerBug("no text for a number that threads share")

    @abstractmethod
    def barrier(self, subgroup_only: bool) -> str:
        """A barrier of all threads of the tile; `subgroup_only`: at least of a subgroup.  "" for a
        single thread."""

    @abstractmethod
    def gather(self, s: l.LetGather, value: str, dtype: DType) -> str:
        """Names an integer read from memory.  If it is out of range, ends the run with the check's
        number."""


def body(fn: l.TileFn, dialect: Dialect, pad: str = "  ") -> Iterator[str]:
    """The lines that compute one tile, whose number the dialect has named as `fn.tile`."""
    yield from declarations(fn, dialect, pad)
    yield from lines((*fn.prologue, *fn.body), dialect, pad, fn.unit)


def declarations(fn: l.TileFn, dialect: Dialect, pad: str) -> Iterator[str]:
    """Declares registers, matrices of results and run-time scalars."""
    stmts = (*fn.prologue, *fn.body)
    for name, (dtype, lanes) in registers(stmts).items():
        yield pad + dialect.declare(name, dtype, lanes)
    if fn.unit:
        # Operand matrices are declared where they are loaded.
        for name in dict.fromkeys(
            s.name for s in l.every_statement(stmts) if isinstance(s, l.ZeroMatrix)
        ):
            yield pad + dialect.result(name, fn.unit)
    for number, (scalar, value) in enumerate(zip(fn.scalars, fn.values, strict=True)):
        known = dialect.scalar(number) if fn.counts else str(value)
        yield pad + dialect.let(scalar.name, known)


def registers(stmts: tuple[l.Stmt, ...]) -> dict[str, tuple[DType, int]]:
    """Type and lanes of each register that is written."""
    sets = (s for s in l.every_statement(stmts) if isinstance(s, l.Set))
    return {s.name: (dtype_of(s.value), lanes_of(s.value)) for s in sets}


def lines(
    stmts: tuple[l.Stmt, ...], d: Dialect, pad: str, unit: l.MatrixUnit | None
) -> Iterator[str]:
    """The text of statements."""
    for s in stmts:
        match s:
            case l.Let(var, value):
                yield pad + d.let(var.name, at(value))
            case l.LetMin(var, a, b):
                yield pad + d.let(var.name, f"min({at(a)}, {at(b)})")
            case l.LetGather(var, value):
                yield pad + d.gather(s, value_of(value, d), dtype_of(value))
            case l.LetUniform(var, value):
                yield pad + d.uniform(var.name, value_of(value, d), var.extent - 1)
            case l.Set(name, value):
                yield f"{pad}{name} = {value_of(value, d)};"
            case l.Store():
                yield from (pad + text for text in _stored(s, d))
            case l.For(var, begin, end, step, inside, _):
                yield pad + d.loop(var.name, at(begin), at(end), step, var.extent)
                yield from lines(inside, d, pad + "  ", unit)
                yield pad + "}"
            case l.If(bounds, then, orelse):
                yield f"{pad}if ({condition(bounds, d)}) {{"
                yield from lines(then, d, pad + "  ", unit)
                if orelse:
                    yield pad + "} else {"
                    yield from lines(orelse, d, pad + "  ", unit)
                yield pad + "}"
            case l.Barrier(subgroup_only):
                yield pad + d.barrier(subgroup_only)
            case l.AsyncCopy() | l.CommitCopies() | l.WaitForCopies():
                yield pad + d.copy(s)
            case l.MatrixStmt() if unit:
                yield pad + d.matrix(s, unit)
            case _:
                raise CompilerBug(f"no text for the statement {type(s).__name__}")


def _stored(s: l.Store, d: Dialect) -> Iterator[str]:
    """Stores a whole vector; a vector that is stored in part is stored lane by lane."""
    if not s.valid:
        text = value_of(s.value, d)
        yield d.store(s.buffer, at(s.index), text, dtype_of(s.value), lanes_of(s.value))
        return
    for lane in range(s.valid):
        value = s.value.values[lane] if isinstance(s.value, Lanes) else Lane(s.value, lane)
        yield d.store(s.buffer, at(s.index + lane), value_of(value, d), dtype_of(value), 1)


def at(i: Index) -> str:
    """The text of an index value."""
    parts = [_term(atom, c) for atom, c in i.terms]
    if i.const or not parts:
        parts.append(str(i.const))
    return " + ".join(parts) if len(parts) == 1 else f"({' + '.join(parts)})"


def _term(atom: object, c: int) -> str:
    match atom:
        case Var(name, _):
            text = name
        case Div(value, by):
            text = f"({at(value)} / {by})"
        case Mod(value, by):
            text = f"({at(value)} % {by})"
        case _:
            raise CompilerBug(f"an index that was not resolved: {atom}")
    return text if c == 1 else f"{text} * {c}"


def condition(bounds: tuple[Bound, ...], d: Dialect) -> str:
    """The text of a condition that all bounds hold, without bounds that are certain to hold."""
    parts = []
    for b in bounds:
        low, high = b.index.bounds
        parts += [f"({at(b.index)} >= 0)"] if low < 0 else []
        parts += [f"({at(b.index)} < {b.extent})"] if high >= b.extent else []
    return d.all(parts)


def _derived(e: Nibbles | Lanewise, d: Dialect) -> str:
    text = value_of(e.value, d)
    match e:
        case Nibbles():
            return d.nibbles(e, text)
        case ShuffleXor(_, bits):
            return d.shuffle_xor(text, bits)
        case SubgroupBroadcast(_, thread):
            return d.subgroup_broadcast(text, thread)
        case Reciprocal():
            return f"({d.literal(1, e.dtype)} / {text})"
    raise CompilerBug(f"no text for the expression {type(e).__name__}")


def value_of(e: Expr, d: Dialect) -> str:
    match e:
        case Const(value, dtype, lanes):
            text = d.literal(value, dtype)
            return text if lanes == 1 else d.vector(dtype, [text])
        case Load(buffer, index, dtype, lanes, _):
            return d.load(buffer, at(index), dtype, lanes)
        case Call(_, operands, _, _):
            return d.call(e, [value_of(x, d) for x in operands])
        case Splat(value, _):
            return d.vector(e.dtype, [value_of(value, d)])
        case Lanes(values):
            return d.vector(e.dtype, [value_of(x, d) for x in values])
        case Lane(value, lane):
            return d.lane(value_of(value, d), lane)
        case Join(parts):
            return d.join(e.dtype, [value_of(x, d) for x in parts])
        case Subvector(value, _, _):
            return d.part(e, value_of(value, d))
        case Dot(acc, row, col, _):
            return d.dot(e, value_of(acc, d), value_of(row, d), value_of(col, d))
        case Nibbles() | Lanewise():
            return _derived(e, d)
        case IndexValue(index, dtype, _):
            return d.number(at(index), dtype)
        case Guard(bounds, value, default):
            return d.choose(condition(bounds, d), value_of(value, d), value_of(default, d))
        case Reg(name, _, _):
            return name
    raise CompilerBug(f"no text for the expression {type(e).__name__}")
