"""The third pass: keeps values that are loaded or stored repeatedly in locals.

Input: a `Func`. Output: a `Func` that computes the same. It examines only straight-line code.
passes.py has the other two passes and the order of all three.

    load    a = load(p); b = load(p)    ->  a = tee(t, load(p)); b = t
    store   store(p, a); store(p, b)    ->  t = a; store(p, b)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.targets.wasm.ir import (
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
    Op,
    Run,
    Stmt,
    Store,
    Tee,
    map_args,
    type_of,
)
from tilewright.targets.wasm.isa import ISA

#: The load that reads back exactly the value that a store wrote.
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
    """A known value in memory: how many accesses want it, and the local that keeps it.

    dead: True if it was stored and then overwritten before a read; the store is then omitted
    """

    space: int
    count: int = 1
    local: Local | None = None
    dead: bool = False


class _Available:
    """The memory values that are known at a point of straight-line code.

    unread: the last store to each address, with its value, while nothing has read it
    """

    def __init__(self) -> None:
        self.values: dict[_Key, _Value] = {}
        self.users: dict[Local, list[_Key]] = {}
        self.unread: dict[tuple[Expr, int], tuple[_Key, _Value]] = {}

    def clear(self) -> None:
        self.values.clear()
        self.users.clear()
        self.unread.clear()

    def put(self, key: _Key, value: _Value) -> None:
        self.values[key] = value
        for local in _locals(key[1]):
            self.users.setdefault(local, []).append(key)

    def assigned(self, local: Local) -> None:
        """Forgets addresses that use the local: they have changed."""
        if local in self.users:
            for key in self.users.pop(local):
                self.values.pop(key, None)
        for place in [p for p in self.unread if local in _locals(p[0])]:
            del self.unread[place]

    def stored(self, key: _Key, value: _Value) -> None:
        """Forgets values that the store may have changed, and marks an unread value there as
        dead."""
        changed = [k for k, v in self.values.items() if _may_alias(key, value.space, k, v.space)]
        for k in changed:
            del self.values[k]
        name, address, offset = key
        before = self.unread.get((address, offset))
        if before is not None and ISA[before[0][0]].width <= ISA[name].width:
            before[1].dead = True
        if not _loads(address):
            self.unread[address, offset] = key, value

    def read(self, key: _Key, space: int) -> None:
        """Marks stores that this read may see as needed."""
        for place, (k, v) in list(self.unread.items()):
            if _may_alias(k, v.space, key, space):
                del self.unread[place]


def _locals(e: Expr) -> list[Local]:
    if isinstance(e, Local):
        return [e]
    if isinstance(e, Op):
        return [x for a in e.args for x in _locals(a)]
    if isinstance(e, Load):
        return _locals(e.address)
    return []


def _loads(e: Expr) -> bool:
    """True if an address itself loads from memory."""
    return any(map(_loads, e.args)) if isinstance(e, Op) else not isinstance(e, Local)


def _may_alias(key: _Key, space: int, other: _Key, its: int) -> bool:
    """True if two accesses may overlap.  Buffers (space >= 0) may share memory; scratch and the
    argument block share none."""
    if space != its and (space < 0 or its < 0):
        return False
    if key[1] != other[1]:
        return True
    return key[2] < other[2] + ISA[other[0]].width and other[2] < key[2] + ISA[key[0]].width


def load_store_to_variable(fn: Func) -> Func:
    """Keeps a value in a local if memory is asked for it, or given it, repeatedly.

    before: acc0 = madd(load p, load q, acc0); acc1 = madd(load p, load r, acc1)
    after:  acc0 = madd(tee(t, load p), load q, acc0); acc1 = madd(t, load r, acc1)

    It also replaces a load after a store to the same address, and omits a store that the next one
    overwrites.  It works within straight-line code, and only if nothing in between may change the
    value or read it.
    """
    found: list[_Value] = []
    _plan(fn.body, _Available(), found)
    if all(v.count == 1 and not v.dead for v in found):
        return fn
    rewriter = _Rewriter(found)
    return replace(fn, body=rewriter.stmts(fn.body))


def _plan(stmts: tuple[Stmt, ...], known: _Available, found: list[_Value]) -> None:
    """Walks in the order of execution; appends the value of each access in turn to `found`."""
    for s in stmts:
        if isinstance(s, Assign):
            _plan_expr(s.value, known, found)
            known.assigned(s.local)
        elif isinstance(s, Store):
            _plan_expr(s.address, known, found)
            _plan_expr(s.value, known, found)
            value = _Value(s.space)
            known.stored((s.name, s.address, s.offset), value)
            found.append(value)
            if s.name in _READS_BACK:
                known.put((_READS_BACK[s.name], s.address, s.offset), value)
        elif isinstance(s, BrIf):
            _plan_expr(s.cond, known, found)
            known.unread.clear()  # the following statements may be skipped
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
        key = (e.name, e.address, e.offset)
        if e.vector is not None:
            _plan_expr(e.vector, known, found)
            known.read(key, e.space)
            return
        value = known.values.get(key)
        if value is None:
            value = _Value(e.space)
            known.read(key, e.space)
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
        return Tee(self.named(value, e), e)

    def named(self, value: _Value, e: Expr) -> Local:
        """A new local for a value, which `e` computes."""
        self.number += 1
        value.local = Local(f"m.{self.number}", type_of(e))
        return value.local

    def stmts(self, stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple([self.stmt(s) for s in stmts])

    def stmt(self, s: Stmt) -> Stmt:
        if isinstance(s, Assign):
            value = self.expr(s.value)
            return s if value is s.value else Assign(s.local, value)
        if isinstance(s, Store):
            address, value = self.expr(s.address), self.expr(s.value)
            stored = next(self.found)
            if stored.dead:
                return Assign(self.named(stored, value), value)
            return Store(s.name, address, s.offset, self.keep(stored, value), s.space, s.lane)
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
