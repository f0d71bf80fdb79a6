"""Kernel specifications from a fused graph: one `Kernel` per stored node.

Input: the nodes that `fuse` stores, and where `place` lets them lie.  Output: `Step`s: a kernel in
normal form and the nodes whose buffers it reads and writes.  Views become index algebra, everything
unstored becomes part of the expression.  A padded tensor whose inside another kernel stores needs
only its border filled.
"""

from __future__ import annotations

from collections.abc import Generator, Set
from dataclasses import dataclass, field
from math import prod

import numpy as np

from tilewright.base.dtypes import I8, DType
from tilewright.graph import ops
from tilewright.graph.attention import scored
from tilewright.graph.fuse import fuse
from tilewright.graph.node import Graph, Node, evaluate, fact, is_constant
from tilewright.graph.place import Places, place, placed
from tilewright.graph.scan import Scan
from tilewright.graph.steps import Step, distinct, unrolled
from tilewright.graph.views import Indices, below
from tilewright.kernel.collapse import collapse
from tilewright.kernel.expr import (
    Acc,
    Bound,
    Call,
    Const,
    Expr,
    Guard,
    IndexValue,
    Load,
    dtype_of,
)
from tilewright.kernel.index import Gathered, Index, Var, flatten, index
from tilewright.kernel.layout import ROWS
from tilewright.kernel.spec import PAIR_LIMIT, Buffer, Kernel, Stage, check


def kernel_steps(graph: Graph, stored: tuple[Node, ...]) -> tuple[Step, ...]:
    """A step per stored node, in an order that respects dependencies.

    Outputs that are inputs or constants need none: they lie in memory before the first step.
    """
    kept = set(stored)
    plan = _Plan(kept, place(graph, stored), scored(graph, kept))
    return tuple(step for n in stored for step in _steps(n, plan))


@dataclass(frozen=True)
class _Plan:
    """What lies in memory, where; and which nodes depend on the scores of their kernel."""

    stored: Set[Node]
    places: Places
    scored: Set[Node]


def _steps(n: Node, plan: _Plan) -> list[Step]:
    """The steps that store what no other step stores of `n`."""
    if isinstance(n.op, Scan):
        body, copies = distinct(n.op)
        return list(unrolled(n, body, kernel_steps(body, (*fuse(body), *copies))))
    places = plan.places
    if not any(i in places and places[i].host is n for i in n.inputs):
        return [_step(n, plan)]
    if not isinstance(n.op, ops.Pad):
        return []
    return [_border(n, axis, places) for axis in range(n.rank) if _margin(n.op, axis)]


def _step(n: Node, plan: _Plan) -> Step:
    maker = _Maker(n, plan)
    kernel = collapse(maker.kernel())
    check(kernel)
    inputs = tuple(maker.buffers)
    return Step(kernel, maker.store[0], inputs, maker.source, (0,) * (1 + len(inputs)))


def _margin(op: ops.Pad, axis: int) -> int:
    return op.before[axis] + op.after[axis]


def _border(n: Node, axis: int, places: Places) -> Step:
    """Fill the padding along `axis`, all of the axes behind it and the inside of those before it.

    Margin positions 0, 1, .. stand for the places before the inside, then for those after it.
    """
    assert isinstance(n.op, ops.Pad)
    inside, (before, after) = n.inputs[0].shape, (n.op.before, n.op.after)
    axes, at = [], []
    for i, extent in enumerate(n.shape):
        own = _margin(n.op, i) if i == axis else inside[i] if i < axis else extent
        axes.append(Var(_AXES[i], own))
        at.append(index(axes[i]) + (before[i] if i < axis else 0))
    longer = max(before[axis], after[axis])
    behind = (at[axis] + (longer - before[axis])) // longer
    at[axis] = at[axis] + behind * inside[axis]
    host, where = placed(n, tuple(at), places)
    size = "x".join(str(extent) for extent in n.shape if extent > 1)
    kernel = Kernel(
        f"border_{size}", tuple(axes), (), Const(n.op.value, n.dtype), flatten(where, host.shape),
        (Buffer(n.dtype, host.size),),
    )  # fmt: skip
    return Step(collapse(kernel), host, (), n.source, (0,))


#: Asks for elements of other nodes, and gives the expression of one.
Making = Generator[tuple[Node, Indices], Expr, Expr]


@dataclass
class _Maker:
    """Builds the expression of one stored node."""

    output: Node
    plan: _Plan
    buffers: dict[Node, int] = field(default_factory=dict)
    stages: list[Stage] = field(default_factory=list)
    known: dict[tuple[Node, Indices], Expr] = field(default_factory=dict)
    reduced: tuple[int, ...] = ()
    full: ops.Shape = ()
    keys: Var | None = None
    kept: tuple[Var, ...] = ()
    source: str = ""

    @property
    def store(self) -> tuple[Node, Indices]:
        """The node whose buffer the kernel stores to, and where in it each element goes."""
        out = self.output
        axes = (index(Var(_AXES[i], extent)) for i, extent in enumerate(out.shape))
        return placed(out, tuple(axes), self.plan.places)

    def kernel(self) -> Kernel:
        out = self.output
        axes = tuple(Var(f"{_AXES[i]}", extent) for i, extent in enumerate(out.shape))
        at = tuple(index(v) for v in axes)
        value = self._compute(out, at)
        rows, cols = self._split(axes)
        host, where = self.store
        store = flatten(where, host.shape)
        sizes = [Buffer(out.dtype, host.size)] + [_buffer(n) for n in self.buffers]
        self.source = self.source or out.source
        name = _name(out, tuple(self.stages))
        return Kernel(name, rows + cols, tuple(self.stages), value, store, tuple(sizes), len(cols))

    def _split(self, axes: tuple[Var, ...]) -> tuple[tuple[Var, ...], tuple[Var, ...]]:
        """Columns: what an attention keeps, or the reduced axes that the output still has."""
        if self.kept or self.output.shape != self.full:
            return tuple(v for v in axes if v not in self.kept), self.kept
        cols = tuple(v for i, v in enumerate(axes) if i in self.reduced and v.extent > 1)
        return tuple(v for v in axes if v not in cols), cols

    def _compute(self, n: Node, at: Indices) -> Expr:
        """The expression of an element of `n`; what it needs comes from a stack, however deep."""
        waiting = [((n, at), self._expand(n, at))]
        given: Expr | None = None
        while waiting:
            key, making = waiting[-1]
            try:
                wanted = next(making) if given is None else making.send(given)
            except StopIteration as done:
                given = self.known[key] = done.value
                waiting.pop()
                continue
            given = self._found(*wanted)
            if given is None:
                waiting.append((wanted, self._expand(*wanted)))
        assert given is not None
        return given

    def _found(self, n: Node, at: Indices) -> Expr | None:
        """The element of `n` at `at` if it is a literal, in memory, or computed already."""
        number = _literal(n)
        if number is not None:
            return Const(number, n.dtype)
        leaf = isinstance(n.op, (ops.Input, ops.Weight, ops.Constant)) or n in self.plan.stored
        folded = is_constant(n) and not isinstance(n.op, (*ops.VIEWS, ops.Iota))
        folded = folded and not _is_position(n) and not _packed(n)
        return self._copy(n, at) if leaf or folded else self.known.get((n, at))

    def _expand(self, n: Node, at: Indices) -> Making:
        op = n.op
        match op:
            case ops.Elementwise(fn, _):
                operands = []
                for i in n.inputs:
                    operands.append((yield i, at))
                return Call(fn, tuple(operands), n.dtype)
            case ops.Reduce(fn, axes):
                return (yield from self._reduce(n, fn, axes, at))
            case ops.Contract():
                return (yield from self._contract(n, op, at))
            case ops.Pad(before, _, value):
                return (yield from self._pad(n, before, value, at))
            case ops.Concat(axis):
                return (yield from self._concat(n, axis, at))
            case ops.Gather(axis):
                return (yield from self._gather(n, axis, at))
            case ops.Iota(_, axis):
                return IndexValue(at[axis], n.dtype)
            case ops.Realize() | ops.Input() | ops.Weight() | ops.Constant():
                return (yield n.inputs[0], at) if n.inputs else self._copy(n, at)
            case _:
                return (yield n.inputs[0], below(n, at))

    def _copy(self, n: Node, at: Indices) -> Expr:
        host, where = placed(n, at, self.plan.places)
        number = self.buffers.setdefault(host, len(self.buffers) + 1)
        return Load(number, flatten(where, host.shape), n.dtype)

    def _reduce(self, n: Node, fn: str, axes: tuple[int, ...], at: Indices) -> Making:
        attention = not self.plan.scored.isdisjoint(n.inputs)
        self.reduced, self.full = () if attention else axes, n.inputs[0].shape
        inner = list(at)
        loop = []
        for axis in axes:
            extent = n.inputs[0].shape[axis]
            name = f"r{len(self.stages)}{_AXES[axis]}"
            var = self._keys(extent) if attention else Var(name, extent)
            loop.append(var)
            inner[axis] = index(var)
        value = yield n.inputs[0], tuple(inner)
        return self._stage(n, fn, tuple(loop), value)

    def _contract(self, n: Node, op: ops.Contract, at: Indices) -> Making:
        where = dict(zip(op.out, at, strict=True))
        loop = []
        for operand, letters in zip(n.inputs, (op.a, op.b), strict=True):
            for letter, extent in zip(letters, operand.shape, strict=True):
                if letter not in where:
                    var = self._keys(extent) if op.role == "context" else Var(f"k{letter}", extent)
                    loop.append(var)
                    where[letter] = index(var)
        keep: tuple[Var, ...] = ()
        if op.role == "scores":
            keep = tuple(v for v in (self.keys,) if v is not None)
        elif op.role == "context":
            self.kept = keep = tuple(where[op.out[-1]].variables)
        a = yield n.inputs[0], tuple(where[c] for c in op.a)
        b = yield n.inputs[1], tuple(where[c] for c in op.b)
        if isinstance(a, Load) and a.index.is_affine:  # as the row operand lies in memory
            strides = {v: abs(a.index.coefficient(v)) for v in loop}
            loop.sort(key=lambda v: -strides[v])
        factors = tuple(_widened(x, n.dtype) for x in (a, b))
        return self._stage(n, "sum", tuple(loop), Call("mul", factors, n.dtype), keep)

    def _keys(self, extent: int) -> Var:
        """The axis that the scores of an attention keep, and that its later stages reduce."""
        self.keys = self.keys or Var("j", extent)
        return self.keys

    def _stage(
        self, n: Node, fn: str, axes: tuple[Var, ...], value: Expr, keep: tuple[Var, ...] = ()
    ) -> Expr:
        self.source = self.source or n.source
        self.stages.append(Stage(fn, axes, value, keep))
        return Acc(len(self.stages) - 1, n.dtype)

    def _pad(
        self, n: Node, before: tuple[int, ...], value: float | int | bool, at: Indices
    ) -> Making:
        inner = tuple(i - b for i, b in zip(at, before, strict=True))
        shape = n.inputs[0].shape
        bounds = tuple(Bound(i, extent) for i, extent in zip(inner, shape, strict=True))
        needed = tuple(b for b in bounds if not b.always)
        element = yield n.inputs[0], inner
        return Guard(needed, element, Const(value, n.dtype)) if needed else element

    def _concat(self, n: Node, axis: int, at: Indices) -> Making:
        start, parts = 0, []
        for part in n.inputs:
            moved = list(at)
            moved[axis] = at[axis] - start
            bound = Bound(moved[axis], part.shape[axis])
            parts.append((bound, (yield part, tuple(moved))))
            start += part.shape[axis]
        result = parts[-1][1]
        for bound, value in reversed(parts[:-1]):
            result = Guard((bound,), value, result)
        return result

    def _gather(self, n: Node, axis: int, at: Indices) -> Making:
        data, indices = n.inputs
        where = yield indices, at[axis : axis + indices.rank]
        extent = data.shape[axis]
        picked = Index(((Gathered(where, extent), 1),))
        return (yield data, (*at[:axis], picked, *at[axis + indices.rank :]))


_AXES = "abcdefghijlmnopqstuvwxyz"


def _is_position(n: Node) -> bool:
    """True for positions as another dtype: a kernel computes them for less than a load."""
    cast = isinstance(n.op, ops.Elementwise) and n.op.fn == "cast"
    return cast and isinstance(n.inputs[0].op, ops.Iota)


@fact(lambda n: n.inputs if isinstance(n.op, (*ops.VIEWS, ops.Elementwise)) else ())
def _packed(n: Node, operands: list[bool]) -> bool:
    """True for weights that stay packed in memory: kernels take them apart."""
    return n.op == ops.Elementwise("nibble") or any(operands)


def _buffer(n: Node) -> Buffer:
    """A buffer; weights of 8 bits that keep to 7 say so."""
    small = n.dtype == I8 and is_constant(n) and _keeps_to_pairs(n)
    layout = n.op.layout if isinstance(n.op, ops.Realize) else ROWS
    return Buffer(n.dtype, n.size, PAIR_LIMIT if small else 0, layout)


@fact()
def _keeps_to_pairs(n: Node, _: list[bool]) -> bool:
    value = evaluate([n])[0].astype(np.int32)
    return bool(value.size and np.abs(value).max() <= PAIR_LIMIT)


def _widened(e: Expr, dtype: DType) -> Expr:
    return e if dtype_of(e) == dtype else Call("cast", (e,), dtype)


def _literal(n: Node) -> float | int | bool | None:
    """The number that a constant repeats everywhere, if it is only one."""
    while isinstance(n.op, (ops.Broadcast, ops.Reshape)):
        n = n.inputs[0]
    if isinstance(n.op, ops.Constant) and n.size == 1:
        return n.op.value.reshape(()).item()  # type: ignore[no-any-return]
    return None


def _name(out: Node, stages: tuple[Stage, ...]) -> str:
    """A short name for people: what it does and how large it is."""
    size = "x".join(map(str, (n for n in out.shape if n > 1))) or "1"
    if not stages:
        kind = out.op.fn if isinstance(out.op, ops.Elementwise) else type(out.op).__name__.lower()
        return f"{kind}_{size}"
    first = stages[0]
    if first.keep:
        return f"attention_{size}x{prod(v.extent for v in first.keep)}"
    depth = prod(v.extent for v in first.axes)
    is_product = first.op == "sum" and isinstance(first.value, Call) and first.value.fn == "mul"
    if len(stages) == 1 and is_product:
        return f"contract_{size}x{depth}"
    return f"{'_'.join(s.op for s in stages)}_{size}x{depth}"
