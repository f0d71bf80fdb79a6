"""The roles of a product's operands and axes, of f32 and of packed bytes.

Input: a kernel.  Output: `Operands`, or None if the operands are not stored as that kind of product
needs.  `form.py` calls this module; all others call `form.classify`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tilewright.base.dtypes import F32, I8, I16, I32, U8
from tilewright.kernel.expr import Load, dtype_of
from tilewright.kernel.index import Index, Var, index, stride
from tilewright.kernel.layout import Groups, Panels, Taps
from tilewright.kernel.spec import PAIR_LIMIT, Kernel

_KINDS = {(U8, I8), (I16, I16)}


@dataclass(frozen=True)
class Operands:
    """The roles of a product's loads and axes.

    `row`: does not depend on `n`.  `col`: follows `n`.
    `rows`: the axes that only the row operand follows, as the pixels of an image do; `m` is one
    axis over all of them, row-major.  `outer`: all other output axes.  `depth`: the summed axes,
    the innermost last.  `panel`: columns that lie together where the column operand is packed in
    several panels; otherwise 1.
    """

    row: Load
    col: Load
    rows: tuple[Var, ...]
    n: Var
    outer: tuple[Var, ...]
    depth: tuple[Var, ...]
    panel: int = 1

    @property
    def m(self) -> Var:
        """The rows as one axis (extent 1 if there is none)."""
        return self.rows[0] if len(self.rows) == 1 else Var("m", prod(v.extent for v in self.rows))

    @property
    def row_step(self) -> int | None:
        """The distance in elements between rows of the row operand; None if that is not
        constant."""
        return (stride(self.row.index, self.m) or 0) if len(self.rows) < 2 else None

    @property
    def steps(self) -> int:
        """Multiply-accumulates per sum."""
        return prod(v.extent for v in self.depth)

    @property
    def col_step(self) -> int | None:
        """How far the column operand moves from column to column; None for panels and tables."""
        return stride(self.col.index, self.n)

    @property
    def runs_along_depth(self) -> bool:
        """True if both operands are contiguous along the innermost summed axis, in each row."""
        operands = (self.row, self.col)
        if not self.depth or self.row_step is None:
            return False
        return all(stride(o.index, self.depth[-1]) == 1 for o in operands)


def float_operands(kernel: Kernel) -> Operands | None:
    """The roles in a sum of products of f32 that is stored as f32."""
    if kernel.product is None or kernel.dtype != F32 or not kernel.axes:
        return None
    n = kernel.axes[-1]
    a, b = kernel.product
    if a.dtype != F32 or b.dtype != F32:
        return None
    dependent = [n in load.index.variables for load in (a, b)]
    if dependent == [True, False]:
        a, b = b, a
    if sum(dependent) != 1 or stride(kernel.store, n) != 1:
        return None
    # from step to step, operands move by constant strides
    depth = kernel.stages[0].axes
    if any(stride(i.index, v) is None for i in (a, b) for v in depth):
        return None
    rows = row_axes(kernel, a, b)
    outer = tuple(v for v in kernel.axes[:-1] if v not in rows)
    layout = kernel.buffers[b.buffer].layout
    panel = layout.width if isinstance(layout, Panels) and n.extent > layout.width else 1
    return Operands(a, b, rows, n, outer, depth, panel)


def integer_operands(kernel: Kernel) -> Operands | None:
    """The roles in a sum of products of integers that are packed in groups.

    `row` and `col` point to whole groups: a step of `depth` is one.
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
    layout = kernel.buffers[b.buffer].layout
    if not isinstance(layout, Groups):
        return None
    size = layout.bytes // a.dtype.size
    if group.extent != size or stride(a.index, group) != 1 or stride(b.index, group) != 1:
        return None
    depth = kernel.stages[0].axes[:-1]
    steady = all(stride(i.index, v) is not None for i in (a, b) for v in depth)
    if not steady or not _in_panels(b, n, layout.width, size):
        return None
    rows = row_axes(kernel, a, b)
    outer = tuple(v for v in kernel.axes[:-1] if v not in rows)
    return Operands(a, b, rows, n, outer, depth)


def depthwise_operands(kernel: Kernel) -> Operands | None:
    """The roles in a depthwise convolution of bytes: windows, and weights packed in groups."""
    found = _factors(kernel)
    if found is None:
        return None
    n, depth = kernel.axes[-1], kernel.stages[0].axes
    a, b = found
    if (a.dtype, b.dtype) == (I8, U8):
        a, b = b, a
    bytewise = (a.dtype, b.dtype) == (U8, I8)
    if not bytewise or stride(a.index, n) != 1 or b.index.variables - {n, *depth}:
        return None
    layout, first = kernel.buffers[b.buffer].layout, {v: Index() for v in depth}
    if not isinstance(layout, Taps) or not depth:
        return None
    if b.index.substitute(first) != index(n) * layout.bytes:
        return None
    return Operands(a, b, (), n, kernel.axes[:-1], depth)


def narrow(kernel: Kernel, roles: Operands) -> bool:
    """True if sums of two byte products stay within 16 bits."""
    limit = kernel.buffers[roles.col.buffer].limit
    return roles.col.dtype == I8 and 0 < limit <= PAIR_LIMIT


def row_axes(kernel: Kernel, a: Load, b: Load) -> tuple[Var, ...]:
    """The output axes that only the row operand follows, by constant steps."""
    alone = a.index.variables - b.index.variables
    return tuple(v for v in kernel.axes[:-1] if v in alone and stride(a.index, v) is not None)


def _in_panels(b: Load, n: Var, width: int, size: int) -> bool:
    """The columns of a panel are neighbouring groups, wherever the other axes are."""
    ats = [b.index.substitute({n: index(i)}) for i in range(min(n.extent, width))]
    return all(at == ats[0] + i * size for i, at in enumerate(ats))


def _factors(kernel: Kernel) -> tuple[Load, Load] | None:
    """The two loads of a sum of integer products in 32 bits, stored along memory."""
    if kernel.product is None or not kernel.axes or dtype_of(kernel.stages[0].value) != I32:
        return None
    return kernel.product if stride(kernel.store, kernel.axes[-1]) == 1 else None
