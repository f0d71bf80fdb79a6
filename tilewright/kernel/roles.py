"""The roles of a contraction's operands and axes: what its schedule and its lowering both ask.

Input: a kernel.  Output: `Operands`, or None for a kernel that no register tile suits.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.base.dtypes import F32
from tilewright.kernel.expr import Load
from tilewright.kernel.index import Var
from tilewright.kernel.spec import Kernel
from tilewright.kernel.vectorize import stride


@dataclass(frozen=True)
class Operands:
    """The roles of a contraction's loads and axes.

    `row`: read as splats, does not depend on `n`.  `col`: read as vectors along `n`.
    `m`: the row axis (extent 1 if there is none).  `outer`: all other output axes.
    """

    row: Load
    col: Load
    m: Var
    n: Var
    outer: tuple[Var, ...]


def operands(kernel: Kernel) -> Operands | None:
    """The roles, or None if the kernel is no contraction that register tiles suit."""
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
    m = next(
        (v for v in reversed(kernel.axes[:-1]) if v in a.index.variables - b.index.variables),
        Var("one", 1),
    )
    # inside a register tile, operands move by constant strides
    depth = kernel.stages[0].axes
    if any(stride(a.index, v) is None for v in (m, *depth)):
        return None
    if any(stride(b.index, v) is None for v in depth):
        return None
    return Operands(a, b, m, n, tuple(v for v in kernel.axes[:-1] if v != m))
