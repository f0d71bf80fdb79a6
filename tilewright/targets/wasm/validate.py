"""Checks the operand stack and the structure of a function: is it valid Wasm?

Input: a `Function`, and the types of the names it may use.  Output: nothing, or `CompilerBug` with
the invalid instruction.  It runs on every function before encoding, so that a compiler bug is found
here and not by a browser.  It optimises nothing and does not look at values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NoReturn, TypeVar

from tilewright.base.errors import CompilerBug
from tilewright.targets.wasm.encode import FnType, Function
from tilewright.targets.wasm.isa import ISA, Ins

T = TypeVar("T")
Types = tuple[str, ...]

#: The type of a value popped from the empty stack of unreachable code; it matches every type.
ANY = "any"

_LANES = {"i8x16": 16, "i16x8": 8, "i32x4": 4, "i64x2": 2, "f32x4": 4, "f64x2": 2}
_FIELD = {"8": 16, "16": 8, "32": 4, "64": 2}


@dataclass(frozen=True)
class Names:
    """What a function may refer to.

    functions: type of each function symbol (or index)
    types:     type of each type index; a `FnType` names itself
    globals_:  value type of each global index
    features:  features of the variant
    """

    functions: Mapping[object, FnType] = field(default_factory=dict)
    types: Mapping[object, FnType] = field(default_factory=dict)
    globals_: Mapping[object, str] = field(default_factory=dict)
    features: frozenset[str] = frozenset({"simd", "relaxed_simd", "threads", "dot_u8"})


@dataclass
class _Frame:
    """An open block: the types that a branch to it carries, its results, and its stack so far."""

    kind: str
    branch: Types
    results: Types
    stack: Types = ()
    dead: bool = False


class _Checker:
    def __init__(self, fn: Function, names: Names) -> None:
        self.fn, self.names = fn, names
        self.locals = (*fn.type.params, *fn.locals)
        results = fn.type.results
        self.frames = [_Frame("function", results, results)]
        self.at = 0

    def fail(self, why: str) -> NoReturn:
        ins = (*self.fn.body, ("end",))[self.at]
        raise CompilerBug(why, function=self.fn.name, instruction=str(ins), position=self.at)

    def push(self, types: Types) -> None:
        self.frames[-1].stack += types

    def pop(self, want: str = ANY) -> str:
        frame = self.frames[-1]
        if not frame.stack:
            if frame.dead:
                return want
            self.fail(f"the stack is empty where {want} is needed")
        *rest, have = frame.stack
        frame.stack = tuple(rest)
        if have != want and want != ANY and have != ANY:
            self.fail(f"{have} on the stack where {want} is needed")
        return have

    def pop_all(self, types: Types) -> None:
        for t in reversed(types):
            self.pop(t)

    def look_up(self, table: Mapping[object, T], key: object, what: str) -> T:
        if key not in table:
            self.fail(f"unknown {what} {key}")
        return table[key]

    def label(self, depth: object) -> _Frame:
        if not isinstance(depth, int) or not 0 <= depth < len(self.frames):
            self.fail(f"no block at depth {depth}")
        return self.frames[-1 - depth]

    def die(self) -> None:
        """Marks the code after a jump as unreachable: its stack may be anything."""
        frame = self.frames[-1]
        frame.stack, frame.dead = (), True

    def close(self) -> _Frame:
        frame = self.frames[-1]
        self.pop_all(frame.results)
        if frame.stack:
            self.fail(f"{len(frame.stack)} values left over at the end of a block")
        return self.frames.pop()

    # ---- instructions whose types depend on their context ---------------------------------------

    def effect(self, ins: Ins) -> tuple[Types, Types]:
        """The types that any other instruction pops and pushes; checks its immediates."""
        name = str(ins[0])
        if name in _LOCAL:
            t = (self.local(ins[1]),)
            gets, sets = _LOCAL[name]
            return (t if sets else ()), (t if gets else ())
        wrong = _objection(ins)
        if wrong:
            self.fail(wrong)
        row = ISA[name]
        if row.feature and row.feature not in self.names.features:
            self.fail(f"the variant lacks {row.feature}")
        return row.pops or (), row.pushes or ()

    def local(self, number: object) -> str:
        if not isinstance(number, int) or not 0 <= number < len(self.locals):
            self.fail(f"no local {number}")
        return self.locals[number]

    def global_get(self, ins: Ins) -> None:
        self.push((self.look_up(self.names.globals_, ins[1], "global"),))

    def call(self, ins: Ins) -> None:
        self.apply(self.look_up(self.names.functions, ins[1], "function"))

    def call_indirect(self, ins: Ins) -> None:
        self.pop("i32")
        named = ins[1]
        if not isinstance(named, FnType):
            named = self.look_up(self.names.types, named, "type")
        self.apply(named)

    def apply(self, t: FnType) -> None:
        self.pop_all(t.params)
        self.push(t.results)

    def drop(self, _: Ins) -> None:
        self.pop()

    def select(self, _: Ins) -> None:
        self.pop("i32")
        first = self.pop()
        second = self.pop(first)
        self.push((second if first == ANY else first,))

    def open(self, ins: Ins) -> None:
        if ins[0] == "if":
            self.pop("i32")
        results = () if ins[1] is None else (str(ins[1]),)
        branch = () if ins[0] == "loop" else results
        self.frames.append(_Frame(str(ins[0]), branch, results))

    def otherwise(self, _: Ins) -> None:
        frame = self.close()
        if frame.kind != "if":
            self.fail("else without if")
        self.frames.append(_Frame("else", frame.branch, frame.results))

    def end(self, _: Ins) -> None:
        if len(self.frames) == 1:
            self.fail("end without a block")
        frame = self.close()
        if frame.kind == "if" and frame.results:
            self.fail("an if with a result needs an else")
        self.push(frame.results)

    def br(self, ins: Ins) -> None:
        self.pop_all(self.label(ins[1]).branch)
        self.die()

    def br_if(self, ins: Ins) -> None:
        self.pop("i32")
        carried = self.label(ins[1]).branch
        self.pop_all(carried)
        self.push(carried)

    def leave(self, _: Ins) -> None:
        self.pop_all(self.frames[0].results)
        self.die()

    def unreachable(self, _: Ins) -> None:
        self.die()


_PLACED: dict[str, Callable[[_Checker, Ins], None]] = {
    "global.get": _Checker.global_get,
    "call": _Checker.call,
    "call_indirect": _Checker.call_indirect,
    "drop": _Checker.drop,
    "select": _Checker.select,
    "block": _Checker.open,
    "loop": _Checker.open,
    "if": _Checker.open,
    "else": _Checker.otherwise,
    "end": _Checker.end,
    "br": _Checker.br,
    "br_if": _Checker.br_if,
    "return": _Checker.leave,
    "unreachable": _Checker.unreachable,
}
#: For each access of a local: whether it pushes the value, and whether it pops one.
_LOCAL = {"local.get": (True, False), "local.set": (False, True), "local.tee": (True, True)}


def lanes_of(name: str) -> int:
    """The number of lanes that a lane immediate may name: i32x4.extract_lane -> 4, load8_lane ->
    16."""
    shape, _, rest = name.partition(".")
    return _LANES.get(shape) or _FIELD[rest.removeprefix("load").removeprefix("store")[:-5]]


_LANE_LIMIT = {r.name: lanes_of(r.name) for r in ISA.values() if "lane" in r.imms}


#: The results of an instruction by the stacks that it was checked with so far.
_Moves = dict[Types, Types]


def check(fn: Function, names: Names) -> None:
    """Raises `CompilerBug` unless the function is valid."""
    c = _Checker(fn, names)
    frame = c.frames[-1]
    moves: list[_Moves | None] = [None] * len(fn.kinds)
    by_effect: dict[tuple[Types, Types], _Moves] = {}
    for c.at, number in enumerate(fn.order):
        known = moves[number]
        if known is None:
            ins = fn.kinds[number]
            rule = _PLACED.get(ins[0])  # type: ignore[call-overload]
            if rule is not None:
                rule(c, ins)
                frame = c.frames[-1]
                continue
            known = moves[number] = by_effect.setdefault(c.effect(ins), {})
        before = frame.stack
        after = known.get(before)
        if after is None:
            pops, pushes = c.effect(fn.kinds[number])
            c.pop_all(pops)
            c.push(pushes)
            after = frame.stack
            if not frame.dead:
                known[before] = after
        frame.stack = after
    c.at = len(fn.order)
    if len(c.frames) != 1:
        c.fail("a block is not closed")
    c.close()


@lru_cache(maxsize=1 << 14)
def _objection(ins: Ins) -> str:
    """What is wrong with an instruction in any context; "" for nothing."""
    row = ISA.get(str(ins[0]))
    if row is None:
        return "unknown instruction"
    if len(ins) != 1 + row.values:
        return "wrong number of immediates"
    if row.imms and row.imms[0] == "mem":
        align, offset = ins[1], ins[2]
        if not isinstance(align, int) or not 0 <= align <= row.align:
            return "an alignment above the natural one"
        if row.atomic and align != row.align:
            return "an atomic access below its natural alignment"
        if not isinstance(offset, int) or not 0 <= offset < 1 << 32:
            return "an offset that is not a u32"
    limit = _LANE_LIMIT.get(row.name)
    if limit is not None and not (isinstance(ins[-1], int) and 0 <= ins[-1] < limit):
        return "no such lane"
    return ""
