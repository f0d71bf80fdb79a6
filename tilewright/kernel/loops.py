"""The loop IR: an imperative nest that computes one tile of a kernel.

Input: statements over registers, buffers and index variables.  Output: `TileFn`, which a target
turns into code and `kernel/interpreter.py` runs; that interpreter defines the meaning of this IR.
Vectors are explicit (lanes on expressions); addresses are element indices, never bytes.

A `TileFn` stands for  kernel(args, first, last):  for tile in [first, last): body. `args` is a
block of i32: the address of each buffer, then the value of each scalar. Several threads may compute
one tile: each has its own number and registers; they share scratch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from tilewright.base.dtypes import DType
from tilewright.base.errors import CompilerBug
from tilewright.base.fast_records import record
from tilewright.kernel.expr import Bound, Expr, lanes_of
from tilewright.kernel.extents import RuntimeNumber
from tilewright.kernel.index import Index, Var
from tilewright.kernel.spec import Buffer


@record
class Stmt:
    """Base of all statements."""


@record
class Let(Stmt):
    """Name an index value.  `var.extent` bounds it; a name may be bound again on a later pass."""

    var: Var
    value: Index


@record
class LetMin(Stmt):
    """Name the smaller of two index values."""

    var: Var
    a: Index
    b: Index


@record
class LetGather(Stmt):
    """Names an integer read from memory; traps unless 0 <= value < var.extent.

    check: its number among the kernel's checks, which is reported to hosts; None: it always holds
    step:  the number of the checking step, if one function computes several steps
    """

    var: Var
    value: Expr
    check: int | None = None
    step: int = 0


@record
class LetUniform(Stmt):
    """Names an integer that is the same for every thread of the tile, clamped to [0, var.extent).

    A loop with barriers may use it as its end.
    """

    var: Var
    value: Expr


@record
class Set(Stmt):
    """Write a register: (name, dtype, lanes) must be the same at every write of one name."""

    name: str
    value: Expr


@record
class Store(Stmt):
    """Write the lanes of `value` to buffer elements [index, index + lanes).

    Only the first `valid` lanes are written (0 means all).
    """

    buffer: int
    index: Index
    value: Expr
    valid: int = 0


@record
class For(Stmt):
    """for var in range(begin, end, step), zero or more times.

    `at_least_once` promises begin < end, so that a target may test at the bottom only.
    chunk: passes, or more, after which all threads may leave the tile together; 0: they may not
    """

    var: Var
    begin: Index
    end: Index
    step: int
    body: tuple[Stmt, ...]
    at_least_once: bool = True
    chunk: int = 0


@record
class If(Stmt):
    """`then` where all bounds hold, else `orelse`."""

    bounds: tuple[Bound, ...]
    then: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...] = ()


@record
class Barrier(Stmt):
    """A barrier: no thread of the tile continues before all have arrived; nothing for a single
    thread.

    Every thread passes the same barriers in the same order.  Between two barriers no thread
    accesses elements that another one writes.

    subgroup_only: only the threads of each subgroup need to wait for each other; a target may let
        all wait
    """

    subgroup_only: bool = False


# ---- asynchronous copies to shared memory --------------------------------------------------------


@record
class AsyncCopy(Stmt):
    """Copies elements of a buffer to a shared area; zeros unless all bounds hold.

    The copy is certainly done once `WaitForCopies` returns, for other threads after the next
    barrier; until then no thread may access these elements.  Both have the same type in memory.
    """

    buffer: int
    index: Index
    source: int
    at: Index
    lanes: int
    bounds: tuple[Bound, ...] = ()


@record
class CommitCopies(Stmt):
    """Ends a batch: the thread's copies since the last batch; it may be empty."""


@record
class WaitForCopies(Stmt):
    """Waits for this thread's asynchronous copies, except for its last `behind` batches."""

    behind: int


# ---- what the threads of a subgroup do together --------------------------------------------------


@dataclass(frozen=True)
class MatrixUnit:
    """A subgroup's matrix unit: result (m, n) += left (m, k) · right (k, n).

    operand: type of both operands; with u8 the right one is i8
    threads: of a subgroup: neighbours, which reach a statement together, with the same numbers
    fraction: bits of an operand's fraction that are used, rounded to the nearest, ties away from 0
              (TF32: 10 of f32); 0: all
    asynchronous: operands stay in shared memory, and products are done by `EndProducts`; until then
        no thread may use the results or write to the operands
    """

    m: int
    n: int
    k: int
    operand: DType
    result: DType
    threads: int
    fraction: int = 0
    asynchronous: bool = False


@record
class MatrixStmt(Stmt):
    """Base of statements on a subgroup's matrices, which have names as registers do."""


@record
class ZeroMatrix(MatrixStmt):
    """A result := 0."""

    name: str


@record
class LoadMatrix(MatrixStmt):
    """Loads a left operand's rows, or a right one's columns, `stride` elements apart.

    across: `stride` separates depth steps; each step holds all rows or columns
    group:  elements of the depth that are then contiguous in each row or column
    run:    rows or columns in a line then, the next ones `apart` elements further; 0: all
    """

    name: str
    right: bool
    buffer: int
    index: Index
    stride: int
    across: bool = False
    group: int = 1
    run: int = 0
    apart: int = 0


@record
class MultiplyMatrices(MatrixStmt):
    """result += left · right, in the result's type."""

    name: str
    left: str
    right: str


@record
class BeginProducts(MatrixStmt):
    """Begins products of an asynchronous unit."""


@record
class EndProducts(MatrixStmt):
    """Waits until these results have all products so far."""

    names: tuple[str, ...]


@record
class StoreMatrix(MatrixStmt):
    """Stores the rows of a result to a shared area, `stride` elements apart."""

    buffer: int
    index: Index
    name: str
    stride: int


@dataclass(frozen=True)
class Scratch:
    """Staging memory of one tile ("cache read"), numbered after the kernel's buffers.

    Its contents do not outlive the tile.  Wasm: the worker's own area; WGSL, CUDA: shared memory.

    part: the number of elements of each of its equal parts, 0: it has no parts.  A matrix is within
          one part, at the same offset in each
    swizzled: in the order of asynchronous units;  may_overlap: may overlap areas that are no longer
        needed
    """

    dtype: DType
    size: int
    part: int = 0
    swizzled: bool = False
    may_overlap: bool = False


@dataclass(frozen=True)
class TileFn:
    """One kernel as loops over one tile.

    buffers:  as in the kernel (0 is the output), or those of several kernels
    scalars:  run-time numbers of the argument block, after the buffer addresses; shape facts only
    scratch:  staging buffers, numbered from len(buffers)
    tile:     the tile's number, in [0, tiles)
    thread:   the number of a thread of the tile, in [0, extent); None where one computes it alone
    prologue: statements that depend on no tile; run once per call
    body:     statements that compute one tile
    tiles:    how many tiles the kernel's shape has
    values:   the value of each scalar for this shape
    unit:     the matrix unit of its subgroups; None if it uses none
    subgroup: threads of a subgroup, neighbours; 0: of any size
    outputs:  numbers of the buffers that it writes
    shares_output: whether threads of a tile read and change what others of it have stored in the
        output, with barriers between
    counts:   empty if tiles and values are fixed; else for the tiles, then for each scalar, how the
              number follows an extent (None: not at all); `tiles` and `values` are then the largest
    """

    name: str
    buffers: tuple[Buffer, ...]
    scalars: tuple[Var, ...]
    scratch: tuple[Scratch, ...]
    tile: Var
    prologue: tuple[Stmt, ...]
    body: tuple[Stmt, ...]
    tiles: int
    values: tuple[int, ...]
    thread: Var | None = None
    counts: tuple[RuntimeNumber | None, ...] = ()
    unit: MatrixUnit | None = None
    subgroup: int = 0
    outputs: tuple[int, ...] = (0,)
    shares_output: bool = False

    @property
    def threads(self) -> int:
        """How many threads compute one tile together."""
        return 1 if self.thread is None else self.thread.extent


def every_statement(stmts: Iterable[Stmt]) -> Iterator[Stmt]:
    """Every statement, and those inside of it, in the order of the text."""
    for s in stmts:
        yield s
        match s:
            case For():
                yield from every_statement(s.body)
            case If():
                yield from every_statement((*s.then, *s.orelse))


def gathers(stmts: Iterable[Stmt]) -> Iterator[LetGather]:
    """Every index that is read and checked."""
    return (s for s in every_statement(stmts) if isinstance(s, LetGather))


def checks(fn: TileFn) -> bool:
    """Whether the function checks indices and reports them to the host."""
    return any(s.check is not None for s in gathers((*fn.prologue, *fn.body)))


def at_fixed_shape(fn: TileFn) -> TileFn:
    """The same function for this one shape: its scalars are numbers, not arguments.

    scalars (rows,) values (384,)   ->   no scalars; prologue: rows = 384, ...
    A function with run-time numbers stays as it is.
    """
    if fn.counts:
        return fn
    known = tuple(Let(s, Index((), v)) for s, v in zip(fn.scalars, fn.values, strict=True))
    return replace(fn, scalars=(), values=(), prologue=known + fn.prologue)


def numbers_at(fn: TileFn, extents: Sequence[int]) -> list[int]:
    """Tiles and the value of each scalar where the plan's extents have these values."""
    numbers = [fn.tiles, *fn.values]
    if not fn.counts or not extents:
        return numbers
    pairs = zip(fn.counts, numbers, strict=True)
    return [n if count is None else count.at(extents[count.extent]) for count, n in pairs]


def render(fn: TileFn) -> str:
    """The loop nest as readable text."""
    together = f" by {fn.threads} threads {fn.thread}" if fn.thread else ""
    lines = [f"tile {fn.name}({fn.tile}) of {fn.tiles}{together}"]
    lines += [f"  b{i}: {b.dtype}[{b.size}]" for i, b in enumerate(fn.buffers)]
    lines += [f"  {s} = {v}" for s, v in zip(fn.scalars, fn.values, strict=True)]
    for i, s in enumerate(fn.scratch):
        lines.append(f"  b{len(fn.buffers) + i}: scratch {s.dtype}[{s.size}]")
    for title, stmts in (("prologue", fn.prologue), ("body", fn.body)):
        if stmts:
            lines.append(f"  {title}:")
            lines += _render(stmts, "    ")
    return "\n".join(lines)


def _render(stmts: tuple[Stmt, ...], pad: str) -> list[str]:
    lines: list[str] = []
    for s in stmts:
        match s:
            case Let(var, value):
                lines.append(f"{pad}{var} = {value}")
            case LetMin(var, a, b):
                lines.append(f"{pad}{var} = min({a}, {b})")
            case LetGather(var, value):
                lines.append(f"{pad}{var} = gather {value} < {var.extent}")
            case LetUniform(var, value):
                lines.append(f"{pad}{var} = for all threads {value} within 0 .. {var.extent - 1}")
            case Set(name, value):
                lanes = lanes_of(value)
                lines.append(f"{pad}{name}{f'x{lanes}' if lanes > 1 else ''} := {value}")
            case Store(buffer, at, value, valid):
                first = f" first {valid}" if valid else ""
                lines.append(f"{pad}b{buffer}[{at}{first}] = {value}")
            case For(var, begin, end, step, body, _):
                lines.append(f"{pad}for {var} in {begin} .. {end} step {step}:")
                lines += _render(body, pad + "  ")
            case If(bounds, then, orelse):
                lines.append(f"{pad}if {' and '.join(map(str, bounds))}:")
                lines += _render(then, pad + "  ")
                if orelse:
                    lines.append(f"{pad}else:")
                    lines += _render(orelse, pad + "  ")
            case Barrier(subgroup_only):
                lines.append(f"{pad}barrier{' of the subgroup' if subgroup_only else ''}")
            case _:
                lines.append(pad + _together(s))
    return lines


def _together(s: Stmt) -> str:
    """The text of a statement that threads execute together, or before others."""
    match s:
        case AsyncCopy(buffer, at, source, there, lanes, bounds):
            where = f" if {' and '.join(map(str, bounds))} else 0" if bounds else ""
            return f"b{buffer}[{at}] = copied ahead b{source}[{there} x{lanes}]{where}"
        case CommitCopies():
            return "end of a batch of copies"
        case WaitForCopies(behind):
            return f"await copies but the last {behind} batches"
        case ZeroMatrix(name):
            return f"matrix {name} := 0"
        case LoadMatrix(name, right, buffer, at, stride, across, group):
            side = ("columns" if right else "rows") + (" across" if across else "")
            side += f" by groups of {group}" if group > 1 else ""
            side += f" in runs of {s.run} by {s.apart}" if s.run else ""
            return f"matrix {name} := {side} of b{buffer}[{at}] by {stride}"
        case MultiplyMatrices(name, left, right):
            return f"matrix {name} += {left} * {right}"
        case BeginProducts():
            return "begin products"
        case EndProducts(names):
            return f"end products of {', '.join(names)}"
        case StoreMatrix(buffer, at, name, stride):
            return f"b{buffer}[{at}] by {stride} = matrix {name}"
    raise CompilerBug(f"unknown statement {s}")
