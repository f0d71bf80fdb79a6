"""The end of a tile: partial results of several threads are combined, and results are stored.

Input: the sums of a thread in registers. Output: statements that combine them with those of other
threads, through shared memory or by exchange within a subgroup; statements that compute and store
four adjacent results of a product (its epilogue).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tilewright.base.dtypes import F32, I8, I32, U8
from tilewright.base.fast_records import computed
from tilewright.kernel.builder import Builder
from tilewright.kernel.expr import Acc, Bound, Call, Expr, Lane, Lanes, Load, Reg, ShuffleXor
from tilewright.kernel.index import Index
from tilewright.kernel.loops import Barrier
from tilewright.kernel.spec import Kernel
from tilewright.kernel.tree import rewrite
from tilewright.targets.gpu.tile.addressing import ProductIndices
from tilewright.targets.vectors import LANES, begins_whole_vectors

#: Types that are stored as whole vectors.
VECTORS = (F32, I32, U8, I8)


def reduce_slices(
    b: Builder,
    number: Index,
    slices: int,
    area: int,
    sums: Sequence[Reg],
    offset_of: Callable[[Index, int], Index],
    fan_in: int = 2,
) -> None:
    """Adds the sums of all slices into those of slice 0; one of every `fan_in` slices adds up the
    others' sums.

    number: of this thread's slice;  offset_of: the offset in the area of a slice's sum number i
    """
    count = slices
    while count > 1:
        first = count // min(fan_in, count)
        with b.only_if((Bound(number - first, count - first),)):
            for i, total in enumerate(sums):
                b.store(area, offset_of(number - first, i), total)
        b.add(Barrier())
        with b.only_if((Bound(number, first),)):
            for other in range(0, count - first, first):
                for i, total in enumerate(sums):
                    found = Load(area, offset_of(number + other, i), F32, total.lanes)
                    b.set(total.name, Call("add", (total, found), F32, total.lanes))
        count = first
        if count > 1:
            b.add(Barrier())


def reduce_by_shuffles(
    b: Builder, reg: Reg, other: str, op: Callable[[Expr, Expr], Expr], bits: int, end: int
) -> None:
    """Combines a register over threads of a subgroup whose numbers differ only in the bits from
    `bits` to below `end`.  other: the name of a register for the other threads' values"""
    while bits < end:
        b.set(other, ShuffleXor(reg, bits))
        b.set(reg.name, op(reg, Reg(other, reg.dtype)))
        bits *= 2


@dataclass(frozen=True)
class EpilogueStore:
    """Computes and stores four adjacent results, as a vector where memory allows it.

    output: number of the buffer
    forwarded: registers that replace the kernel's loads from a buffer, by its number
    """

    b: Builder
    kernel: Kernel
    indices: ProductIndices
    output: int = 0
    forwarded: Mapping[int, Reg] = field(default_factory=dict)

    @computed
    def stores_vectors(self) -> bool:
        """True if the output has whole vectors along the columns."""
        n = self.indices.ops.n
        return self.kernel.dtype in VECTORS and begins_whole_vectors(self.kernel.store, n)

    def put(self, row: Index, col: Index, total: Reg) -> None:
        """Stores four sums; nothing is stored beyond the ends."""
        ops, rest = self.indices.ops, self.indices.ops.n.extent % LANES
        ends = (Bound(row, ops.m.extent), Bound(col, ops.n.extent))
        if self.stores_vectors:
            whole = ops.n.extent - rest
            with self.b.only_if((ends[0], Bound(col, whole))):
                self.b.store(self.output, self._at(row, col), self.vector(row, col, total))
            if rest:
                with self.b.only_if((ends[0], Bound(col - whole, 1))):
                    value = self.vector(row, col, total, rest)
                    self.b.store(self.output, self._at(row, col), value, rest)
        elif not rest:
            with self.b.only_if(ends):
                for lane in range(LANES):
                    self._put_lane(row, col, total, lane)
        else:
            for lane in range(LANES):
                with self.b.only_if((ends[0], Bound(col + lane, ops.n.extent))):
                    self._put_lane(row, col, total, lane)

    def vector(self, row: Index, col: Index, total: Reg, count: int = LANES) -> Expr:
        """The values to store in four columns, the first `count` of which exist."""
        for lane in range(count):
            self.b.compute(f"o{lane}", self._value(total, lane, row, col))
        lanes = (min(lane, count - 1) for lane in range(LANES))
        return Lanes(tuple(Reg(f"o{lane}", self.kernel.dtype) for lane in lanes))

    def _put_lane(self, row: Index, col: Index, total: Reg, lane: int) -> None:
        self.b.store(self.output, self._at(row, col + lane), self._value(total, lane, row, col))

    def _at(self, row: Index, col: Index) -> Index:
        return self.kernel.store.substitute(self.indices.out(row, col))

    def _value(self, total: Reg, lane: int, row: Index, col: Index) -> Expr:
        def known(e: Expr) -> Expr:
            if isinstance(e, Load) and e.buffer in self.forwarded:
                return Lane(self.forwarded[e.buffer], lane)
            return Lane(total, lane) if isinstance(e, Acc) else e

        return rewrite(self.kernel.value, known, self.indices.out(row, col + lane))
