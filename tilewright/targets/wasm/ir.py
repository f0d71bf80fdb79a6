"""The Wasm IR: expression trees and structured statements, one level above the operand stack.

Input: `lower.py` and `mathlib.py` build it.  Output: `passes.py` rewrites it, `emit.py` flattens
it.  An expression pushes one value; a statement leaves the stack unchanged.  Memory accesses are
nodes of their own, because the passes work on addresses and aliasing.

    for var in begin .. end step s: body        (Algorithm 1 of the nnJIT paper)
      = Block [ Assign var begin
                Loop [ body
                       Assign var (var + s)
                       BrIf 0 (var < end) ] ]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tilewright.base.errors import CompilerBug
from tilewright.base.fast_records import slotted
from tilewright.targets.wasm.isa import ISA

ANY_LOW = -(1 << 31)

#: Every buffer is above the control block, so no valid access is below this address.
LOWEST_ADDRESS = 1024


@dataclass(frozen=True, eq=False)
class Local:
    """A typed variable of a function; as an expression, its value.

    `lo` is a lower bound of an i32 variable: indices count from 0, pointers from LOWEST_ADDRESS.
    Locals are compared by identity: two locals with one name are different variables.
    """

    name: str
    type: str
    lo: int = ANY_LOW


@slotted
class Op:
    """An instruction over expressions: `i32.add`, `f32x4.splat`, `i32.const`, ...

    It is pure, except for atomic instructions.  Only the driver uses those, and passes never see
    it.
    """

    name: str
    args: tuple[Expr, ...] = ()
    imms: tuple[object, ...] = ()


@slotted
class Load:
    """A memory read.  `space` identifies the buffer; `vector` and `lane` are for load_lane only."""

    name: str
    address: Expr
    offset: int
    space: int
    lane: int = -1
    vector: Expr | None = None


@slotted
class Tee:
    """Stores a value in a local and also returns it."""

    local: Local
    value: Expr


@slotted
class Invoke:
    """The result of a call of a helper function."""

    function: str
    args: tuple[Expr, ...]
    type: str


Expr = Local | Op | Load | Tee | Invoke


@slotted
class Assign:
    local: Local
    value: Expr


@slotted
class Store:
    """A memory write; `lane` >= 0 for store_lane."""

    name: str
    address: Expr
    offset: int
    value: Expr
    space: int
    lane: int = -1


@slotted
class Block:
    body: tuple[Stmt, ...]


@slotted
class Loop:
    body: tuple[Stmt, ...]


@slotted
class BrIf:
    """Branches to the enclosing block or loop number `depth`, innermost first, if `cond` holds."""

    depth: int
    cond: Expr


@slotted
class If:
    cond: Expr
    then: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...] = ()


@slotted
class Trap:
    """`unreachable`."""


@slotted
class Run:
    """Calls a function without a result.

    With `index` it calls that entry of the table, and `function` is the type of the entry.
    """

    function: object
    args: tuple[Expr, ...]
    index: Expr | None = None


@slotted
class Effect:
    """An instruction that is executed for its effect; its result, if it has one, is dropped."""

    value: Op


Stmt = Assign | Store | Block | Loop | BrIf | If | Trap | Run | Effect


@dataclass(frozen=True)
class Func:
    """A function in Wasm IR.  `result` is the value that it returns, if any."""

    name: str
    params: tuple[Local, ...]
    body: tuple[Stmt, ...]
    result: Expr | None = None


def type_of(e: Expr) -> str:
    """The value type of an expression."""
    if isinstance(e, (Local, Invoke)):
        return e.type
    if isinstance(e, Tee):
        return e.local.type
    row = ISA[e.name]
    if row.pushes:
        return row.pushes[0]
    if e.name == "global.get":
        return "i32"
    if e.name == "select" and isinstance(e, Op):
        return type_of(e.args[0])
    raise CompilerBug(f"{e.name} has no value")


# ---- short names for common nodes ----------------------------------------------------------------

_CONSTS: dict[int, Op] = {}


def const(value: int) -> Op:
    """An i32 constant."""
    known = _CONSTS.get(value)
    if known is None:
        wrapped = (value + (1 << 31)) % (1 << 32) - (1 << 31)
        known = Op("i32.const", (), (wrapped,))
        if -4096 <= value <= 4096:
            _CONSTS[value] = known
    return known


def op(name: str, *args: Expr) -> Op:
    return Op(name, args)


def add(a: Expr, b: Expr) -> Expr:
    return Op("i32.add", (a, b))


def is_const(e: Expr) -> bool:
    return isinstance(e, Op) and e.name == "i32.const"


def const_value(e: Expr) -> int:
    value = e.imms[0] if isinstance(e, Op) else None
    if not isinstance(value, int):
        raise CompilerBug(f"{e} is not a constant")
    return value


def times(e: Expr, factor: int) -> Expr:
    """e * factor as i32, as a shift where possible."""
    if is_const(e):
        return const(const_value(e) * factor)
    if factor == 1:
        return e
    if factor > 1 and factor & (factor - 1) == 0:
        return Op("i32.shl", (e, const(factor.bit_length() - 1)))
    return Op("i32.mul", (e, const(factor)))


def for_loop(
    var: Local, begin: Expr, end: Expr, step: int, body: tuple[Stmt, ...], at_least_once: bool
) -> Block:
    """Algorithm 1, with a test before the first pass unless there is certainly one.

    `end` must not change.
    """
    head: tuple[Stmt, ...] = (Assign(var, begin),)
    if not at_least_once:
        head = (*head, BrIf(0, op("i32.ge_s", var, end)))
    tail = (Assign(var, add(var, const(step))), BrIf(0, op("i32.lt_s", var, end)))
    return Block((*head, Loop((*body, *tail))))


def map_args(args: tuple[Expr, ...], change: Callable[[Expr], Expr]) -> tuple[Expr, ...]:
    """`change` of each argument except locals; the same tuple if nothing changed."""
    new: list[Expr] | None = None
    for n, a in enumerate(args):
        if type(a) is not Local:
            fresh = change(a)
            if fresh is not a:
                new = new or list(args)
                new[n] = fresh
    return args if new is None else tuple(new)


class Mapper:
    """Rebuilds functions bottom up; unchanged parts are shared, not copied.

    op:          called for every instruction, after its arguments
    load, store: called for every access, before its parts

    A part that is shared is visited once, so its result must not depend on its context.
    """

    def __init__(
        self,
        op: Callable[[Op], Expr] = lambda e: e,
        load: Callable[[Load], Load] = lambda e: e,
        store: Callable[[Store], Store] = lambda s: s,
    ) -> None:
        self._op, self._load, self._store = op, load, store
        self._known: dict[int, Expr] = {}
        self._accesses: list[Load | Store] = []

    def func(self, fn: Func) -> Func:
        result = None if fn.result is None else self.expr(fn.result)
        return replace(fn, body=self.stmts(fn.body), result=result)

    def expr(self, e: Expr) -> Expr:
        known = self._known.get(id(e))  # the function or `_accesses` keeps these objects alive
        if known is not None:
            return known
        if isinstance(e, Op):  # the most frequent case, handled without a call
            if not e.args:
                return e
            args = map_args(e.args, self.expr)
            made = self._op(e if args is e.args else Op(e.name, args, e.imms))
        else:
            made = self._parts(e)
        self._known[id(e)] = made
        return made

    def _parts(self, e: Expr) -> Expr:
        if isinstance(e, Local):
            return e
        if isinstance(e, Load):
            e = self._load(e)
            self._accesses.append(e)
            address = e.address if type(e.address) is Local else self.expr(e.address)
            vector = None if e.vector is None else self.expr(e.vector)
            if address is e.address and vector is e.vector:
                return e
            return Load(e.name, address, e.offset, e.space, e.lane, vector)
        if isinstance(e, Tee):
            return Tee(e.local, self.expr(e.value))
        if isinstance(e, Invoke):
            return Invoke(e.function, map_args(e.args, self.expr), e.type)
        raise CompilerBug(f"{type(e).__name__} is not an expression")

    def stmts(self, stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple([self.stmt(s) for s in stmts])

    def stmt(self, s: Stmt) -> Stmt:
        if isinstance(s, Assign):
            value = self.expr(s.value)
            return s if value is s.value else Assign(s.local, value)
        if isinstance(s, Store):
            s = self._store(s)
            self._accesses.append(s)
            address, value = self.expr(s.address), self.expr(s.value)
            if address is s.address and value is s.value:
                return s
            return Store(s.name, address, s.offset, value, s.space, s.lane)
        if isinstance(s, (Block, Loop)):
            return type(s)(self.stmts(s.body))
        if isinstance(s, BrIf):
            return BrIf(s.depth, self.expr(s.cond))
        if isinstance(s, If):
            return If(self.expr(s.cond), self.stmts(s.then), self.stmts(s.orelse))
        if isinstance(s, Run):
            index = None if s.index is None else self.expr(s.index)
            return Run(s.function, tuple([self.expr(a) for a in s.args]), index)
        return s
