"""Chains: a norm, the products that read its rows, and a gate, in one dispatch.

Input: consecutive kernels. Output: `Chain`, which gives them one list of buffers, and the rows that
its products read. These rows are either in memory, or each workgroup computes them.
joined/joints.py finds the chains of a plan; few_rows.py and few_rows_int8.py make their loops.

    norm, product       each group reduces whole rows, and computes elements where it uses them
    product, product    half of a group computes columns of the first product, the other half the
                        same columns of the second, which gets the first one's results through
                        shared memory
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, prod
from typing import TypeVar

from tilewright.base.abi import WORD_BYTES
from tilewright.base.dtypes import F32, DType
from tilewright.kernel.builder import Builder
from tilewright.kernel.expr import Acc, Expr, Load, Reg, dtype_of
from tilewright.kernel.index import Index, are_adjacent, index, is_multiple, unflatten
from tilewright.kernel.loops import Barrier
from tilewright.kernel.spec import Buffer, Kernel
from tilewright.kernel.tree import rewrite
from tilewright.targets.gpu.pointwise.reductions import reduce_stage
from tilewright.targets.gpu.product.schedule import FewRowsSchedule
from tilewright.targets.gpu.tile.addressing import Places, operands
from tilewright.targets.gpu.tile.staging import panel_of
from tilewright.targets.gpu.workgroup_limits import beyond
from tilewright.targets.vectors import LANES, in_lanes


@dataclass(frozen=True)
class Chain:
    """Kernels that share one list: the buffers of all of them, in order.

    products: one, or two of equal shape that read the same rows
    norm:     computes the rows; None: they are in memory
    output:   number of the buffer that the last product writes
    given:    number of the buffer through which the second product would read the first one's
              results; 0: it reads none
    """

    products: tuple[Kernel, ...]
    norm: Kernel | None = None
    output: int = 0
    given: int = 0

    @property
    def last(self) -> Kernel:
        return self.products[-1]

    @property
    def own_areas(self) -> int:
        """The number of shared areas for the norm: one with an element for each thread, or none.
        It is an area of its own, since several threads must not write to one vector."""
        return 1 if self.norm else 0

    @property
    def area(self) -> int:
        """The number of the first shared area after the norm's."""
        return len(self.last.buffers) + self.own_areas


def chained(products: Sequence[Kernel], norm: Kernel | None = None, given: int = 0) -> Chain:
    """A chain of kernels that number their buffers separately.  given: as the last kernel numbers
    it"""
    kernels = [norm, *products] if norm else list(products)
    buffers = tuple(buffer for kernel in kernels for buffer in kernel.buffers)
    moved, start = [], 0
    for kernel in kernels:
        moved.append(_moved(kernel, buffers, start))
        start += len(kernel.buffers)
    output = start - len(kernels[-1].buffers)
    first = 1 if norm else 0
    return Chain(
        tuple(moved[first:]), moved[0] if norm else None, output, output + given if given else 0
    )


def _moved(kernel: Kernel, buffers: tuple[Buffer, ...], start: int) -> Kernel:
    """The kernel on this common list of buffers, in which its own begin at number `start`."""

    def moved(e: Expr) -> Expr:
        return replace(e, buffer=e.buffer + start) if isinstance(e, Load) else e

    stages = tuple(replace(s, value=rewrite(s.value, moved)) for s in kernel.stages)
    return replace(kernel, stages=stages, value=rewrite(kernel.value, moved), buffers=buffers)


class OperandRows:
    """The row operand of products of few rows, read from memory."""

    def __init__(self, places: Places) -> None:
        self.places = places

    def make_ready(self, b: Builder) -> None:
        """Adds what all threads do before the first element is read."""

    def loads_vector(self, row: Index, step: Index) -> bool:
        """True if one vector load reads four steps, beginning at `step`."""
        ats = [self._at(row, step + n) for n in range(LANES)]
        return are_adjacent(ats) and is_multiple(ats[0], LANES)

    def read(self, row: int, step: Index, lanes: int = 1) -> Expr:
        """One step of a row, or four steps as a vector."""
        return Load(self.places.ops.row.buffer, self._at(index(row), step), F32, lanes)

    def _at(self, row: Index, step: Index) -> Index:
        return self.places.ops.row.index.substitute(self.places.row(row, step))


class ComputedRows(OperandRows):
    """Rows that a norm computes element by element, from the results of its reductions."""

    def __init__(self, places: Places, norm: Kernel) -> None:
        super().__init__(places)
        self.norm, (self.col,) = norm, norm.axes[len(norm.rows) :]
        #: For each row the expression of an element, with the reductions' results in registers.
        self.elements: list[Expr] = []

    def make_ready(self, b: Builder) -> None:
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


def rows_of(chain: Chain, places: Places) -> OperandRows:
    """The rows that a chain's products read.  places: those of its first product"""
    return OperandRows(places) if chain.norm is None else ComputedRows(places, chain.norm)


def _reduced(e: Expr, row: int) -> Expr:
    """The expression with the reductions' results in registers."""
    return rewrite(e, lambda x: _result(x.stage, row, x.dtype) if isinstance(x, Acc) else x)


def _result(stage: int, row: int, dtype: DType) -> Reg:
    return Reg(f"row{row}_r{stage}", dtype)


S = TypeVar("S", bound=FewRowsSchedule)


def for_chain(chain: Chain, schedule: S) -> S | None:
    """The schedule for the chain's products, each with whole panels; None if no such schedule
    fits."""
    ops, count = operands(chain.last), len(chain.products)
    schedule = replace(schedule, r0=min(schedule.r0, schedule.chained))
    least = count * max(LANES, panel_of(chain.last, ops))
    if count == 1:
        found = schedule
    else:
        # Each product has as many columns as it would have alone, so fewer groups reduce the row.
        y1 = ceil(schedule.y1 * count / least) * least
        slices = 1 << max(1, schedule.threads * LANES // y1).bit_length() - 1
        found = replace(schedule, y1=y1, slices=slices)
    even = not chain.norm or not found.threads & (found.threads - 1)
    shared = found.shared(chain.last) + WORD_BYTES * found.threads * chain.own_areas
    fits = even and not found.objection(chain.last) and not beyond(found.threads, shared)
    return found if fits else None
