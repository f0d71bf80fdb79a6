"""Checks that a loop nest keeps the rules which targets rely on.

Input: a `TileFn`.  Output: nothing, or an AssertionError that names the broken rule: variables
defined before use, registers of one type, lanes that agree, vectors only of vector element types,
no division of an index that may be negative.
"""

from __future__ import annotations

from tilewright.base.dtypes import BOOL, F16, DType
from tilewright.kernel.expr import (
    Acc,
    Call,
    Const,
    Expr,
    Guard,
    IndexValue,
    Lane,
    Lanes,
    Load,
    Reg,
    Shuffle,
    SubgroupBroadcast,
    dtype_of,
    lanes_of,
)
from tilewright.kernel.index import Div, Gathered, Index, Mod, Var
from tilewright.kernel.loops import (
    For,
    If,
    Let,
    LetGather,
    LetMin,
    LetUniform,
    Set,
    Stmt,
    Store,
    TileFn,
)
from tilewright.kernel.tree import walk
from tilewright.targets.simd.vectorize import VECTOR_DTYPES


def check_loops(fn: TileFn) -> None:
    checker = _Checker(fn)
    known = set(fn.scalars)
    checker.block(fn.prologue, known)
    thread = {fn.thread} if fn.thread else set()
    checker.block(fn.body, known | {fn.tile} | thread)


class _Checker:
    def __init__(self, fn: TileFn) -> None:
        self.fn = fn
        self.registers: dict[str, tuple[object, int]] = {}

    def block(self, stmts: tuple[Stmt, ...], known: set[Var]) -> None:
        for s in stmts:
            match s:
                case Let(var, value):
                    self.index(value, known)
                    known.add(var)
                case LetMin(var, a, b):
                    self.index(a, known)
                    self.index(b, known)
                    known.add(var)
                case LetGather(var, value) | LetUniform(var, value):
                    assert lanes_of(value) == 1
                    self.expr(value, known)
                    known.add(var)
                case Set(name, value):
                    self.expr(value, known)
                    kind = (dtype_of(value), lanes_of(value))
                    assert self.registers.setdefault(name, kind) == kind, f"{name} changes type"
                case Store(buffer, at, value, valid):
                    self.index(at, known)
                    self.expr(value, known)
                    stored = buffer in self.fn.outputs or buffer >= len(self.fn.buffers)
                    assert stored, f"stores to the input {buffer}"
                    assert dtype_of(value) == self.dtype(buffer)
                    lanes = lanes_of(value)
                    assert 0 <= valid < max(lanes, 2)
                    assert lanes == 1 or dtype_of(value) in (*VECTOR_DTYPES, F16), f"stores {value}"
                case For(var, begin, end, _, body, _):
                    self.index(begin, known)
                    self.index(end, known)
                    self.block(body, known | {var})
                case If(bounds, then, orelse):
                    for b in bounds:
                        self.index(b.index, known)
                    self.block(then, set(known))
                    self.block(orelse, set(known))

    def expr(self, e: Expr, known: set[Var]) -> None:
        for node in walk(e):
            self.node(node, known)

    def stored(self, buffer: int, read: DType) -> DType:
        """The type of a buffer's elements as a read may have them: halves widened, or not."""
        halves = buffer < len(self.fn.buffers) and self.fn.buffers[buffer].as_f16
        return read if halves and read == F16 else self.dtype(buffer)

    def dtype(self, buffer: int) -> DType:
        return (*self.fn.buffers, *self.fn.scratch)[buffer].dtype

    def node(self, e: Expr, known: set[Var]) -> None:
        lanes = lanes_of(e)
        vector = dtype_of(e) in (*VECTOR_DTYPES, BOOL, F16)
        assert lanes == 1 or vector, f"a vector of {dtype_of(e)}: {e}"
        match e:
            case Acc():
                raise AssertionError("stage result in loops")
            case Load(buffer, at, dtype, _, valid):
                self.index(at, known)
                assert buffer > 0 or self.fn.shares_output, "reads its output"
                assert dtype == self.stored(buffer, dtype)
                assert 0 <= valid < max(lanes, 2)
            case IndexValue(at, _, _) | SubgroupBroadcast(_, at):
                self.index(at, known)
            case Call(_, operands, _, _):
                assert {lanes_of(o) for o in operands} == {lanes}, f"lanes differ: {e}"
            case Guard(bounds, value, default):
                for b in bounds:
                    self.index(b.index, known)
                assert lanes_of(value) == lanes_of(default)
                assert dtype_of(value) == dtype_of(default)
            case Reg(name, dtype, _):
                assert self.registers.get(name) == (dtype, lanes), f"{name} read before written"
            case Lanes(values):
                assert all(lanes_of(v) == 1 for v in values)
            case Lane(value, lane):
                assert 0 <= lane < lanes_of(value)
            case Shuffle(a, b, picks):
                assert lanes_of(a) == lanes_of(b) == len(picks)
                assert dtype_of(a) == dtype_of(b)
                assert all(0 <= p < 2 * len(picks) for p in picks)
            case Const():
                pass

    def index(self, i: Index, known: set[Var]) -> None:
        for atom, _ in i.terms:
            assert not isinstance(atom, Gathered), "unresolved gather"
            if isinstance(atom, Var):
                assert atom in known, f"{atom} is used before it is known"
            elif isinstance(atom, (Div, Mod)):
                assert atom.value.bounds[0] >= 0, f"may divide a negative number: {atom}"
                self.index(atom.value, known)
