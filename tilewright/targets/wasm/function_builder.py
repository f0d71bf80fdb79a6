"""The builder of Wasm IR: scopes, new locals, and the scope in which a value is computed.

Input: calls from `lower.py`, `values.py` and `mathlib.py`.  Output: statement lists.  The builder
knows the scope of each variable.  It moves loop-invariant values (pointers, vector constants) out
of loops, and turns `base + k * stride` into a pointer that each pass of the loop advances.  This is
part of lowering, not one of the three passes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tilewright.base.errors import CompilerBug, ensure
from tilewright.targets.wasm.encode import f32_bits
from tilewright.targets.wasm.ir import (
    ANY_LOW,
    LOWEST_ADDRESS,
    Assign,
    Block,
    Expr,
    Local,
    Op,
    Stmt,
    add,
    const,
    times,
)
from tilewright.targets.wasm.variant import WasmVariant

#: A sum of i32 locals with coefficients, in a fixed order.
Terms = tuple[tuple[Local, int], ...]

#: All bits zero: one instruction without input, so it is never kept in a register.
ZERO = Op("v128.const", (), (0,))


@dataclass
class Addresses:
    """Addresses of one buffer that differ only in their constant.

    falls:    True if a term is subtracted
    pointers: by constant (see `ValueLowering.address`)
    """

    base: Local
    terms: Terms
    falls: bool
    pointers: dict[int, Local] = field(default_factory=dict)


@dataclass
class Scope:
    """A statement list under construction: a function body, a loop body or a branch.

    names:  local of each variable or register
    memo:   values already computed here
    var:    the loop's variable, its first value and its step (loops only)
    bumps:  amounts by which the loop advances its pointers at the end of a pass
    looped: True if the list already has a loop
    loads:  loads already lowered here, by identity: an unrolled loop uses one many times
    places: parts of the addresses lowered here, by buffer and terms
    """

    kind: str
    stmts: list[Stmt] = field(default_factory=list)
    names: dict[str, Local] = field(default_factory=dict)
    memo: dict[object, Local] = field(default_factory=dict)
    var: Local | None = None
    begin: Expr | None = None
    step: int = 0
    bumps: list[Stmt] = field(default_factory=list)
    looped: bool = False
    loads: dict[int, tuple[object, Expr]] = field(default_factory=dict)
    places: dict[object, Addresses] = field(default_factory=dict)


class FuncBuilder:
    """Builds one function.

    outside:  finds a variable that this function has not bound yet
    inline:   math functions to expand in place; the others are called
    captures: True if such a variable belongs to another function, and becomes a parameter here
    placed:   True if values are kept and moved out of loops; False: each use computes them again

    `relaxed` is set if the function has instructions that `emit.py` writes differently for variants
    without relaxed SIMD.
    """

    def __init__(
        self,
        variant: WasmVariant,
        outside: Callable[[str], Local | None] = lambda _: None,
        inline: frozenset[str] = frozenset(),
        captures: bool = True,
        placed: bool = True,
    ) -> None:
        self.placed = placed
        self.variant = variant
        self.outside = outside
        self.captures = captures
        self.inline = inline
        self.scopes = [Scope("function")]
        self.depth: dict[Local, int] = {}
        self.params: dict[str, Local] = {}
        self.registers: dict[str, Local] = {}
        self.helpers: set[str] = set()
        self.asked: dict[str, bool] = {}
        self.relaxed = False
        self.count = 0

    def has(self, what: str) -> bool:
        """A property of the variant.  Variants with the same answers get the same code."""
        answer = self.asked.get(what)
        if answer is None:
            answer = self.asked[what] = bool(getattr(self.variant, what))
        return answer

    # ---- scopes and names ------------------------------------------------------------------------

    def emit(self, stmt: Stmt) -> None:
        scope = self.scopes[-1]
        scope.stmts.append(stmt)
        if type(stmt) is Block:
            scope.looped = True

    def fresh(self, type_: str, name: str = "t", lo: int = ANY_LOW, depth: int = -1) -> Local:
        """A new local, known from scope `depth` (innermost: -1) on."""
        self.count += 1
        local = Local(f"{name}.{self.count}", type_, lo)
        self.depth[local] = depth if depth >= 0 else len(self.scopes) - 1
        return local

    def let(self, value: Expr, type_: str, name: str = "t", lo: int = ANY_LOW) -> Local:
        """A local that is set to the value at this point."""
        local = self.fresh(type_, name, lo)
        self.emit(Assign(local, value))
        return local

    def vec(self, value: Expr) -> Local:
        """A local for a v128 that is used more than once."""
        return value if isinstance(value, Local) else self.let(value, "v128")

    def bind(self, name: str, local: Local) -> None:
        scope = self.scopes[-1]
        scope.names[name] = local
        scope.loads.clear()
        scope.places.clear()

    def find(self, name: str) -> Local:
        """The local of a variable; a variable of the surrounding function becomes a parameter."""
        for scope in reversed(self.scopes):
            local = scope.names.get(name)
            if local is not None:
                return local
        found = self.param(name)
        if found is None:
            raise CompilerBug(f"the variable {name} is used before it is bound")
        return found

    def param(self, name: str) -> Local | None:
        """The parameter that carries a value of the surrounding function."""
        known = self.params.get(name)
        source = None if known is not None else self.outside(name)
        if not self.captures:
            return source
        if source is not None:
            known = self.params[name] = Local(source.name, source.type, source.lo)
            self.depth[known] = 0
        return known

    def collect(self, kind: str, body: Callable[[], None]) -> tuple[Stmt, ...]:
        """Runs `body` in a new scope and returns the scope's statements."""
        self.scopes.append(Scope(kind))
        body()
        return tuple(self.scopes.pop().stmts)

    def collect_loop(
        self, var: Local, begin: Expr, step: int, body: Callable[[], None]
    ) -> tuple[Stmt, ...]:
        scope = Scope("loop", var=var, begin=begin, step=step)
        self.scopes.append(scope)
        self.depth[var] = len(self.scopes) - 1
        body()
        self.scopes.pop()
        return (*scope.stmts, *scope.bumps)

    # ---- placing values outside loops ------------------------------------------------------------

    def memo(self, key: object) -> Local | None:
        for scope in reversed(self.scopes):
            known = scope.memo.get(key)
            if known is not None:
                self.scopes[-1].memo[key] = known  # found faster at the next use
                return known
        return None

    def place(
        self, key: object, depth: int, type_: str, value: Expr, name: str, lo: int = ANY_LOW
    ) -> Local:
        """Computes `value` in the outermost loop body, at `depth` or deeper, that has its
        operands."""
        if not self.placed:
            return self.let(value, type_, name, lo)
        scopes = self.scopes
        while depth + 1 < len(scopes) and scopes[depth + 1].kind == "if":
            depth += 1
        local = self.fresh(type_, name, lo, depth)
        scopes[depth].stmts.append(Assign(local, value))
        scopes[depth].memo[key] = local
        return local

    def constant(self, key: object, type_: str, value: Expr) -> Local:
        """A constant in a register, set before the surrounding loops.

        It stays inside a scope that already has a loop: outside, it would occupy a register during
        an inner loop that does not use it.
        """
        known = self.memo(key)
        if known is not None:
            return known
        depth = len(self.scopes) - 1
        while depth > 0 and not self.scopes[depth].looped:
            depth -= 1
        return self.place(key, depth, type_, value, "c")

    def f32x4(self, value: float) -> Expr:
        """The same f32 in all lanes."""
        bits = f32_bits(value)
        if bits == 0:
            return ZERO
        splat = Op("f32x4.splat", (Op("f32.const", (), (bits,)),))
        return self.constant(("f32x4", bits), "v128", splat)

    def i32x4(self, value: int) -> Expr:
        if value == 0:
            return ZERO
        return self.constant(("i32x4", value), "v128", Op("i32x4.splat", (const(value),)))

    def pointer(self, base: Local, terms: Terms, size: int, bias: int) -> Local:
        """base + size * (terms + bias), computed in the outermost possible scope."""
        ensure(self.placed, "pointers need a place")
        if not terms and not bias:
            return base
        key = (base, terms, size, bias)
        known = self.memo(key)
        if known is not None:
            return known
        upward = bias >= 0 and all(c > 0 and v.lo >= 0 for v, c in terms)
        lo = LOWEST_ADDRESS if upward else ANY_LOW
        depth = max((self.depth[v] for v, _ in terms), default=0)
        inner = [(v, c) for v, c in terms if self.depth[v] == depth]
        if depth == 0:
            value: Expr = base if not bias else add(base, const(bias * size))
        else:
            outer = tuple((v, c) for v, c in terms if self.depth[v] < depth)
            value = self.pointer(base, outer, size, bias)
        if len(inner) == 1 and inner[0][0] is self.scopes[depth].var:
            return self._induction(key, value, inner[0][1] * size, depth, lo)
        for v, c in inner:
            value = add(value, times(v, c * size))
        return self.place(key, depth, "i32", value, "p", lo)

    def _induction(self, key: object, start: Expr, stride: int, depth: int, lo: int) -> Local:
        """A pointer that the loop of scope `depth` advances.

        before: each pass computes start + k * stride
        after:  p = start + begin * stride before the loop, p += step * stride at the end of a pass
        """
        scope = self.scopes[depth]
        if scope.begin is None:
            raise CompilerBug(f"a scope is not a loop: {scope.kind}")
        begin = times(scope.begin, stride)
        if begin != const(0):
            start = add(start, begin)
        local = self.fresh("i32", "p", lo, depth)
        self.scopes[depth - 1].stmts.append(Assign(local, start))
        scope.bumps.append(Assign(local, add(local, const(scope.step * stride))))
        scope.memo[key] = local
        return local
