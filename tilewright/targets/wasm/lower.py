"""Lowers loop nests to Wasm IR: a `TileFn` becomes a tile function and a slot function around it.

Input: a `TileFn` and a `WasmVariant`.  Output: two `Func` and the helpers they call.

    tile(tile, pointers and scalars...)    computes one tile.  It has the hot loops and is small,
                                           so that an engine can replace it between two calls.
    kernel(args, first, last)              reads the argument block, runs the prologue, and calls
                                           `tile` for each tile in [first, last)

The only optimisation here is that invariant values are placed outside loops
(`function_builder.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.base.dtypes import BOOL, F32, F64, I8, I16, I32, I64, U8, DType
from tilewright.base.errors import CompilerBug
from tilewright.kernel import loops as l
from tilewright.kernel.expr import dtype_of, lanes_of
from tilewright.kernel.spec import Buffer
from tilewright.targets.wasm import ir, mathlib
from tilewright.targets.wasm.f16_memory import HALF, f16_store
from tilewright.targets.wasm.function_builder import FuncBuilder
from tilewright.targets.wasm.inline_indices import inline_indices
from tilewright.targets.wasm.ir import (
    Assign,
    Expr,
    Func,
    If,
    Local,
    Op,
    Stmt,
    Store,
    add,
    const,
    op,
)
from tilewright.targets.wasm.scalar_instructions import VALTYPE, shape_of
from tilewright.targets.wasm.values import ValueLowering
from tilewright.targets.wasm.variant import WasmVariant

STORES = {
    F32: "f32.store",
    F64: "f64.store",
    I32: "i32.store",
    I64: "i64.store",
    I16: "i32.store16",
    I8: "i32.store8",
    U8: "i32.store8",
    BOOL: "i32.store8",
}

#: The number of the only global that a module imports.
SCRATCH = 0

#: The space of the argument block (see `ValueLowering.space`).
ARGUMENTS = -1

#: How the first `valid` words of a vector are stored, as (words, first lane).
_PIECES = {1: ((1, 0),), 2: ((2, 0),), 3: ((2, 0), (1, 2))}

#: The low bytes of four i32 lanes, gathered in the first word.
_LOW_BYTES = bytes((0, 4, 8, 12)) + bytes((0, 4, 8, 12)) * 3


class Lowering:
    """Lowers statements into one function under construction; `buffers` excludes scratch."""

    def __init__(self, b: FuncBuilder, buffers: Sequence[Buffer]) -> None:
        self.b = b
        self.values = ValueLowering(b, buffers)

    def run(self, stmts: tuple[l.Stmt, ...]) -> None:
        for s in stmts:
            rule = _RULES.get(type(s))
            if rule is None:
                raise CompilerBug(f"no Wasm for the statement {type(s).__name__}")
            rule(self, s)

    def let(self, s: l.Let) -> None:
        value = self.values.index(s.value)
        self.b.bind(s.var.name, self.b.let(value, "i32", s.var.name, 0))

    def let_min(self, s: l.LetMin) -> None:
        x = self.b.let(self.values.index(s.a), "i32")
        y = self.b.let(self.values.index(s.b), "i32")
        smaller = op("select", x, y, op("i32.lt_s", x, y))
        self.b.bind(s.var.name, self.b.let(smaller, "i32", s.var.name, 0))

    def let_gather(self, s: l.LetGather) -> None:
        self.b.bind(s.var.name, self.values.gather(s.value, s.var.extent, s.check))

    def let_uniform(self, s: l.LetUniform) -> None:
        zero, most = const(0), const(s.var.extent - 1)
        x = self.b.let(self.values.value(s.value), "i32")
        x = self.b.let(op("select", x, zero, op("i32.gt_s", x, zero)), "i32")
        smaller = op("select", x, most, op("i32.lt_s", x, most))
        self.b.bind(s.var.name, self.b.let(smaller, "i32", s.var.name, 0))

    def set(self, s: l.Set) -> None:
        value = self.values.value(s.value)
        known = self.b.registers.get(s.name)
        if known is None:
            type_ = VALTYPE[shape_of(dtype_of(s.value), lanes_of(s.value))]
            known = self.b.registers[s.name] = self.b.fresh(type_, s.name)
        self.b.emit(Assign(known, value))

    def store(self, s: l.Store) -> None:
        dtype, lanes = dtype_of(s.value), lanes_of(s.value)
        value = self.values.value(s.value)
        if s.buffer in self.values.compact:
            address = self.values.address(s.buffer, s.index, HALF)
            f16_store(self.b, value, lanes, s.valid or lanes, address, s.buffer)
            return
        address = self.values.address(s.buffer, s.index, dtype.size)
        space = self.values.space(s.buffer)
        if lanes == 1:
            self.b.emit(Store(STORES[dtype], address, 0, value, space))
        elif lanes * dtype.size == 16 and lanes > 4:
            self.b.emit(Store("v128.store", address, 0, value, space))
        elif lanes == 8:
            self.b.emit(Store("v128.store64_lane", address, 0, value, space, 0))
        elif dtype.size == 2:
            self.store_f16(space, address, value, s.valid or lanes)
        elif dtype.size == 4:
            self.store_words(space, address, value, s.valid or lanes)
        else:
            self.store_bytes(space, address, self.low_bytes(value, dtype), s.valid or lanes)

    def store_words(self, space: int, address: Expr, value: Expr, valid: int) -> None:
        if valid == 4:
            self.b.emit(Store("v128.store", address, 0, value, space))
            return
        vector = self.b.vec(value)
        for words, lane in _PIECES[valid]:
            at = add(address, const(4 * lane)) if lane else address
            name = f"v128.store{32 * words}_lane"
            self.b.emit(Store(name, at, 0, vector, space, lane // words))

    def store_f16(self, space: int, address: Expr, value: Expr, valid: int) -> None:
        value = self.b.vec(value)
        narrow = self.b.vec(op("i16x8.narrow_i32x4_s", value, value))
        if valid == 4:
            self.b.emit(Store("v128.store64_lane", address, 0, narrow, space, 0))
            return
        for lane in range(valid):
            at = add(address, const(2 * lane)) if lane else address
            self.b.emit(Store("v128.store16_lane", at, 0, narrow, space, lane))

    def low_bytes(self, value: Expr, dtype: DType) -> Expr:
        if dtype == BOOL:
            value = op("v128.and", value, self.b.i32x4(1))
        vector = self.b.vec(value)
        return Op("i8x16.shuffle", (vector, vector), (_LOW_BYTES,))

    def store_bytes(self, space: int, address: Expr, value: Expr, valid: int) -> None:
        if valid == 4:
            self.b.emit(Store("v128.store32_lane", address, 0, value, space, 0))
            return
        vector = self.b.vec(value)
        for lane in range(valid):
            at = add(address, const(lane)) if lane else address
            self.b.emit(Store("v128.store8_lane", at, 0, vector, space, lane))

    def loop(self, s: l.For) -> None:
        b = self.b
        begin, end = self.fixed(self.values.index(s.begin)), self.fixed(self.values.index(s.end))
        var = b.fresh("i32", s.var.name, 0, len(b.scopes))

        def body() -> None:
            b.bind(s.var.name, var)
            self.run(s.body)

        stmts = b.collect_loop(var, begin, s.step, body)
        b.emit(ir.for_loop(var, begin, end, s.step, stmts, s.at_least_once))

    def fixed(self, value: Expr) -> Expr:
        """A value that a loop body cannot change and that costs nothing to repeat."""
        if isinstance(value, Local) or ir.is_const(value):
            return value
        return self.b.let(value, "i32", "end", 0)

    def branch(self, s: l.If) -> None:
        cond = self.values.bound(s.bounds)
        if cond is None:
            self.run(s.then)
            return
        then = self.b.collect("if", lambda: self.run(s.then))
        orelse = self.b.collect("if", lambda: self.run(s.orelse))
        self.b.emit(If(cond, then, orelse))

    def barrier(self, s: l.Barrier) -> None:
        """Emits nothing: one worker computes the whole tile."""


_RULES: dict[type, Callable[[Lowering, Any], None]] = {
    l.Let: Lowering.let,
    l.LetMin: Lowering.let_min,
    l.LetGather: Lowering.let_gather,
    l.LetUniform: Lowering.let_uniform,
    l.Set: Lowering.set,
    l.Store: Lowering.store,
    l.For: Lowering.loop,
    l.If: Lowering.branch,
    l.Barrier: Lowering.barrier,
}


@dataclass(frozen=True)
class Lowered:
    """A kernel in Wasm IR: its tile and slot functions and the helpers they need.

    asked:   the properties of the variant that it depends on
    relaxed: True if its code also depends on relaxed SIMD
    """

    tile: Func
    slot: Func
    helpers: frozenset[str]
    scratch: int
    asked: frozenset[str]
    relaxed: bool


def scratch_offsets(fn: l.TileFn) -> tuple[tuple[int, ...], int]:
    """The 64-byte-aligned offset of each scratch buffer in the worker's area, and their total
    size."""
    at, offsets = 0, []
    for s in fn.scratch:
        offsets.append(at)
        at += (s.size * s.dtype.size + 63) // 64 * 64
    return tuple(offsets), at


class _Block:
    """The argument block; the slot function loads a field on its first use."""

    def __init__(self, fn: l.TileFn, args: Local, offsets: tuple[int, ...]) -> None:
        count = len(fn.buffers)
        self.args = args
        self.words = {f"@{n}": n for n in range(count)}
        self.words |= {s.name: count + n for n, s in enumerate(fn.scalars)}
        self.areas = {f"@{count + n}": at for n, at in enumerate(offsets)}

    def read(self, b: FuncBuilder, name: str) -> Local | None:
        """The address of a buffer ("@1"), or a scalar; None if there is none of that name."""
        value: Expr
        if name in self.words:
            # The argument block has its own space, since no kernel writes to it.
            value = ir.Load("i32.load", self.args, 4 * self.words[name], ARGUMENTS)
        elif name in self.areas:
            value = add(Op("global.get", (), (SCRATCH,)), const(self.areas[name]))
        else:
            return None
        lo = ir.LOWEST_ADDRESS if name.startswith("@") else 0
        local = b.fresh("i32", name.replace("@", "b"), lo, 0)
        top = b.scopes[0]
        top.stmts.append(Assign(local, value))
        top.names[name] = local
        return local


def lower(fn: l.TileFn, variant: WasmVariant, placed: bool = True) -> Lowered:
    """The Wasm IR of a kernel before the passes; `placed` as in `FuncBuilder`."""
    if not placed:
        fn = inline_indices(fn)
    args, first, last = (Local(name, "i32", 0) for name in ("args", "first", "last"))
    inline = mathlib.inlined(fn)
    offsets, scratch = scratch_offsets(fn)
    block = _Block(fn, args, offsets)

    slot = FuncBuilder(
        variant, lambda name: block.read(slot, name), inline, captures=False, placed=placed
    )
    slot.depth |= {args: 0, first: 0, last: 0}
    Lowering(slot, fn.buffers).run(fn.prologue)

    def from_slot(name: str) -> Local | None:
        """The local that the tile function receives from the slot function, or None."""
        if name.startswith("%"):
            return slot.registers.get(name[1:])
        return slot.scopes[0].names.get(name) or block.read(slot, name)

    inner = FuncBuilder(variant, from_slot, inline, placed=placed)
    number = inner.fresh("i32", fn.tile.name, 0, 0)
    inner.bind(fn.tile.name, number)
    Lowering(inner, fn.buffers).run(fn.body)
    params = (number, *inner.params.values())
    tile = Func(f"{fn.name}.tile", params, tuple(inner.scopes[0].stmts))

    passed = tuple(found for name in inner.params if (found := from_slot(name)) is not None)
    current = slot.fresh("i32", fn.tile.name, 0)
    call: tuple[Stmt, ...] = (ir.Run(tile.name, (current, *passed)),)
    slot.emit(ir.for_loop(current, first, last, 1, call, False))
    kernel = Func(fn.name, (args, first, last), tuple(slot.scopes[0].stmts))
    helpers, asked = (
        frozenset(s) for s in (slot.helpers | inner.helpers, slot.asked | inner.asked)
    )
    return Lowered(tile, kernel, helpers, scratch, asked, slot.relaxed or inner.relaxed)
