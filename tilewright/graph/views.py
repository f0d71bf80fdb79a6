"""Movement ops as index algebra: the position of a view's element in the tensor that it views.

Input: a node and an index for each of its axes.  Output: the node below its views and the indices
there.  A view costs no memory or time unless something asks for a copy (`Realize`).

    transpose(x)[i, j] -> x[j, i];   slice(x)[i] -> x[start + i*step];   reshape by // and %
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.base.errors import CompilerBug
from tilewright.graph import ops
from tilewright.graph.node import Node, fact, node
from tilewright.kernel.index import Index, Var, flatten, index, unflatten

Indices = tuple[Index, ...]

#: The most times that one index may occur in the indices that a kernel reads.  Every reshape that
#: value ranges cannot simplify multiplies the size of its indices.
REPEATS = 1024


def through_views(x: Node, at: Indices) -> tuple[Node, Indices]:
    """The first node below `x` that is not a view, and the indices of the same element in it."""
    while isinstance(x.op, ops.VIEWS):
        at = operand_indices(x, at)
        x = x.inputs[0]
    return x, at


def root_of(x: Node) -> Node:
    """The first node below `x` that is not a view."""
    while isinstance(x.op, ops.VIEWS):
        x = x.inputs[0]
    return x


def window(x: Node) -> tuple[Node, int] | None:
    """(stored node, first element) if `x` is one contiguous piece of it in its own order, else
    None.

    reshape(slice(x[64, 8], rows 3..5)) -> (x, 24)
    """
    start = 0
    while isinstance(x.op, ops.VIEWS) and not x.constant:
        whole = x.inputs[0].shape
        match x.op:
            case ops.Reshape():
                pass
            case ops.Slice(starts, steps, shape):
                # after the first axis with more than one element, the slice must take every axis
                # whole
                cut = next((i for i, n in enumerate(shape) if n > 1), len(shape))
                if shape[cut + 1 :] != whole[cut + 1 :] or any(s > 1 for s in steps[cut : cut + 1]):
                    return None
                start += flatten(map(index, starts), whole).const
            case _:
                return None
        x = x.inputs[0]
    return x, start


def offset(x: Node) -> tuple[tuple[Var, ...], Index]:
    """A variable per axis, and the offset of that element of `x` in the memory of its root."""
    axes = tuple(Var(f"i{axis}", extent) for axis, extent in enumerate(x.shape))
    root, at = through_views(x, tuple(map(index, axes)))
    return axes, flatten(at, root.shape)


def operand_indices(x: Node, at: Indices) -> Indices:
    """Indices into the operand of the view `x`."""
    shape = x.inputs[0].shape
    match x.op:
        case ops.Reshape():
            return _reshape(at, x.shape, shape)
        case ops.Transpose(perm):
            moved = dict(zip(perm, at, strict=True))
            return tuple(moved[axis] for axis in range(len(shape)))
        case ops.Broadcast():
            return tuple(Index() if n == 1 else i for i, n in zip(at, shape, strict=True))
        case ops.Slice(starts, steps, _):
            return tuple(i * step + start for i, start, step in zip(at, starts, steps, strict=True))
        case ops.Flip(axes):
            return tuple(
                i * -1 + (n - 1) if axis in axes else i
                for axis, (i, n) in enumerate(zip(at, shape, strict=True))
            )
        case ops.Unfold(axis, _, stride, dilation):
            *rest, window = at
            rest[axis] = rest[axis] * stride + window * dilation
            return tuple(rest)
    raise CompilerBug(f"{x} is not a view")


def _reshape(at: Indices, new: ops.Shape, old: ops.Shape) -> Indices:
    """Leading axes that both shapes share keep their indices; the rest goes through the offset."""
    shared = 0
    while shared < min(len(new), len(old)) and new[shared] == old[shared]:
        shared += 1
    flat = flatten(at[shared:], new[shared:])
    return (*at[:shared], *unflatten(flat, old[shared:]))


def repeats(n: Node) -> int:
    """How often the indices of a reshape's operand may contain each index of its result.  An index
    of the operand is (offset // stride) % extent, and the offset contains every index of the
    result.
    """
    if not isinstance(n.op, ops.Reshape):
        return 1
    new, old = ([e for e in x.shape if e > 1] for x in (n, n.inputs[0]))
    shared = next((i for i, (a, b) in enumerate(zip(new, old, strict=False)) if a != b), len(new))
    return max(1, len(old) - shared)


def joined_axes(n: Node) -> tuple[tuple[int, ...], ...] | None:
    """For each axis of a reshape the axes of its operand that it joins; None if it splits any."""
    rest, found = list(enumerate(n.inputs[0].shape)), []
    for extent in n.shape:
        size, group = 1, []
        while rest and (size < extent or rest[0][1] == 1):
            axis, own = rest.pop(0)
            size *= own
            group.append(axis)
        if size != extent:
            return None
        found.append(tuple(group))
    return tuple(found)


def joins_rows(n: Node, reduced: Sequence[int]) -> bool:
    """True for a reshape that joins reduced axes with others, such as [groups, channels per group]
    into [channels]."""
    shape, found = n.inputs[0].shape, joined_axes(n) or ()
    long = [[axis in reduced for axis in group if shape[axis] > 1] for group in found]
    return any(len(set(group)) > 1 for group in long)


@fact(lambda n: n.inputs if isinstance(n.op, ops.VIEWS) else ())
def all_repeats(n: Node, below: list[int]) -> int:
    """The product of `repeats` of all views from `n` down."""
    return repeats(n) * below[0] if below else 1


def is_affine(x: Node) -> bool:
    """True if plain strides reach every element of `x` in its root's memory."""
    return offset(x)[1].is_affine


def stored(x: Node) -> Node:
    """x itself if plain strides reach it in its root's memory, else a copy in its own order."""
    return x if is_affine(x) else node(ops.Realize(), x)


def is_packed(x: Node) -> bool:
    """True for a view of a stored copy, such as the panels that packing makes."""
    while isinstance(x.op, (ops.Slice, ops.Reshape, ops.Transpose)):
        x = x.inputs[0]
    return isinstance(x.op, ops.Realize)


def by_stride(x: Node, letters: str) -> str:
    """The letters of a stored operand, in order of decreasing stride."""
    steps = strides(x, letters)
    return "".join(sorted(letters, key=lambda c: -steps[c]))


def strides(x: Node, letters: str) -> dict[str, int]:
    """The stride in memory of each axis of a stored operand; 0 for an axis of extent 1."""
    axes, at = offset(x)
    return {c: abs(at.coefficient(v)) for c, v in zip(letters, axes, strict=True)}
