"""The form of a kernel: what kind of computation it is, and the roles of its operands and axes.

Input: a kernel.  Output: one `Form` of a closed set.  It follows from the specification alone, so
it is the same on every target.  How a form runs (lanes, registers, groups of threads) is decided by
the targets, which have a table with a row for each form.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from tilewright.base.errors import ensure, of_kind
from tilewright.kernel.expr import Expr, Guard, Load
from tilewright.kernel.index import Index, Var, index, stride
from tilewright.kernel.layout import RowBlocks
from tilewright.kernel.product_operands import (
    Operands,
    depthwise_operands,
    float_operands,
    integer_operands,
    narrow,
)
from tilewright.kernel.quantised_operands import QuantisedProduct, quantised_product
from tilewright.kernel.spec import Kernel
from tilewright.kernel.tree import walk


@dataclass(frozen=True)
class Form:
    """Base of the forms; the classes of this file are all there are."""


@dataclass(frozen=True)
class Contraction(Form):
    """Sums of products of f32: matmul, batched matmul, convolution."""

    operands: Operands


@dataclass(frozen=True)
class QuantisedContraction(Form):
    """Sums of f32 products with weights that are stored as integers with scales."""

    weights: QuantisedProduct

    @property
    def operands(self) -> Operands:
        return self.weights.operands


@dataclass(frozen=True)
class IntegerContraction(Form):
    """Sums of products of 8-bit or 16-bit integers whose operands are packed in groups.

    group:  elements of a group; a step of `operands.depth` is one group
    narrow: sums of two byte products stay within 16 bits
    """

    operands: Operands
    group: int
    narrow: bool


@dataclass(frozen=True)
class Attention(Form):
    """softmax(q·kᵀ)·v, whose scores are not stored.

    m:        the axis of the query rows (extent 1 if there is none)
    outer:    heads and batches
    argument: the argument of the softmax, an expression over `Acc(scores)`
    scores, context, total: numbers of the stages q·k, probabilities·v and their sum
    """

    q: Load
    k: Load
    v: Load
    m: Var
    n: Var
    keys: Var
    depth: Var
    outer: tuple[Var, ...]
    argument: Expr
    scores: int
    context: int
    total: int

    def moved(self, at: Index, start: Index, key: Var | Index) -> Index:
        """An index of k or v at key `start + key`, with a constant distance from key to key.

        In a state that grows, all these keys are in one block (`even_keys`).
        """
        first = at.substitute({self.keys: start})
        return first + at.substitute({self.keys: index(key)}) - at.substitute({self.keys: Index()})


@dataclass(frozen=True)
class TopK(Form):
    """The positions of the smallest integers of each row, in order.

    value: an element of the row, at the position `along`
    first: the number of positions, which are along the last axis
    """

    value: Expr
    along: Var
    first: Var


@dataclass(frozen=True)
class Windows(Form):
    """A reduction across memory: neighbouring results read neighbouring elements.

    Depthwise convolution, pooling, means over an image.

    channel:  the last output axis, along which results and elements are contiguous
    pixel:    the axis whose neighbours share loaded elements (extent 1 if there is none)
    rows:     all other output axes
    taps:     steps of the innermost reduced axis
    strides:  elements from pixel to pixel, and from tap to tap, in one unit; (0, 0) if neighbours
              share no elements
    weighted: True if each tap has its own factor
    """

    channel: Var
    pixel: Var
    rows: tuple[Var, ...]
    taps: int
    strides: tuple[int, int]
    weighted: bool

    def in_order(self, pixels: int, taps: int) -> list[tuple[int, int]]:
        """(pixel, tap) pairs; pairs that read the same element are side by side."""
        by_pixel, by_tap = self.strides
        pairs = [(i, t) for t in range(taps) for i in range(pixels)]
        return sorted(pairs, key=lambda p: p[0] * by_pixel + p[1] * by_tap)


@dataclass(frozen=True)
class IntegerWindows(Windows):
    """A depthwise convolution of bytes; the weights of one channel are packed in groups of taps.

    narrow: sums of two byte products stay within 16 bits
    """

    operands: Operands
    narrow: bool


@dataclass(frozen=True)
class RowWise(Form):
    """Reductions along memory, and what becomes of each row: softmax, layer norm, sums of rows."""


@dataclass(frozen=True)
class Reduction(Form):
    """Any other reduction: results, not summed elements, are contiguous along `axis`."""

    axis: Var


@dataclass(frozen=True)
class Transposition(Form):
    """Elementwise, with an operand that is contiguous along another axis than the output.

    axes: the axes along which an operand is contiguous, outermost first
    """

    axes: tuple[Var, ...]


@dataclass(frozen=True)
class Map(Form):
    """Elementwise, each point on its own."""


F = TypeVar("F", bound=Form)


@lru_cache(maxsize=4096)
def classify(kernel: Kernel) -> Form:
    """The form of a kernel in normal form (see collapse.py)."""
    if not kernel.stages:
        return _elementwise(kernel)
    if kernel.stages[0].op == "order":
        (stage,) = kernel.stages
        return TopK(stage.value, *stage.axes, *stage.keep)
    if any(s.keep for s in kernel.stages):
        return _attention(kernel)
    floats = float_operands(kernel)
    if floats is not None:
        return Contraction(floats)
    quantised = quantised_product(kernel)
    if quantised is not None:
        return QuantisedContraction(quantised)
    groups = integer_operands(kernel)
    if groups is not None:
        size = kernel.stages[0].axes[-1].extent
        return IntegerContraction(groups, size, narrow(kernel, groups))
    windows, taps = _windows(kernel), depthwise_operands(kernel)
    if windows is not None and taps is not None:
        return IntegerWindows(**vars(windows), operands=taps, narrow=narrow(kernel, taps))
    return windows or _reduction(kernel)


def form_as(kernel: Kernel, kind: type[F]) -> F:
    """The form of a kernel that is known to be of this kind."""
    return of_kind(classify(kernel), kind, f"it is no {kind.__name__}", kernel=kernel.name)


def product(kernel: Kernel) -> Operands | None:
    """The operands of a matrix product, of numbers or of packed integers; None for other forms."""
    form = classify(kernel)
    products = (Contraction, QuantisedContraction, IntegerContraction)
    return form.operands if isinstance(form, products) else None


def even_keys(kernel: Kernel) -> int:
    """Keys of an attention at constant distances, from each multiple of this number on: all of
    them, or those of a block of a state that grows."""
    form = form_as(kernel, Attention)
    layouts = (kernel.buffers[load.buffer].layout for load in (form.k, form.v))
    return min((x.rows for x in layouts if isinstance(x, RowBlocks)), default=form.keys.extent)


def rounds_to_f16(kernel: Kernel) -> bool:
    """True for a product of f32 that may round its operands to f16.

    That holds if its weights, or their scales, are f16 numbers and loose, or if its rows were
    divided so that they fit (fusion/f16_operands.py); for attention, if all operands are loose.
    """
    form = classify(kernel)
    if isinstance(form, Attention):
        return all(kernel.buffers[x.buffer].loose == "f16" for x in (form.q, form.k, form.v))
    if not isinstance(form, (Contraction, QuantisedContraction)):
        return False
    if isinstance(form, QuantisedContraction) and kernel.buffers[form.operands.row.buffer].as_f16:
        return True
    weights = form.weights.scale if isinstance(form, QuantisedContraction) else form.operands.col
    buffers = [kernel.buffers[x.buffer] for x in walk(weights) if isinstance(x, Load)]
    return bool(buffers) and all(b.as_f16 and b.loose in ("f16", "i8") for b in buffers)


def rounds_to_tf32(kernel: Kernel) -> bool:
    """True for a product of f32 that may round its operands to TF32 (10 bits of the fraction): its
    weights are stored as f32, and are loose."""
    form = classify(kernel)
    if not isinstance(form, Contraction):
        return False
    weights = kernel.buffers[form.operands.col.buffer]
    return weights.loose == "tf32" and not weights.as_f16


def transposed_loads(kernel: Kernel, axis: Var) -> list[Load]:
    """The loads that are contiguous along `axis` and far apart along the last one."""
    n = kernel.axes[-1]
    loads = dict.fromkeys(x for x in walk(kernel.value) if isinstance(x, Load))
    return [
        x
        for x in loads
        if stride(x.index, axis) == 1
        and stride(x.index, n) not in (0, 1, None)
        and x.index.is_affine
    ]


def _elementwise(kernel: Kernel) -> Form:
    guarded = any(isinstance(n, Guard) for n in walk(kernel.value))
    if len(kernel.axes) < 2 or guarded or stride(kernel.store, kernel.axes[-1]) != 1:
        return Map()
    axes = tuple(v for v in kernel.axes[:-1] if transposed_loads(kernel, v))
    return Transposition(axes) if axes else Map()


def _attention(kernel: Kernel) -> Attention:
    (n,) = kernel.axes[-kernel.cols :]
    numbers = {
        "context" if s.keep == (n,) else "scores" if s.keep else s.op: i
        for i, s in enumerate(kernel.stages)
    }
    scores, context, top = (kernel.stages[numbers[c]] for c in ("scores", "context", "max"))
    (keys,), (depth,) = scores.keep, scores.axes
    loads = [x for s in (scores, context) for x in s.value.args if isinstance(x, Load)]
    ensure(len(loads) == 3, "operands of an attention lie in memory", kernel=kernel.name)
    q, k, v = (loads[1], loads[0], loads[2]) if keys in loads[0].index.variables else loads
    fixed = k.index.variables | v.index.variables
    rows = [r for r in kernel.rows if r not in fixed and stride(q.index, r)]
    m = max(rows, key=lambda r: r.extent, default=Var("one", 1))
    outer = tuple(r for r in kernel.rows if r != m)
    stages = (numbers["scores"], numbers["context"], numbers["sum"])
    return Attention(q, k, v, m, n, keys, depth, outer, top.value, *stages)


def _windows(kernel: Kernel) -> Windows | None:
    if kernel.cols or not kernel.axes or len(kernel.stages) != 1:
        return None
    (stage,) = kernel.stages
    *outer, channel = kernel.axes
    if _runs_along(kernel) or stride(kernel.store, channel) != 1:
        return None
    inner = stage.axes[-1] if stage.axes else Var("one", 1)
    pixel = outer.pop() if outer else Var("one", 1)
    loads = [e for e in walk(stage.value) if isinstance(e, Load)]
    each = [(stride(e.index, pixel) or 0, stride(e.index, inner) or 0) for e in loads]
    strides = next((pair for pair in each if all(pair)), (0, 0))
    weighted = any(not by_pixel and by_tap for by_pixel, by_tap in each)
    return Windows(channel, pixel, tuple(outer), inner.extent, strides, weighted)


def _reduction(kernel: Kernel) -> Form:
    if not kernel.axes:
        return RowWise()
    if not kernel.cols:
        return RowWise() if _runs_along(kernel) else Reduction(kernel.axes[-1])
    along = [v for v in kernel.rows if stride(kernel.store, v) == 1 and v.extent > 1]
    if stride(kernel.store, kernel.axes[-1]) == 1 or not along:
        return RowWise()
    return Reduction(along[0])  # softmax over a middle axis: out[a, j, n], rows (a, n): along n


def _runs_along(kernel: Kernel) -> bool:
    """True if more operands are contiguous along the reduction than along the last output axis."""
    last, inner = kernel.axes[-1], kernel.stages[0].axes[-1:]
    loads = [n for s in kernel.stages for n in walk(s.value) if isinstance(n, Load)]
    across = sum(stride(n.index, last) == 1 for n in loads)
    along = sum(bool(inner) and stride(n.index, inner[0]) == 1 for n in loads)
    return along > across
