"""Turns Wasm IR into functions, and one kernel from loops into code.

Input: a `TileFn`, a `WasmVariant` and the names of the passes to run.  Output: `CompiledKernel`,
checked and encoded, ready for `link.py`.  Nothing is optimised here.  Every expression is pushed in
the order of its tree, because an engine keeps the order of instructions as its schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from tilewright.base.errors import CompilerBug
from tilewright.kernel.loops import TileFn
from tilewright.targets.wasm import ir, mathlib, passes, wat
from tilewright.targets.wasm.encode import FnType, Function, Parts, encode_body
from tilewright.targets.wasm.ir import Expr, Func, Local, Stmt
from tilewright.targets.wasm.isa import ISA, VALTYPES, Ins
from tilewright.targets.wasm.lower import SCRATCH, Lowered, lower
from tilewright.targets.wasm.passes import ALL
from tilewright.targets.wasm.validate import Names, check
from tilewright.targets.wasm.variant import WasmVariant

#: The type of every entry of the function table: kernel(args, first, last).
SLOT_TYPE = FnType(("i32", "i32", "i32"))

T = TypeVar("T")

#: A variant, the properties of it that a result depends on, and the result.
_Made = tuple[WasmVariant, frozenset[str], T]

_LOCAL_OPS = frozenset({"local.get", "local.set", "local.tee"})

#: Buffers are only aligned to words, so accesses promise at most 4-byte alignment.
_ALIGN = {name: min(row.align, 2) for name, row in ISA.items()}


#: Replacements of relaxed instructions, for variants without relaxed SIMD.
_RELAXED: dict[str, Callable[[Expr, Expr, Expr], ir.Op]] = {
    "f32x4.relaxed_madd": lambda x, y, z: ir.op("f32x4.add", ir.op("f32x4.mul", x, y), z),
    "f32x4.relaxed_nmadd": lambda x, y, z: ir.op("f32x4.sub", z, ir.op("f32x4.mul", x, y)),
    "i32x4.relaxed_laneselect": lambda x, y, mask: ir.op("v128.bitselect", x, y, mask),
}


class _Flatten:
    """Turns trees into instructions; locals stay objects until all of them are known."""

    def __init__(self, relaxed: bool) -> None:
        self.relaxed = relaxed
        self.out: list[Ins] = []

    def expr(self, e: Expr) -> None:
        out = self.out
        if isinstance(e, ir.Op):
            if e.name in _RELAXED and not self.relaxed:
                e = _RELAXED[e.name](*e.args)
            for a in e.args:
                if type(a) is Local:
                    out.append(("local.get", a))
                else:
                    self.expr(a)
            out.append((e.name, *e.imms) if e.imms else (e.name,))
        elif isinstance(e, Local):
            out.append(("local.get", e))
        elif isinstance(e, ir.Load):
            self.expr(e.address)
            if e.vector is not None:
                self.expr(e.vector)
            self.access(e.name, e.offset, e.lane)
        elif isinstance(e, ir.Tee):
            self.expr(e.value)
            self.out.append(("local.tee", e.local))
        else:
            for a in e.args:
                self.expr(a)
            self.out.append(("call", e.function))

    def access(self, name: str, offset: int, lane: int) -> None:
        align = _ALIGN[name]
        self.out.append((name, align, offset) if lane < 0 else (name, align, offset, lane))

    def stmts(self, stmts: Iterable[Stmt]) -> None:
        for s in stmts:
            _STMTS[type(s)](self, s)

    def assign(self, s: ir.Assign) -> None:
        self.expr(s.value)
        self.out.append(("local.set", s.local))

    def store(self, s: ir.Store) -> None:
        self.expr(s.address)
        self.expr(s.value)
        self.access(s.name, s.offset, s.lane)

    def block(self, s: ir.Block) -> None:
        self.out.append(("block", None))
        self.stmts(s.body)
        self.out.append(("end",))

    def loop(self, s: ir.Loop) -> None:
        self.out.append(("loop", None))
        self.stmts(s.body)
        self.out.append(("end",))

    def br_if(self, s: ir.BrIf) -> None:
        self.expr(s.cond)
        self.out.append(("br_if", s.depth))

    def branch(self, s: ir.If) -> None:
        self.expr(s.cond)
        self.out.append(("if", None))
        self.stmts(s.then)
        if s.orelse:
            self.out.append(("else",))
            self.stmts(s.orelse)
        self.out.append(("end",))

    def trap(self, _: ir.Trap) -> None:
        self.out.append(("unreachable",))

    def effect(self, s: ir.Effect) -> None:
        self.expr(s.value)
        if ISA[s.value.name].pushes:
            self.out.append(("drop",))

    def run(self, s: ir.Run) -> None:
        for a in s.args:
            self.expr(a)
        if s.index is None:
            self.out.append(("call", s.function))
        else:
            self.expr(s.index)
            self.out.append(("call_indirect", s.function, 0))


_STMTS: dict[type, Callable[[_Flatten, Any], None]] = {
    ir.Assign: _Flatten.assign,
    ir.Store: _Flatten.store,
    ir.Block: _Flatten.block,
    ir.Loop: _Flatten.loop,
    ir.BrIf: _Flatten.br_if,
    ir.If: _Flatten.branch,
    ir.Trap: _Flatten.trap,
    ir.Run: _Flatten.run,
    ir.Effect: _Flatten.effect,
}


def flatten(fn: Func, relaxed: bool = True) -> Function:
    """A function as instructions.  Locals are numbered: parameters first, then by type.

    relaxed: True if the variant has relaxed SIMD
    """
    flat = _Flatten(relaxed)
    flat.stmts(fn.body)
    if fn.result is not None:
        flat.expr(fn.result)
    made = Function.of(fn.name, FnType(()), (), flat.out)
    # Locals in the order of first use; parameters keep their numbers.
    used = dict.fromkeys([i[1] for i in made.kinds if i[0] in _LOCAL_OPS])
    for p in fn.params:
        used.pop(p, None)
    rest: list[Local] = [v for t in VALTYPES for v in used if isinstance(v, Local) and v.type == t]
    number: dict[object, int] = {v: n for n, v in enumerate((*fn.params, *rest))}
    kinds = tuple([(i[0], number[i[1]]) if i[0] in _LOCAL_OPS else i for i in made.kinds])
    results = () if fn.result is None else (ir.type_of(fn.result),)
    type_ = FnType(tuple(p.type for p in fn.params), results)
    return Function(fn.name, type_, tuple(v.type for v in rest), kinds, made.order)


@dataclass(frozen=True)
class FuncCode:
    """An encoded function; `parts` has holes for the indices of functions and types."""

    name: str
    type: FnType
    locals: tuple[str, ...]
    parts: Parts


@dataclass(frozen=True)
class CompiledKernel:
    """One kernel as code.

    functions: the slot function last; names are local to the kernel
    helpers:   math functions it calls, which `link` adds once per module
    scratch:   bytes of the worker's scratch area that it uses
    needs:     features that its instructions require of the host
    """

    name: str
    functions: tuple[FuncCode, ...]
    helpers: frozenset[str] = frozenset()
    scratch: int = 0
    needs: frozenset[str] = frozenset()

    @property
    def size(self) -> int:
        """Bytes of code."""
        return sum(len(p) for f in self.functions for p in f.parts if isinstance(p, bytes))

    @property
    def uses_scratch(self) -> bool:
        return self.scratch > 0


#: The types of helper functions that kernels of a module share, by name.
HELPER_TYPES: dict[object, FnType] = {
    name: FnType(params, (result,)) for name, (_, params, result) in mathlib.HELPERS.items()
}


def assemble(functions: Iterable[Function], variant: WasmVariant) -> tuple[FuncCode, ...]:
    """Checks and encodes functions that may call each other and the math helpers."""
    functions = tuple(functions)
    known: dict[object, FnType] = {**HELPER_TYPES, **{f.name: f.type for f in functions}}
    names = Names(known, {}, {SCRATCH: "i32"}, variant.allowed)
    for f in functions:
        check(f, names)
    return tuple(FuncCode(f.name, f.type, f.locals, encode_body(f)) for f in functions)


def _lowered(fn: TileFn, variant: WasmVariant, enabled: frozenset[str]) -> Lowered:
    """The kernel's Wasm IR after the passes."""
    if enabled - ALL:
        raise CompilerBug(f"no such pass: {', '.join(sorted(enabled - ALL))}")
    made = lower(fn, variant, passes.PLACEMENT in enabled)
    tile, slot = (passes.run(f, enabled) for f in (made.tile, made.slot))
    return replace(made, tile=tile, slot=slot)


def _functions(lowered: Lowered, variant: WasmVariant) -> tuple[Function, ...]:
    return tuple(flatten(f, variant.fma) for f in (lowered.tile, lowered.slot))


def compile_tile(fn: TileFn, variant: WasmVariant, enabled: frozenset[str] = ALL) -> CompiledKernel:
    """A kernel from loops to checked code; `enabled` names the passes to run."""
    return compile_tiles(fn, (variant,), enabled)[0]


def compile_tiles(
    fn: TileFn, variants: Sequence[WasmVariant], enabled: frozenset[str] = ALL
) -> tuple[CompiledKernel, ...]:
    """The kernel's code for each variant.

    Trees and code are made once for all variants that do not differ in a property the kernel uses.
    """
    trees: list[_Made[Lowered]] = []
    made: list[_Made[CompiledKernel]] = []
    for variant in variants:
        if _shared(made, variant) is not None:
            continue
        lowered = _shared(trees, variant)
        if lowered is None:
            lowered = _lowered(fn, variant, enabled)
            trees.append((variant, lowered.asked, lowered))
        functions = _functions(lowered, variant)
        code = assemble(functions, variant)
        used = {i[0] for f in functions for i in f.kinds}
        needs = frozenset(ISA[str(name)].feature for name in used)
        kernel = CompiledKernel(fn.name, code, lowered.helpers, lowered.scratch, needs)
        asked = lowered.asked | ({"fma"} if lowered.relaxed else set())
        made.append((variant, asked, kernel))
    found = (_shared(made, variant) for variant in variants)
    return tuple(kernel for kernel in found if kernel is not None)


def _shared(made: Iterable[_Made[T]], variant: WasmVariant) -> T | None:
    """A result made for another variant that agrees in all properties it depends on; else None."""
    for other, asked, result in made:
        if all(getattr(other, what) == getattr(variant, what) for what in asked):
            return result
    return None


def emit_text(fn: TileFn, variant: WasmVariant, enabled: frozenset[str] = ALL) -> str:
    """The kernel's functions as readable text."""
    lowered = _lowered(fn, variant, enabled)
    return "\n\n".join(wat.render(f) for f in _functions(lowered, variant))
