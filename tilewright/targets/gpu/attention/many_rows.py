"""Attention of many query rows by matrix units.

Scores are computed twice, so that sums need not be rescaled when a larger score is found.

Input: an attention, and a schedule (schedule.py). Output: the loop nest of one tile.

    queries to shared memory, from there to matrices that stay in registers
    for block of y1 keys:       keys to shared memory;  scores := queries * keys
                                each thread:  maximum of a part of a row
    maximum of each row
    context := 0
    for block of y1 keys:       the same scores;  powers := exp(scores - maximum), as f16
                                values replace the keys;  context += powers * values
    context to shared memory, divided by the sum of its row's powers, to the output

A block's operands are read from memory while the block before it is computed. Scores and sums are
f32. docs/decisions/0036-attention-by-matrices.md explains the two passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product as every
from math import ceil, prod

from tilewright.base.dtypes import F16, F32
from tilewright.kernel.builder import Builder, Values
from tilewright.kernel.expr import (
    LOWEST,
    Acc,
    Bound,
    Call,
    Const,
    Expr,
    Join,
    Lane,
    Lanes,
    Load,
    Reg,
    larger,
)
from tilewright.kernel.form import Attention, form_as
from tilewright.kernel.index import Index, index, unflatten
from tilewright.kernel.loops import (
    Barrier,
    LoadMatrix,
    MultiplyMatrices,
    StoreMatrix,
    TileFn,
    ZeroMatrix,
)
from tilewright.kernel.spec import F16_VECTOR, Kernel
from tilewright.kernel.tree import rewrite, walk
from tilewright.targets.gpu.attention.schedule import AttentionManyRowsSchedule, SharedAreas
from tilewright.targets.gpu.attention.scores import (
    add,
    blocks_seen,
    exponential,
    normaliser,
    softmax_argument,
    stored_value,
)
from tilewright.targets.vectors import LANES, are_whole_vectors, guarded

#: Gives the four elements from a line and an offset in it.
Vector = Callable[[Index, Index], Expr]

#: Gives an element's offset in shared memory from its line and its offset in that line.
Place = Callable[[Index, Index], Index]


def lower(kernel: Kernel, schedule: AttentionManyRowsSchedule) -> TileFn:
    """Loops for tiles of x1 query rows of one head.  Keys beyond the end count as masked; rows
    beyond the end are not stored."""
    areas = SharedAreas.of(form_as(kernel, Attention), schedule)
    return _TwoPassSoftmaxTile(kernel, schedule, areas).emit()


class _TwoPassSoftmaxTile:
    """Builds the loops of one tile; its methods each build one part."""

    def __init__(self, kernel: Kernel, s: AttentionManyRowsSchedule, areas: SharedAreas) -> None:
        self.kernel, self.s, self.areas = kernel, s, areas
        self.form = form = form_as(kernel, Attention)
        first = len(kernel.buffers)
        self.left, self.right, self.scores, self.rows = range(first, first + 4)
        self.depth, self.columns = form.depth.extent, form.n.extent
        #: Matrices in a row of a subgroup's results: of scores, and of the context.
        self.keys_across = s.y1 // (s.n * s.along)
        self.across = self.columns // (s.n * s.along)
        outer, tiles = tuple(v.extent for v in form.outer), ceil(form.m.extent / s.x1)
        self.b = b = Builder({}, prod(outer) * tiles, kernel, s.threads)
        *others, tile = unflatten(b.tile, (*outer, tiles))
        self.at: Values = dict(zip(form.outer, others, strict=True))
        self.first = b.let(tile, "row") * s.x1
        subgroup = b.let(b.thread // s.width, "t")
        self.subgroup = subgroup
        self.down, self.along = (b.let(i, "t") for i in unflatten(subgroup, (s.down, s.along)))
        #: The number of threads that share a row of scores; this thread's number among them, and
        #: its row.
        self.sharing = s.threads // s.x1
        self.part, self.row = (b.let(i, "t") for i in unflatten(b.thread, (self.sharing, s.x1)))
        self.blocks = ceil(form.keys.extent / s.y1)

    def emit(self) -> TileFn:
        b, s = self.b, self.s
        self._load_queries()
        seen = blocks_seen(b, self.form, self.at, self.first + (s.x1 - 1), s.y1)
        form = self._with_row_terms_in_registers()
        b.set("top", Const(LOWEST, F32))
        self._read_keys(Index())
        with b.loop("block", Index(), seen, 1, self.blocks) as block:
            self._write_keys()
            b.add(Barrier())
            self._read_keys(self._next(block, seen))
            self._score()
            b.add(Barrier())
            for _, key in self._own_scores():
                self._set_values(block, key, form)
                for i in range(F16_VECTOR):
                    b.set("top", larger(Reg("top", F32), Reg(f"value{i}", F32)))
        self._combine_over_row("top", larger)
        b.set("total", Const(0.0, F32))
        for i, j in self._results(self.across):
            b.add(ZeroMatrix(_context(i, j)))
        self._read_keys(Index())
        with b.loop("block", Index(), seen, 1, self.blocks) as block:
            self._write_keys()
            b.add(Barrier())
            self._read_values(block)
            self._score()
            b.add(Barrier())
            self._write_values()
            for at, key in self._own_scores():
                self._set_values(block, key, form)
                self._store_powers(at)
            b.add(Barrier())
            self._read_keys(self._next(block, seen))
            self._add_context()
            b.add(Barrier())
        self._store()
        return replace(b.finish(self.kernel, self.areas.all), unit=s.unit)

    def _next(self, block: Index, seen: Index) -> Index:
        """The number of the next block; after the last block that block is read again and not
        used."""
        return self.b.let_min(block + 1, seen + -1)

    def _results(self, across: int) -> list[tuple[int, int]]:
        """Row and column numbers of a subgroup's matrices, `across` in a row."""
        return list(every(range(self.s.rows), range(across)))

    # ---- operands to shared memory ---------------------------------------------------------------

    def _load_queries(self) -> None:
        """Loads the subgroup's query rows as matrices through shared memory, `y1` of the depth at a
        time."""
        b, s, form, pitch = self.b, self.s, self.form, self.areas.left_pitch
        for begin in range(0, self.depth, s.y1):
            width = min(s.y1, self.depth - begin)

            def four(line: Index, at: Index, begin: int = begin) -> Expr:
                row = self.first + line
                there = self.at | {form.m: row, form.depth: at + begin}
                return guarded(_four(form.q, there), (Bound(row, form.m.extent),))

            if begin:
                b.add(Barrier())
            _read_eights(self.b, "queries", s.x1, width, four)
            _write_eights(self.b, "queries", s.x1, width, self.left, self._left_at)
            b.add(Barrier())
            for step, i in every(range(width // s.k), range(s.rows)):
                at = self.down * self.areas.left.part + (i * s.m * pitch + step * s.k)
                b.add(LoadMatrix(_query(i, begin // s.k + step), False, self.left, at, pitch))
        # Powers will be written to this area.
        b.add(Barrier())

    def _left_at(self, row: Index, at: Index) -> Index:
        s, areas = self.s, self.areas
        return row // s.own * areas.left.part + row % s.own * areas.left_pitch + at

    def _read_keys(self, block: Index) -> None:
        _read_eights(self.b, "keys", self.s.y1, self.depth, self._of_block(block, self.form.k))

    def _write_keys(self) -> None:
        each, areas = self.s.y1 // self.s.along, self.areas

        def place(key: Index, at: Index) -> Index:
            return key // each * areas.right.part + key % each * areas.key_pitch + at

        _write_eights(self.b, "keys", self.s.y1, self.depth, self.right, place)

    def _read_values(self, block: Index) -> None:
        _read_eights(self.b, "values", self.s.y1, self.columns, self._of_block(block, self.form.v))

    def _write_values(self) -> None:
        each, areas = self.columns // self.s.along, self.areas

        def place(key: Index, at: Index) -> Index:
            return at // each * areas.right.part + key * areas.value_pitch + at % each

        _write_eights(self.b, "values", self.s.y1, self.columns, self.right, place)

    def _of_block(self, block: Index, load: Load) -> Vector:
        """A function that reads four elements of a block's keys or values; 0 beyond the last
        key."""
        form = self.form
        axis = form.depth if load == form.k else form.n

        def four(line: Index, at: Index) -> Expr:
            key = block * self.s.y1 + line
            found = _four(load, self.at | {form.keys: key, axis: at})
            return guarded(found, (Bound(key, form.keys.extent),))

        return four

    # ---- scores ----------------------------------------------------------------------------------

    def _score(self) -> None:
        """Computes the subgroup's scores and stores them in shared memory."""
        b, s, areas = self.b, self.s, self.areas
        results = self._results(self.keys_across)
        for i, j in results:
            b.add(ZeroMatrix(_score(i, j)))
        for step in range(self.depth // s.k):
            for j in range(self.keys_across):
                at = self.along * areas.right.part + (j * s.n * areas.key_pitch + step * s.k)
                b.add(LoadMatrix(f"key{j}_{step}", True, self.right, at, areas.key_pitch))
            for i, j in results:
                b.add(MultiplyMatrices(_score(i, j), _query(i, step), f"key{j}_{step}"))
        for i, j in results:
            self._put(_score(i, j), i, j)

    def _put(self, name: str, i: int, j: int) -> None:
        """Stores a result matrix in the subgroup's part of the scores."""
        s, pitch = self.s, self.areas.score_pitch
        at = self.subgroup * self.areas.scores.part + (i * s.m * pitch + j * s.n)
        self.b.add(StoreMatrix(self.scores, at, name, pitch))

    def _score_at(self, row: Index, key: Index) -> Index:
        s, areas = self.s, self.areas
        each = s.y1 // s.along
        subgroup = row // s.own * s.along + key // each
        return subgroup * areas.scores.part + row % s.own * areas.score_pitch + key % each

    def _own_scores(self) -> Iterator[tuple[Index, Index]]:
        """The groups of eight keys of a block that this thread handles: the offset of their powers
        in shared memory, and the first key."""
        count = self.s.y1 // (F16_VECTOR * self.sharing)
        for n in range(count):
            key = self.part * (count * F16_VECTOR) + n * F16_VECTOR
            yield self._left_at(self.row, key), key

    def _with_row_terms_in_registers(self) -> Attention:
        """The attention, with registers for those parts of softmax's argument that are read once a
        row."""
        b, form, named = self.b, self.form, dict[Expr, Reg]()

        def name(e: Expr) -> Expr:
            loads = any(isinstance(x, Load) for x in walk(e))
            own = form.keys not in e.variables and not any(isinstance(x, Acc) for x in walk(e))
            if isinstance(e, Call) and loads and own:
                named[e] = Reg(f"row{len(named)}", e.dtype)
                b.set(named[e].name, rewrite(e, lambda x: x, self._row))
                return named[e]
            if isinstance(e, Call):
                return Call(e.fn, tuple(map(name, e.operands)), e.dtype)
            return e

        return replace(form, argument=name(form.argument))

    @property
    def _row(self) -> Values:
        """Index values of this thread's row; a row beyond the end is replaced by the last one."""
        row = self.b.let_min(self.first + self.row, index(self.form.m.extent - 1))
        return self.at | {self.form.m: row}

    def _set_values(self, block: Index, first: Index, form: Attention) -> None:
        """Sets value0 to value7 to softmax's argument at eight keys; -inf beyond the last key."""
        b = self.b
        for i in range(F16_VECTOR):
            if i % LANES == 0:
                at = self._score_at(self.row, first + i)
                b.set("scores", Load(self.scores, at, F32, LANES))
            score = Lane(Reg("scores", F32, LANES), i % LANES)
            key = block * self.s.y1 + first + i
            there = self._row | {form.keys: key}
            b.set(
                f"value{i}", softmax_argument(form, score, there, (Bound(key, form.keys.extent),))
            )

    def _combine_over_row(self, name: str, op: Callable[[Expr, Expr], Expr]) -> None:
        """Combines a register over all threads that share a row; each of them gets the result."""
        if self.sharing == 1:
            return
        b, x1 = self.b, self.s.x1
        b.store(self.rows, self.part * x1 + self.row, Reg(name, F32))
        b.add(Barrier())
        for other in range(self.sharing):
            found = Load(self.rows, self.row + other * x1, F32)
            b.set("other", found)
            b.set(name, op(Reg(name, F32), Reg("other", F32)) if other else Reg("other", F32))
        # All threads must have read the area before it is written again.
        b.add(Barrier())

    # ---- context ---------------------------------------------------------------------------------

    def _store_powers(self, at: Index) -> None:
        """Stores exp(value - top) of eight keys in shared memory, and adds them to `total`."""
        b, total = self.b, Reg("total", F32)
        for i in range(F16_VECTOR):
            b.set(f"value{i}", exponential(Reg(f"value{i}", F32), Reg("top", F32)))
            b.set("total", add(total, Reg(f"value{i}", F32)))
        powers = [Reg(f"value{i}", F32) for i in range(F16_VECTOR)]
        b.store(
            self.left, at, _f16_eight(Lanes(tuple(powers[:LANES])), Lanes(tuple(powers[LANES:])))
        )

    def _add_context(self) -> None:
        """Adds powers * values to the context."""
        b, s, areas = self.b, self.s, self.areas
        for step in range(s.y1 // s.k):
            for i in range(s.rows):
                at = self.down * areas.left.part + (i * s.m * areas.left_pitch + step * s.k)
                b.add(LoadMatrix(f"power{i}_{step}", False, self.left, at, areas.left_pitch))
            for j in range(self.across):
                place = step * s.k * areas.value_pitch + j * s.n
                at = self.along * areas.right.part + place
                name, pitch = f"column{j}_{step}", areas.value_pitch
                b.add(LoadMatrix(name, True, self.right, at, pitch, across=True))
            for i, j in self._results(self.across):
                b.add(MultiplyMatrices(_context(i, j), f"power{i}_{step}", f"column{j}_{step}"))

    def _store(self) -> None:
        """Divides the context by its row's total and stores it, a scores area of columns at a
        time."""
        b, s = self.b, self.s
        self._combine_over_row("total", add)
        with b.only_if((Bound(self.part, 1),)):
            b.store(self.rows, self.row, normaliser(self.kernel, Reg("total", F32)))
        for begin in range(0, self.across, self.keys_across):
            count = min(self.keys_across, self.across - begin)
            b.add(Barrier())
            for i, j in self._results(count):
                self._put(_context(i, begin + j), i, j)
            b.add(Barrier())
            self._store_columns(begin * s.n, count * s.n)

    def _store_columns(self, begin: int, width: int) -> None:
        """Stores `width` columns, from `begin` on, of each subgroup's part of the columns."""
        b, s, form = self.b, self.s, self.form
        shape = (s.x1, s.along, width // LANES)
        for _, (line, along, four) in b.points_of_thread(shape):
            row = self.first + line
            with b.only_if((Bound(row, form.m.extent),)):
                at = self._score_at(line, along * (s.y1 // s.along) + four * LANES)
                b.set("sums", Load(self.scores, at, F32, LANES))
                b.set("all", Load(self.rows, line, F32))
                column = along * (self.across * s.n) + (four * LANES + begin)
                self._put_four(self.at | {form.m: row}, column)

    def _put_four(self, row: Values, column: Index) -> None:
        b, form, store = self.b, self.form, self.kernel.store
        made = []
        for lane in range(LANES):
            sum_ = Lane(Reg("sums", F32, LANES), lane)
            there = row | {form.n: column + lane}
            b.compute(f"o{lane}", stored_value(self.kernel, form, Reg("all", F32), sum_, there))
            made.append(Reg(f"o{lane}", F32))
        if are_whole_vectors(store, form.n):
            b.store(0, store.substitute(row | {form.n: column}), Lanes(tuple(made)))
            return
        for lane, value in enumerate(made):
            b.store(0, store.substitute(row | {form.n: column + lane}), value)


def _four(load: Load, there: Values) -> Load:
    return Load(load.buffer, load.index.substitute(there), F32, LANES)


def _query(i: int, step: int) -> str:
    return f"query{i}_{step}"


def _score(i: int, j: int) -> str:
    return f"score{i}_{j}"


def _context(i: int, j: int) -> str:
    return f"context{i}_{j}"


# ---- lines of f32 to shared memory as f16, eight at a time: four whole words ---------------------


def _read_eights(b: Builder, name: str, lines: int, width: int, four: Vector) -> None:
    """Reads this thread's units of eight elements to registers, from lines of `width` elements."""
    for n, line, at in _units(b, lines, width):
        for half in range(2):
            b.set(f"{name}{n}_{half}", four(line, at + half * LANES))


def _write_eights(b: Builder, name: str, lines: int, width: int, area: int, place: Place) -> None:
    """Writes these registers to shared memory as f16."""
    for n, line, at in _units(b, lines, width):
        first, second = (Reg(f"{name}{n}_{half}", F32, LANES) for half in range(2))
        b.store(area, place(line, at), _f16_eight(first, second))


def _f16_eight(first: Expr, second: Expr) -> Expr:
    """Two vectors of four numbers as one vector of eight f16."""
    return Join(tuple(Call("cast", (x,), F16, LANES) for x in (first, second)))


def _units(b: Builder, lines: int, width: int) -> Iterator[tuple[int, Index, Index]]:
    """Number, line and first element of each of this thread's units.  Neighbouring threads have
    neighbouring units."""
    for n, (line, at) in b.points_of_thread((lines, width // F16_VECTOR)):
        yield n, line, at * F16_VECTOR
