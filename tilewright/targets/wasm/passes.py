"""The three passes over Wasm IR, each switchable on its own.

Input: a `Func`.  Output: a `Func` that computes the same.  The three are those of the nnJIT paper.
Invariant values and addresses are placed outside loops before, while loops are lowered (build.py):
that is no pass.  What else an optimiser could do, the engine's own compiler does.

    offset_load_store       load(p + 16)              ->  load offset=16 (p)
    combined_instruction    splat(f32.load(p))        ->  v128.load32_splat(p)
    load_store_to_variable  a = load(p); b = load(p)  ->  a = tee(t, load(p)); b = t
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tilewright.targets.wasm.ir import (
    ANY_LOW,
    LOWEST_ADDRESS,
    Assign,
    Block,
    BrIf,
    Expr,
    Func,
    If,
    Invoke,
    Load,
    Local,
    Loop,
    Mapper,
    Op,
    Run,
    Stmt,
    Store,
    Tee,
    add,
    const,
    const_value,
    is_const,
    map_args,
    type_of,
)
from tilewright.targets.wasm.isa import ISA

Pass = Callable[[Func], Func]

# ---- 1 -------------------------------------------------------------------------------------------


def offset_load_store(fn: Func) -> Func:
    """Constant parts of addresses go into the instruction.

    before: v128.load (i32.add p (i32.const 16))
    after:  v128.load offset=16 p

    An address wraps around at 2^32, address + offset does not.  So a constant moves only if it is
    not negative and what remains cannot be: it is known to be >= 0, or the constant is at most
    LOWEST_ADDRESS, below which no access of a kernel lies.
    """
    return Mapper(load=_fold_load, store=_fold_store).func(fn)


def _fold_load(e: Load) -> Load:
    if isinstance(e.address, Op):
        address, offset = _fold(e.address, e.offset)
        return Load(e.name, address, offset, e.space, e.lane, e.vector)
    return e


def _fold_store(s: Store) -> Store:
    if isinstance(s.address, Op):
        address, offset = _fold(s.address, s.offset)
        return Store(s.name, address, offset, s.value, s.space, s.lane)
    return s


def _fold(address: Expr, offset: int) -> tuple[Expr, int]:
    rest, constant = _split(address)
    if constant < 0 or not (_low(rest) >= 0 or constant <= LOWEST_ADDRESS):
        return address, offset
    return rest, offset + constant


def _split(e: Expr) -> tuple[Expr, int]:
    """e = rest + constant: (p + 8) + (i + 2) << 2 = (p + i << 2) + 16."""
    if isinstance(e, Op):
        if is_const(e):
            return const(0), const_value(e)
        if e.name == "i32.add":
            if type(e.args[0]) is Local and is_const(e.args[1]):  # by far the most
                value = const_value(e.args[1])
                return (e.args[0], value) if value else (e, 0)
            (a, x), (b, y) = _split(e.args[0]), _split(e.args[1])
            if not x and not y:
                return e, 0
            return b if a == const(0) else a if b == const(0) else add(a, b), x + y
        if e.name in ("i32.mul", "i32.shl") and is_const(e.args[1]):
            a, x = _split(e.args[0])
            by = const_value(e.args[1])
            if x:
                return Op(e.name, (a, e.args[1])), x * by if e.name == "i32.mul" else x << by
    return e, 0


def _low(e: Expr) -> int:
    """A lower bound of an i32 expression; ANY_LOW if nothing is known."""
    if isinstance(e, Local):
        return e.lo
    if not isinstance(e, Op):
        return ANY_LOW
    if is_const(e):
        return const_value(e)
    if e.name in ("i32.add", "i32.mul", "i32.shl"):
        lows = [_low(a) for a in e.args]
        if min(lows) >= 0:
            return 0
    return ANY_LOW


# ---- 2 -------------------------------------------------------------------------------------------

#: (instruction, load under its last argument) -> the load that does both.
_COMBINED: dict[tuple[str, str], str] = {
    ("f32x4.splat", "f32.load"): "v128.load32_splat",
    ("i32x4.splat", "i32.load"): "v128.load32_splat",
    ("i64x2.splat", "i64.load"): "v128.load64_splat",
    ("f64x2.splat", "f64.load"): "v128.load64_splat",
    ("i8x16.splat", "i32.load8_s"): "v128.load8_splat",
    ("i8x16.splat", "i32.load8_u"): "v128.load8_splat",
    ("i64.extend_i32_s", "i32.load"): "i64.load32_s",
    ("i64.extend_i32_u", "i32.load"): "i64.load32_u",
    ("i64.extend_i32_s", "i32.load8_s"): "i64.load8_s",
    ("i64.extend_i32_s", "i32.load8_u"): "i64.load8_u",
    ("i64.extend_i32_u", "i32.load8_u"): "i64.load8_u",
    ("i32.wrap_i64", "i64.load"): "i32.load",
    ("i16x8.extend_low_i8x16_s", "v128.load64_zero"): "v128.load8x8_s",
    ("i16x8.extend_low_i8x16_u", "v128.load64_zero"): "v128.load8x8_u",
    ("f32x4.replace_lane", "f32.load"): "v128.load32_lane",
    ("i32x4.replace_lane", "i32.load"): "v128.load32_lane",
}


def combined_instruction(fn: Func) -> Func:
    """A load and the instruction that takes its value become one instruction.

    before: f32x4.splat (f32.load p)
    after:  v128.load32_splat p
    """
    return Mapper(op=_combine).func(fn)


def _combine(e: Op) -> Expr:
    load = e.args[-1]
    if not isinstance(load, Load):
        return e
    name = _COMBINED.get((e.name, load.name))
    if name is None:
        return e
    if len(e.args) == 1:
        return Load(name, load.address, load.offset, load.space)
    vector, lane = e.args[0], e.imms[0]
    # load_lane takes its address first, so the vector is computed after it: both are pure
    assert isinstance(lane, int)
    return Load(name, load.address, load.offset, load.space, lane, vector)


# ---- 3 -------------------------------------------------------------------------------------------

#: The load that reads back exactly what a store wrote.
_READS_BACK = {
    "v128.store": "v128.load",
    "f32.store": "f32.load",
    "f64.store": "f64.load",
    "i32.store": "i32.load",
    "i64.store": "i64.load",
}

#: An access: instruction, address, offset.
_Key = tuple[str, Expr, int]


@dataclass(slots=True)
class _Value:
    """A value in memory that is in hand: how often it is wanted, and the local that keeps it."""

    space: int
    count: int = 1
    local: Local | None = None


class _Available:
    """Which memory values are known at a point of straight-line code."""

    def __init__(self) -> None:
        self.values: dict[_Key, _Value] = {}
        self.users: dict[Local, list[_Key]] = {}

    def clear(self) -> None:
        self.values.clear()
        self.users.clear()

    def put(self, key: _Key, value: _Value) -> None:
        self.values[key] = value
        for local in _locals(key[1]):
            self.users.setdefault(local, []).append(key)

    def assigned(self, local: Local) -> None:
        """Addresses that mention the local mean something else now."""
        if local in self.users:
            for key in self.users.pop(local):
                self.values.pop(key, None)

    def stored(self, s: Store) -> None:
        """Forget what the store may have changed."""
        width = ISA[s.name].width
        changed = [k for k, v in self.values.items() if _may_alias(s, width, k, v.space)]
        for key in changed:
            del self.values[key]


def _locals(e: Expr) -> list[Local]:
    if isinstance(e, Local):
        return [e]
    if isinstance(e, Op):
        return [x for a in e.args for x in _locals(a)]
    if isinstance(e, Load):
        return _locals(e.address)
    return []


def _may_alias(s: Store, width: int, key: _Key, space: int) -> bool:
    """Buffers (space >= 0) may share memory; scratch and the argument block share none."""
    if s.space != space and (s.space < 0 or space < 0):
        return False
    if s.address != key[1]:
        return True
    return s.offset < key[2] + ISA[key[0]].width and key[2] < s.offset + width


def load_store_to_variable(fn: Func) -> Func:
    """A value that memory gives again and again stays in a local.

    before: acc0 = madd(load p, load q, acc0); acc1 = madd(load p, load r, acc1)
    after:  acc0 = madd(tee(t, load p), load q, acc0); acc1 = madd(t, load r, acc1)

    Also a load after a store of the same address.  Only within straight-line code, and only while
    no store comes between that may change the value.
    """
    found: list[_Value] = []
    _plan(fn.body, _Available(), found)
    if all(v.count == 1 for v in found):
        return fn
    rewriter = _Rewriter(found)
    return replace(fn, body=rewriter.stmts(fn.body))


def _plan(stmts: tuple[Stmt, ...], known: _Available, found: list[_Value]) -> None:
    """Walk in the order of execution; append the value of each access in turn to `found`."""
    for s in stmts:
        if isinstance(s, Assign):
            _plan_expr(s.value, known, found)
            known.assigned(s.local)
        elif isinstance(s, Store):
            _plan_expr(s.address, known, found)
            _plan_expr(s.value, known, found)
            known.stored(s)
            value = _Value(s.space)
            found.append(value)
            if s.name in _READS_BACK:
                known.put((_READS_BACK[s.name], s.address, s.offset), value)
        elif isinstance(s, BrIf):
            _plan_expr(s.cond, known, found)
        elif isinstance(s, Run):
            for e in s.args if s.index is None else (*s.args, s.index):
                _plan_expr(e, known, found)
            known.clear()
        elif isinstance(s, If):
            _plan_expr(s.cond, known, found)
            for branch in (s.then, s.orelse):
                _plan(branch, _Available(), found)
            known.clear()
        elif isinstance(s, (Block, Loop)):
            _plan(s.body, _Available(), found)
            known.clear()


def _plan_expr(e: Expr, known: _Available, found: list[_Value]) -> None:
    if isinstance(e, Op):
        for a in e.args:
            if type(a) is not Local:
                _plan_expr(a, known, found)
    elif isinstance(e, Load):
        if type(e.address) is not Local:
            _plan_expr(e.address, known, found)
        if e.vector is not None:
            _plan_expr(e.vector, known, found)
            return
        key = (e.name, e.address, e.offset)
        value = known.values.get(key)
        if value is None:
            value = _Value(e.space)
            known.put(key, value)
        else:
            value.count += 1
        found.append(value)
    elif isinstance(e, Invoke):
        for a in e.args:
            _plan_expr(a, known, found)
    elif isinstance(e, Tee):
        _plan_expr(e.value, known, found)
        known.assigned(e.local)


class _Rewriter:
    """The second walk, in the same order as `_plan`: first uses get a tee, later ones the local."""

    def __init__(self, found: list[_Value]) -> None:
        self.found = iter(found)
        self.number = 0

    def keep(self, value: _Value, e: Expr) -> Expr:
        """The expression for an access of `value`, which `e` computes."""
        if value.count == 1:
            return e
        if value.local is not None:
            return value.local
        self.number += 1
        value.local = Local(f"m.{self.number}", type_of(e))
        return Tee(value.local, e)

    def stmts(self, stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple([self.stmt(s) for s in stmts])

    def stmt(self, s: Stmt) -> Stmt:
        if isinstance(s, Assign):
            value = self.expr(s.value)
            return s if value is s.value else Assign(s.local, value)
        if isinstance(s, Store):
            address, value = self.expr(s.address), self.expr(s.value)
            value = self.keep(next(self.found), value)
            return Store(s.name, address, s.offset, value, s.space, s.lane)
        if isinstance(s, BrIf):
            return BrIf(s.depth, self.expr(s.cond))
        if isinstance(s, Run):
            args = tuple(self.expr(a) for a in s.args)
            return Run(s.function, args, None if s.index is None else self.expr(s.index))
        if isinstance(s, If):
            cond = self.expr(s.cond)
            return If(cond, self.stmts(s.then), self.stmts(s.orelse))
        if isinstance(s, (Block, Loop)):
            return type(s)(self.stmts(s.body))
        return s

    def expr(self, e: Expr) -> Expr:
        if isinstance(e, Op):
            new = map_args(e.args, self.expr)
            return e if new is e.args else Op(e.name, new, e.imms)
        if isinstance(e, Load):
            address = e.address if type(e.address) is Local else self.expr(e.address)
            vector = None if e.vector is None else self.expr(e.vector)
            if address is not e.address or vector is not e.vector:
                e = Load(e.name, address, e.offset, e.space, e.lane, vector)
            return e if vector is not None else self.keep(next(self.found), e)
        if isinstance(e, Invoke):
            return Invoke(e.function, map_args(e.args, self.expr), e.type)
        return Tee(e.local, self.expr(e.value)) if isinstance(e, Tee) else e


#: In the order in which they run.
PASSES: tuple[tuple[str, Pass], ...] = (
    ("offset_load_store", offset_load_store),
    ("combined_instruction", combined_instruction),
    ("load_store_to_variable", load_store_to_variable),
)
#: No pass: that lowering keeps values and addresses outside loops (build.py).  It can be left out
#: like a pass, for comparison with code that has nothing but the passes.
PLACEMENT = "placement"
ALL: frozenset[str] = frozenset(name for name, _ in PASSES) | {PLACEMENT}


#: Each changes one access or instruction, whatever is around it: one walk does for both.
_LOCAL = frozenset({"offset_load_store", "combined_instruction"})


def run(fn: Func, enabled: frozenset[str] = ALL) -> Func:
    """The enabled passes, in order."""
    if enabled >= _LOCAL:
        fn = Mapper(_combine, _fold_load, _fold_store).func(fn)
        enabled -= _LOCAL
    for name, change in PASSES:
        if name in enabled:
            fn = change(fn)
    return fn
