"""Copies of values in f16, for products that may round their operands.

Input: kernels.  Output: which operand of a product is worth a copy as halves, the product that
reads such a copy, and the kernels that make it; attention that may round its operands.  Targets
without f16 values in memory do not ask (`Facts.halves`);
docs/decisions/0026-matrices-at-constant-places.md says what it brings.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.base.dtypes import F32
from tilewright.kernel.expr import Load
from tilewright.kernel.form import Attention, classify, in_halves, product
from tilewright.kernel.index import Var, index
from tilewright.kernel.roles import Operands
from tilewright.kernel.spec import EIGHT, Buffer, Kernel
from tilewright.kernel.tree import walk

#: Rows and columns of a product from which on it gains more than the copy costs.
LEAST_ROWS, LEAST_COLUMNS = 64, 1024


def operand_to_round(kernel: Kernel) -> int:
    """The number of the buffer that a product should read as halves; 0 if none."""
    ops = product(kernel)
    if ops is None or not in_halves(kernel):
        return 0
    return ops.row.buffer if pays(kernel, ops) else 0


def pays(kernel: Kernel, ops: Operands) -> bool:
    """Whether a copy of the row operand can be made, and gains more than it costs."""
    number = ops.row.buffer
    values = (kernel.value, *(stage.value for stage in kernel.stages))
    reads = [x for v in values for x in walk(v) if isinstance(x, Load) and x.buffer == number]
    large = ops.m.extent >= LEAST_ROWS and ops.n.extent >= LEAST_COLUMNS
    buffer = kernel.buffers[number]
    fits = buffer.dtype == F32 and not buffer.halves and buffer.size % EIGHT == 0
    return large and fits and len(reads) == 1 and not kernel.extents


def reading_halves(kernel: Kernel, number: int) -> Kernel:
    """The same product, of an operand that lies as halves."""
    buffers = list(kernel.buffers)
    buffers[number] = replace(buffers[number], halves=True)
    return replace(kernel, buffers=tuple(buffers))


def rounding_of(size: int) -> Kernel:
    """The kernel that copies so many numbers, a multiple of eight, as halves."""
    axis, source = Var("a", size), Buffer(F32, size)
    target, value = replace(source, halves=True), Load(1, index(axis), F32)
    return Kernel(f"round_{size}", (axis,), (), value, index(axis), (target, source))


def loosened(kernel: Kernel) -> Kernel:
    """The same kernel; if it is attention, one that may round its queries, keys, values and
    probabilities to f16."""
    form = classify(kernel)
    if not isinstance(form, Attention):
        return kernel
    buffers = list(kernel.buffers)
    for load in (form.q, form.k, form.v):
        buffers[load.buffer] = replace(buffers[load.buffer], loose="f16")
    return replace(kernel, buffers=tuple(buffers))
