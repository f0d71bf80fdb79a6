"""Attention: softmax(q·kᵀ · scale + mask)·v becomes two contractions that share one kernel.

Input: a rewritten `Graph`.  Output: a `Graph` in which each attention has one shape, whatever the
exporter wrote: scales of q and k applied to the scores, the division by the sum after the second
contraction, rows of the result in front of the heads.  Values that a model rounds to 16 bits
between the two contractions stay f32, since they are not stored.  It chooses no tile and stores
nothing.

    contract(div(e, sum(e)), v),  e = exp(x - max(x)),  x = contract(mul(q, c), k) + mask
    ->  div(contract(e, v, role=context), sum(e)),  x = contract(q, k, role=scores) * c + mask
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from math import isfinite

from tilewright.base.dtypes import F32
from tilewright.base.errors import of_kind
from tilewright.graph import ops
from tilewright.graph.node import (
    Graph,
    Node,
    broadcast,
    elementwise,
    node,
    reduce,
    scalar_like,
    toposort,
    transpose,
)
from tilewright.graph.passes.algebra import constant_value
from tilewright.graph.rounding import rounded_type
from tilewright.graph.views import offset, operand_indices
from tilewright.kernel.index import Index, Var, index, stride

Indices = tuple[Index, ...]
Users = Mapping[Node, tuple[Node, ...]]


@dataclass(frozen=True)
class _Found:
    """One attention as the model has it.

    scores, x:    the contraction of q and k; the softmax's argument (it reads the scores)
    views:        the reshapes between the softmax and the second contraction, outermost first
    safe:         whether rows without any finite score give 0 (else NaN)
    p, v:         letters of the two operands of the second contraction
    values:       its operand v
    keys:         the letter of the axis that softmax and the second contraction reduce
    """

    scores: Node
    x: Node
    views: tuple[Node, ...]
    safe: bool
    p: str
    v: str
    values: Node
    keys: str


def attention(graph: Graph) -> Graph:
    """Rewrite every attention whose probabilities nothing else reads."""
    order = {n: position for position, n in enumerate(graph.nodes())}
    kept = {n for _, n in graph.outputs}
    made: dict[Node, Node] = {}
    for n in order:
        inputs = tuple(made[i] for i in n.inputs)
        found = _match(n)
        between = None if found is None else _private(n, found.scores, graph.users, order, kept)
        if found is not None and between is not None:
            made[n] = _build(n, found, between, made)
        elif all(a is b for a, b in zip(inputs, n.inputs, strict=True)):
            made[n] = n
        else:
            made[n] = node(n.op, *inputs, source=n.source)
    outputs = tuple((name, made[n]) for name, n in graph.outputs)
    return Graph(graph.name, graph.inputs, outputs)


def _contraction(n: Node) -> ops.Contract:
    return of_kind(n.op, ops.Contract, "it is not a contraction", node=n)


# ---- recognition ---------------------------------------------------------------------------------


def _match(n: Node) -> _Found | None:
    """The attention whose second contraction is `n`."""
    if not isinstance(n.op, ops.Contract) or n.dtype != F32:
        return None
    (a, b), out = n.inputs, n.op.out
    sides = ((a, n.op.a, b, n.op.b), (b, n.op.b, a, n.op.a))
    return next((f for s in sides if (f := _match_side(out, *s)) is not None), None)


def _match_side(out: str, operand: Node, p: str, values: Node, v: str) -> _Found | None:
    """The attention whose second contraction has the probabilities as this operand; else None."""
    keys, columns = set(p) - set(out), set(v) - set(p)
    if len(keys) != 1 or len(columns) != 1 or not set(v) - columns <= set(p):
        return None
    (key,), (column,) = keys, columns
    if key not in v or column not in out or values.shape[v.index(column)] == 1:
        return None
    axes = tuple(Var(c, extent) for c, extent in zip(p, operand.shape, strict=True))
    var = axes[p.index(key)]
    peeled = _peel(operand, tuple(map(index, axes)))
    if peeled is None or var.extent == 1:
        return None
    x, at, axis, views, safe = peeled
    if not _only_at(at, axis, var):
        return None
    for scores, there in _contractions(x, at):
        if _is_scores(scores, there, var):
            return _Found(scores, x, views, safe, p, v, values, key)
    return None


def _peel(x: Node, at: Indices) -> tuple[Node, Indices, int, tuple[Node, ...], bool] | None:
    """If `x` is a softmax below views: (its argument, the indices there, the softmax axis, the
    views, whether NaN becomes 0); else None."""
    views: list[Node] = []
    safe = False
    while True:
        clean = _nan_to_zero(x)
        if isinstance(x.op, (ops.Reshape, ops.Transpose)):
            views.append(x)
            at, x = operand_indices(x, at), x.inputs[0]
        elif rounded_type(x):
            x = x.inputs[0]
        elif clean is not None:
            safe, x = True, clean
        else:
            break
    found = _softmax(x)
    return None if found is None else (found[0], at, found[1], tuple(views), safe)


def _calls(x: Node, fn: str) -> tuple[Node, ...] | None:
    return x.inputs if isinstance(x.op, ops.Elementwise) and x.op.fn == fn else None


def _nan_to_zero(x: Node) -> Node | None:
    """The x of where(x != x, 0, x), which replaces NaN by 0; None for other nodes."""
    parts = _calls(x, "where")
    if parts is None or constant_value(parts[1]) != 0.0:
        return None
    inner = _calls(parts[0], "not")
    same = _calls(inner[0], "eq") if inner else None
    return parts[2] if same == (parts[2], parts[2]) else None


def _softmax(x: Node) -> tuple[Node, int] | None:
    """(x, axis) if the node is exp(x - max(x)) / sum(exp(x - max(x))) along one axis; else None."""
    powers, total = _calls(x, "div") or (None, None)
    centred = _calls(powers, "exp") if powers else None
    argument, top = (_calls(centred[0], "sub") or (None, None)) if centred else (None, None)
    if argument is None:
        return None
    axis = _reduced(total, "sum", powers)
    return (argument, axis) if axis is not None and axis == _reduced(top, "max", argument) else None


def _reduced(x: Node | None, fn: str, of: Node | None) -> int | None:
    """The reduced axis if `x` is broadcast(reduce(of)) over one axis with function `fn`; else
    None."""
    if x is None or not isinstance(x.op, ops.Broadcast):
        return None
    inner = x.inputs[0]
    if not isinstance(inner.op, ops.Reduce) or inner.op.fn != fn or inner.inputs != (of,):
        return None
    return inner.op.axes[0] if len(inner.op.axes) == 1 else None


def _contractions(x: Node, at: Indices) -> Iterator[tuple[Node, Indices]]:
    """The contractions that `x` is an elementwise function of, with the indices in each."""
    pending, seen = [(x, at)], {(x, at)}
    while pending:
        x, at = pending.pop()
        operands: list[tuple[Node, Indices]] = []
        match x.op:
            case ops.Contract():
                yield x, at
            case ops.Elementwise():
                operands = [(i, at) for i in x.inputs]
            case ops.Reshape() | ops.Transpose():
                operands = [(x.inputs[0], operand_indices(x, at))]
        fresh = [pair for pair in dict.fromkeys(operands) if pair not in seen]
        seen.update(fresh)
        pending += reversed(fresh)


def _only_at(at: Indices, axis: int, var: Var) -> bool:
    """True if `var` is the index of this axis and occurs in no other index."""
    return at[axis] == index(var) and all(
        var not in i.variables for other, i in enumerate(at) if other != axis
    )


def _is_scores(n: Node, at: Indices, keys: Var) -> bool:
    """True if only one operand has the keys' axis, and one axis of extent above 1 is summed."""
    op = _contraction(n)
    axis = next((i for i, x in enumerate(at) if x == index(keys)), None)
    if axis is None or not _only_at(at, axis, keys):
        return False
    letter = op.out[axis]
    summed = set(op.a + op.b) - set(op.out)
    extents = dict(zip(op.a + op.b, n.inputs[0].shape + n.inputs[1].shape, strict=True))
    alone = (letter in op.a) != (letter in op.b)
    both = summed == set(op.a) & set(op.b) - set(op.out)
    return alone and both and sum(extents[c] > 1 for c in summed) == 1


def _private(
    context: Node, scores: Node, users: Users, order: Mapping[Node, int], kept: Set[Node]
) -> set[Node] | None:
    """The scores and all that depends on them below the context; None if something else reads it.

    Every user chain ends at an output or at the context.  A node that comes after the context in
    the order cannot be below the context.
    """
    found, pending = {scores}, [scores]
    while pending:
        n = pending.pop()
        if n in kept or order[n] > order[context]:
            return None
        fresh = [u for u in users[n] if u is not context and u not in found]
        found.update(fresh)
        pending += fresh
    return found


# ---- the one form --------------------------------------------------------------------------------


def _build(n: Node, found: _Found, between: Set[Node], made: dict[Node, Node]) -> Node:
    """The attention over operands that are rewritten already.  between: nodes that depend on its
    scores"""
    out = _contraction(n).out
    x = _rebuilt(found.x, found.scores, between, made)
    for view in reversed(found.views):
        x = node(view.op, x)
    p, v, key = found.p, found.v, found.keys
    axis = [p.index(key)]
    powers = elementwise("exp", elementwise("sub", x, reduce("max", x, axis)))
    total = reduce("sum", powers, axis)
    (column,) = set(v) - set(p)
    batch = [c for c in out if c in p and c in v]
    rows = [c for c in out if c in p and c not in v]
    order = [*batch[:-1], *rows, *batch[-1:], column]
    if rows and batch and out.index(rows[0]) < out.index(batch[-1]):
        order = [*(c for c in out if c != column), column]  # rows are in front already
    op = ops.Contract(p, v, "".join(order), "context")
    values = _readable(made[found.values], v, {key, column})
    context = node(op, powers, values, source=n.source)
    total = transpose(total, [p.index(key if c == column else c) for c in order])
    result = elementwise("div", context, total, source=n.source)
    if found.safe:
        known = broadcast(elementwise("eq", total, total), result.shape)
        result = elementwise("where", known, result, scalar_like(0.0, result))
    return transpose(result, [order.index(c) for c in out])


def _rebuilt(x: Node, scores: Node, between: Set[Node], made: dict[Node, Node]) -> Node:
    """The softmax's argument, computed from the new scores."""
    for n in toposort([x], _within(between)):
        if n is scores:
            made[n] = _scores(n, made)
        elif rounded_type(n):
            made[n] = made[n.inputs[0]]
        else:
            made[n] = node(n.op, *(made[i] for i in n.inputs), source=n.source)
    return made[x]


def _scores(n: Node, made: dict[Node, Node]) -> Node:
    """contract(mul(q, c), mul(k, d)) -> mul(contract(q, k), c*d)"""
    op, scale, operands = _contraction(n), 1.0, []
    for x, letters in zip(n.inputs, (op.a, op.b), strict=True):
        plain, factor = _unscaled(made[x])
        scale *= factor
        alone = {c for c in letters if (c in op.a) != (c in op.b) or c not in op.out}
        operands.append(_readable(plain, letters, alone))
    result = node(replace(op, role="scores"), *operands, source=n.source)
    return result if scale == 1.0 else elementwise("mul", result, scalar_like(scale, result))


def _unscaled(x: Node) -> tuple[Node, float]:
    """(x without its constant factors, their product); factors below reshapes and transposes
    count."""
    path: list[tuple[Node, str, float]] = []
    while True:
        found = _scaling(x)
        if found is not None:
            path.append((x, *found[1:]))
            x = found[0]
        elif isinstance(x.op, (ops.Reshape, ops.Transpose)):
            path.append((x, "view", 1.0))
            x = x.inputs[0]
        else:
            break
    factor = 1.0
    for n, kind, c in reversed(path):
        if kind == "view":
            x = node(n.op, x) if factor != 1.0 else n
        else:
            factor = factor * c if kind == "mul" else factor / c
    return x, factor


def _scaling(x: Node) -> tuple[Node, str, float] | None:
    """(y, "mul" or "div", c) if x is y * c or y / c with a constant c"""
    for fn, turn in (("mul", 1), ("mul", -1), ("div", 1)):
        operands = _calls(x, fn)
        if operands is not None:
            inner, other = operands[::turn]
            c = constant_value(other)
            if c and isfinite(c):
                return inner, fn, c
    return None


def _readable(x: Node, letters: str, even: set[str]) -> Node:
    """x itself if the axes in `even` have constant strides where it lies in memory, else a copy."""
    axes, at = offset(x)
    named = dict(zip(letters, axes, strict=True))
    if all(stride(at, named[c]) is not None for c in even):
        return x
    return node(ops.Realize(), x)


def _within(nodes: Set[Node]) -> Callable[[Node], Iterator[Node]]:
    """The operands of a node that are among `nodes`."""
    return lambda n: (i for i in n.inputs if i in nodes)


# ---- what fusion asks ----------------------------------------------------------------------------


def scored(graph: Graph, stored: Set[Node]) -> set[Node]:
    """The scores of every attention, and what depends on them without a stored node between."""
    found: set[Node] = set()
    for n in graph.nodes():
        if isinstance(n.op, ops.Contract):
            depends = n.op.role == "scores"
        else:
            depends = n not in stored and not found.isdisjoint(n.inputs)
        if depends:
            found.add(n)
    return found


def region(context: Node, scored: Set[Node], users: Users) -> set[Node]:
    """The nodes that share the kernel of `context`: its scores, and the nodes between scores and
    context."""
    inner = _within(scored)
    members = {*toposort(inner(context), inner)}
    pending = list(members)
    while pending:
        for u in users[pending.pop()]:
            if u not in members and all(i in members or i.constant for i in u.inputs):
                members.add(u)
                pending.append(u)
    return members
