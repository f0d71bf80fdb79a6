"""Lowers value expressions of the loop IR, and their index arithmetic, to Wasm IR.

Input: `kernel.expr` trees and `kernel.index` sums.  Output: Wasm IR expressions; parts that need
statements (a guard, a gathered index) are first added to the builder.  The output is deliberately
naive: the passes handle constant parts of addresses, splats of loads, and repeated loads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.base.dtypes import BOOL, F32, I32, I64, DType
from tilewright.base.errors import CompilerBug
from tilewright.kernel import expr as k
from tilewright.kernel.index import Atom, Div, Gathered, Index, Mod, Var
from tilewright.kernel.spec import Buffer
from tilewright.kernel.tree import read_by
from tilewright.targets.wasm import dot_products, mathlib
from tilewright.targets.wasm.casts import cast
from tilewright.targets.wasm.control_words import report_out_of_range
from tilewright.targets.wasm.f16_memory import HALF, f16_load
from tilewright.targets.wasm.function_builder import Addresses, FuncBuilder, Terms
from tilewright.targets.wasm.ir import (
    ANY_LOW,
    LOWEST_ADDRESS,
    Assign,
    Expr,
    If,
    Load,
    Local,
    Op,
    Trap,
    add,
    const,
    op,
    times,
)
from tilewright.targets.wasm.loads import LOADS, vector_load
from tilewright.targets.wasm.scalar_instructions import (
    ONE,
    SEVERAL,
    VALTYPE,
    cell,
    clamp_const,
    flag_to_mask,
    scalar_const,
    shape_of,
    wrap,
)

#: V8 on x86 adds the offset of a splat load by an instruction of its own, which loads with equal
#: offsets share.  So each row of a matrix gets its own pointer, as far as registers allow, and the
#: steps of an unrolled loop, which are equal for all rows, become the offsets.
SPLAT_REACH = 64
SPLAT_POINTERS = 8

#: Functions that the tables of scalar_instructions.py do not cover alone.
_SPECIAL = frozenset({"cast", "where", "nibble", "and", "or", "not", "max", "min"}) | frozenset(
    mathlib.FUNCTIONS
)


class ValueLowering:
    """Lowers expressions into one function under construction; `buffers` excludes scratch."""

    def __init__(self, b: FuncBuilder, buffers: Sequence[Buffer]) -> None:
        self.b, self.buffers = b, len(buffers)
        self.compact = frozenset(n for n, buffer in enumerate(buffers) if buffer.compact)
        self.biases: dict[tuple[Local, Terms], list[int]] = {}

    # ---- indices ---------------------------------------------------------------------------------

    def index(self, i: Index) -> Expr:
        """An index as an i32 expression."""
        total: Expr | None = None
        for atom, c in i.terms:
            term = times(self.atom(atom), c)
            total = term if total is None else add(total, term)
        if total is None:
            return const(i.const)
        return add(total, const(i.const)) if i.const else total

    def terms(self, i: Index) -> Terms:
        return tuple([(self.atom(atom), c) for atom, c in i.terms])

    def atom(self, atom: Atom) -> Local:
        """The local that holds an atom; divisions are computed where their parts are known."""
        if isinstance(atom, Var):
            return self.b.find(atom.name)
        if isinstance(atom, Gathered):
            return self.gather(read_by(atom), atom.extent, atom.check)
        inner = self.terms(atom.value)
        key = (type(atom), inner, atom.value.const, atom.by)
        known = self.b.memo(key)
        if known is not None:
            return known
        depth = max((self.b.depth[v] for v, _ in inner), default=0)
        low = atom.value.bounds[0]
        lo = 0 if low >= 0 or isinstance(atom, Mod) else ANY_LOW
        return self.b.place(key, depth, "i32", self.division(atom, inner, low), "q", lo)

    def division(self, atom: Div | Mod, inner: Terms, low: int) -> Expr:
        """floor(x / by) or x mod by; a negative x is first raised by a multiple of `by`."""
        lift = -(low // atom.by) * atom.by if low < 0 else 0
        value: Expr = const(atom.value.const + lift)
        for v, c in inner:
            term = times(v, c)
            value = term if value == const(0) else add(value, term)
        by, power = atom.by, atom.by.bit_length() - 1
        is_power = by == 1 << power
        if isinstance(atom, Mod):
            if is_power:
                return op("i32.and", value, const(by - 1))
            return op("i32.rem_u", value, const(by))
        divided = op("i32.shr_u", value, const(power))
        if not is_power:
            divided = op("i32.div_u", value, const(by))
        return add(divided, const(-lift // by)) if lift else divided

    def gather(self, value: k.Expr, extent: int, check: int | None) -> Local:
        """An index loaded from memory.  Unless 0 <= index < extent, the kernel reports it and
        traps."""
        wide = k.dtype_of(value) == I64
        shape = "i64" if wide else "i32"
        x = self.b.let(self.value(value), shape, "g", 0)
        limit = Op(f"{shape}.const", (), (extent,))
        told = (
            ()
            if check is None
            else report_out_of_range(check, x if wide else op("i64.extend_i32_s", x))
        )
        self.b.emit(If(op(f"{shape}.ge_u", x, limit), (*told, Trap())))
        return self.b.let(op("i32.wrap_i64", x), "i32", "g", 0) if wide else x

    def bound(self, bounds: tuple[k.Bound, ...]) -> Expr | None:
        """All bounds as one i32 condition; None if they always hold."""
        cond: Expr | None = None
        for bound in bounds:
            if not bound.always:
                # As an unsigned number, a negative index is large.
                test = op("i32.lt_u", self.index(bound.index), const(bound.extent))
                cond = test if cond is None else op("i32.and", cond, test)
        return cond

    # ---- memory ----------------------------------------------------------------------------------

    def space(self, buffer: int) -> int:
        """A number for the buffer's memory, for pass 3: buffers may overlap, scratch buffers never
        do."""
        return buffer if buffer < self.buffers else -2 - buffer

    def address(self, buffer: int, i: Index, size: int, splat: bool = False) -> Expr:
        """pointer + constant: the pointer covers the variables; pass 1 handles the constant.

        If the instruction cannot take a constant for free, the pointer includes it as its `bias`.
        """
        if not self.b.placed:
            return add(self.b.find(f"@{buffer}"), times(self.index(i), size))
        place = self.place(buffer, i)
        base, terms, bias = place.base, place.terms, 0
        if i.const < 0 or place.falls:
            # A constant that offsets negative terms; pass 1 must not move it (see there).
            bias = self.bias(base, terms, i.const, LOWEST_ADDRESS // size)
        elif splat and terms:
            bias = self.bias(base, terms, i.const, SPLAT_REACH // size, SPLAT_POINTERS)
        pointer = place.pointers.get(bias)
        if pointer is None:
            pointer = place.pointers[bias] = self.b.pointer(base, terms, size, bias)
        rest = (i.const - bias) * size
        return add(pointer, const(rest)) if rest else pointer

    def place(self, buffer: int, i: Index) -> Addresses:
        """The common parts of a buffer's addresses that differ only in their constant."""
        places, key = self.b.scopes[-1].places, (buffer, i.terms)
        known = places.get(key)
        if known is None:
            falls = any(c < 0 for _, c in i.terms)
            known = Addresses(self.b.find(f"@{buffer}"), self.terms(i), falls)
            if i.is_affine:
                places[key] = known
        return known

    def bias(self, base: Local, terms: Terms, at: int, reach: int, most: int = 1 << 30) -> int:
        """The bias for constant `at`: a known one at most `reach` below, or `at` itself."""
        known = self.biases.setdefault((base, terms), [])
        for bias in known:
            if 0 <= at - bias <= reach:
                return bias
        if len(known) >= most:
            return max((x for x in known if x <= at), default=0)
        known.append(at)
        return at

    def load(self, e: k.Load, splat: bool = False) -> Expr:
        if e.buffer in self.compact:
            return f16_load(self.b, e, self.address(e.buffer, e.index, HALF), self.space(e.buffer))
        address = self.address(e.buffer, e.index, e.dtype.size, splat)
        if e.lanes == 1:
            return Load(LOADS[e.dtype], address, 0, self.space(e.buffer))
        return vector_load(self.b, e, address, self.space(e.buffer))

    # ---- values ----------------------------------------------------------------------------------

    def value(self, e: k.Expr) -> Expr:
        rule = _RULES.get(type(e))
        if rule is None:
            raise CompilerBug(f"no Wasm for the expression {type(e).__name__}")
        return rule(self, e)

    def once(self, e: k.Load | k.Splat) -> Expr:
        """Lowers a load, or the splat of one, once per scope; all uses share the tree."""
        loads = self.b.scopes[-1].loads
        known = loads.get(id(e))
        if known is not None:
            return known[1]
        load = e.value if isinstance(e, k.Splat) else e
        made = self.splat(e) if isinstance(e, k.Splat) else self.load(e)
        if isinstance(load, k.Load) and load.index.is_affine and load.buffer not in self.compact:
            loads[id(e)] = e, made
        return made

    def const(self, e: k.Const) -> Expr:
        shape = shape_of(e.dtype, e.lanes)
        if shape in ("i8x16", "i16x8"):
            lane = int(e.value).to_bytes(e.dtype.size, "little", signed=e.value < 0)
            return Op("v128.const", (), (int.from_bytes(lane * e.lanes, "little"),))
        if shape == "f32x4":
            return self.b.f32x4(float(e.value))
        if shape == "i32x4":
            return self.b.i32x4(int(e.value))
        if shape == "mask":
            return self.b.i32x4(-int(bool(e.value)))
        return scalar_const(shape, e.value)

    def index_value(self, e: k.IndexValue) -> Expr:
        return cast(self.b, self.index(e.index), I32, e.dtype, 1)

    def guard(self, e: k.Guard) -> Expr:
        """before: value if 0 <= i < n else default;  after: an If that sets a local"""
        cond = self.bound(e.bounds)
        if cond is None:
            return self.value(e.value)
        b, type_ = self.b, VALTYPE[shape_of(e.dtype, e.lanes)]
        result = b.fresh(type_, "guard")
        then = b.collect("if", lambda: b.emit(Assign(result, self.value(e.value))))
        orelse = b.collect("if", lambda: b.emit(Assign(result, self.value(e.default))))
        b.emit(If(cond, then, orelse))
        return result

    def reg(self, e: k.Reg) -> Expr:
        known = self.b.registers.get(e.name) or self.b.param(f"%{e.name}")
        if known is None:
            raise CompilerBug(f"the register {e.name} is read before it is written")
        return known

    def splat(self, e: k.Splat) -> Expr:
        dtype = e.dtype
        if e.lanes == 1:
            return self.value(e.value)
        if isinstance(e.value, k.Const):
            return self.const(k.Const(e.value.value, dtype, e.lanes))
        shape = shape_of(dtype, e.lanes)
        value = self.load(e.value, True) if isinstance(e.value, k.Load) else self.value(e.value)
        return op(f"{cell(shape)}.splat", flag_to_mask(value) if shape == "mask" else value)

    def lanes(self, e: k.Lanes) -> Expr:
        shape = shape_of(e.dtype, e.lanes)
        values = [self.value(v) for v in e.values]
        if len(values) == 1:
            return values[0]
        if shape == "mask":
            values = [flag_to_mask(v) for v in values]
        # Lane 0 by a splat; the other lanes are overwritten right after.
        vector: Expr = op(f"{cell(shape)}.splat", values[0])
        for lane, v in enumerate(values[1:], 1):
            vector = Op(f"{cell(shape)}.replace_lane", (vector, v), (lane,))
        return vector

    def lane(self, e: k.Lane) -> Expr:
        if k.lanes_of(e.value) == 1:
            return self.value(e.value)
        shape = shape_of(e.dtype, k.lanes_of(e.value))
        picked = Op(f"{cell(shape)}.extract_lane", (self.value(e.value),), (e.lane,))
        return op("i32.and", picked, const(1)) if shape == "mask" else picked

    def shuffle(self, e: k.Shuffle) -> Expr:
        return dot_products.shuffle(self.value(e.a), self.value(e.b), e.picks)

    def call(self, e: k.Call) -> Expr:
        if e.fn in _SPECIAL:
            return self.special(e)
        args = []
        for x in e.operands:  # without another stack frame, since expressions are deep
            args.append(self.value(x))
        return self.function(e, args, k.dtype_of(e.operands[-1]))

    def function(self, e: k.Call, args: list[Expr], dtype: DType) -> Expr:
        """A function in the tables of scalar_instructions.py; `dtype` is that of the last
        argument."""
        case = e.fn, shape_of(dtype, e.lanes)
        if case in ONE:
            return wrap(e.dtype, e.lanes, e.fn, Op(ONE[case], tuple(args)))
        if case in SEVERAL:
            return wrap(e.dtype, e.lanes, e.fn, SEVERAL[case](self.b, *args))
        if e.lanes > 1:
            return self.by_lane(e)
        raise CompilerBug(f"no Wasm for {e.fn} of {dtype}")

    def special(self, e: k.Call) -> Expr:
        """A function with rules of its own, at least for some arguments."""
        if e.fn == "cast":
            (x,) = e.operands
            return cast(self.b, self.value(x), k.dtype_of(x), e.dtype, e.lanes)
        if e.fn in mathlib.FUNCTIONS:
            return self.math(e)
        limits = _limits(e)
        if limits is not None:
            instruction, x, y = limits
            return op(instruction, self.value(x), self.value(y))
        if e.fn == "nibble" and e.lanes > 1:
            shift = _number(e.operands[1])
            if shift is None:
                return self.by_lane(e)
            return SEVERAL["nibble", "i32x4"](self.b, self.value(e.operands[0]), const(int(shift)))
        logical = e.fn in ("and", "or", "not")  # any dtype; nonzero is true
        args = []
        for x in e.operands:
            value = self.value(x)
            args.append(cast(self.b, value, k.dtype_of(x), BOOL, e.lanes) if logical else value)
        dtype = BOOL if logical else k.dtype_of(e.operands[-1])
        if e.fn in ("max", "min") and dtype.is_float:
            limit = next((n for n, x in enumerate(e.operands) if _number(x) is not None), None)
            if limit is not None:
                shape = shape_of(dtype, e.lanes)
                return clamp_const(self.b, e.fn, shape, args[1 - limit], args[limit])
        return self.function(e, args, dtype)

    def by_lane(self, e: k.Call) -> Expr:
        """A vector function without a vector instruction, lane by lane.

        before: div(x, y) on i32x4;  after: lanes(div(x.0, y.0), div(x.1, y.1), ...)
        """
        regs = []
        for x in e.operands:
            name = f"lane.{self.b.count}"
            shape = shape_of(k.dtype_of(x), e.lanes)
            self.b.registers[name] = self.b.let(self.value(x), VALTYPE[shape])
            regs.append(k.Reg(name, k.dtype_of(x), e.lanes))
        return self.value(
            k.Lanes(
                tuple(
                    k.Call(e.fn, tuple(k.Lane(r, lane) for r in regs), e.dtype)
                    for lane in range(e.lanes)
                )
            )
        )

    def math(self, e: k.Call) -> Expr:
        """A transcendental function.  A scalar is computed as a vector, so both give the same
        bits."""
        b, scalar = self.b, e.lanes == 1
        if e.dtype != F32 or e.lanes not in (1, 4):
            raise CompilerBug(f"no Wasm for {e.fn} of {e.lanes} lanes of {e.dtype}")
        args = [self.value(x) for x in e.operands]
        if scalar:
            args = [op("f32x4.splat", a) for a in args]
        exponent = _number(e.operands[-1]) if e.fn == "pow" else None
        if exponent is not None:
            result = mathlib.power(b, args[0], exponent)
        else:
            result = mathlib.call(b, e.fn, args)
        if not scalar:
            return result
        return Op("f32x4.extract_lane", (result,), (0,))


def _limits(e: k.Call) -> tuple[str, k.Expr, k.Expr] | None:
    """where(a < b, b, a) is pmax(a, b) and where(a < b, a, b) is pmin(b, a): one instruction."""
    if e.fn != "where" or e.dtype != F32 or e.lanes != 4:
        return None
    test, *picked = e.operands
    if not isinstance(test, k.Call) or test.fn != "lt":
        return None
    a, b = test.operands
    if picked == [b, a]:
        return "f32x4.pmax", a, b
    return ("f32x4.pmin", b, a) if picked == [a, b] else None


def _number(e: k.Expr) -> float | None:
    """The value of a literal, unless it is NaN."""
    if isinstance(e, k.Splat):
        e = e.value
    if not isinstance(e, k.Const) or math.isnan(e.value):
        return None
    return float(e.value)


_RULES: dict[type, Callable[[ValueLowering, Any], Expr]] = {
    k.Const: ValueLowering.const,
    k.Load: ValueLowering.once,
    k.Call: ValueLowering.call,
    k.IndexValue: ValueLowering.index_value,
    k.Guard: ValueLowering.guard,
    k.Reg: ValueLowering.reg,
    k.Splat: ValueLowering.once,
    k.Lanes: ValueLowering.lanes,
    k.Lane: ValueLowering.lane,
    k.Shuffle: ValueLowering.shuffle,
    k.Dot: dot_products.dot,
    k.PairSums: dot_products.pairs,
    k.Join: dot_products.join,
}
