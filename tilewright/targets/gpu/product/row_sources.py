"""The rows that products of few rows read: from memory, or computed by a norm as they are read.

Input: a chain (chains.py). Output: `OperandRows`, which reads elements of the rows and adds what
    the norm needs before, between and after the products. few_rows.py and few_rows_int8.py use it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from math import prod

from tilewright.base.dtypes import F32, DType
from tilewright.kernel.builder import Builder, Values
from tilewright.kernel.expr import (
    Acc,
    Bound,
    Call,
    Const,
    Expr,
    Lane,
    Load,
    Reg,
    Splat,
    dtype_of,
    identity,
)
from tilewright.kernel.index import Index, Var, are_adjacent, index, is_multiple, unflatten
from tilewright.kernel.loops import Barrier
from tilewright.kernel.spec import Kernel
from tilewright.kernel.tree import rewrite, walk
from tilewright.targets.gpu.pointwise.reductions import reduce_stage
from tilewright.targets.gpu.product.chains import Chain
from tilewright.targets.gpu.tile.addressing import ProductIndices
from tilewright.targets.vectors import LANES, are_whole_vectors, guarded, in_lanes


class OperandRows:
    """The row operand of products of few rows, read from memory."""

    def __init__(self, indices: ProductIndices) -> None:
        self.indices = indices

    def prepare_rows(self, b: Builder) -> None:
        """Adds what all threads do before the first element is read."""

    def loads_vector(self, row: Index, step: Index) -> bool:
        """True if one vector load reads four steps, beginning at `step`."""
        ats = [self._at(row, step + n) for n in range(LANES)]
        return are_adjacent(ats) and is_multiple(ats[0], LANES)

    def read(self, row: int, step: Index, lanes: int = 1) -> Expr:
        """One step of a row, or four steps as a vector."""
        return Load(self.indices.ops.row.buffer, self._at(index(row), step), F32, lanes)

    def note_read(self, b: Builder, row: int, step: Index) -> None:
        """Notes that this thread reads four steps of a row, from `step` on; it alone reads them."""

    def store_terms(self, b: Builder) -> None:
        """Adds what each thread does when it has read its steps, before a barrier."""

    def combine_terms(self, b: Builder, slices: int) -> None:
        """Adds what all threads do after that barrier, and before sums of slices are added up."""

    def scale_sums(self, b: Builder, having: tuple[Bound, ...], sums: Sequence[Reg]) -> None:
        """Changes the final sums, one of each row, to those of the rows' true elements.  having:
        holds in the threads that have the sums"""

    def _at(self, row: Index, step: Index) -> Index:
        return self.indices.ops.row.index.substitute(self.indices.row(row, step))


class ComputedRows(OperandRows):
    """Rows that a norm computes element by element, from the results of its reductions."""

    def __init__(self, indices: ProductIndices, norm: Kernel) -> None:
        super().__init__(indices)
        self.norm, (self.col,) = norm, norm.axes[len(norm.rows) :]
        #: For each row the expression of an element, with the reductions' results in registers.
        self.elements: list[Expr] = []

    def prepare_rows(self, b: Builder) -> None:
        area, shape = len(self.norm.buffers), tuple(v.extent for v in self.norm.rows)
        for row in range(prod(shape)):
            at = dict(zip(self.norm.rows, unflatten(index(row), shape), strict=True))
            for n, stage in enumerate(self.norm.stages):
                own = replace(stage, value=_reduced(stage.value, row).substitute(at))
                reduce_stage(b, own, stage.axes, _result(n, row, dtype_of(own.value)), area, at)
                b.add(Barrier())
            element = _reduced(self.norm.value, row).substitute(at)
            self.elements.append(b.hoist(element, frozenset({self.col}), lambda e: e))

    def read(self, row: int, step: Index, lanes: int = 1) -> Expr:
        element, at = self.elements[row], {self.col: step}
        if lanes == 1:
            return element.substitute(at)
        return in_lanes(element, lambda x: replace(x, index=x.index.substitute(at), lanes=lanes))


class ScaledRows(OperandRows):
    """Rows of a norm without the factor that all elements of a row share, such as 1 / the root of
    their mean square.

    The factor depends on one sum over the row.  Each thread adds up the terms of the elements that
    it reads, and the factor is applied to the products' final sums: nothing waits for it.
    element, factor: as the norm's kernel has them, with the sum as its result
    """

    def __init__(self, indices: ProductIndices, norm: Kernel, element: Expr, factor: Expr) -> None:
        super().__init__(indices)
        self.norm, self.element, self.factor = norm, element, factor
        (self.stage,), (self.col,) = norm.stages, norm.axes[len(norm.rows) :]
        self.shape = tuple(v.extent for v in norm.rows)

    @staticmethod
    def of(indices: ProductIndices, norm: Kernel) -> ScaledRows | None:
        """None for a norm that has no such factor."""
        stages, cols = norm.stages, norm.axes[len(norm.rows) :]
        if len(stages) != 1 or stages[0].op != "sum" or dtype_of(stages[0].value) != F32:
            return None
        own, shared = list[Expr](), list[Expr]()
        for factor in _factors(norm.value, cols[0]):
            (own if cols[0] in factor.variables else shared).append(factor)
        if not own or not shared or any(isinstance(e, Acc) for f in own for e in walk(f)):
            return None
        (stage,), element = stages, _product(own)
        axes = (element, cols[0]), (stage.value, stage.axes[0])
        whole = all(
            are_whole_vectors(e.index, axis)
            for value, axis in axes
            for e in walk(value)
            if isinstance(e, Load)
        )
        return ScaledRows(indices, norm, element, _product(shared)) if whole else None

    def prepare_rows(self, b: Builder) -> None:
        for row in range(prod(self.shape)):
            b.set(_terms(row).name, identity("sum", F32, LANES))

    def read(self, row: int, step: Index, lanes: int = 1) -> Expr:
        return self._at_step(self.element, row, {self.col: step}, lanes)

    def note_read(self, b: Builder, row: int, step: Index) -> None:
        terms, (axis,) = _terms(row), self.stage.axes
        four = self._at_step(self.stage.value, row, {axis: step}, LANES)
        ends = (Bound(step, axis.extent),)
        b.set(terms.name, Call("add", (terms, guarded(four, ends)), F32, LANES))

    def store_terms(self, b: Builder) -> None:
        for row in range(prod(self.shape)):
            b.store(self._area(row), b.thread, _sum_of_lanes(_terms(row)))

    def combine_terms(self, b: Builder, slices: int) -> None:
        """Adds up to the terms of the first threads those of the others."""
        parts, part = self._parts(b), Reg("part", F32)
        with b.only_if((Bound(b.thread, parts),)):
            for row in range(prod(self.shape)):
                b.set(part.name, Load(self._area(row), b.thread, F32))
                for n in range(1, b.threads // parts):
                    other = Load(self._area(row), b.thread + n * parts, F32)
                    b.set(part.name, Call("add", (part, other), F32))
                b.store(self._area(row), b.thread, part)
        if slices == 1:
            b.add(Barrier())

    def scale_sums(self, b: Builder, having: tuple[Bound, ...], sums: Sequence[Reg]) -> None:
        with b.only_if(having):
            for row, total in enumerate(sums):
                result, factor = _result(0, row, F32), Reg("factor", F32)
                for n in range(self._parts(b)):
                    part = Load(self._area(row), index(n), F32)
                    b.set(result.name, Call("add", (result, part), F32) if n else part)
                b.set(factor.name, _reduced(self.factor, row).substitute(self._values(row)))
                b.set(total.name, Call("mul", (total, Splat(factor, LANES)), F32, LANES))

    def _at_step(self, e: Expr, row: int, at: Values, lanes: int) -> Expr:
        here = e.substitute(self._values(row))
        if lanes == 1:
            return here.substitute(at)
        return in_lanes(here, lambda x: replace(x, index=x.index.substitute(at), lanes=lanes))

    def _values(self, row: int) -> Values:
        return dict(zip(self.norm.rows, unflatten(index(row), self.shape), strict=True))

    def _area(self, row: int) -> int:
        return len(self.norm.buffers) + row

    @staticmethod
    def _parts(b: Builder) -> int:
        """The number of threads that add up the terms of all: about the root of their number."""
        return 1 << (b.threads.bit_length() - 1) // 2


def _factors(e: Expr, col: Var) -> Iterator[Expr]:
    """The factors of a product; a quotient by what all columns share is one, too."""
    match e:
        case Call("mul", (a, c)):
            yield from _factors(a, col)
            yield from _factors(c, col)
        case Call("div", (a, c)) if col not in c.variables and col in a.variables:
            yield from _factors(a, col)
            yield Call("div", (Const(1.0, F32), c), F32)
        case _:
            yield e


def _product(factors: Sequence[Expr]) -> Expr:
    return reduce(lambda a, c: Call("mul", (a, c), F32), factors)


def _terms(row: int) -> Reg:
    """This thread's terms of the sum over a row."""
    return Reg(f"row{row}_terms", F32, LANES)


def _sum_of_lanes(four: Reg) -> Expr:
    a, c, d, e = (Lane(four, n) for n in range(LANES))
    return Call("add", (Call("add", (a, c), F32), Call("add", (d, e), F32)), F32)


def scaled_rows_of(chain: Chain, indices: ProductIndices) -> OperandRows:
    """The rows that a chain's products read, up to a factor that they apply at the end."""
    scaled = ScaledRows.of(indices, chain.norm) if chain.norm else None
    return scaled or rows_of(chain, indices)


def rows_of(chain: Chain, indices: ProductIndices) -> OperandRows:
    """The rows that a chain's products read.  indices: those of its first product"""
    return OperandRows(indices) if chain.norm is None else ComputedRows(indices, chain.norm)


def _reduced(e: Expr, row: int) -> Expr:
    """The expression with the reductions' results in registers."""
    return rewrite(e, lambda x: _result(x.stage, row, x.dtype) if isinstance(x, Acc) else x)


def _result(stage: int, row: int, dtype: DType) -> Reg:
    return Reg(f"row{row}_r{stage}", dtype)
