"""Finds the axes of a graph that depend on a run-time extent, by comparing it at several sizes.

Input: the graph at the bound, and the same model at smaller sizes.  Output: `Extents`: the axes
that are the extent (or a multiple of it, with the extent outermost), and literals that depend on
it.  If sizes differ in another way, the model is refused with the node's name.  So cutting the axes
of the graph at the bound gives the graph at any smaller size.

    size 512: [1, 512, 384] -> [1, 12, 512, 32]     size 511: [1, 511, 384] -> [1, 12, 511, 32]
    axis 1 is n; so is axis 2 of the view; the view's index expressions are the same at both sizes
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite

import numpy as np

from tilewright.base.errors import ShapeError, of_kind
from tilewright.graph import ops
from tilewright.graph.node import NOWHERE, Graph, ModelNode, Node, computed, literal
from tilewright.graph.scan import Scan
from tilewright.graph.views import operand_indices
from tilewright.kernel.index import Index, Var, index

#: The most that an inverse may differ from the exact value: two roundings of f32.
ROUNDING = 2.0**-22


@dataclass(frozen=True)
class ExtentMultiple:
    """An axis or a number that equals `times` * (extent `number`), or the inverse of that if
    `over`."""

    number: int
    times: int
    over: bool = False


@dataclass(frozen=True)
class Extents:
    """Everything that depends on run-time extents.

    bounds:   of each extent, by number
    axes:     for each node an entry per axis (None: fixed); nodes without extents are left out
    literals: constants of one element
    """

    bounds: tuple[int, ...] = ()
    axes: Mapping[Node, tuple[ExtentMultiple | None, ...]] = field(default_factory=dict)
    literals: Mapping[Node, ExtentMultiple] = field(default_factory=dict)

    def of(self, n: Node) -> tuple[ExtentMultiple | None, ...]:
        return self.axes.get(n) or (None,) * n.rank

    def number(self, n: Node) -> ExtentMultiple | None:
        """The dependence of a literal; None if it is fixed."""
        return self.literals.get(_root(n)) if self.literals else None

    def key(self, n: Node) -> object:
        """Distinguishes a node from one that is equal except for its dependence on extents."""
        return (self.axes.get(n), self.number(n)) if self.bounds else None


NO_EXTENTS = Extents()


@dataclass(frozen=True)
class SizeProbe:
    """The model at another size of one named dimension; all others are at their bound."""

    name: str
    number: int
    bound: int
    size: int
    graph: Graph


def trace_extents(graph: Graph, probes: Iterable[SizeProbe]) -> tuple[Graph, Extents]:
    """The dependence of the graph on its extents; `ShapeError` names a node where that is
    impossible.

    Also returns the graph, in which constants that are equal only at the bound are separate nodes.
    """
    listed = list(probes)
    walks = [_Walk(probe, graph) for probe in listed]
    apart = _apart(graph, walks)
    if apart is not graph:
        graph, walks = apart, [_Walk(probe, apart) for probe in listed]
    found: dict[int, _Walk] = {}
    bounds = {probe.number: probe.bound for probe in listed}
    for walk in walks:
        walk.check(graph)
        known = found.setdefault(walk.probe.number, walk)
        for n in {**known.axes, **walk.axes, **known.literals, **walk.literals}:
            same = known.axes.get(n) == walk.axes.get(n)
            if not same or known.literals.get(n) != walk.literals.get(n):
                raise walk.refusal(n, n, "follows it at some sizes only")
    axes: dict[Node, tuple[ExtentMultiple | None, ...]] = {}
    literals: dict[Node, ExtentMultiple] = {}
    for walk in found.values():
        for n, own in walk.axes.items():
            before = axes.get(n, (None,) * n.rank)
            if any(a and b for a, b in zip(own, before, strict=True)):
                raise walk.refusal(n, n, TWO_EXTENTS)
            axes[n] = tuple(a or b for a, b in zip(own, before, strict=True))
        if not literals.keys().isdisjoint(walk.literals):
            twice = next(n for n in literals if n in walk.literals)
            raise walk.refusal(twice, twice, TWO_EXTENTS)
        literals |= walk.literals
    return graph, Extents(tuple(bounds.values()), axes, literals)


def _apart(graph: Graph, walks: Sequence[_Walk]) -> Graph:
    """The graph with a separate node for each use of a constant: 384 of a mean over 384 channels,
    and 384 of a mean over n, are one constant where n is 384."""
    uses: dict[tuple[Node, int], list[tuple[str, ops.Shape]]] = {}
    for walk in walks:
        for n, m in walk.twins.items():
            for place, (i, j) in enumerate(zip(n.inputs, m.inputs, strict=True)):
                if i.constant and j.constant:
                    uses.setdefault((n, place), []).append((repr(literal(j)), j.shape))
    numbers: dict[Node, set[object]] = {}
    shapes: dict[Node, set[object]] = {}
    for (n, place), found in uses.items():
        i = n.inputs[place]
        numbers.setdefault(_root(i), set()).add(tuple(number for number, _ in found))
        shapes.setdefault(i, set()).add(tuple(shape for _, shape in found))
    several = {n for known in (numbers, shapes) for n, each in known.items() if len(each) > 1}
    if not several:
        return graph
    copies: dict[object, Node] = {}
    new: dict[Node, Node] = {}

    def operand(n: Node, place: int) -> Node:
        i = n.inputs[place]
        if (n, place) not in uses or several.isdisjoint((i, _root(i))):
            return new[i]
        key = (i, *uses[n, place])
        copies[key] = copies.get(key) or _copy(i)
        return copies[key]

    for n in graph.nodes():
        inputs = tuple(operand(n, place) for place in range(len(n.inputs)))
        new[n] = n if inputs == n.inputs else replace(n, inputs=inputs)
    return replace(graph, outputs=tuple((name, new[n]) for name, n in graph.outputs))


def _copy(n: Node) -> Node:
    """Another node for the same constant."""
    return replace(n, inputs=tuple(map(_copy, n.inputs)))


class _Walk:
    """Compares two graphs node by node.  Twins are the nodes at the same position in both."""

    def __init__(self, probe: SizeProbe, graph: Graph) -> None:
        self.probe = probe
        self.twins: dict[Node, Node] = {}
        self.constants: dict[tuple[Node, Node], None] = {}
        self.axes: dict[Node, tuple[ExtentMultiple | None, ...]] = {}
        self.literals: dict[Node, ExtentMultiple] = {}
        self.sources: dict[Node, ModelNode] = {}
        self._pair(graph, probe.graph)

    def refusal(self, n: Node, m: Node, what: str) -> ShapeError:
        source = n.source or self.sources.get(n, NOWHERE)
        return ShapeError(
            f"The dimension {self.probe.name!r} cannot be an extent: a tensor {what}",
            hint=_hint(self.probe, what),
            **source.facts,
            dtype=str(n.dtype),
            shape=list(n.shape),
            other=list(m.shape),
            sizes=[self.probe.bound, self.probe.size],
        )

    def _pair(self, graph: Graph, other: Graph) -> None:
        """Finds the twin of each node; a node's users are paired before the node."""
        for (_, n), (_, m) in zip(graph.outputs, other.outputs, strict=True):
            self._meet(n, m)
        for n in reversed(graph.nodes()):
            if n not in self.twins:
                continue
            m = self.twins[n]
            if (type(n.op), len(n.inputs)) != (type(m.op), len(m.inputs)):
                raise self.refusal(n, m, "is computed by another op at another size")
            for i, j in zip(n.inputs, m.inputs, strict=True):
                # A node made by a rewrite has no source; its reader's source is used.
                self.sources.setdefault(i, n.source or self.sources.get(n, NOWHERE))
                self._meet(i, j)

    def check(self, graph: Graph) -> None:
        for n, m in self.constants:
            self._constant(n, m)
        for n in graph.nodes():  # operands first, so the first unsuitable node is named
            if n not in self.twins:
                continue
            self._mark(n, self.twins[n])
            self._op(n, self.twins[n])
            if isinstance(n.op, Scan):
                self._scan(n, n.op, self.twins[n])
            elif n.inputs:
                self._views(n, self.twins[n])

    def _meet(self, n: Node, m: Node) -> None:
        if n.constant and m.constant:
            self.constants[n, m] = None
        elif self.twins.setdefault(n, m) is not m:
            raise self.refusal(n, m, "is one at the bound and two at another size")

    def _mark(self, n: Node, m: Node) -> None:
        if (n.dtype, n.rank) != (m.dtype, m.rank):
            raise self.refusal(n, m, "has another dtype or rank at another size")
        own = tuple(self._axis(n, m, a, b) for a, b in zip(n.shape, m.shape, strict=True))
        if any(own) and self.axes.setdefault(n, own) != own:
            raise self.refusal(n, m, "depends on it in two different ways")

    def _axis(self, n: Node, m: Node, here: int, there: int) -> ExtentMultiple | None:
        if here == there:
            return None
        times, rest = divmod(here, self.probe.bound)
        if rest or there != times * self.probe.size:
            raise self.refusal(n, m, "has an axis that is not a multiple of it")
        return ExtentMultiple(self.probe.number, times)

    def _of(self, n: Node) -> tuple[ExtentMultiple | None, ...]:
        return self.axes.get(n, (None,) * n.rank)

    def _op(self, n: Node, m: Node) -> None:
        """Raises ShapeError if two twins differ in attributes that should not depend on the
        size."""
        a, b = n.op, m.op
        match a:
            case ops.Reshape() | ops.Broadcast() | ops.Slice() | ops.Iota() | ops.Input() | Scan():
                same = getattr(a, "axis", None) == getattr(b, "axis", None)
                same &= getattr(a, "name", None) == getattr(b, "name", None)
            case _:
                same = a == b
        if not same:
            raise self.refusal(n, m, "has other attributes at another size")

    def _views(self, n: Node, m: Node) -> None:
        """Raises ShapeError unless a node's views read the same elements at every size."""
        first = self._of(n.inputs[0])
        if isinstance(n.op, ops.Slice):
            ends = zip(first, n.op.starts, n.op.steps, n.shape, m.shape, strict=True)
            # The first element always exists; elements after it may be left over from a longer run.
            if any(
                f and count == other and start + (count - 1) * step > 0
                for f, start, step, count, other in ends
            ):
                raise self.refusal(n, m, "takes fixed elements of an axis that ends at run time")
        match n.op:
            case ops.Pad(before, after, _):
                if any(f and (x or y) for f, x, y in zip(first, before, after, strict=True)):
                    raise self.refusal(n, m, "pads an axis that ends at run time")
            case ops.Concat(axis):
                if any(self._of(i)[axis] for i in n.inputs):
                    raise self.refusal(n, m, "joins along an axis that ends at run time")
            case ops.Gather(axis):
                if first[axis]:
                    raise self.refusal(n, m, "picks from an axis that ends at run time")
            case ops.Update(axis):
                if first[axis] or self._of(n.inputs[1])[axis]:
                    raise self.refusal(n, m, "writes rows of an axis that ends at run time")
            case ops.Order():
                if first[-1]:
                    raise self.refusal(n, m, "orders an axis that ends at run time")
            case _ if isinstance(n.op, ops.VIEWS):
                here, there = (
                    tuple(Var(f"i{axis}", extent) for axis, extent in enumerate(x.shape))
                    for x in (n, m)
                )
                shorter: dict[Var, Index] = {
                    a: index(b) for a, b in zip(here, there, strict=True) if a != b
                }
                ours = (i.substitute(shorter) for i in operand_indices(n, tuple(map(index, here))))
                if tuple(ours) != operand_indices(m, tuple(map(index, there))):
                    raise self.refusal(n, m, "reads its operand in another order at another size")

    def _scan(self, n: Node, a: Scan, m: Node) -> None:
        b = of_kind(m.op, Scan, "the twin of a loop is none", node=m)
        same = (a.length, a.states, a.backward, a.parts) == (
            b.length,
            b.states,
            b.backward,
            b.parts,
        )
        if not same or any(i in self.axes for i in (n, *n.inputs)):
            raise self.refusal(n, m, "is a loop whose number of iterations depends on it")
        inside = _Walk(replace(self.probe, graph=b.body), a.body)
        inside.check(a.body)
        if inside.axes or inside.literals:
            raise self.refusal(n, m, "is a loop whose body depends on it")

    def _constant(self, n: Node, m: Node) -> None:
        self._mark(n, m)
        x, y = literal(n), literal(m)
        if x is not None and y is not None:
            if repr(x) != repr(y):
                found = self._literal(n, m, x, y)
                if self.literals.setdefault(_root(n), found) != found:
                    raise self.refusal(n, m, "depends on it in two different ways")
            elif _root(n) in self.literals:
                raise self.refusal(n, m, "depends on it in two different ways")
            return
        if n.shape == m.shape and _same(n, m):
            return
        whole, part = computed(n), computed(m)
        cut = whole[tuple(slice(extent) for extent in m.shape)]
        if not np.array_equal(cut, part, equal_nan=n.dtype.is_float):
            raise self.refusal(n, m, "is a constant with other values at another size")

    def _literal(self, n: Node, m: Node, x: float, y: float) -> ExtentMultiple:
        """The dependence of a literal that is `x` at the bound and `y` at the size of the probe."""
        bound, size, number = self.probe.bound, self.probe.size, self.probe.number
        if not (isfinite(x) and isfinite(y)):
            raise self.refusal(n, m, f"is the number {x} at one size and {y} at another")
        times = round(x / bound)
        if (x, y) == (times * bound, times * size):
            return ExtentMultiple(number, times)
        times = round(1 / (x * bound)) if x else 0
        pairs = ((x, bound), (y, size))
        if n.dtype.is_float and times and all(abs(v * k * times - 1) < ROUNDING for v, k in pairs):
            return ExtentMultiple(number, times, over=True)
        raise self.refusal(n, m, f"is the number {x} at one size and {y} at another")


#: Ops that have a digest of their values.
_HELD = (ops.Weight, ops.Constant)


def _same(a: Node, b: Node) -> bool:
    """True if two constants are the same computation on equal operands; their values are not
    computed."""
    waiting, seen = [(a, b)], set[tuple[Node, Node]]()
    while waiting:
        pair = waiting.pop()
        if pair in seen:
            continue
        seen.add(pair)
        n, m = pair
        if n is m:
            continue
        if type(n.op) is not type(m.op) or (n.shape, n.dtype) != (m.shape, m.dtype):
            return False
        if isinstance(n.op, _HELD) and isinstance(m.op, _HELD):
            if n.op.digest != m.op.digest:
                return False
        elif isinstance(n.op, Scan) or n.op != m.op or len(n.inputs) != len(m.inputs):
            return False
        waiting += zip(n.inputs, m.inputs, strict=True)
    return True


def _root(n: Node) -> Node:
    """The constant that a literal repeats."""
    while isinstance(n.op, (ops.Broadcast, ops.Reshape)):
        n = n.inputs[0]
    return n


TWO_EXTENTS = "follows two extents"

#: Advice for operators that cannot work along an axis that ends at run time, by kind of operation.
_HINTS = {
    "joins along an axis that ends at run time":
        "Write new rows into a cache of fixed size instead of joining them",
    "pads an axis that ends at run time": "Let the input have the padding",
    "picks from an axis that ends at run time": "Pick from an axis of fixed size",
    "takes fixed elements of an axis that ends at run time":
        "Take the elements by an index that is an input",
    "writes rows of an axis that ends at run time": "Write into a cache of fixed size",
    "orders an axis that ends at run time": "Order an axis of fixed size",
    "is a loop whose number of iterations depends on it":
        "Run the model once for each iteration, with a state",
    "is a loop whose body depends on it": "Give the body tensors of fixed size",
    "has an axis that is not a multiple of it":
        "Keep axes multiples of it: let the input have what is padded or joined",
    "reads its operand in another order at another size":
        "Keep the dimension an axis of its own: do not reshape it together with others",
    "is a constant with other values at another size":
        "Make an input of what is computed from the size, such as a mask",
    TWO_EXTENTS: "Keep each extent an axis of its own",
}  # fmt: skip


def _hint(probe: SizeProbe, what: str) -> str:
    """The advice for an operator.  If `what` is not in the table, two sizes may be equal by
    coincidence, so the advice is another bound."""
    bucket = f"build for fixed sizes: --buckets {probe.name}={probe.bound}"
    if what in _HINTS:
        return f"{_HINTS[what]}, or {bucket}"
    other = f"Build with a bound that is not a fixed size of the model, such as {probe.bound - 1}"
    return f"{other}, or {bucket}"
