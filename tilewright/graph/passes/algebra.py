"""Algebra: makes a graph cheaper by small local rules.

Input: a `Graph`.  Output: a `Graph` with the same outputs.  Layout follows from two rules:
transposes move towards the outputs and cancel, and a contraction takes them into its letters; so
convolutions become channels-last without a rule of their own.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright.graph import ops
from tilewright.graph.node import (
    Graph,
    Node,
    broadcast,
    concat,
    contract,
    elementwise,
    literal,
    node,
    pad,
    reduce,
    reshape,
    slice_,
    transpose,
)
from tilewright.graph.ops import Shape
from tilewright.graph.passes import integer_arithmetic
from tilewright.graph.rewrite import RuleFn, rewrite
from tilewright.graph.views import REPEATS, all_repeats


def simplify(graph: Graph) -> Graph:
    """Apply `RULES` until none fits."""
    return rewrite(graph, RULES)


def constant_value(n: Node) -> float | None:
    """The one number that a constant repeats, if it is a float."""
    number = literal(n) if n.dtype.is_float else None
    return None if number is None else float(number)


def simplify_identity(n: Node) -> Node | None:
    """x + 0 -> x,  x * 1 -> x,  x / 1 -> x,  x - 0 -> x"""
    if not isinstance(n.op, ops.Elementwise) or len(n.inputs) != 2:
        return None
    neutral = {"add": 0.0, "sub": 0.0, "mul": 1.0, "div": 1.0}.get(n.op.fn)
    if neutral is None:
        return None
    a, b = n.inputs
    # -0 + 0 is 0, not -0, so adding +0 changes -0 and no other float
    if constant_value(b) == neutral:
        return a
    if n.op.fn in ("add", "mul") and constant_value(a) == neutral:
        return b
    return None


def simplify_pow(n: Node) -> Node | None:
    """pow(x, 2) -> x*x,  pow(x, 0.5) -> sqrt(x),  pow(x, 1) -> x"""
    if not (isinstance(n.op, ops.Elementwise) and n.op.fn == "pow"):
        return None
    x, exponent = n.inputs[0], constant_value(n.inputs[1])
    if exponent == 1.0:
        return x
    if exponent == 2.0:
        return elementwise("mul", x, x, source=n.source)
    if exponent == 3.0:
        return elementwise("mul", elementwise("mul", x, x), x, source=n.source)
    if exponent == 0.5:
        return elementwise("sqrt", x, source=n.source)
    return None


def simplify_cast(n: Node) -> Node | None:
    """cast(x: t) to t -> x"""
    if isinstance(n.op, ops.Elementwise) and n.op.fn == "cast" and n.inputs[0].dtype == n.dtype:
        return n.inputs[0]
    return None


# ---- movement ------------------------------------------------------------------------------------


def merge_reshapes(n: Node) -> Node | None:
    """reshape(reshape(x)) -> reshape(x);  a reshape to the same shape vanishes"""
    if not isinstance(n.op, ops.Reshape):
        return None
    x = n.inputs[0]
    if x.shape == n.shape:
        return x
    return reshape(x.inputs[0], n.shape) if isinstance(x.op, ops.Reshape) else None


def end_views(n: Node) -> Node | None:
    """reshape(views of x) -> reshape of a copy, where nested reshapes make indices too large"""
    if not isinstance(n.op, ops.Reshape) or n.constant or all_repeats(n) <= REPEATS:
        return None
    return reshape(node(ops.Realize(), n.inputs[0]), n.shape)


def merge_transposes(n: Node) -> Node | None:
    """transpose(transpose(x)) -> transpose(x);  one that only moves axes of extent 1 -> reshape"""
    if not isinstance(n.op, ops.Transpose):
        return None
    x, perm = n.inputs[0], n.op.perm
    if isinstance(x.op, ops.Transpose):
        return transpose(x.inputs[0], [x.op.perm[p] for p in perm])
    return reshape(x, n.shape) if _moves_units(x.shape, perm) else None


def _moves_units(shape: Shape, perm: tuple[int, ...]) -> bool:
    """True if the permutation only moves axes of extent 1, so that memory stays as it is."""
    long = [p for p in perm if shape[p] > 1]
    return long == sorted(long)


def _transposed(n: Node) -> tuple[int, ...] | None:
    """The permutation of a transpose whose operand is computed at run time."""
    if isinstance(n.op, ops.Transpose) and not n.constant:
        return n.op.perm
    return None


def _inverse(perm: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argsort(perm))


def sink_elementwise(n: Node) -> Node | None:
    """f(transpose(x), y) -> transpose(f(x, inverse(y))), where that makes no new transpose"""
    if not isinstance(n.op, ops.Elementwise):
        return None
    perms = [p for p in map(_transposed, n.inputs) if p is not None]
    if not perms:
        return None
    back = _inverse(perms[0])
    if not all(_transposed(i) == perms[0] or _moves_freely(i, back) for i in n.inputs):
        return None
    moved = [_move(i, back) for i in n.inputs]
    return transpose(node(n.op, *moved, source=n.source), perms[0])


def _moves_freely(x: Node, perm: tuple[int, ...]) -> bool:
    """True if transpose(x) costs nothing at run time: a constant, or only units change place."""
    inner = x.inputs[0] if isinstance(x.op, ops.Broadcast) else x
    return x.constant or _moves_units(inner.shape, perm)


def _move(x: Node, perm: tuple[int, ...]) -> Node:
    """transpose(x), taken below a broadcast so that the broadcast stays outermost."""
    if isinstance(x.op, ops.Broadcast):
        return broadcast(_move(x.inputs[0], perm), _permuted(x.shape, perm))
    if isinstance(x.op, ops.Transpose):
        return _move(x.inputs[0], _permuted(x.op.perm, perm))
    if _moves_units(x.shape, perm):
        return reshape(x, _permuted(x.shape, perm))
    return transpose(x, perm)


def _permuted(values: tuple[int, ...], perm: tuple[int, ...]) -> Shape:
    return tuple(values[p] for p in perm)


def sink_movement(n: Node) -> Node | None:
    """pad, reduce, broadcast, slice, flip, unfold of transpose(x) -> transpose of the same on x"""
    if len(n.inputs) != 1:
        return None
    perm = _transposed(n.inputs[0])
    if perm is None:
        return None
    x, back = n.inputs[0].inputs[0], _inverse(perm)
    match n.op:
        case ops.Pad(before, after, value):
            inner = pad(x, _permuted(before, back), _permuted(after, back), value)
        case ops.Reduce(fn, axes):
            inner = reduce(fn, x, [perm[a] for a in axes])
        case ops.Broadcast(shape):
            inner = broadcast(x, _permuted(shape, back))
        case ops.Slice(starts, steps, shape):
            parts = (_permuted(v, back) for v in (starts, steps, shape))
            inner = node(ops.Slice(*parts), x)
        case ops.Flip(axes):
            inner = node(ops.Flip(tuple(sorted(perm[a] for a in axes))), x)
        case ops.Unfold(axis, size, stride, dilation):
            inner = node(ops.Unfold(perm[axis], size, stride, dilation), x)
            perm = (*perm, x.rank)
        case _:
            return None
    return transpose(replace(inner, source=n.source or inner.source), perm)


def gather_range(n: Node) -> Node | None:
    """gather(x, [s, s+d, s+2d, ...]) -> slice(x), so that a position table is read in place."""
    if not isinstance(n.op, ops.Gather):
        return None
    x, axis = n.inputs[0], n.op.axis
    picks = n.inputs[1].value
    if picks is None or picks.size == 0:
        return None
    line = picks.ravel()
    step = int(line[1] - line[0]) if line.size > 1 else 1
    even = step > 0 and np.array_equal(line, int(line[0]) + step * np.arange(line.size))
    if not even or line[0] < 0 or line[-1] >= x.shape[axis]:
        return None
    starts, steps, shape = [0] * x.rank, [1] * x.rank, list(x.shape)
    starts[axis], steps[axis], shape[axis] = int(line[0]), step, line.size
    return reshape(slice_(x, starts, shape, steps), n.shape)


def sink_gather(n: Node) -> Node | None:
    """gather(transpose(x), line) -> transpose(gather(x, line)), which image resizing uses"""
    if not isinstance(n.op, ops.Gather) or n.inputs[1].rank != 1:
        return None
    perm = _transposed(n.inputs[0])
    if perm is None:
        return None
    inner = ops.Gather(perm[n.op.axis])
    return transpose(node(inner, n.inputs[0].inputs[0], n.inputs[1], source=n.source), perm)


def sink_concat(n: Node) -> Node | None:
    """concat(transpose(x), transpose(y)) -> transpose(concat(x, y)), all with one permutation"""
    if not isinstance(n.op, ops.Concat):
        return None
    perms = {_transposed(i) for i in n.inputs}
    if len(perms) != 1:
        return None
    perm = perms.pop()
    if perm is None:
        return None
    return transpose(concat([i.inputs[0] for i in n.inputs], perm[n.op.axis]), perm)


def contract_transposed(n: Node) -> Node | None:
    """contract(transpose(x), y): the letters change places instead of the data"""
    if not isinstance(n.op, ops.Contract):
        return None
    labels, operands = [n.op.a, n.op.b], list(n.inputs)
    changed = False
    for i, x in enumerate(operands):
        if isinstance(x.op, ops.Transpose):
            back = _inverse(x.op.perm)
            labels[i] = "".join(labels[i][p] for p in back)
            operands[i] = x.inputs[0]
            changed = True
    if not changed:
        return None
    spec = f"{labels[0]},{labels[1]}->{n.op.out}"
    return contract(spec, operands[0], operands[1], source=n.source)


RULES: tuple[RuleFn, ...] = (
    simplify_identity,
    simplify_pow,
    simplify_cast,
    merge_reshapes,
    merge_transposes,
    gather_range,
    sink_elementwise,
    sink_movement,
    sink_gather,
    sink_concat,
    contract_transposed,
    *integer_arithmetic.RULES,
)
