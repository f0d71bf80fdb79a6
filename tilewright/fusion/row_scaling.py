"""f16 products for f32 models that allow rounding to bytes: rows are divided by their maximum.

Input: kernels.  Output: which operand of a product is worth such a copy, the product that reads it,
and the kernels that make it (docs/decisions/0053-rows-divided-by-their-largest.md).  f16 is exact
enough there, but too narrow: 65,520 is infinite.  So each row is divided by its largest number:

    y = x @ w   ->   size = max over k of |x|;  x' = halves of x / size;  y = (x' @ w) * size
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright.base.dtypes import F32
from tilewright.fusion.f16_operands import pays, reading_halves
from tilewright.graph.ops import Array
from tilewright.kernel.expr import Acc, Call, Const, Expr, Load
from tilewright.kernel.form import BlockContraction, classify, form_as, in_halves
from tilewright.kernel.index import Var, index
from tilewright.kernel.spec import EIGHT, Buffer, Kernel, Stage
from tilewright.kernel.tree import rewrite, walk

#: Scales whose products with integers of 4 bits are normal numbers of f16, and whose sums over a
#: block of steps with rows of at most 1 stay far below its largest.
SCALES = (2.0**-14, 16.0)
#: The least size of a row; a row of zeros has it.
TINY = 2.0**-100


def rows_to_divide(kernel: Kernel) -> int:
    """The number of the buffer that a product should read as halves of each row's share of its
    largest number; 0 if none: weights of 4 bits, scales of f32, and a model that allows bytes."""
    form = classify(kernel)
    if not isinstance(form, BlockContraction) or in_halves(kernel):
        return 0
    ops, weights = form.operands, form.weights
    scales = [kernel.buffers[n] for n in weights.scales]
    loose = bool(scales) and all(b.dtype == F32 and b.loose == "i8" for b in scales)
    whole = all(not x.dtype.is_float for x in walk(weights.zero) if isinstance(x, Load))
    number, depth = ops.row.buffer, ops.steps
    dense = ops.row_step == depth and kernel.buffers[number].size == ops.m.extent * depth
    fits = loose and whole and weights.word > 1 and dense and not ops.outer
    return number if fits and depth % EIGHT == 0 and pays(kernel, ops) else 0


def fit_halves(scales: Array) -> bool:
    """Whether weights with these scales can be halves, too (`SCALES`)."""
    sizes = np.abs(scales[scales != 0])
    least, most = SCALES
    return bool(((sizes >= least) & (sizes <= most)).all())


def of_divided_rows(kernel: Kernel) -> Kernel:
    """The product of such rows, as halves, which the last of its operands multiplies again."""
    ops = form_as(kernel, BlockContraction).operands
    of_halves = reading_halves(kernel, ops.row.buffer)
    size = Load(len(kernel.buffers), index(ops.m), F32)

    def scaled(e: Expr) -> Expr:
        return Call("mul", (e, size), F32) if isinstance(e, Acc) else e

    value = rewrite(kernel.value, scaled)
    return replace(of_halves, value=value, buffers=(*of_halves.buffers, Buffer(F32, ops.m.extent)))


def sizes_of_rows(kernel: Kernel) -> Kernel:
    """The kernel that finds the largest magnitude of each row of a product."""
    rows, depth = _shape(kernel)
    m, k = Var("m", rows), Var("k", depth)
    number = Call("abs", (Load(1, index(m) * depth + index(k), F32),), F32)
    value = Call("max", (Acc(0, F32), Const(TINY, F32)), F32)
    stages = (Stage("max", (k,), number),)
    buffers = (Buffer(F32, rows), Buffer(F32, rows * depth))
    return Kernel(f"sizes_{rows}x{depth}", (m,), stages, value, index(m), buffers)


def dividing_rows(kernel: Kernel) -> Kernel:
    """The kernel that copies the rows of a product, divided by their sizes, as halves."""
    rows, depth = _shape(kernel)
    axis, source = Var("a", rows * depth), Buffer(F32, rows * depth)
    size = Load(2, index(axis) // depth, F32)
    value = Call("div", (Load(1, index(axis), F32), size), F32)
    buffers = (replace(source, halves=True), source, Buffer(F32, rows))
    return Kernel(f"divide_{rows}x{depth}", (axis,), (), value, index(axis), buffers)


def _shape(kernel: Kernel) -> tuple[int, int]:
    """Rows and steps of a product."""
    ops = form_as(kernel, BlockContraction).operands
    return ops.m.extent, ops.steps
