"""The roles of an integer contraction's operands: what its schedule and its lowering both ask.

Input: a kernel.  Output: `Operands`, or None where the operands are not packed in groups.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.base.dtypes import I8, I16, I32, U8
from tilewright.kernel.expr import Load, dtype_of
from tilewright.kernel.index import Index, Var, index
from tilewright.kernel.roles import Operands
from tilewright.kernel.spec import Kernel
from tilewright.kernel.vectorize import storable, stride
from tilewright.kernel.windows import windows

#: Bytes of a group, and columns of a panel: see graph/pack_dot.py.
GROUP = 4
PANEL = 8

#: Channels of a depthwise convolution whose taps are zipped together.
TAP_CHANNELS = 8

#: Weights up to this magnitude: two products with a byte, 2 * 64 * 255, stay within 16 bits.
PAIR_LIMIT = 64

_KINDS = {(U8, I8), (I16, I16)}


def dot_operands(kernel: Kernel) -> Operands | None:
    """The roles, or None if the kernel is no contraction of packed groups.

    `row` is one group, and a step of `depth` is one.
    """
    found = _factors(kernel)
    if found is None or len(kernel.stages[0].axes) < 1:
        return None
    n, group = kernel.axes[-1], kernel.stages[0].axes[-1]
    a, b = found
    if n in a.index.variables:
        a, b = b, a
    if n in a.index.variables or n not in b.index.variables or (a.dtype, b.dtype) not in _KINDS:
        return None
    size = GROUP // a.dtype.size
    if group.extent != size or stride(a.index, group) != 1 or stride(b.index, group) != 1:
        return None
    alone = a.index.variables - b.index.variables
    rows = tuple(v for v in kernel.axes[:-1] if v in alone and stride(a.index, v) is not None)
    depth = kernel.stages[0].axes[:-1]
    steady = all(stride(i.index, v) is not None for i in (a, b) for v in depth)
    if not steady or not _in_panels(b, n, size):
        return None
    outer = tuple(v for v in kernel.axes[:-1] if v not in rows)
    return Operands(replace(a, lanes=size), b, rows, n, outer, depth)


def _in_panels(b: Load, n: Var, size: int) -> bool:
    """The columns of a panel are neighbouring groups."""
    rest = {v: Index() for v in b.index.variables - {n}}
    ats = [b.index.substitute({**rest, n: index(i)}) for i in range(min(n.extent, PANEL))]
    return all(at == ats[0] + i * size for i, at in enumerate(ats))


def byte_windows(kernel: Kernel) -> Operands | None:
    """The roles in a depthwise convolution of bytes, or None: windows and their weights."""
    found = _factors(kernel)
    if found is None:
        return None
    n, depth = kernel.axes[-1], kernel.stages[0].axes
    a, b = found
    if (a.dtype, b.dtype) == (I8, U8):
        a, b = b, a
    whole = (a.dtype, b.dtype) == (U8, I8) and n.extent % 16 == 0
    if not whole or stride(a.index, n) != 1 or b.index.variables - {n, *depth}:
        return None
    fixed = {v: Index() for v in depth}
    if b.index.substitute(fixed) != index(n) * GROUP or not depth or windows(kernel) is None:
        return None
    return Operands(a, b, (), n, kernel.axes[:-1], depth)


def _factors(kernel: Kernel) -> tuple[Load, Load] | None:
    """The two loads of a sum of integer products that vectors can take."""
    if kernel.product is None or not kernel.axes or not storable(kernel.dtype):
        return None
    fits = dtype_of(kernel.stages[0].value) == I32 and stride(kernel.store, kernel.axes[-1]) == 1
    return kernel.product if fits else None


def pairs_fit(kernel: Kernel, ops: Operands) -> bool:
    """True if sums of two byte products stay within 16 bits."""
    limit = kernel.buffers[ops.col.buffer].limit
    return ops.col.dtype == I8 and 0 < limit <= PAIR_LIMIT
