"""Values in f16: copies for products that may round their operands, and weights stored as f16.

Input: kernels.  Output: for a product, the operand that is worth a copy in f16, the kernel that
makes the copy and the product that reads it; for attention, the kernel that may round its operands.
Only targets with f16 values in memory (`Facts.f16_memory`) use it; the gain is in
docs/decisions/0026-matrices-at-constant-places.md.

An f32 model that allows rounding to bytes gets such products, too
(docs/decisions/0053-rows-divided-by-their-largest.md).  f16 is exact enough for it, but its range
is too small: 65,520 is infinite.  So each row is divided by its largest magnitude:

    y = x @ w   ->   size = max over k of |x|;  x' = f16 of x / size;  y = (x' @ w) * size

A weight is stored as f16 only if every kernel that reads it allows f16 (`with_f16_weights`).  A
loop over its slices, or an output, reads it as f32, and then all kernels read it as f32.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from tilewright.base.dtypes import F32
from tilewright.graph.ops import Array
from tilewright.kernel.expr import Acc, Call, Const, Expr, Load
from tilewright.kernel.form import (
    Attention,
    QuantisedContraction,
    classify,
    form_as,
    product,
    rounds_to_f16,
)
from tilewright.kernel.index import Var, index
from tilewright.kernel.product_operands import Operands
from tilewright.kernel.spec import F16_VECTOR, Buffer, Kernel, Stage
from tilewright.kernel.tree import rewrite, walk
from tilewright.plan import Plan

#: The least rows and columns of a product for which the gain exceeds the cost of the copy.
LEAST_ROWS, LEAST_COLUMNS = 64, 1024


def operand_to_round(kernel: Kernel) -> int:
    """The number of the buffer that a product should read as f16; 0 if none."""
    ops = product(kernel)
    if ops is None or not rounds_to_f16(kernel):
        return 0
    return ops.row.buffer if is_worthwhile(kernel, ops) else 0


def is_worthwhile(kernel: Kernel, ops: Operands) -> bool:
    """True if a copy of the row operand can be made, and gains more than it costs."""
    number = ops.row.buffer
    values = (kernel.value, *(stage.value for stage in kernel.stages))
    reads = [x for v in values for x in walk(v) if isinstance(x, Load) and x.buffer == number]
    large = ops.m.extent >= LEAST_ROWS and ops.n.extent >= LEAST_COLUMNS
    buffer = kernel.buffers[number]
    fits = buffer.dtype == F32 and not buffer.as_f16 and buffer.size % F16_VECTOR == 0
    return large and fits and len(reads) == 1 and not kernel.extents


def reading_f16(kernel: Kernel, number: int) -> Kernel:
    """The product, but with buffer `number` stored as f16."""
    buffers = list(kernel.buffers)
    buffers[number] = replace(buffers[number], as_f16=True)
    return replace(kernel, buffers=tuple(buffers))


def rounding_of(size: int) -> Kernel:
    """The kernel that copies `size` numbers, a multiple of eight, as f16."""
    axis, source = Var("a", size), Buffer(F32, size)
    target, value = replace(source, as_f16=True), Load(1, index(axis), F32)
    return Kernel(f"round_{size}", (axis,), (), value, index(axis), (target, source))


def with_rounded_attention(kernel: Kernel) -> Kernel:
    """The kernel.  If it is attention, its queries, keys, values and probabilities may be rounded
    to f16."""
    form = classify(kernel)
    if not isinstance(form, Attention):
        return kernel
    buffers = list(kernel.buffers)
    for load in (form.q, form.k, form.v):
        buffers[load.buffer] = replace(buffers[load.buffer], loose="f16")
    return replace(kernel, buffers=tuple(buffers))


#: Reads begin at multiples of this number of elements: whole vectors of words.
APART = 8

#: A tensor's number, and its reader: a kernel and a buffer, or None.
_Read = tuple[int, tuple[int, int] | None]


def with_f16_weights(kernels: Sequence[Kernel], plans: Sequence[Plan]) -> tuple[Kernel, ...]:
    """The kernels, with `Buffer.as_f16` only where all readers of a tensor have it."""
    made = list(kernels)
    reads = {read for plan in plans for read in _reads(plan)}
    while True:
        wide = {t for t, who in reads if who is None or not made[who[0]].buffers[who[1]].as_f16}
        wrong = {who for t, who in reads if t in wide and who is not None}
        wrong = {(k, b) for k, b in wrong if made[k].buffers[b].as_f16}
        if not wrong:
            return tuple(made)
        for k, b in wrong:
            buffers = list(made[k].buffers)
            buffers[b] = replace(buffers[b], as_f16=False)
            made[k] = replace(made[k], buffers=tuple(buffers))


def _reads(plan: Plan) -> Iterator[_Read]:
    weights = {n: v.tensor for n, v in enumerate(plan.values) if v.kind == "weight"}
    for step in plan.steps:
        for buffer, access in enumerate(step.accesses):
            if access.value in weights:
                whole = access.offset % APART == 0
                yield weights[access.value], (step.kernel, buffer) if whole else None
    for number in plan.outputs:
        if number in weights:
            yield weights[number], None


#: Range of scales whose products with 4-bit integers are normal f16 numbers, and whose sums over a
#: block of steps, with rows of at most 1, stay far below the largest f16.
SCALES = (2.0**-14, 16.0)
#: The least size of a row, which a row of zeros gets.
TINY = 2.0**-100


def rows_to_divide(kernel: Kernel) -> int:
    """The number of the buffer that a product should read as f16 after its rows were divided; 0 if
    none.

    Such a product has 4-bit weights with f32 scales, and the model allows rounding to bytes.
    """
    form = classify(kernel)
    if not isinstance(form, QuantisedContraction) or rounds_to_f16(kernel):
        return 0
    ops, weights = form.operands, form.weights
    scales = [kernel.buffers[n] for n in weights.scales]
    loose = bool(scales) and all(b.dtype == F32 and b.loose == "i8" for b in scales)
    whole = all(not x.dtype.is_float for x in walk(weights.zero) if isinstance(x, Load))
    number, depth = ops.row.buffer, ops.steps
    dense = ops.row_step == depth and kernel.buffers[number].size == ops.m.extent * depth
    fits = loose and whole and weights.word > 1 and dense and not ops.outer
    return number if fits and depth % F16_VECTOR == 0 and is_worthwhile(kernel, ops) else 0


def fit_halves(scales: Array) -> bool:
    """True if f16 can represent weights with these scales (`SCALES`)."""
    sizes = np.abs(scales[scales != 0])
    least, most = SCALES
    return bool(((sizes >= least) & (sizes <= most)).all())


def of_divided_rows(kernel: Kernel) -> Kernel:
    """The product of divided rows in f16; its last operand multiplies the results by the sizes."""
    ops = form_as(kernel, QuantisedContraction).operands
    of_halves = reading_f16(kernel, ops.row.buffer)
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
    """The kernel that copies the rows of a product, divided by their sizes, as f16."""
    rows, depth = _shape(kernel)
    axis, source = Var("a", rows * depth), Buffer(F32, rows * depth)
    size = Load(2, index(axis) // depth, F32)
    value = Call("div", (Load(1, index(axis), F32), size), F32)
    buffers = (replace(source, as_f16=True), source, Buffer(F32, rows))
    return Kernel(f"divide_{rows}x{depth}", (axis,), (), value, index(axis), buffers)


def _shape(kernel: Kernel) -> tuple[int, int]:
    """Rows and steps of a product."""
    ops = form_as(kernel, QuantisedContraction).operands
    return ops.m.extent, ops.steps
