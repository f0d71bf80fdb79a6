"""Graph nodes and the functions that build them: shapes are known, small constants fold at once.

Input: operand nodes and attributes.  Output: immutable `Node`s (compared by identity) in a `Graph`.
Since small constants fold when they are built, an exporter's shape arithmetic is gone before any
rewrite runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from math import prod
from operator import attrgetter
from typing import TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from tilewright.base.dtypes import DType
from tilewright.base.errors import ShapeError, UnsupportedDType, ensure
from tilewright.base.model_limits import check_limit
from tilewright.graph import ops
from tilewright.graph.op_semantics import SEMANTICS
from tilewright.graph.ops import Array, Op, Shape

#: Constants with more elements stay a graph and are computed when the weights are written.
FOLD_LIMIT = 4096

#: Constants whose computation visits more elements, such as a long loop, also stay a graph.
FOLD_COST = 1 << 18

#: The cost of starting an op in NumPy, in elements.
CALL = 64

#: The number of multiply-adds of a contraction that count as one element of another op.
PRODUCTS = 64

#: The work that the compiler may do for a constant, as a multiple of the elements of its weights.
PER_WEIGHT = 64

#: The most operands of one concatenation.
GROUP = 512


@dataclass(frozen=True)
class ModelNode:
    """The model's node that a tensor op was made for; false in a condition if there is none.

    node: its name;  op: its operator;  opset: of the operator's domain
    axis: for a pick by indices that may be negative: the axis as the model's operator counts axes,
          for messages; None: the op's own axis, with indices from 0
    """

    node: str = ""
    op: str = ""
    opset: int | None = None
    axis: int | None = None

    def __bool__(self) -> bool:
        return bool(self.node)

    @property
    def facts(self) -> dict[str, object]:
        """The facts that an error about this node carries."""
        return {"node": self.node or None, "op": self.op or None, "opset": self.opset}


NOWHERE = ModelNode()
_SOURCE: ContextVar[ModelNode] = ContextVar("source", default=NOWHERE)


@contextmanager
def with_source(source: ModelNode) -> Iterator[None]:
    """Nodes made inside get this source."""
    token = _SOURCE.set(source)
    try:
        yield
    finally:
        _SOURCE.reset(token)


def with_pick_source(axis: int) -> ModelNode:
    """The source of the ops made now, for an operator that picks along this axis by indices that
    may be negative."""
    return replace(_SOURCE.get(), axis=axis)


@dataclass(frozen=True, eq=False)
class Node:
    """One tensor: its op, operands, shape and dtype; `source` is the ONNX node it came from."""

    op: Op
    inputs: tuple[Node, ...]
    shape: Shape
    dtype: DType
    source: ModelNode = NOWHERE
    constant: bool = False  # nothing below depends on a run-time input

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def value(self) -> Array | None:
        """The tensor's value if it is a small constant (repeated or not), else None."""
        if isinstance(self.op, ops.Constant):
            return self.op.value
        n = self
        while isinstance(n.op, ops.Broadcast):
            n = n.inputs[0]
        if self.size > FOLD_LIMIT or not isinstance(n.op, ops.Constant):
            return None
        return np.broadcast_to(n.op.value, self.shape)

    def __repr__(self) -> str:
        return f"<{type(self.op).__name__} {self.dtype}{list(self.shape)}>"


@dataclass(frozen=True)
class Graph:
    """A model: named inputs and outputs.  Nodes are reached from the outputs."""

    name: str
    inputs: tuple[tuple[str, Node], ...]
    outputs: tuple[tuple[str, Node], ...]

    def nodes(self) -> tuple[Node, ...]:
        """Every node that an output depends on; operands come before the nodes that read them."""
        return self._nodes

    @cached_property
    def _nodes(self) -> tuple[Node, ...]:
        return toposort(node for _, node in self.outputs)

    @cached_property
    def users(self) -> dict[Node, tuple[Node, ...]]:
        """The nodes that read each node, in order.  That a node is an output does not count as a
        reader."""
        found: dict[Node, list[Node]] = {n: [] for n in self._nodes}
        for n in self._nodes:
            for i in dict.fromkeys(n.inputs):
                found[i].append(n)
        return {n: tuple(users) for n, users in found.items()}


def toposort(
    roots: Iterable[Node], below: Callable[[Node], Iterable[Node]] = attrgetter("inputs")
) -> tuple[Node, ...]:
    """All nodes that `below` leads to from the roots, each once.  The nodes below a node come
    before it."""
    done: dict[Node, None] = {}
    stack: list[tuple[Node, Iterator[Node]]] = []
    for root in roots:
        if root in done:
            continue
        stack.append((root, iter(below(root))))
        while stack:
            node, rest = stack[-1]
            for lower in rest:
                if lower not in done:
                    stack.append((lower, iter(below(lower))))
                    break
            else:
                done[node] = None
                stack.pop()
    return tuple(done)


T = TypeVar("T")


def fact(
    below: Callable[[Node], Iterable[Node]] = lambda _: (),
) -> Callable[[Callable[[Node, list[T]], T]], Callable[[Node], T]]:
    """Turns `f(node, results of f for the nodes below it)` into a function of the node alone.

    The result is cached as long as the node lives.  No recursion is used, so a graph may be deep.
    """

    def decorate(rule: Callable[[Node, list[T]], T]) -> Callable[[Node], T]:
        known: WeakKeyDictionary[Node, T] = WeakKeyDictionary()

        @wraps(rule)
        def of(n: Node) -> T:
            if n not in known:
                unknown = toposort([n], lambda m: (i for i in below(m) if i not in known))
                for m in unknown:
                    known[m] = rule(m, [known[i] for i in below(m)])
            return known[n]

        return of

    return decorate


def node(op: Op, *inputs: Node, source: ModelNode = NOWHERE) -> Node:
    """A node with shape and dtype from the op table.

    The node is folded into a constant if all operands are small constants, or if it has no
    elements.  So only inputs and constants can be empty, and every kernel has something to compute.
    """
    rule = SEMANTICS[type(op)]
    if rule.arity is not None and rule.arity != len(inputs):
        raise ShapeError(f"{op} takes {rule.arity} operands, not {len(inputs)}")
    shape = _allowed(tuple(map(int, rule.shape(op, [n.shape for n in inputs]))))
    dtype = rule.dtype(op, [n.dtype for n in inputs])
    source = source or _SOURCE.get()
    if inputs and 0 in shape:
        return Node(ops.Constant(np.empty(shape, dtype.numpy)), (), shape, dtype, source, True)
    inputs = tuple([_known_if_empty(n) for n in inputs])
    fixed = all(n.constant for n in inputs) and not isinstance(op, ops.Input)
    made = Node(op, inputs, shape, dtype, source, fixed)
    if not fixed or made.size > FOLD_LIMIT:
        return made
    values = [n.value for n in inputs]
    # A repeated constant stays a Broadcast, so kernels see one number instead of a tensor.  A
    # constant that `Realize` stores keeps its layout.
    foldable = (
        bool(inputs)
        and not isinstance(op, (ops.Broadcast, ops.Realize))
        and all(v is not None for v in values)
    )
    if (foldable and cost(made) <= FOLD_COST) or isinstance(op, ops.Iota):
        result = np.asarray(rule.numpy(op, *values)).astype(dtype.numpy, copy=False)
        return Node(ops.Constant(result), (), shape, dtype, source, True)
    return made


def _allowed(shape: Shape) -> Shape:
    """The shape.  Raises ModelLimit if no host could hold it, ShapeError if an extent is
    negative."""
    check_limit("rank", len(shape), "the number of axes")
    check_limit("elements", max(prod(shape), *shape, 0), "the size of a tensor")
    if any(n < 0 for n in shape):
        raise ShapeError("a tensor would have a negative dimension", shape=shape)
    return shape


def cost(n: Node) -> int:
    """The elements that NumPy visits for the node itself, plus the cost of the call."""
    if isinstance(n.op, (ops.Input, ops.Weight, ops.Constant, ops.Broadcast)):
        return 0
    if isinstance(n.op, ops.Contract):
        shapes = zip((n.op.a, n.op.b), (i.shape for i in n.inputs), strict=True)
        extents = {c: e for labels, shape in shapes for c, e in zip(labels, shape, strict=True)}
        return max(n.size, prod(extents.values()) // PRODUCTS) + CALL
    own = getattr(n.op, "cost", 0)
    return max(n.size, own, *(i.size for i in n.inputs), 0) + CALL


def costs(roots: Iterable[Node]) -> int:
    """The `cost` of all nodes that the roots depend on, together."""
    return sum(map(cost, toposort(roots)))


def constant_work(n: Node) -> int:
    """The cost of computing a constant beyond the limit that its weights justify.

    Raises ModelLimit if the constant or a tensor needed for it is too large.
    """
    nodes = toposort([n])
    free = PER_WEIGHT * sum(m.size for m in nodes if isinstance(m.op, ops.Weight))
    for m in nodes:
        if m is n or not isinstance(m.op, ops.Broadcast):
            asked = max(0, m.size - free)
            check_limit(
                "constant", asked, "the size of a constant", **m.source.facts, shape=m.shape
            )
    return max(0, sum(map(cost, nodes)) - free)


def computed(n: Node) -> Array:
    """The value of a constant.  Raises ModelLimit if that takes too much."""
    check_limit(
        "constant_work", constant_work(n), "the work to compute a constant", **n.source.facts
    )
    return evaluate([n])[0]


def _known_if_empty(n: Node) -> Node:
    """An input without elements as a constant, so that nodes made of it fold; any other node as it
    is."""
    if n.constant or 0 not in n.shape:
        return n
    return node(ops.Constant(np.empty(n.shape, n.dtype.numpy)), source=n.source)


def graph_input(name: str, shape: Shape, dtype: DType, stored: str = "") -> Node:
    return node(ops.Input(name, shape, dtype, stored))


def constant(value: object, dtype: DType | None = None) -> Node:
    """A small constant from a Python number, list or array."""
    array = np.asarray(value, dtype=dtype.numpy if dtype else None)
    return node(ops.Constant(array))


def axis_of(axis: int, rank: int) -> int:
    """The axis counted from the front.  Raises ShapeError if it does not exist."""
    if not -rank <= axis < rank:
        raise ShapeError(f"axis {axis} does not exist in a tensor of rank {rank}", axis=axis)
    return axis % rank


def iota(shape: Shape, axis: int) -> Node:
    return node(ops.Iota(shape, axis_of(axis, len(shape))))


def elementwise(fn: str, *args: Node, source: ModelNode = NOWHERE) -> Node:
    """A scalar function on operands that are broadcast to each other first (NumPy rules)."""
    shape = broadcast_shape([a.shape for a in args])
    return node(ops.Elementwise(fn), *(broadcast(a, shape) for a in args), source=source)


def cast(x: Node, dtype: DType) -> Node:
    return x if x.dtype == dtype else node(ops.Elementwise("cast", dtype), x)


def scalar_like(value: float | int | bool, x: Node) -> Node:
    """A rank-0 constant of x's dtype.  Raises UnsupportedDType if the dtype cannot represent it."""
    kind = x.dtype.numpy
    if np.dtype(kind).kind in "iu" and not np.iinfo(kind).min <= value <= np.iinfo(kind).max:
        raise UnsupportedDType(
            f"{x.dtype} has no {value}, which this operator needs",
            hint="Cast the operand to floats before it",
            dtype=x.dtype,
        )
    return constant(value, x.dtype)


def reduce(fn: str, x: Node, axes: Sequence[int]) -> Node:
    """Reduce over `axes` (negative ones count from the end); they stay with extent 1."""
    chosen = tuple(sorted({axis_of(a, x.rank) for a in axes}))
    return node(ops.Reduce(fn, chosen), x) if chosen else x


def contract(spec: str, a: Node, b: Node, source: ModelNode = NOWHERE) -> Node:
    """An einsum of two operands, for example contract("mk,kn->mn", a, b)."""
    operands, out = spec.replace(" ", "").split("->")
    left, right = operands.split(",")
    return node(ops.Contract(left, right, out), a, b, source=source)


def reshape(x: Node, shape: Sequence[int]) -> Node:
    """Reshape; one entry may be -1."""
    known = prod(n for n in shape if n != -1)
    full = tuple(x.size // max(known, 1) if n == -1 else int(n) for n in shape)
    return x if full == x.shape else node(ops.Reshape(full), x)


def transpose(x: Node, perm: Sequence[int]) -> Node:
    order = tuple(axis_of(p, x.rank) for p in perm)
    if len(set(order)) != x.rank or len(order) != x.rank:
        raise ShapeError(f"{list(perm)} is not a permutation of {x.rank} axes", shape=x.shape)
    return x if order == tuple(range(x.rank)) else node(ops.Transpose(order), x)


def broadcast_shape(shapes: Sequence[Shape]) -> Shape:
    check_limit("rank", max(map(len, shapes)), "the number of axes")
    try:
        return tuple(int(n) for n in np.broadcast_shapes(*shapes))
    except ValueError:
        raise ShapeError("operands do not broadcast to each other", shape=list(shapes)) from None


def broadcast(x: Node, shape: Shape) -> Node:
    """NumPy broadcasting: new leading axes, then extent 1 repeated."""
    if x.shape == shape:
        return x
    x = reshape(x, (1,) * (len(shape) - x.rank) + x.shape)
    return x if x.shape == shape else node(ops.Broadcast(shape), x)


def slice_(
    x: Node, starts: Sequence[int], shape: Sequence[int], steps: Sequence[int] | None = None
) -> Node:
    """`shape` elements of each axis from `starts` on, every `steps`-th."""
    by = tuple(steps) if steps is not None else (1,) * x.rank
    whole = not any(starts) and tuple(shape) == x.shape and all(s == 1 for s in by)
    return x if whole else node(ops.Slice(tuple(starts), by, tuple(shape)), x)


def pad(
    x: Node, before: Sequence[int], after: Sequence[int], value: float | int | bool = 0
) -> Node:
    if not any(before) and not any(after):
        return x
    return node(ops.Pad(tuple(before), tuple(after), value), x)


def flip(x: Node, axes: Sequence[int]) -> Node:
    return node(ops.Flip(tuple(sorted({axis_of(a, x.rank) for a in axes}))), x) if axes else x


def concat(parts: Sequence[Node], axis: int) -> Node:
    """A concatenation.  More than `GROUP` parts are joined in groups, since a kernel reads a
    limited number of buffers."""
    kept = [p for p in parts if p.size] or list(parts[:1])
    while len(kept) > GROUP:
        kept = [concat(kept[i : i + GROUP], axis) for i in range(0, len(kept), GROUP)]
    return kept[0] if len(kept) == 1 else node(ops.Concat(axis_of(axis, kept[0].rank)), *kept)


def unfold(x: Node, axis: int, size: int, stride: int = 1, dilation: int = 1) -> Node:
    """Windows of `size` along `axis`; the window becomes the last axis."""
    return node(ops.Unfold(axis_of(axis, x.rank), size, stride, dilation), x)


def gather(x: Node, indices: Node, axis: int, source: ModelNode = NOWHERE) -> Node:
    """x[.., indices, ..]; every index must lie in [0, extent)."""
    return node(ops.Gather(axis_of(axis, x.rank)), x, indices, source=source)


def literal(n: Node) -> float | int | bool | None:
    """The number that all elements of a constant have; None if they differ or it is not
    constant."""
    while isinstance(n.op, ops.VIEWS):
        n = n.inputs[0]
    if isinstance(n.op, ops.Constant) and n.size == 1:
        return n.op.value.reshape(()).item()  # type: ignore[no-any-return]
    return None


def evaluate(
    roots: Sequence[Node],
    inputs: dict[str, object] | None = None,
    given: Mapping[Node, Array] | None = None,
) -> list[Array]:
    """The graph interpreter: the value of each root by the NumPy meaning of the op table.

    inputs: values of a model's inputs by name;  given: values of any nodes
    """
    values: dict[Node, Array] = dict(given or {})
    nodes = toposort(roots)
    readers = Counter(i for n in nodes for i in n.inputs) + Counter(roots)
    for n in nodes:
        if n in values:
            continue
        if isinstance(n.op, ops.Input):
            values[n] = np.asarray((inputs or {})[n.op.name])
        else:
            rule = SEMANTICS[type(n.op)]
            result = rule.numpy(n.op, *(values[i] for i in n.inputs))
            values[n] = np.asarray(result).astype(n.dtype.numpy, copy=False)
        ensure(values[n].shape == n.shape, "another shape", node=n, shape=values[n].shape)
        for i in n.inputs:
            readers[i] -= 1
            if not readers[i]:
                del values[i]
    return [values[r] for r in roots]


def render(graph: Graph) -> str:
    """The graph as text, one node per line."""
    names: dict[Node, str] = {}
    lines = [f"graph {graph.name}"]
    for i, n in enumerate(graph.nodes()):
        names[n] = f"%{i}"
        args = ", ".join(names[a] for a in n.inputs)
        tail = f"   ; {n.source.node}" if n.source else ""
        lines.append(f"  {names[n]} = {_describe(n.op)}({args}) {n.dtype}{list(n.shape)}{tail}")
    lines += [f"  output {name} = {names[n]}" for name, n in graph.outputs]
    return "\n".join(lines)


def _describe(op: Op) -> str:
    match op:
        case ops.Input(name, _, _) | ops.Weight(name, _, _, _, _):
            return f"{type(op).__name__.lower()} {name}"
        case ops.Constant(value):
            return f"constant {value.item()}" if value.size == 1 else "constant"
        case ops.Elementwise(fn, _):
            return fn
        case ops.Contract(a, b, out, role):
            return f"contract {a},{b}->{out} {role}".rstrip()
        case _:
            fields = ", ".join(f"{k}={v}" for k, v in vars(op).items())
            return f"{type(op).__name__.lower()} {fields}".strip()
