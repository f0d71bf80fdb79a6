"""The tile kernel: a pure statement of what one kernel computes, before any choice of how.

Input: an output domain, reductions over further axes, one scalar expression.  Output: `Kernel`,
hashable and serialisable.  It names no tile size, no loop order and no target.

    matmul + bias:  axes (m, n), stage r0 = sum over k of b1[m*K + k] * b2[k*N + n],
                    value r0 + b3[n]
    softmax row:    axes (row | col), r0 = max over j, r1 = sum over j of exp(x - r0),
                    value exp(x[row, col] - r0) / r1
    order row:      axes (row | col), r0 = order over i of b1[row*n + i], keeping col, value r0
    attention row:  axes (row | col), r0 = sum over d of q[row, d] * k[j, d], keeping j,
                    r1 = max over j of r0, r2 = sum over j of exp(r0 - r1) * v[j, col], keeping
                    col, r3 = sum over j of exp(r0 - r1), value r2 / r3
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import prod
from typing import NamedTuple

from tilewright.base.dtypes import BOOL, I32, I64, DType
from tilewright.base.errors import CompilerBug
from tilewright.base.fast_records import computed
from tilewright.base.scalars import REDUCTIONS, SCALARS
from tilewright.kernel.expr import Acc, Call, Expr, Load, dtype_of
from tilewright.kernel.index import Index, Var
from tilewright.kernel.layout import ROWS, Blocks, Layout, RowBlocks
from tilewright.kernel.tree import walk

#: Numbers up to this magnitude: two products with a byte, 2 * 64 * 255, stay within 16 bits.
PAIR_LIMIT = 64
#: Halves that are stored together: four whole words, so that two threads never write to one.
F16_VECTOR = 8


@dataclass(frozen=True)
class Buffer:
    """A region of memory that a kernel reads or writes: element type and number of elements.

    limit:  the largest magnitude of an element, if known (weights); 0 if not
    layout: the order of the elements of a packed operand
    as_f16: every value fits f16, or every reader rounds it to f16, so a target may store it as f16
    loose:  the type to which products with it may round their other operand: "f16" (as with
            `as_f16`), "i8", "tf32" (f32 with 10 bits of fraction), or "" for none
    compact: linear memories hold f16, too, which kernels of every target convert
    """

    dtype: DType
    size: int
    limit: int = 0
    layout: Layout = ROWS
    as_f16: bool = False
    loose: str = ""
    compact: bool = False

    @property
    def span(self) -> int:
        """Elements from the first to the last, those of other states between them included."""
        if not isinstance(self.layout, RowBlocks):
            return self.size
        return self.layout.span(self.size // self.layout.size)

    @property
    def run(self) -> int:
        """Elements that lie together.  Of states that grow, others' follow."""
        return self.layout.size if isinstance(self.layout, RowBlocks) else self.size


@dataclass(frozen=True)
class Stage:
    """One reduction: `op` ("sum", "max", "min", "prod") over `axes` of `value`.

    Or `op` is "order": it returns the indices of the k smallest values as I32, ascending, ties by
    first index; k is the length of the kept axis.

    `value` may use the results of earlier stages (`Acc`).  The result has one element for each
    point of the rows and of `keep`; an `Acc` reads the element at the current point.
    """

    op: str
    axes: tuple[Var, ...]
    value: Expr
    keep: tuple[Var, ...] = ()


class Limit(NamedTuple):
    """An axis that ends at run time, at `times` times the number `extent`.

    The axis itself is as long as it can be at most; elements beyond the end have no meaning.
    """

    axis: Var
    extent: Var
    times: int = 1


@dataclass(frozen=True)
class Kernel:
    """One kernel.

    axes:    the output domain; every point of it is written exactly once
    cols:    how many trailing axes no stage depends on, unless it keeps them (the "row" of
             softmax); 0 otherwise
    stages:  reductions, evaluated for each point of the leading axes (and of what they keep)
    value:   the stored scalar, over axes and stage results
    store:   element offset in the output, over axes
    buffers: number 0 is the output, then the inputs in the order of `Load.buffer`
    extents: run-time numbers that the kernel reads: variables that expressions may use (extents.py)
    limits:  the axes that end at run time
    """

    name: str
    axes: tuple[Var, ...]
    stages: tuple[Stage, ...]
    value: Expr
    store: Index
    buffers: tuple[Buffer, ...]
    cols: int = 0
    extents: tuple[Var, ...] = ()
    limits: tuple[Limit, ...] = ()

    def __hash__(self) -> int:
        return self._hash

    @computed
    def _hash(self) -> int:
        """A plan asks for it at every step, and it walks whole expressions."""
        return hash(tuple(self.__getstate__().values()))

    def __getstate__(self) -> dict[str, object]:
        """The fields alone: hashes of text differ from one process to the next."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def limit(self, axis: Var) -> Limit | None:
        """Where the axis ends at run time; None if it does not."""
        return next((limit for limit in self.limits if limit.axis == axis), None)

    @property
    def rows(self) -> tuple[Var, ...]:
        return self.axes[: len(self.axes) - self.cols]

    @property
    def dtype(self) -> DType:
        return self.buffers[0].dtype

    @computed
    def product(self) -> tuple[Load, Load] | None:
        """The two factors, if the only stage is a sum of products of two loads (widened or not)."""
        if len(self.stages) != 1 or self.stages[0].op != "sum" or self.cols:
            return None
        value = self.stages[0].value
        if isinstance(value, Call) and value.fn == "mul":
            a, b = (_uncast(x) for x in value.operands)
            if isinstance(a, Load) and isinstance(b, Load):
                return a, b
        return None

    @property
    def anchor(self) -> str:
        """The anchor of the kernel: "contract", "attention", "order", "rowwise", "reduce" or "map".

        For people and reports; its form (form.py) decides which strategy runs it.
        """
        if not self.stages:
            return "map"
        if self.stages[0].op == "order":
            return "order"
        if any(s.keep for s in self.stages):
            return "attention"
        if self.product is not None or any(isinstance(b.layout, Blocks) for b in self.buffers):
            return "contract"
        return "rowwise" if self.cols or len(self.stages) > 1 else "reduce"

    @computed
    def flops(self) -> int:
        """Scalar function calls per run; a multiply-accumulate counts as 2."""
        points = prod(v.extent for v in self.axes)
        rows = prod(v.extent for v in self.rows)
        total = points * _calls(self.value)
        for stage in self.stages:
            terms = prod(v.extent for v in (*stage.keep, *stage.axes))
            total += rows * terms * (_calls(stage.value) + 1)
        return total

    @computed
    def bytes(self) -> int:
        """Bytes of all buffers together: the least memory traffic."""
        return sum(b.size * b.dtype.size for b in self.buffers)


def _uncast(e: Expr) -> Expr:
    """Integers of 8 or 16 bits are factors of i32 products."""
    if isinstance(e, Call) and e.fn == "cast" and e.dtype == I32:
        inner = e.operands[0]
        return inner if dtype_of(inner).size < I32.size and dtype_of(inner) != BOOL else e
    return e


def _calls(e: Expr) -> int:
    return sum(isinstance(x, Call) for x in walk(e))


def check(kernel: Kernel) -> None:
    """Compares the invariants: buffers exist, variables are bound, functions are known, dtypes fit,
    stages come before use.

    Raises CompilerBug, as plan/ir.py does.
    """
    _check_domains(kernel)
    exprs = [s.value for s in kernel.stages] + [kernel.value]
    scopes = [{*s.axes, *s.keep} for s in kernel.stages] + [set(kernel.axes)]
    for position, e in enumerate(exprs):
        for node in walk(e):
            if isinstance(node, Load):
                _need(0 < node.buffer < len(kernel.buffers), kernel, node)
                _need(node.dtype == kernel.buffers[node.buffer].dtype, kernel, node)
            if isinstance(node, Call):
                known = SCALARS.get(node.fn)
                _need(known is not None and known.arity == len(node.operands), kernel, node)
            if isinstance(node, Acc):
                _need(0 <= node.stage < position, kernel, node)
                kept = kernel.stages[node.stage].keep
                _need(scopes[position].issuperset(kept), kernel, node)
    _need(dtype_of(kernel.value) == kernel.dtype, kernel, kernel.value)


def _check_domains(kernel: Kernel) -> None:
    """Variables of the kernel's expressions, the ends of its axes, and its buffers."""
    shared = {*kernel.extents}
    rows = {*kernel.rows, *shared}
    for stage in kernel.stages:
        ordered = stage.op == "order" and _is_order(kernel, stage)
        _need(ordered or stage.op in REDUCTIONS, kernel, stage.value)
        _need(stage.value.variables <= rows | {*stage.axes, *stage.keep}, kernel, stage.value)
    axes = {*kernel.axes, *shared}
    _need(kernel.value.variables <= axes, kernel, kernel.value)
    _need(kernel.store.variables <= axes, kernel, kernel.store)
    every = [*kernel.axes, *shared, *(v for s in kernel.stages for v in (*s.axes, *s.keep))]
    _need(all(v.extent > 0 for v in every), kernel, kernel.store)
    _need(kernel.buffers != () and all(b.size >= 0 for b in kernel.buffers), kernel, kernel.store)
    points = prod(v.extent for v in kernel.axes)
    _need(points <= kernel.buffers[0].size, kernel, kernel.store)
    _need(0 <= kernel.cols <= len(kernel.axes), kernel, kernel.store)
    _need(all(x.axis in every and x.extent in shared for x in kernel.limits), kernel, kernel.store)


def _is_order(kernel: Kernel, stage: Stage) -> bool:
    """True if the stage stands alone, and orders integers along an axis that is long enough."""
    one = len(kernel.stages) == len(stage.axes) == len(stage.keep) == 1
    along, kept = {*stage.axes}, {*stage.keep}
    return (
        one
        and dtype_of(stage.value) in (I32, I64)
        and stage.keep == kernel.axes[len(kernel.rows) :]
        and stage.keep[0].extent <= stage.axes[0].extent
        and kept.isdisjoint(stage.value.variables | along)
        and kernel.value == Acc(0, I32)
    )


def _need(holds: bool, kernel: Kernel, part: Expr | Index) -> None:
    if not holds:
        raise CompilerBug(f"part of a kernel does not fit it: {part}"[:300], kernel=kernel.name)


def render(kernel: Kernel) -> str:
    """The kernel as readable text; equal kernels give equal text."""

    def end(axis: Var) -> str:
        limit = kernel.limit(axis)
        times = f"*{limit.times}" if limit and limit.times > 1 else ""
        return f"{axis.extent}" if limit is None else f"{limit.extent}{times}<={axis.extent}"

    def domain(axes: tuple[Var, ...]) -> str:
        return " ".join(f"{v.name}<{end(v)}" for v in axes)

    split = domain(kernel.rows)
    if kernel.cols:
        split += " | " + domain(kernel.axes[len(kernel.axes) - kernel.cols :])
    lines = [f"kernel {kernel.name} ({kernel.anchor})  {split}".rstrip()]
    lines += [f"  b{i}: {b.dtype}[{b.size}]" for i, b in enumerate(kernel.buffers)]
    for i, s in enumerate(kernel.stages):
        kept = f" keeping {domain(s.keep)}" if s.keep else ""
        lines.append(f"  r{i} = {s.op} over {domain(s.axes)}{kept} of {s.value}")
    lines.append(f"  b0[{kernel.store}] = {kernel.value}")
    return "\n".join(lines)
