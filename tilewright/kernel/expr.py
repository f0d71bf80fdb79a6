"""Value expressions: the computation of one element, and of lanes in loops.

Input: constants, loads at indices, scalar functions.  Output: frozen trees, hashable and printable.
The first group serves kernel specifications and loops alike; the second exists only in loops, where
values have lanes (a vector of `lanes` elements of one dtype).  All lowerings of reductions share
`identity` and `step`.  Statements are in loops.py; tree.py walks and rebuilds expressions.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import copysign

from tilewright.base.dtypes import BOOL, I8, I64, DType
from tilewright.base.fast_records import record
from tilewright.base.scalars import COMBINE, REDUCTIONS
from tilewright.kernel.index import Index, Var
from tilewright.kernel.tree import Expr as Expr
from tilewright.kernel.tree import walk

#: Functions that take tens of instructions.
LONG = frozenset((
    "exp", "log", "tanh", "erf", "sin", "cos", "tan", "expm1", "log1p", "rem", "pow",
))  # fmt: skip
#: Functions that cost more than storing their result and loading it again.
EXPENSIVE = LONG | {"f16", "bf16"}


@record
class Bound:
    """The condition 0 <= index < extent."""

    index: Index
    extent: int

    def substitute(self, values: Mapping[Var, Index]) -> Bound:
        index = self.index.substitute(values)
        return self if index is self.index else Bound(index, self.extent)

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


@record
class Const(Expr):
    """A literal.  With lanes > 1, the same value in every lane."""

    value: float | int | bool
    dtype: DType
    lanes: int = 1

    def __eq__(self, other: object) -> bool:
        """0.0 and -0.0 are two literals."""
        if not isinstance(other, Const):
            return NotImplemented
        same = (self.value, self.dtype, self.lanes) == (other.value, other.dtype, other.lanes)
        return same and (self.value != 0 or copysign(1, self.value) == copysign(1, other.value))

    def __str__(self) -> str:
        return f"{self.value}:{self.dtype}" + (f"x{self.lanes}" if self.lanes > 1 else "")


@record
class Load(Expr):
    """`lanes` consecutive elements of buffer number `buffer`, from element `index` on.

    Only the first `valid` lanes are read (0 means all); the others are 0.
    """

    buffer: int
    index: Index
    dtype: DType
    lanes: int = 1
    valid: int = 0

    def at(self, index: Index) -> Load:
        """The load with another index."""
        return Load(self.buffer, index, self.dtype, self.lanes, self.valid)

    def __str__(self) -> str:
        lanes = f" x{self.lanes}" if self.lanes > 1 else ""
        valid = f" first {self.valid}" if self.valid else ""
        return f"b{self.buffer}[{self.index}{lanes}{valid}]"


@record
class Call(Expr):
    """A scalar function of the table in base/scalars.py, lane by lane."""

    fn: str
    operands: tuple[Expr, ...]
    dtype: DType
    lanes: int = 1

    def __str__(self) -> str:
        tail = f":{self.dtype}" if self.fn == "cast" else ""
        return f"{self.fn}({', '.join(map(str, self.operands))}){tail}"


@record
class IndexValue(Expr):
    """An index as a number (ONNX Range, position ids).  Scalar."""

    index: Index
    dtype: DType = I64
    lanes: int = 1

    def __str__(self) -> str:
        return f"int({self.index})"


@record
class Wrapper(Expr):
    """Base of expressions that have the dtype of their first argument."""

    @property
    def dtype(self) -> DType:
        return dtype_of(self.args[0])


@record
class Guard(Wrapper):
    """`value` where all bounds hold, else `default`; `value` is evaluated only where they hold."""

    bounds: tuple[Bound, ...]
    value: Expr
    default: Expr

    @property
    def lanes(self) -> int:
        return lanes_of(self.value)

    def __str__(self) -> str:
        return f"({self.value} if {' and '.join(map(str, self.bounds))} else {self.default})"


@record
class Acc(Expr):
    """The result of the kernel's reduction number `stage` (specifications only)."""

    stage: int
    dtype: DType
    lanes: int = 1

    def __str__(self) -> str:
        return f"r{self.stage}"


# ---- only in loops -------------------------------------------------------------------------------


@record
class Reg(Expr):
    """The current value of a register, written by `Set`."""

    name: str
    dtype: DType
    lanes: int = 1

    def __str__(self) -> str:
        return self.name


@record
class Splat(Wrapper):
    """A scalar repeated in every lane."""

    value: Expr
    lanes: int

    def __str__(self) -> str:
        return f"splat{self.lanes}({self.value})"


@record
class Lanes(Wrapper):
    """A vector built from one scalar per lane (a strided or gathered read)."""

    values: tuple[Expr, ...]

    @property
    def lanes(self) -> int:
        return len(self.values)

    def __str__(self) -> str:
        return f"lanes({', '.join(map(str, self.values))})"


@record
class Lane(Wrapper):
    """One lane of a vector, as a scalar."""

    value: Expr
    lane: int

    @property
    def lanes(self) -> int:
        return 1

    def __str__(self) -> str:
        return f"{self.value}.{self.lane}"


@record
class Lanewise(Wrapper):
    """Base of expressions that have the lanes of their argument, too."""

    value: Expr

    @property
    def lanes(self) -> int:
        return lanes_of(self.value)


@record
class SubgroupExchange(Lanewise):
    """Base of expressions for the value that another thread of the subgroup has: always the whole
    value of a `Set`, which all threads of the tile reach together."""


@record
class ShuffleXor(SubgroupExchange):
    """The value of the thread whose number differs in these bits."""

    bits: int

    def __str__(self) -> str:
        return f"swapped{self.bits}({self.value})"


@record
class SubgroupBroadcast(SubgroupExchange):
    """The value of the thread with this number, which sends it to the whole subgroup."""

    thread: Index

    def __str__(self) -> str:
        return f"sent{self.thread}({self.value})"


@record
class Subvector(Wrapper):
    """Neighbouring lanes of a vector, from number `first` on."""

    value: Expr
    first: int
    lanes: int

    def __str__(self) -> str:
        return f"{self.value}.{self.first}:{self.first + self.lanes}"


@record
class Shuffle(Wrapper):
    """Lanes picked from two vectors laid end to end: `picks[i]` is the source of lane i."""

    a: Expr
    b: Expr
    picks: tuple[int, ...]

    @property
    def lanes(self) -> int:
        return len(self.picks)

    def __str__(self) -> str:
        return f"shuffle({self.a}, {self.b}, {' '.join(map(str, self.picks))})"


@record
class Dot(Wrapper):
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
    def lanes(self) -> int:
        return lanes_of(self.acc)

    @property
    def depth(self) -> int:
        """Products per lane."""
        return lanes_of(self.col) // lanes_of(self.acc)

    def __str__(self) -> str:
        return f"dot{self.depth}({self.row}, {self.col}, {self.acc})"


@record
class Nibbles(Expr):
    """The lower 4 bits of each byte of words of 32 bits, or the upper ones, as bytes."""

    value: Expr
    upper: bool

    @property
    def dtype(self) -> DType:
        return I8

    @property
    def lanes(self) -> int:
        return 4 * lanes_of(self.value)

    def __str__(self) -> str:
        return f"{'upper' if self.upper else 'lower'}({self.value})"


@record
class Reciprocal(Lanewise):
    """1 / value by the device's division, with an error of up to 2.5 ULP; undefined for an
    infinity."""

    def __str__(self) -> str:
        return f"reciprocal({self.value})"


@record
class PairSums(Wrapper):
    """Sums of neighbouring lanes: (a0+a1, a2+a3, ..., b0+b1, b2+b3, ...)."""

    a: Expr
    b: Expr

    @property
    def lanes(self) -> int:
        return lanes_of(self.a)

    def __str__(self) -> str:
        return f"pairs({self.a}, {self.b})"


@record
class Join(Wrapper):
    """The lanes of several vectors as one longer vector (to be stored)."""

    parts: tuple[Expr, ...]

    @property
    def lanes(self) -> int:
        return sum(map(lanes_of, self.parts))

    def __str__(self) -> str:
        return f"join({', '.join(map(str, self.parts))})"


def interleave(a: Expr, b: Expr, unit: int, upper: bool) -> Shuffle:
    """Interleaves runs of `unit` lanes of a and b, from their lower or upper halves."""
    lanes = lanes_of(a)
    start = lanes // 2 if upper else 0
    runs = range(start, start + lanes // 2, unit)
    return Shuffle(a, b, tuple(x + j for i in runs for x in (i, i + lanes) for j in range(unit)))


def dtype_of(e: Expr) -> DType:
    return e.dtype  # type: ignore[attr-defined,no-any-return]


def lanes_of(e: Expr) -> int:
    return e.lanes  # type: ignore[attr-defined,no-any-return]


def is_expensive(e: Expr) -> bool:
    """True if the expression has a call of an expensive function."""
    return any(isinstance(node, Call) and node.fn in LONG for node in walk(e))


#: The start of a running maximum: finite, so that exp(-inf - maximum) is 0 and no NaN.
LOWEST = -3.4028234663852886e38


def identity(op: str, dtype: DType, lanes: int) -> Const:
    """The value that changes nothing; for integers the end of their range stands for infinity."""
    value = REDUCTIONS[op]
    if dtype.is_float:
        return Const(value, dtype, lanes)
    if op in ("max", "min"):
        signed = dtype.kind == "int"
        top = (1 << (dtype.size * 8 - signed)) - 1
        return Const(top if op == "min" else -top - 1 if signed else 0, dtype, lanes)
    return Const(int(value), dtype, lanes)


def step(op: str, acc: Expr, value: Expr) -> Call:
    """acc combined with one more value; a sum of products becomes multiply-add."""
    dtype, lanes = dtype_of(acc), lanes_of(acc)
    if op == "sum" and dtype.is_float and isinstance(value, Call) and value.fn == "mul":
        return Call("fma", (*value.operands, acc), dtype, lanes)
    return Call(COMBINE[op], (acc, value), dtype, lanes)


def larger(a: Expr, b: Expr) -> Call:
    """The larger of two numbers by one comparison: b where a < b, else a.  It may lose a NaN."""
    lanes = lanes_of(b)
    return Call("where", (Call("lt", (a, b), BOOL, lanes), b, a), dtype_of(b), lanes)
