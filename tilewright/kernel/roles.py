"""The roles of a contraction's operands and axes: what its schedule and its lowering both ask.

Input: a kernel.  Output: `Operands`, or None for a kernel that no register tile suits.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tilewright.base.dtypes import F32
from tilewright.kernel.expr import Expr, Load
from tilewright.kernel.index import Mod, Var
from tilewright.kernel.spec import Kernel
from tilewright.kernel.vectorize import stride


@dataclass(frozen=True)
class Operands:
    """The roles of a contraction's loads and axes.

    `row`: read as splats, does not depend on `n`.  `col`: read as vectors along `n`.
    `rows`: the axes that only the row operand follows, as the pixels of an image do; `m` is one
    axis over all of them, row-major.  `outer`: all other output axes.  `depth`: the summed axes,
    the innermost last.
    """

    row: Load
    col: Load
    rows: tuple[Var, ...]
    n: Var
    outer: tuple[Var, ...]
    depth: tuple[Var, ...]

    @property
    def m(self) -> Var:
        """The rows as one axis (extent 1 if there is none)."""
        return self.rows[0] if len(self.rows) == 1 else Var("m", prod(v.extent for v in self.rows))

    @property
    def row_step(self) -> int | None:
        """How far the row operand moves from row to row; None if that is not constant."""
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
    def panel(self) -> int:
        """Columns that lie together where the column operand is packed in panels; otherwise 1."""
        atoms = [atom for atom, by in self.col.index.terms if by == 1 and isinstance(atom, Mod)]
        return next((a.by for a in atoms if a.value.terms == ((self.n, 1),)), 1)

    @property
    def runs_along_depth(self) -> bool:
        """True if both operands lie contiguously along the innermost summed axis, row by row."""
        operands = (self.row, self.col)
        if not self.depth or self.row_step is None:
            return False
        return all(stride(o.index, self.depth[-1]) == 1 for o in operands)


@dataclass(frozen=True)
class Attention:
    """The roles of an attention's loads, axes and stages.

    `m`: the axis of the query rows (extent 1 if there is none).  `outer`: heads and batches.
    `argument`: what softmax is applied to, an expression over `Acc(scores)`.
    `scores`, `context`, `total`: numbers of the stages q·k, probabilities·v and their sum.
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


def attention(kernel: Kernel) -> Attention | None:
    """The roles, or None if the kernel is no attention."""
    if kernel.anchor != "attention":
        return None
    (n,) = kernel.axes[-kernel.cols :]
    numbers = {
        "context" if s.keep == (n,) else "scores" if s.keep else s.op: i
        for i, s in enumerate(kernel.stages)
    }
    scores, context, top = (kernel.stages[numbers[c]] for c in ("scores", "context", "max"))
    (keys,), (depth,) = scores.keep, scores.axes
    loads = [x for s in (scores, context) for x in s.value.args if isinstance(x, Load)]
    assert len(loads) == 3, f"{kernel.name}: operands of an attention lie in memory"
    q, k, v = (loads[1], loads[0], loads[2]) if keys in loads[0].index.variables else loads
    fixed = k.index.variables | v.index.variables
    rows = [r for r in kernel.rows if r not in fixed and stride(q.index, r)]
    m = max(rows, key=lambda r: r.extent, default=Var("one", 1))
    outer = tuple(r for r in kernel.rows if r != m)
    stages = (numbers["scores"], numbers["context"], numbers["sum"])
    return Attention(q, k, v, m, n, keys, depth, outer, top.value, *stages)


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
    alone = a.index.variables - b.index.variables
    rows = tuple(v for v in kernel.axes[:-1] if v in alone and stride(a.index, v) is not None)
    # inside a register tile, operands move by constant strides
    depth = kernel.stages[0].axes
    if any(stride(i.index, v) is None for i in (a, b) for v in depth):
        return None
    return Operands(a, b, rows, n, tuple(v for v in kernel.axes[:-1] if v not in rows), depth)
