"""The expression of one stored node: views become index algebra, unstored nodes are computed.

Input: a node, and the nodes in memory.  Output: a `Kernel`, not yet in normal form, the nodes whose
buffers it loads, and the reductions that became its stages.  What is stored is decided elsewhere.

Positions that the model computes from axis positions become indices; kernels do not check those
that are certainly in range.  Positions that are read from memory stay expressions.

    int(i) * 4 + int(j)  ->  i*4 + j        int(i) // 2  ->  i//2
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from math import prod

from tilewright.base.dtypes import I32, I64, DType
from tilewright.base.errors import required
from tilewright.fusion.fuse import IN_TURN
from tilewright.fusion.regions import StoredNodes, buffer_of
from tilewright.graph import ops
from tilewright.graph.extent_tracing import ExtentMultiple
from tilewright.graph.node import Node, literal
from tilewright.graph.views import Indices, joined_axes, joins_rows, operand_indices
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
from tilewright.kernel.extents import extent
from tilewright.kernel.index import Gathered, Index, Var, flatten, index
from tilewright.kernel.spec import Buffer, Kernel, Limit, Stage

#: Yields each element of another node that it needs, receives its expression, and returns the
#: expression of its own element.
Making = Generator[tuple[Node, Indices], Expr, Expr]


@dataclass
class ExpressionBuilder:
    """Builds the expression of one stored node.

    buffers: the nodes that it loads from memory, with their buffer numbers
    anchors: the reductions that became stages, in order
    checks:  the indices that are read and checked, with their numbers
    checked: the nodes that use these indices, by the same numbers
    walked:  the node whose axes are the kernel's axes
    """

    output: Node
    memory: StoredNodes
    buffers: dict[Node, int] = field(default_factory=dict)
    stages: list[Stage] = field(default_factory=list)
    known: dict[tuple[Node, Indices], Expr] = field(default_factory=dict)
    reduced: tuple[int, ...] = ()
    full: ops.Shape = ()
    keys: Var | None = None
    kept: tuple[Var, ...] = ()
    anchors: list[Node] = field(default_factory=list)
    checks: dict[tuple[Expr, int], int] = field(default_factory=dict)
    checked: list[Node] = field(default_factory=list)
    walked: Node = field(init=False)
    limits: dict[Var, Limit] = field(default_factory=dict)
    extents: set[Var] = field(default_factory=set)

    def kernel(self) -> Kernel:
        """The kernel of the node.  For an update it is the kernel that stores the rows."""
        out = self.output
        source = out.inputs[1] if isinstance(out.op, ops.Update) else out
        self.walked, joined = _walked(source, self.memory)
        axes = tuple(self._axis(AXES[i], self.walked, i) for i in range(self.walked.rank))
        at = tuple(_joined(axes, group) for group in joined)
        value = self._compute(out, at) if source is out else self._element(source, at)
        rows, cols = self._split(axes)
        host, where = self.memory.spot(out, self._moved(at))
        store = flatten(where, host.shape)
        sizes = [Buffer(out.dtype, host.size)] + [buffer_of(n) for n in self.buffers]
        name = _name(out, tuple(self.stages))
        return Kernel(
            name, rows + cols, tuple(self.stages), value, store, tuple(sizes), len(cols),
            tuple(sorted(self.extents)), tuple(sorted(self.limits.values())),
        )  # fmt: skip

    def _moved(self, at: Indices) -> Indices:
        """The index in the buffer at which element `at` is stored."""
        op = self.output.op
        if not isinstance(op, ops.Update):
            return at
        data, rows, first = self.output.inputs
        places = data.shape[op.axis] - rows.shape[op.axis] + 1
        begin = self._picked(self.output, self._element(first, (Index(),) * first.rank), places)
        return (*at[: op.axis], at[op.axis] + begin, *at[op.axis + 1 :])

    def _picked(self, n: Node, value: Expr, extent: int) -> Index:
        """An index read from memory that the node uses; equal indices are checked once."""
        number = self.checks.setdefault((value, extent), len(self.checks))
        self.checked += [n] if number == len(self.checked) else []
        return Index(((Gathered(value, extent, number), 1),))

    def _axis(self, name: str, n: Node, axis: int) -> Var:
        """A variable for an axis of a node; the axis may end at run time."""
        var = Var(name, n.shape[axis])
        found = self.memory.extents.of(n)[axis]
        if found is not None:
            self.limits[var] = Limit(var, self._extent(found.number), found.times)
        return var

    def _extent(self, number: int) -> Var:
        scalar = extent(number, self.memory.extents.bounds[number])
        self.extents.add(scalar)
        return scalar

    def _literal(self, found: ExtentMultiple, dtype: DType) -> Expr:
        """The expression of a literal that depends on an extent."""
        scalar = self._extent(found.number)
        number: Expr = IndexValue(index(scalar) * found.times, I32)
        number = number if dtype == I32 else Call("cast", (number,), dtype)
        return Call("div", (Const(1, dtype), number), dtype) if found.over else number

    def _split(self, axes: tuple[Var, ...]) -> tuple[tuple[Var, ...], tuple[Var, ...]]:
        """The kernel's columns: an axis that an attention keeps, or reduced axes that the output
        still has."""
        if self.kept or self.walked.shape != self.full:
            return tuple(v for v in axes if v not in self.kept), self.kept
        cols = tuple(v for i, v in enumerate(axes) if i in self.reduced and v.extent > 1)
        return tuple(v for v in axes if v not in cols), cols

    def _compute(self, n: Node, at: Indices) -> Expr:
        """The expression of an element of `n`.  It uses an explicit stack, so depth is not
        limited."""
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
        return required(given, "it has no expression", node=n)

    def _found(self, n: Node, at: Indices) -> Expr | None:
        """The element of `n` at `at` if it is a literal, in memory, or computed already."""
        number = literal(n)
        if number is not None:
            follows = self.memory.extents.number(n)
            return Const(number, n.dtype) if follows is None else self._literal(follows, n.dtype)
        return self._copy(n, at) if self.memory.holds(n) else self.known.get((n, at))

    def _element(self, n: Node, at: Indices) -> Expr:
        """The element of `n` at `at`; it is computed now unless it is known already."""
        found = self._found(n, at)
        return self._compute(n, at) if found is None else found

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
            case ops.Order():
                return (yield from self._order(n, at))
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
                return (yield n.inputs[0], operand_indices(n, at))

    def _copy(self, n: Node, at: Indices) -> Expr:
        host, where = self.memory.spot(n, at)
        number = self.buffers.setdefault(host, len(self.buffers) + 1)
        return Load(number, flatten(where, host.shape), n.dtype)

    def _reduce(self, n: Node, fn: str, axes: tuple[int, ...], at: Indices) -> Making:
        attention = not self.memory.scored.isdisjoint(n.inputs)
        self.reduced, self.full = () if attention else axes, n.inputs[0].shape
        inner = list(at)
        loop = []
        for axis in axes:
            name = f"r{len(self.stages)}{AXES[axis]}"
            source = n.inputs[0]
            var = self._keys(source, axis) if attention else self._axis(name, source, axis)
            loop.append(var)
            inner[axis] = index(var)
        value = yield n.inputs[0], tuple(inner)
        return self._stage(n, fn, tuple(loop), value)

    def _contract(self, n: Node, op: ops.Contract, at: Indices) -> Making:
        where = dict(zip(op.out, at, strict=True))
        loop = []
        for operand, letters in zip(n.inputs, (op.a, op.b), strict=True):
            for axis, letter in enumerate(letters):
                if letter not in where:
                    context = op.role == "context"
                    name = f"k{letter}"
                    var = self._keys(operand, axis) if context else self._axis(name, operand, axis)
                    loop.append(var)
                    where[letter] = index(var)
        keep: tuple[Var, ...] = ()
        if op.role == "scores":
            keep = tuple(v for v in (self.keys,) if v is not None)
        elif op.role == "context":
            self.kept = keep = tuple(where[op.out[-1]].variables)
        a = yield n.inputs[0], tuple(where[c] for c in op.a)
        b = yield n.inputs[1], tuple(where[c] for c in op.b)
        if isinstance(a, Load) and a.index.is_affine:  # keeps the layout of a row operand
            strides = {v: abs(a.index.coefficient(v)) for v in loop}
            loop.sort(key=lambda v: -strides[v])
        factors = tuple(_widened(x, n.dtype) for x in (a, b))
        return self._stage(n, "sum", tuple(loop), Call("mul", factors, n.dtype), keep)

    def _order(self, n: Node, at: Indices) -> Making:
        (x,) = n.inputs
        along = self._axis(f"r{AXES[x.rank - 1]}", x, x.rank - 1)
        self.kept = tuple(at[-1].variables)
        value = yield x, (*at[:-1], index(along))
        return self._stage(n, "order", (along,), value, self.kept)

    def _keys(self, n: Node, axis: int) -> Var:
        """The axis that the scores of an attention keep, and that its later stages reduce."""
        self.keys = self.keys or self._axis("j", n, axis)
        return self.keys

    def _stage(
        self, n: Node, fn: str, axes: tuple[Var, ...], value: Expr, keep: tuple[Var, ...] = ()
    ) -> Expr:
        self.anchors.append(n)
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
        return _chosen(parts)

    def _gather(self, n: Node, axis: int, at: Indices) -> Making:
        data, indices = n.inputs
        where = yield indices, at[axis : axis + indices.rank]
        picked = counted_index(where, data.shape[axis])
        if picked is None:
            picked = self._picked(n, self._within(where), data.shape[axis])
        return (yield data, (*at[:axis], picked, *at[axis + indices.rank :]))

    def _within(self, where: Expr) -> Expr:
        """An index read from memory, but 0 beyond a run-time end, where memory is undefined."""
        ends = tuple(
            Bound(index(end) * times - axis_at - 1, axis.extent)
            for axis, end, times in self.limits.values()
            if axis in where.variables
            for axis_at in (index(axis),)
        )
        return Guard(ends, where, Const(0, dtype_of(where))) if ends else where


def _chosen(parts: Sequence[tuple[Bound, Expr]]) -> Expr:
    """The value of the part whose bound holds; the parts are adjacent."""
    if len(parts) > IN_TURN:
        half = -(-len(parts) // 2)
        left = Bound(parts[0][0].index, sum(bound.extent for bound, _ in parts[:half]))
        return Guard((left,), _chosen(parts[:half]), _chosen(parts[half:]))
    result = parts[-1][1]
    for bound, value in reversed(parts[:-1]):
        result = Guard((bound,), value, result)
    return result


AXES = "abcdefghijlmnopqstuvwxyz"


def _walked(out: Node, memory: StoredNodes) -> tuple[Node, tuple[tuple[int, ...], ...]]:
    """The node whose axes a kernel has, and for each axis of its output the axes that form it.

    Usually this is the output itself.  If groups of channels were reduced and are channels again,
    it is the node that still has an axis for the groups.
    """
    waiting, seen = [out], {out}
    while waiting:
        n = waiting.pop()
        if isinstance(n.op, ops.Reshape) and n.shape == out.shape and _is_reduced(n, memory):
            return n.inputs[0], required(joined_axes(n), "it joins no axes", node=n)
        inner = n.inputs if isinstance(n.op, ops.Elementwise | ops.Reshape) else ()
        new = [i for i in inner if i not in seen and not memory.holds(i)]
        seen.update(new)
        waiting += new
    return out, tuple((i,) for i in range(out.rank))


def _is_reduced(n: Node, memory: StoredNodes) -> bool:
    """True for a reshape of groups that this kernel reduces."""
    waiting, seen = [n.inputs[0]], set[Node]()
    while waiting:
        x = waiting.pop()
        if x in seen or memory.holds(x):
            continue
        seen.add(x)
        if isinstance(x.op, ops.Reduce) and x.inputs[0].shape == n.inputs[0].shape:
            return joins_rows(n, x.op.axes)
        waiting += x.inputs
    return False


def _joined(axes: tuple[Var, ...], group: tuple[int, ...]) -> Index:
    """The axes of a group as one index."""
    return flatten((index(axes[i]) for i in group), (axes[i].extent for i in group))


def _widened(e: Expr, dtype: DType) -> Expr:
    return e if dtype_of(e) == dtype else Call("cast", (e,), dtype)


def _name(out: Node, stages: tuple[Stage, ...]) -> str:
    """A readable short name: the operation and its size."""
    size = "x".join(map(str, (n for n in out.shape if n > 1))) or "1"
    if not stages:
        kind = out.op.fn if isinstance(out.op, ops.Elementwise) else type(out.op).__name__.lower()
        return f"{kind}_{size}"
    first = stages[0]
    if first.op == "order":
        return f"order_{size}x{first.axes[0].extent}"
    if first.keep:
        return f"attention_{size}x{prod(v.extent for v in first.keep)}"
    depth = prod(v.extent for v in first.axes)
    is_product = first.op == "sum" and isinstance(first.value, Call) and first.value.fn == "mul"
    if len(stages) == 1 and is_product:
        return f"contract_{size}x{depth}"
    return f"{'_'.join(s.op for s in stages)}_{size}x{depth}"


def counted_index(e: Expr, extent: int) -> Index | None:
    """The index that `e` equals, if all its values are in [0, extent); otherwise None."""
    found = _counted(e)
    if found is None:
        return None
    low, high = found.bounds
    return found if low >= 0 and high < extent else None


def _counted(e: Expr) -> Index | None:
    match e:
        case IndexValue(index):
            return index
        case Const(value, dtype) if dtype in (I32, I64):
            return Index((), int(value))
        case Call(fn, operands, dtype, _) if dtype in (I32, I64):
            parts = [_counted(x) for x in operands]
            known = [p for p in parts if p is not None]
            return _computed(fn, known) if len(known) == len(parts) else None
    return None


def _computed(fn: str, parts: list[Index]) -> Index | None:
    match fn, parts:
        case "cast", [a]:
            low, high = a.bounds
            return a if low >= -(2**31) and high < 2**31 else None
        case "add", [a, b]:
            return a + b
        case "sub", [a, b]:
            return a - b
        case "mul", [a, b] if a.is_const or b.is_const:
            return b * a.const if a.is_const else a * b.const
        case "div", [a, b] if b.is_const and b.const > 0 and a.bounds[0] >= 0:
            return a // b.const
    return None
