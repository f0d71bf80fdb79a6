"""How narrow files may hold a constant: numbers of 16 bits, or integers with scales and zeros.

Input: a constant as kernels read it, packed and padded.  Output: `Narrow`: what files hold instead,
from which hosts make exactly the same f32 numbers.  Only where files become smaller.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.base.alignment import align
from tilewright.base.dtypes import F32
from tilewright.graph import ops
from tilewright.graph.nearest import rounding
from tilewright.graph.node import Node, computed, constant, fact, node
from tilewright.graph.ops import Array
from tilewright.graph.quantised import factors
from tilewright.graph.rules import RULES

#: What leaves every element as it is.
_MOVES = (*ops.VIEWS, ops.Realize, ops.Pad, ops.Concat)


@dataclass(frozen=True)
class Narrow:
    """What files hold of a constant.

    dtype: the element type there: "f16", "bf16", "i8" or "u8"; "" for the constant's own
    value: what is written: the constant, or the integers of (value - zero) * scale, which lie alike
    scale, zero: of integers; an axis along which they repeat has extent 1, and no zero means 0
    """

    dtype: str
    value: Node
    scale: Node | None = None
    zero: Node | None = None


def narrow(n: Node) -> Narrow:
    return _quantised(n) or Narrow(_stored_as(n), n)


def in_halves(n: Node) -> bool:
    """True for weights whose numbers all are ones of f16."""
    return n.constant and n.dtype == F32 and _stored_as(n) == "f16"


@fact(lambda n: n.inputs if isinstance(n.op, _MOVES) else ())
def looseness(n: Node, operands: list[str]) -> str:
    """The type that products may round to what they multiply with a constant; "" if none."""
    if isinstance(n.op, ops.Weight):
        return n.op.loose
    return min(operands, key=ops.LOOSE.index, default="")


@fact(lambda n: n.inputs if isinstance(n.op, _MOVES) else ())
def _stored_as(n: Node, operands: list[str]) -> str:
    """The type of 16 bits that holds every number of a constant; "" if there is none."""
    if isinstance(n.op, ops.Weight):
        return n.op.stored
    if isinstance(n.op, ops.Elementwise):
        return rounding(n)
    exact = not isinstance(n.op, ops.Pad) or n.op.value == 0
    return operands[0] if exact and len(set(operands)) == 1 else ""


def _quantised(n: Node) -> Narrow | None:
    """A constant as the integers that the model has, if it only moves and pads them."""
    path, x = [], n
    while isinstance(x.op, (*ops.VIEWS, ops.Realize, ops.Pad)):
        path.append(x.op)
        x = x.inputs[0]
    found = factors(x)
    if found is None:
        return None
    whole = found.whole
    zero, scale = map(_repeating, map(computed, (found.zero, found.scale)))
    # what is added is 0 only if it is (0 - 0) * scale, or (zero - zero) * scale
    if np.signbit(scale).any() or not np.isfinite(scale).all():
        return None
    same = _once(zero).size == 1
    fill = zero.flat[0].item() if same else 0
    for op in reversed(path):
        if isinstance(op, ops.Pad):
            if op.value != 0 or fill not in _RANGES[whole.dtype.name]:
                return None
            op = ops.Pad(op.before, op.after, int(fill))
            zero = _padded(op, zero, repeats=same)
            scale = _padded(op, scale, repeats=True)
        elif not isinstance(op, ops.Realize):
            zero, scale = (RULES[type(op)].numpy(op, p) for p in (zero, scale))
        whole = node(op, whole)
    parts = [_once(scale), _integers(_once(zero))]
    if not parts[1].any():
        parts.pop()
    if sum(align(p.nbytes) for p in parts) + align(n.size) >= align(n.size * n.dtype.size):
        return None
    return Narrow(whole.dtype.name, whole, *map(constant, parts))


_RANGES = {"i8": range(-128, 128), "u8": range(256)}


def _repeating(x: Array) -> Array:
    """The same array; if it holds one number only, with strides of 0."""
    once = _once(x)
    if (once == once.flat[0]).all():
        once = once.reshape(-1)[:1].reshape((1,) * x.ndim)
    return np.broadcast_to(once, x.shape)


def _once(x: Array) -> Array:
    """The array without what it repeats: axes with a stride of 0 have extent 1."""
    return x[tuple(slice(0, 1) if step == 0 else slice(None) for step in x.strides)]


def _padded(op: ops.Pad, x: Array, repeats: bool) -> Array:
    """Padded with 0, or where it repeats with the same again."""
    ends = zip(op.before, op.after, x.strides, strict=True)
    added = [(0, 0) if repeats and step == 0 else (b, a) for b, a, step in ends]
    shape = [b + n + a for b, n, a in zip(op.before, x.shape, op.after, strict=True)]
    return np.broadcast_to(np.pad(_once(x) if repeats else x, added), shape)


def _integers(x: Array) -> Array:
    """Zero points as bytes, if they are."""
    with np.errstate(invalid="ignore"):  # casts of what bytes do not hold
        kinds = (x.astype(kind) for kind in ("int8", "uint8"))
        return next((made for made in kinds if (made == x).all()), x)
