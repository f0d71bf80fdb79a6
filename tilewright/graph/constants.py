"""Constants in memory: which ones are stored, when two are equal, and their narrow form in files.

Input: nodes without run-time inputs.  Output: a number for each node.  Equal computations get equal
numbers, also in graphs that were imported separately (one per bucket), so that buckets share their
weights.  Names do not matter: two subgraphs may use one name for different weights.  `narrow` gives
the form of a constant in files: 16-bit numbers, or integers with scales and zero points.  It is
used only if files become smaller and hosts can restore exactly the same f32 numbers.

Kernels compute a constant, instead of loading it, if it has more elements than all weights together
and follows from few numbers: positions and small tables.

    where(column <= row, 0, -inf) of [1024, 1024]: three calls, no table     a[1024, 1] + b[1, 1024]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tilewright.base.abi import align
from tilewright.base.dtypes import BOOL, F32, I8, I16, I32, I64, U8
from tilewright.base.scalars import SCALARS
from tilewright.graph import ops
from tilewright.graph.node import (
    Graph,
    Node,
    broadcast,
    computed,
    constant,
    fact,
    literal,
    node,
    toposort,
)
from tilewright.graph.op_semantics import SEMANTICS
from tilewright.graph.ops import Array
from tilewright.graph.rounding import rounded_type

#: Kernels compute a constant, instead of loading it, only if it has more elements than this,
SMALL = 2**14
#: more than this many times the elements of all tables that computing it reads,
GROWTH = 4
#: and if an element takes at most this number of calls of scalar functions.
CALLS = 24

#: Element types of operands and results that kernels compute constants with.
_COUNTED = frozenset((BOOL, F32, I8, I16, I32, I64, U8))


class _Made(NamedTuple):
    """What an element of a constant costs in a kernel.

    calls:   calls of scalar functions for an element
    tables:  elements of all tables that computing the constant reads
    counted: True if kernels compute it; False if it is loaded from a table of its own
    """

    calls: int
    tables: int
    counted: bool


@fact(lambda n: n.inputs if n.constant and isinstance(n.op, (*ops.VIEWS, ops.Elementwise)) else ())
def _made(n: Node, operands: list[_Made]) -> _Made:
    if isinstance(n.op, ops.Iota) or literal(n) is not None:
        return _Made(0, 0, n.size > SMALL)
    fn = n.op.fn if isinstance(n.op, ops.Elementwise) else ""
    own = bool(fn)
    calls, tables = sum(o.calls for o in operands) + own, sum(o.tables for o in operands)
    large = n.size > max(SMALL, GROWTH * tables) and bool(operands)
    counted = large and calls <= CALLS and (not own or _is_exact_in_kernels(n, fn))
    passed = counted or isinstance(n.op, ops.VIEWS)
    return _Made(calls, tables, counted) if passed else _Made(0, n.size, False)


def _is_exact_in_kernels(n: Node, fn: str) -> bool:
    """True if kernels of every target compute the call with exactly NumPy's result.

    Calls that unpack 4-bit weights ("nibble") do not count: their operands are stored.
    """
    exact_types = fn != "nibble" and not SCALARS[fn].ulp
    return exact_types and all(x.dtype in _COUNTED for x in (n, *n.inputs))


def kernel_constants(graph: Graph) -> frozenset[Node]:
    """The constants that kernels compute; each has more elements than all weights together."""
    constants = [n for n in graph.nodes() if n.constant]
    weights = sum(n.size for n in constants if isinstance(n.op, ops.Weight))
    return frozenset(n for n in constants if n.size > weights and _made(n).counted)


class Constants:
    """Gives each constant a number; equal constants get equal numbers."""

    def __init__(self) -> None:
        self._numbers: dict[object, int] = {}
        self._known: dict[Node, int] = {}

    def number(self, n: Node) -> int:
        if n not in self._known:
            for m in toposort([n], lambda m: (i for i in m.inputs if i not in self._known)):
                self._known[m] = self._numbers.setdefault(self._key(m), len(self._numbers))
        return self._known[n]

    def _key(self, n: Node) -> object:
        """What identifies a constant: the digest of its elements, or its op and its operands'
        numbers."""
        if isinstance(n.op, (ops.Weight, ops.Constant)):
            return (n.dtype.name, n.shape, n.op.digest)
        return (type(n.op).__name__, ops.attributes(n.op), tuple(self._known[i] for i in n.inputs))


@dataclass(frozen=True)
class QuantisedWeight:
    """A weight as (integer - zero) * scale: three nodes of one shape, with `zero` and `scale`
    broadcast to it."""

    whole: Node
    zero: Node
    scale: Node


def weights(x: Node) -> QuantisedWeight | None:
    """The parts of a constant that is computed from integers of at most 8 bits; None for others.
    The constant may be a view."""
    path = []
    while isinstance(x.op, ops.VIEWS):
        path.append(x)
        x = x.inputs[0]
    found = factors(x)
    if found is None:
        return None
    parts = (found.whole, found.zero, found.scale)
    for outer in reversed(path):
        parts = tuple(node(outer.op, p) for p in parts)  # type: ignore[assignment]
    return QuantisedWeight(*parts)


def factors(x: Node) -> QuantisedWeight | None:
    """As `weights`, for a node that is not a view.  It recognises (f32(integer) - zero) * scale,
    f32(integer - zero) * scale and f32(integer) * scale."""
    if not (is_call(x, "mul") and x.constant and x.dtype == F32):
        return None
    for centred, scale in (x.inputs, x.inputs[::-1]):
        zero = None
        if is_call(centred, "sub"):
            centred, zero = centred.inputs
        if not is_call(centred, "cast"):
            continue
        (whole,) = centred.inputs
        if zero is None and whole.dtype == I16 and is_call(whole, "sub"):
            whole, zero = whole.inputs
        if whole.dtype == I16:
            whole = _uncast(whole)
        if whole.dtype in (I8, U8):
            zero = constant(0.0, F32) if zero is None else _uncast(zero)
            return QuantisedWeight(whole, broadcast(zero, x.shape), scale)
    return None


def _uncast(x: Node) -> Node:
    """The bytes, if x is a cast of bytes; else x."""
    return x.inputs[0] if is_call(x, "cast") and x.inputs[0].dtype in (I8, U8) else x


def is_call(n: Node, fn: str) -> bool:
    return isinstance(n.op, ops.Elementwise) and n.op.fn == fn


#: Operations that do not change any element.
_MOVES = (*ops.VIEWS, ops.Realize, ops.Pad, ops.Concat)


@dataclass(frozen=True)
class NarrowConstant:
    """The form of a constant in files.

    dtype: the element type in the file: "f16", "bf16", "i8" or "u8"; "" for the constant's own type
    value: the node that is written: the constant, or the integers of (value - zero) * scale, in the
           same layout
    scale, zero: for integers, else None.  An axis along which they repeat has extent 1; `zero` is
                 None if all zero points are 0
    """

    dtype: str
    value: Node
    scale: Node | None = None
    zero: Node | None = None


def narrow(n: Node) -> NarrowConstant:
    return _quantised(n) or NarrowConstant(_stored_as(n), n)


def stored_as_f16(n: Node) -> bool:
    """True for weights whose numbers are all f16 numbers."""
    return n.constant and n.dtype == F32 and _stored_as(n) == "f16"


@fact(lambda n: n.inputs if isinstance(n.op, _MOVES) else ())
def looseness(n: Node, operands: list[str]) -> str:
    """The type to which a product with this constant may round its other operand; "" if none."""
    if isinstance(n.op, ops.Weight):
        return n.op.loose
    return min(operands, key=ops.LOOSE.index, default="")


@fact(lambda n: n.inputs if isinstance(n.op, _MOVES) else ())
def may_be_compact(n: Node, operands: list[bool]) -> bool:
    """True for weights that memory of every target may hold as f16 (`ops.Weight.compact`)."""
    if isinstance(n.op, ops.Weight):
        return n.op.compact
    return stored_as_f16(n) and bool(operands) and all(operands)


@fact(lambda n: n.inputs if isinstance(n.op, _MOVES) else ())
def _stored_as(n: Node, operands: list[str]) -> str:
    """The 16-bit type that can represent every number of a constant; "" if there is none."""
    if isinstance(n.op, ops.Weight):
        return n.op.stored
    if isinstance(n.op, ops.Elementwise):
        return rounded_type(n)
    exact_types = not isinstance(n.op, ops.Pad) or n.op.value == 0
    return operands[0] if exact_types and len(set(operands)) == 1 else ""


def _quantised(n: Node) -> NarrowConstant | None:
    """The narrow form of a constant that only moves and pads the model's own integers, else
    None."""
    path, x = [], n
    while isinstance(x.op, (*ops.VIEWS, ops.Realize, ops.Pad)):
        path.append(x.op)
        x = x.inputs[0]
    found = factors(x)
    if found is None:
        return None
    whole = found.whole
    zero, scale = map(_repeating, map(computed, (found.zero, found.scale)))
    # Padding is 0 only if it is (0 - 0) * scale, or (zero - zero) * scale.
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
            zero, scale = (SEMANTICS[type(op)].numpy(op, p) for p in (zero, scale))
        whole = node(op, whole)
    parts = [_once(scale), _integers(_once(zero))]
    if not parts[1].any():
        parts.pop()
    if sum(align(p.nbytes) for p in parts) + align(n.size) >= align(n.size * n.dtype.size):
        return None
    return NarrowConstant(whole.dtype.name, whole, *map(constant, parts))


_RANGES = {"i8": range(-128, 128), "u8": range(256)}


def _repeating(x: Array) -> Array:
    """The array, with strides of 0 along axes that repeat and along all axes if all numbers are
    equal."""
    once = _once(x)
    if (once == once.flat[0]).all():
        once = once.reshape(-1)[:1].reshape((1,) * x.ndim)
    return np.broadcast_to(once, x.shape)


def _once(x: Array) -> Array:
    """The array without repetitions: axes with a stride of 0 get extent 1."""
    return x[tuple(slice(0, 1) if step == 0 else slice(None) for step in x.strides)]


def _padded(op: ops.Pad, x: Array, repeats: bool) -> Array:
    """The array padded with 0.  With `repeats`, axes of stride 0 are lengthened instead."""
    ends = zip(op.before, op.after, x.strides, strict=True)
    added = [(0, 0) if repeats and step == 0 else (b, a) for b, a, step in ends]
    shape = [b + n + a for b, n, a in zip(op.before, x.shape, op.after, strict=True)]
    return np.broadcast_to(np.pad(_once(x) if repeats else x, added), shape)


def _integers(x: Array) -> Array:
    """Zero points as i8 or u8, if that represents all of them; else as they are."""
    with np.errstate(invalid="ignore"):  # numbers that bytes cannot represent give warnings
        kinds = (x.astype(kind) for kind in ("int8", "uint8"))
        return next((made for made in kinds if (made == x).all()), x)
