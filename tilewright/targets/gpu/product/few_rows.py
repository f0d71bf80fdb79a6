"""Products of few rows (GEMV and the like): threads of a workgroup split the reduction.

Input: a contraction with fewer rows than a tile has, and a schedule. Output: the loop nest of one
tile, which is some columns. The time to read the columns bounds such products. Each thread has 4
columns, all rows and every `slices`-th step. At the end the partial sums of the slices are added up
in shared memory, half of the slices at a time (a tree reduction).

    tile (y1 columns):
        for every slices-th step:  sums of each row += row * 4 columns
        the upper half of slices:  shared := sums;  barrier;  the lower half:  sums += shared;  …
        slice 0 stores
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import ceil, prod

from tilewright.base.dtypes import F32
from tilewright.kernel.builder import Builder
from tilewright.kernel.expr import Bound, Call, Expr, Lane, Load, Reg, Splat, identity
from tilewright.kernel.index import Index, index, unflatten
from tilewright.kernel.loops import Barrier, Scratch, TileFn
from tilewright.kernel.spec import Kernel
from tilewright.targets.gpu.product.chains import Chain
from tilewright.targets.gpu.product.row_sources import OperandRows, rows_of
from tilewright.targets.gpu.product.schedule import FewRowsSchedule
from tilewright.targets.gpu.tile.addressing import ProductIndices, operands
from tilewright.targets.gpu.tile.epilogue import EpilogueStore, reduce_slices
from tilewright.targets.gpu.tile.staging import StagedOperand, column_operand
from tilewright.targets.vectors import LANES, guarded


def column_operand_alone(kernel: Kernel) -> StagedOperand:
    """The column operand outside a tile, to query its memory layout."""
    ops = operands(kernel)
    return _column_operand(
        Builder({}, 1, kernel), kernel, ProductIndices(ops, {v: index(v) for v in ops.outer})
    )


def _column_operand(
    b: Builder, kernel: Kernel, indices: ProductIndices, width: int = LANES
) -> StagedOperand:
    """The column operand of a tile: vectors of `width` columns."""
    ops = indices.ops
    operand_tile = indices.columns(width, Index(), 0)
    return column_operand(b, kernel, ops, operand_tile, widest=ops.n.extent)


class FewRowsTile:
    """One tile of a chain: the columns of this thread, their sums and the final stores.

    The products have equal parts of the y1 columns, and the same column numbers.
    rows:  how the chain's rows are read
    product_number: of the product whose columns this thread has
    part: its slice;  col: its first column;  column_offset: the offset of that column in the tile
    """

    def __init__(
        self,
        chain: Chain,
        s: FewRowsSchedule,
        rows: Callable[[Chain, ProductIndices], OperandRows] = rows_of,
    ) -> None:
        self.chain, self.s = chain, s
        kernels, every = chain.products, [operands(kernel) for kernel in chain.products]
        ops, self.width = every[0], s.y1 // len(every)
        outer = tuple(v.extent for v in ops.outer)
        cols, self.rows = ceil(ops.n.extent / self.width), range(ops.m.extent)
        self.b = b = Builder({}, prod(outer) * cols, chain.last, s.threads)
        *others, tile = unflatten(b.tile, (*outer, cols))
        self.indices = [
            ProductIndices(own, dict(zip(own.outer, others, strict=True))) for own in every
        ]
        self.column_operands = [
            _column_operand(b, kernel, indices, self.width)
            for kernel, indices in zip(kernels, self.indices, strict=True)
        ]
        self.input = rows(chain, self.indices[0])
        # Neighbouring threads read adjacent vectors: those of a panel, then its next steps.
        run = self.column_operands[0].layout.run
        shape = (len(every), self.width // LANES // run, s.slices, run)
        product_number, major, part, unit = unflatten(b.thread, shape)
        self.product_number, own = b.let(product_number, "which"), b.let(major * run + unit, "t")
        self.part, self.column_offset = (
            b.let(part, "t"),
            self.product_number * self.width + own * LANES,
        )
        self.col = b.let(tile * self.width + own * LANES, "col")
        for i in self.rows:
            b.set(total(i).name, identity("sum", F32, LANES))

    @property
    def columns(self) -> StagedOperand:
        """The first product's columns; all products' columns have the same layout."""
        return self.column_operands[0]

    def by_product(self) -> Iterator[StagedOperand]:
        """The columns of each product, in turn.  Statements added meanwhile run only in its
        threads."""
        for n, columns in enumerate(self.column_operands):
            with self.b.only_if(self._computing(n)):
                yield columns

    def _computing(self, number: int) -> tuple[Bound, ...]:
        return (Bound(self.product_number - number, 1),)

    def finish(self, *areas: Scratch) -> TileFn:
        """Adds up the slices in an area after these; then slice 0 stores."""
        b, s, chain, count = self.b, self.s, self.chain, len(self.rows)
        area, first, last = (
            chain.area + len(areas),
            (Bound(self.part, 1),),
            len(self.column_operands) - 1,
        )

        def place(number: Index, i: int) -> Index:
            return (number * count + i) * s.y1 + self.column_offset

        sums = [total(i) for i in self.rows]
        self.input.combine_terms(b, s.slices)
        reduce_slices(b, self.part, s.slices, area, sums, place, s.fan_in)
        self.input.scale_sums(b, first, sums)
        forwarded = {chain.forwarded: Reg("given", F32, LANES)} if chain.forwarded else {}
        if forwarded:
            with b.only_if(
                (*first, *self._computing(0), Bound(self.col, self.indices[0].ops.n.extent))
            ):
                output = EpilogueStore(b, chain.products[0], self.indices[0])
                for i in self.rows:
                    b.store(area, place(Index(), i), output.vector(index(i), self.col, total(i)))
            b.add(Barrier())
        output = EpilogueStore(b, chain.last, self.indices[-1], chain.output, forwarded)
        with b.only_if((*first, *self._computing(last))):
            for i in self.rows:
                for reg in forwarded.values():
                    b.set(reg.name, Load(area, place(Index(), i) - last * self.width, F32, LANES))
                output.put(index(i), self.col, total(i))
        own = (Scratch(F32, b.threads),) * chain.norm_areas
        more = (Scratch(F32, s.sums(count)),) if s.slices > 1 or forwarded else ()
        return replace(b.finish(chain.last, (*own, *areas, *more)), outputs=(chain.output,))


def lower(kernel: Kernel, schedule: FewRowsSchedule) -> TileFn:
    """Loops for tiles of y1 columns and all rows.  Operands are 0 beyond the ends, and nothing is
    stored there."""
    return lower_chain(Chain((kernel,)), schedule)


def lower_chain(chain: Chain, s: FewRowsSchedule) -> TileFn:
    """The same loops for a chain; its products have equal parts of the columns."""
    tile = FewRowsTile(chain, s)
    b, steps = tile.b, tile.indices[0].ops.steps
    tile.input.prepare_rows(b)
    for columns in tile.by_product():
        blocks = ceil(steps / (s.slices * s.r0 * columns.layout.unit_steps))
        with b.loop("block", Index(), index(blocks), 1, blocks, chunk=1) as block:
            firsts = [
                ((block * s.r0 + u) * s.slices + tile.part) * columns.layout.unit_steps
                for u in range(s.r0)
            ]
            for u, step in enumerate(firsts):
                columns.load_unit(u, tile.col, step)
            for u, step in enumerate(firsts):
                for i in tile.rows:
                    _multiply(b, tile.input, columns, i, u, step)
    return tile.finish()


def _multiply(
    b: Builder, rows: OperandRows, columns: StagedOperand, i: int, unit: int, step: Index
) -> None:
    """Adds row * columns to the sums of row i, over the steps of a unit.  A scale that the columns
    share is applied once."""
    factor = columns.factor(unit)
    to = total(i) if factor is None else _part(i)
    if factor is not None:
        b.set(to.name, identity("sum", F32, LANES))
    for j, left in enumerate(_row(b, rows, i, step, columns.layout.unit_steps)):
        factors = (Splat(left, LANES), columns.loaded_step(unit, j), to)
        b.set(to.name, Call("fma", factors, F32, LANES))
    if factor is not None:
        b.set(total(i).name, Call("fma", (to, factor, total(i)), F32, LANES))


def _row(b: Builder, rows: OperandRows, i: int, step: Index, count: int) -> Iterator[Expr]:
    """Row i at each of `count` steps, loaded as vectors where its memory layout allows it."""
    steps = rows.indices.ops.steps
    lanes = LANES if count % LANES == 0 and rows.loads_vector(index(i), step) else 1
    for j in range(0, count, lanes):
        left = Reg("row", F32, lanes)
        b.set(left.name, guarded(rows.read(i, step + j, lanes), (Bound(step + j, steps),)))
        yield from (Lane(left, lane) for lane in range(lanes)) if lanes > 1 else (left,)


def total(i: int) -> Reg:
    """The sums of row i."""
    return Reg(f"sum{i}", F32, LANES)


def _part(i: int) -> Reg:
    return Reg(f"part{i}", F32, LANES)
