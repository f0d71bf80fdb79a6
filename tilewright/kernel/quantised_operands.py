"""The roles of a product whose column operand is block-quantised: integers with scales.

Input: a kernel.  Output: `QuantisedProduct`, or None if it is another kind of kernel.  `form.py`
calls this module; all others call `form.classify`.

    sum over k of a[m, k] * (f32(q[k, n]) - zero[k // size, n]) * scale[k // size, n]

Several summed axes of the kernel (blocks, words, integers of a word) become one axis k here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from tilewright.base.dtypes import F32
from tilewright.kernel.expr import Call, Const, Expr, IndexValue, Load, dtype_of
from tilewright.kernel.index import Index, Var, index, stride, unflatten
from tilewright.kernel.layout import Blocks
from tilewright.kernel.product_operands import Operands, row_axes
from tilewright.kernel.spec import Kernel
from tilewright.kernel.tree import rewrite, walk

#: Integers of 8 bits that are read together.
BYTES = 4


@dataclass(frozen=True)
class QuantisedProduct:
    """The operands, and how a weight is computed: (quantum - zero) * scale, in f32.

    operands: `col` is the load of packed integers; `depth` is the axis k alone
    quantum:  an integer as f32, over n and k;  zero, scale: the same for all steps of a block
    size:     steps of a block;  word: steps whose integers are in one element of memory
    """

    operands: Operands
    quantum: Expr
    zero: Expr
    scale: Expr
    size: int
    word: int

    @property
    def k(self) -> Var:
        return self.operands.depth[0]

    @property
    def together(self) -> int:
        """Steps of a column that one read covers if a thread has four columns: a word of each
        column, or four bytes of each, which share a scale."""
        if self.word > 1:
            return self.word
        return BYTES if self.size % BYTES == 0 else 1

    @property
    def scales(self) -> frozenset[int]:
        """Numbers of the buffers with scales."""
        return frozenset(x.buffer for x in walk(self.scale) if isinstance(x, Load))

    @property
    def centred(self) -> bool:
        """True if zero points are 0."""
        return self.zero == Const(0.0, F32)

    def at(self, e: Expr, step: Index) -> Expr:
        """`quantum`, `zero` or `scale` at step k = `step`, with its indices simplified.

        nibble(w[..], i32(4 * (k % 8))) at 8 * p + 3   ->   nibble(w[..], 12)
        """
        return rewrite(e, _settled, {self.k: step})


def _settled(e: Expr) -> Expr:
    if isinstance(e, IndexValue) and e.index.is_const:
        return Const(e.index.const, e.dtype)
    if isinstance(e, Call) and e.fn == "cast" and not e.dtype.is_float:
        (x,) = e.operands
        return replace(x, dtype=e.dtype) if isinstance(x, Const) else e
    return e


def quantised_product(kernel: Kernel) -> QuantisedProduct | None:
    """The roles in a sum of products of f32 with block-quantised weights, stored as f32."""
    if len(kernel.stages) != 1 or kernel.cols or not kernel.axes or kernel.dtype != F32:
        return None
    (stage,) = kernel.stages
    if stage.op != "sum" or not _is(stage.value, "mul") or dtype_of(stage.value) != F32:
        return None
    a, weight = stage.value.args
    if not isinstance(a, Load):
        a, weight = weight, a
    parts = _parts(weight)
    if not isinstance(a, Load) or parts is None:
        return None
    quantum, zero, scale = parts
    layouts = {
        load: kernel.buffers[load.buffer].layout for load in walk(quantum) if isinstance(load, Load)
    }
    if len(layouts) != 1:
        return None
    ((col, layout),) = layouts.items()
    n = kernel.axes[-1]
    if not isinstance(layout, Blocks) or stride(kernel.store, n) != 1 or n in a.index.variables:
        return None
    extents = tuple(v.extent for v in stage.axes)
    k = Var("k", prod(extents))
    place = dict(zip(stage.axes, unflatten(index(k), extents), strict=True))
    a = a.at(a.index.substitute(place))
    if (
        a.dtype != F32
        or stride(a.index, k) != 1
        or (kernel.axes[:-1] and n not in col.index.variables)
    ):
        return None
    rows = row_axes(kernel, a, col)
    outer = tuple(v for v in kernel.axes[:-1] if v not in rows)
    column = col.at(col.index.substitute(place))
    operands = Operands(a, column, rows, n, outer, (k,))
    quantum, zero, scale = (e.substitute(place) for e in (quantum, zero, scale))
    word = 32 // layout.bits if layout.bits < 8 else 1
    return QuantisedProduct(operands, quantum, zero, scale, layout.size, word)


def _parts(weight: Expr) -> tuple[Expr, Expr, Expr] | None:
    """(quantum, zero, scale) of (quantum - zero) * scale"""
    if not _is(weight, "mul"):
        return None
    centred, scale = weight.args
    if _is(centred, "sub"):
        return (*centred.args, scale)  # type: ignore[return-value]
    return centred, Const(0.0, F32), scale


def _is(e: Expr, fn: str) -> bool:
    return isinstance(e, Call) and e.fn == fn
