"""Kernel specifications from a fused graph: one `Kernel` per stored node.

Input: the nodes that `fuse` stores.  Output: `Step`s: a kernel in normal form and the nodes whose
buffers it reads.  Views become index algebra, everything unstored becomes part of the expression.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from tilewright.base.errors import ShapeError
from tilewright.graph import ops
from tilewright.graph.node import Graph, Node, is_constant
from tilewright.graph.views import Indices, below
from tilewright.kernel.collapse import collapse
from tilewright.kernel.expr import Acc, Bound, Call, Const, Expr, Guard, IndexValue, Load
from tilewright.kernel.index import Gathered, Index, Var, flatten, index
from tilewright.kernel.spec import Buffer, Kernel, Stage, check


@dataclass(frozen=True)
class Step:
    """One kernel of the plan: what it computes, the node it stores, the nodes it reads."""

    kernel: Kernel
    output: Node
    inputs: tuple[Node, ...]
    source: str


def kernel_steps(graph: Graph, stored: tuple[Node, ...]) -> tuple[Step, ...]:
    """A step per stored node, in an order that respects dependencies.

    An input that is an output as well is there already; a constant output is stored by a step.
    """
    _refuse_empty(graph)
    kept = set(stored)
    steps = [_step(n, kept) for n in stored]
    for _, n in graph.outputs:
        if n not in kept and not isinstance(n.op, ops.Input):
            kept.add(n)
            steps.append(_step(n, kept))
    return tuple(steps)


def _refuse_empty(graph: Graph) -> None:
    """A kernel has at least one element to compute; empty tensors only exist in constants."""
    outputs = {n for _, n in graph.outputs}
    for n in graph.nodes():
        if not n.size and (n in outputs or not is_constant(n)):
            raise ShapeError(
                "a tensor without elements cannot be computed",
                hint="Choose input shapes and buckets that leave no axis empty.",
                node=n.source or None,
                shape=n.shape,
            )


def _step(n: Node, stored: set[Node]) -> Step:
    maker = _Maker(n, stored)
    kernel = collapse(maker.kernel())
    check(kernel)
    return Step(kernel, n, tuple(maker.buffers), maker.source)


@dataclass
class _Maker:
    """Builds the expression of one stored node."""

    output: Node
    stored: set[Node]
    buffers: dict[Node, int] = field(default_factory=dict)
    stages: list[Stage] = field(default_factory=list)
    known: dict[tuple[Node, Indices], Expr] = field(default_factory=dict)
    reduced: tuple[int, ...] = ()
    source: str = ""

    def kernel(self) -> Kernel:
        out = self.output
        axes = tuple(Var(f"{_AXES[i]}", extent) for i, extent in enumerate(out.shape))
        at = tuple(index(v) for v in axes)
        value = self._compute(out, at)
        rows, cols = self._split(axes)
        store = flatten(at, out.shape)
        sizes = [Buffer(out.dtype, out.size)] + [Buffer(n.dtype, n.size) for n in self.buffers]
        self.source = self.source or out.source
        name = _name(out, tuple(self.stages))
        return Kernel(
            name, rows + cols, tuple(self.stages), value, store, tuple(sizes), len(cols)
        )

    def _split(self, axes: tuple[Var, ...]) -> tuple[tuple[Var, ...], tuple[Var, ...]]:
        """Columns are the reduced axes that the output still has; all others are rows."""
        cols = tuple(v for i, v in enumerate(axes) if i in self.reduced and v.extent > 1)
        return tuple(v for v in axes if v not in cols), cols

    def _value(self, n: Node, at: Indices) -> Expr:
        """The element of `n` at `at`: a load, a literal, or the expression that computes it."""
        number = _literal(n)
        if number is not None:
            return Const(number, n.dtype)
        leaf = isinstance(n.op, (ops.Input, ops.Weight, ops.Constant)) or n in self.stored
        folded = is_constant(n) and not isinstance(n.op, (*ops.VIEWS, ops.Iota))
        if leaf or folded:
            number = self.buffers.setdefault(n, len(self.buffers) + 1)
            return Load(number, flatten(at, n.shape), n.dtype)
        return self._compute(n, at)

    def _compute(self, n: Node, at: Indices) -> Expr:
        key = (n, at)
        if key not in self.known:
            self.known[key] = self._expand(n, at)
        return self.known[key]

    def _expand(self, n: Node, at: Indices) -> Expr:
        op = n.op
        match op:
            case ops.Elementwise(fn, _):
                return Call(fn, tuple(self._value(i, at) for i in n.inputs), n.dtype)
            case ops.Reduce(fn, axes):
                return self._reduce(n, fn, axes, at)
            case ops.Contract(a, b, out):
                return self._contract(n, (a, b), out, at)
            case ops.Pad(before, _, value):
                return self._pad(n, before, value, at)
            case ops.Concat(axis):
                return self._concat(n, axis, at)
            case ops.Gather(axis):
                return self._gather(n, axis, at)
            case ops.Iota(_, axis):
                return IndexValue(at[axis], n.dtype)
            case ops.Realize() | ops.Input() | ops.Weight() | ops.Constant():
                return self._value(n.inputs[0], at) if n.inputs else self._copy(n, at)
            case _:
                return self._value(n.inputs[0], below(n, at))

    def _copy(self, n: Node, at: Indices) -> Expr:
        number = self.buffers.setdefault(n, len(self.buffers) + 1)
        return Load(number, flatten(at, n.shape), n.dtype)

    def _reduce(self, n: Node, fn: str, axes: tuple[int, ...], at: Indices) -> Expr:
        self.reduced = axes
        inner = list(at)
        loop = []
        for axis in axes:
            var = Var(f"r{len(self.stages)}{_AXES[axis]}", n.inputs[0].shape[axis])
            loop.append(var)
            inner[axis] = index(var)
        value = self._value(n.inputs[0], tuple(inner))
        return self._stage(n, fn, tuple(loop), value)

    def _contract(self, n: Node, labels: tuple[str, str], out: str, at: Indices) -> Expr:
        where = dict(zip(out, at, strict=True))
        loop = []
        for operand, letters in zip(n.inputs, labels, strict=True):
            for letter, extent in zip(letters, operand.shape, strict=True):
                if letter not in where:
                    var = Var(f"k{letter}", extent)
                    loop.append(var)
                    where[letter] = index(var)
        a, b = (
            self._value(operand, tuple(where[c] for c in letters))
            for operand, letters in zip(n.inputs, labels, strict=True)
        )
        if isinstance(a, Load) and a.index.is_affine:  # as the row operand lies in memory
            strides = {v: abs(a.index.coefficient(v)) for v in loop}
            loop.sort(key=lambda v: -strides[v])
        return self._stage(n, "sum", tuple(loop), Call("mul", (a, b), n.dtype))

    def _stage(self, n: Node, fn: str, axes: tuple[Var, ...], value: Expr) -> Expr:
        self.source = self.source or n.source
        self.stages.append(Stage(fn, axes, value))
        return Acc(len(self.stages) - 1, n.dtype)

    def _pad(
        self, n: Node, before: tuple[int, ...], value: float | int | bool, at: Indices
    ) -> Expr:
        inner = tuple(i - b for i, b in zip(at, before, strict=True))
        shape = n.inputs[0].shape
        bounds = tuple(Bound(i, extent) for i, extent in zip(inner, shape, strict=True))
        needed = tuple(b for b in bounds if not b.always)
        element = self._value(n.inputs[0], inner)
        return Guard(needed, element, Const(value, n.dtype)) if needed else element

    def _concat(self, n: Node, axis: int, at: Indices) -> Expr:
        start, parts = 0, []
        for part in n.inputs:
            moved = list(at)
            moved[axis] = at[axis] - start
            bound = Bound(moved[axis], part.shape[axis])
            parts.append((bound, self._value(part, tuple(moved))))
            start += part.shape[axis]
        result = parts[-1][1]
        for bound, value in reversed(parts[:-1]):
            result = Guard((bound,), value, result)
        return result

    def _gather(self, n: Node, axis: int, at: Indices) -> Expr:
        data, indices = n.inputs
        where = self._value(indices, at[axis : axis + indices.rank])
        extent = data.shape[axis]
        picked = Index(((Gathered(where, extent), 1),))
        return self._value(data, (*at[:axis], picked, *at[axis + indices.rank :]))


_AXES = "abcdefghijlmnopqstuvwxyz"


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
    depth = prod(v.extent for v in first.axes)
    is_product = first.op == "sum" and isinstance(first.value, Call) and first.value.fn == "mul"
    if len(stages) == 1 and is_product:
        return f"contract_{size}x{depth}"
    return f"{'_'.join(s.op for s in stages)}_{size}x{depth}"
