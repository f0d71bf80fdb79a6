"""The three passes over Wasm IR; each can be switched off.

Input: a `Func`.  Output: a `Func` that computes the same.  The three passes are those of the nnJIT
paper.  Placing invariant values and addresses outside loops is not a pass: lowering does it before
(function_builder.py).  Other optimisations are left to the engine's own compiler.  The third pass
is in variables.py.

    offset_load_store       load(p + 16)              ->  load offset=16 (p)
    combined_instruction    splat(f32.load(p))        ->  v128.load32_splat(p)
    load_store_to_variable  a = load(p); b = load(p)  ->  a = tee(t, load(p)); b = t
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.base.errors import of_kind
from tilewright.targets.wasm.ir import (
    ANY_LOW,
    LOWEST_ADDRESS,
    Expr,
    Func,
    Load,
    Local,
    Mapper,
    Op,
    Store,
    add,
    const,
    const_value,
    is_const,
)
from tilewright.targets.wasm.variables import load_store_to_variable

Pass = Callable[[Func], Func]

# ---- 1: offset_load_store ------------------------------------------------------------------------


def offset_load_store(fn: Func) -> Func:
    """Moves constant parts of addresses into the instruction.

    before: v128.load (i32.add p (i32.const 16))
    after:  v128.load offset=16 p

    An address wraps around at 2^32, while address + offset does not.  So a constant moves only if
    it is not negative and the rest of the address cannot be negative either.  That holds if the
    rest is known to be >= 0, or if the constant is at most LOWEST_ADDRESS, below which no kernel
    accesses memory.
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
            if type(e.args[0]) is Local and is_const(e.args[1]):  # the most frequent case
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


# ---- 2: combined_instruction ---------------------------------------------------------------------

#: (instruction, load in its last argument) -> the load that does both.
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
    """Joins a load and the instruction that uses its value.

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
    vector, lane = e.args[0], of_kind(e.imms[0], int, "no number of a lane", instruction=e.name)
    # load_lane takes its address first, so the vector is now computed second; both are pure.
    return Load(name, load.address, load.offset, load.space, lane, vector)


#: The passes in the order in which they run.
PASSES: tuple[tuple[str, Pass], ...] = (
    ("offset_load_store", offset_load_store),
    ("combined_instruction", combined_instruction),
    ("load_store_to_variable", load_store_to_variable),
)
#: Placing values and addresses outside loops (function_builder.py).  It is not a pass, but can be
#: switched off like one, to measure the passes alone.
PLACEMENT = "placement"
ALL: frozenset[str] = frozenset(name for name, _ in PASSES) | {PLACEMENT}


#: Passes that change one access or instruction without its context: one walk does both.
_LOCAL = frozenset({"offset_load_store", "combined_instruction"})


def run(fn: Func, enabled: frozenset[str] = ALL) -> Func:
    """Runs the enabled passes in order."""
    if enabled >= _LOCAL:
        fn = Mapper(_combine, _fold_load, _fold_store).func(fn)
        enabled -= _LOCAL
    for name, change in PASSES:
        if name in enabled:
            fn = change(fn)
    return fn
