"""Attention of some query rows of a head; scores stay in shared memory (online softmax).

Input: an attention of fixed size, and a schedule. Output: the loop nest of one tile. The lanes of a
vector are rows, so the threads read whole vectors of what they share.

    queries to shared memory
    for block of y1 keys:
        each thread:  scores of some keys, to shared memory;  their maximum over all threads
        powers := exp(scores - maximum), in place;  their sum over all threads
        context := context * factor + powers * values:  a thread has some of the keys and 4 columns
    add up the contexts of all slices;  slice 0 stores

The maximum, the sum and the context are updated from block to block, as in targets/simd.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product as every
from math import ceil, gcd, prod

from tilewright.base.dtypes import F32
from tilewright.kernel.builder import Builder, Values
from tilewright.kernel.expr import LOWEST, Bound, Call, Const, Expr, Load, Reg, Splat, larger
from tilewright.kernel.form import Attention, form_as
from tilewright.kernel.index import Index, index, unflatten
from tilewright.kernel.loops import Barrier, Scratch, TileFn
from tilewright.kernel.spec import Kernel
from tilewright.targets.gpu.attention.schedule import (
    AttentionSomeRowsSchedule,
    ColumnAssignment,
    elements_per_load,
    loads_per_key,
    some_rows_areas,
)
from tilewright.targets.gpu.attention.scores import (
    add,
    blocks_seen,
    exponential,
    lane,
    normaliser,
    softmax_argument,
    stored_value,
    vector,
)
from tilewright.targets.gpu.tile.epilogue import reduce_slices
from tilewright.targets.vectors import LANES, are_whole_vectors, guarded

#: A function of two numbers.
Op = Callable[[Expr, Expr], Expr]

#: Vectors of values that a thread loads together where tiles have one row; keys it loads together.
VALUES_TOGETHER, KEYS_TOGETHER = 8, 2

#: The number of threads whose maxima or sums one thread combines.
FAN_IN = 4


def lower(kernel: Kernel, schedule: AttentionSomeRowsSchedule) -> TileFn:
    """Loops for tiles of x1 query rows of one head.  Keys beyond the end count as masked; rows
    beyond the end are not stored."""
    return _OnlineSoftmaxTile(kernel, schedule).emit()


class _OnlineSoftmaxTile:
    """Builds the loops of one tile; its methods each build one part."""

    def __init__(self, kernel: Kernel, schedule: AttentionSomeRowsSchedule) -> None:
        self.kernel, self.s = kernel, schedule
        self.form = form = form_as(kernel, Attention)
        self.lanes = min(schedule.x1, LANES)
        self.groups = range(schedule.x1 // self.lanes)
        self.columns = ColumnAssignment.of(form, schedule)
        self.blocks = ceil(form.keys.extent / schedule.y1)
        self.queries, self.scores, self.shared = range(len(kernel.buffers), len(kernel.buffers) + 3)
        outer, rows = tuple(v.extent for v in form.outer), ceil(form.m.extent / schedule.x1)
        shape = (*outer, rows, schedule.across)
        self.b = b = Builder({}, prod(shape), kernel, schedule.threads)
        *others, tile, share = unflatten(b.tile, shape)
        self.at: Values = dict(zip(form.outer, others, strict=True))
        self.first = b.let(tile * schedule.x1, "row")
        assignment = (ceil(schedule.threads / self.columns.units), self.columns.units)
        self.part, self.unit = (b.let(i, "t") for i in unflatten(b.thread, assignment))
        #: The first of this thread's columns.
        self.column = (share * self.columns.units + self.unit) * self.columns.width

    def emit(self) -> TileFn:
        b = self.b
        self._stage_queries()
        for g in self.groups:
            b.set(self._reg("top", g).name, Const(LOWEST, F32, self.lanes))
            b.set(self._reg("total", g).name, Const(0.0, F32, self.lanes))
            for c in range(self.columns.width):
                b.set(self._context(c, g).name, Const(0.0, F32, self.lanes))
        b.add(Barrier())
        seen = blocks_seen(b, self.form, self.at, self.first + (self.s.x1 - 1), self.s.y1)
        with b.loop("block", Index(), seen, 1, self.blocks) as block:
            start = b.let(block * self.s.y1, "key")
            self._score(start)
            self._softmax()
            self._add_context(start)
            b.add(Barrier())
        self._add_up()
        self._store()
        return b.finish(
            self.kernel, tuple(Scratch(F32, n) for n in some_rows_areas(self.kernel, self.s))
        )

    # ---- scores ----------------------------------------------------------------------------------

    def _stage_queries(self) -> None:
        """Copies the tile's query rows to shared memory, depth outermost; rows beyond the end are
        0."""
        b, form, shape = self.b, self.form, (len(self.groups), self.form.depth.extent)
        for _, (group, d) in b.points_of_thread(shape):
            rows = [self.first + group * self.lanes + i for i in range(self.lanes)]
            ats = [self._at(form.q, {form.m: row, form.depth: d}) for row in rows]
            values = [
                guarded(form.q.at(at), (Bound(row, form.m.extent),))
                for at, row in zip(ats, rows, strict=True)
            ]
            b.store(self.queries, d * self.s.x1 + group * self.lanes, vector(values))

    def _keys(self, start: Index) -> list[Index]:
        """The keys of a block whose scores this thread computes."""
        own_keys = range(self.s.y1 // self.s.threads)
        return [start + (self.b.thread + j * self.s.threads) for j in own_keys]

    def _score(self, start: Index) -> None:
        """Stores the scores of this thread's keys in shared memory; sets `high` to their
        maximum."""
        b, form, keys = self.b, self.form, self._keys(start)
        for j in range(len(keys) * self.s.parts):
            for g in self.groups:
                b.set(self._reg(f"dot{j}_", g).name, Const(0.0, F32, self.lanes))
        width, parts = elements_per_load(form), self.s.parts
        steps = loads_per_key(form) // parts
        number, part = (
            b.let(i, "t") for i in unflatten(b.thread, (self.s.threads // parts, parts))
        )
        assignment = [number + j * (self.s.threads // parts) for j in range(len(keys) * parts)]
        together = gcd(steps, KEYS_TOGETHER) if self.s.x1 == 1 else 1
        with b.loop("d", Index(), index(steps), together, steps) as first:
            depths = [(first + u) * parts + part for u in range(together)]
            for (u, d), (j, n) in every(enumerate(depths), enumerate(assignment)):
                key = start + n
                at = self._at(form.k, {form.keys: key, form.depth: d * width})
                load = Load(form.k.buffer, at, F32, width)
                b.set(f"keys{u}_{j}", guarded(load, (Bound(key, form.keys.extent),)))
            for (u, d), i, g in every(enumerate(depths), range(width), self.groups):
                at = (d * width + i) * self.s.x1 + g * self.lanes
                b.set("query", Load(self.queries, at, F32, self.lanes))
                for j in range(len(assignment)):
                    factor = lane(Reg(f"keys{u}_{j}", F32, width), i)
                    self._multiply(self._reg(f"dot{j}_", g), factor, self._reg("query"))
        if parts > 1:
            self._add_parts(assignment, part)
        for g in self.groups:
            b.set(self._reg("high", g).name, Const(float("-inf"), F32, self.lanes))
        for j, key in enumerate(keys):
            for g in self.groups:
                values = [self._argument(j, key, g, i) for i in range(self.lanes)]
                b.set("score", vector(values))
                b.store(self.scores, self._place(j, g), self._reg("score"))
                self._each(self._reg("high", g), larger, self._reg("high", g), self._reg("score"))

    def _add_parts(self, assignment: Sequence[Index], part: Index) -> None:
        """Sets `dots` to the dot products of this thread's own keys, from the partial sums of
        `parts` threads."""
        b, s = self.b, self.s

        def place(part: Index, key: Index, g: int) -> Index:
            return (part * s.y1 + key) * s.x1 + g * self.lanes

        for (j, key), g in every(enumerate(assignment), self.groups):
            b.store(self.scores, place(part, key, g), self._reg(f"dot{j}_", g))
        b.add(Barrier())
        for j, g in every(range(s.y1 // s.threads), self.groups):
            key, total = b.thread + j * s.threads, self._reg(f"dot{j}_", g)
            for other in range(s.parts):
                found = Load(self.scores, place(index(other), key, g), F32, self.lanes)
                b.set(total.name, add(total, found) if other else found)

    def _argument(self, j: int, key: Index, g: int, i: int) -> Expr:
        """Softmax's argument; -inf beyond the last key or row."""
        form, row = self.form, self.first + (g * self.lanes + i)
        dot = lane(self._reg(f"dot{j}_", g), i)
        ends = (Bound(key, form.keys.extent), Bound(row, form.m.extent))
        return softmax_argument(form, dot, self.at | {form.m: row, form.keys: key}, ends)

    def _place(self, j: int, g: int) -> Index:
        """The offset in shared memory of the scores of this thread's key number `j`."""
        return (self.b.thread + j * self.s.threads) * self.s.x1 + g * self.lanes

    # ---- softmax ---------------------------------------------------------------------------------

    def _softmax(self) -> None:
        """Replaces scores by exp(score - maximum), and updates `total` to total * factor + their
        sum."""
        b = self.b
        self._combine("high", larger)
        for g in self.groups:
            top, high, factor = (self._reg(n, g) for n in ("top", "high", "factor"))
            self._each(high, larger, top, high)
            self._each(factor, exponential, top, high)
            b.set(top.name, high)
            b.set(self._reg("sum", g).name, Const(0.0, F32, self.lanes))
        for j in range(self.s.y1 // self.s.threads):
            for g in self.groups:
                b.set("score", Load(self.scores, self._place(j, g), F32, self.lanes))
                self._each(self._reg("score"), exponential, self._reg("score"), self._reg("top", g))
                b.store(self.scores, self._place(j, g), self._reg("score"))
                b.set(self._reg("sum", g).name, add(self._reg("sum", g), self._reg("score")))
        self._combine("sum", add)
        for g in self.groups:
            total, factor, found = (self._reg(n, g) for n in ("total", "factor", "sum"))
            b.set(total.name, Call("fma", (total, factor, found), F32, self.lanes))

    def _combine(self, name: str, op: Op) -> None:
        """Combines the registers of this name over all threads; each of them gets the result."""
        b, count = self.b, self.s.threads

        def place(number: Index, g: int) -> Index:
            return number * self.s.x1 + g * self.lanes

        def shared(number: Index, g: int) -> Load:
            return Load(self.shared, place(number, g), F32, self.lanes)

        for g in self.groups:
            b.store(self.shared, place(b.thread, g), self._reg(name, g))
        b.add(Barrier())
        while count > 1:
            fan_in = min(FAN_IN, count)
            count //= fan_in
            with b.only_if((Bound(b.thread, count),)):
                for g in self.groups:
                    b.set(self._reg(name, g).name, shared(b.thread, g))
                    for other in range(1, fan_in):
                        b.set("other", shared(b.thread + other * count, g))
                        self._each(self._reg(name, g), op, self._reg(name, g), self._reg("other"))
                    b.store(self.shared, place(b.thread, g), self._reg(name, g))
            b.add(Barrier())
        for g in self.groups:
            b.set(self._reg(name, g).name, shared(Index(), g))
        # All threads must have read the area before it is written again.
        b.add(Barrier())

    # ---- context ---------------------------------------------------------------------------------

    def _add_context(self, start: Index) -> None:
        """Updates the context to context * factor + powers * values, over this thread's keys."""
        b, form, own_columns = self.b, self.form, self.columns
        keys = min(self.s.y1, form.keys.extent) if self.blocks == 1 else self.s.y1
        count = ceil(keys / own_columns.slices)
        with b.only_if((Bound(self.part, own_columns.slices),)):
            if self.blocks > 1:
                for c in range(own_columns.width):
                    for g in self.groups:
                        both = (self._context(c, g), self._reg("factor", g))
                        b.set(both[0].name, Call("mul", both, F32, self.lanes))
            # With one row a tile waits for its loads, and no other group on the core hides the
            # wait.
            together = gcd(count, VALUES_TOGETHER) if self.s.x1 == 1 else 1
            with b.loop("n", Index(), index(count), together, count) as n:
                numbers = [(n + u) * own_columns.slices + self.part for u in range(together)]
                values = [Reg(f"value{u}", F32, own_columns.width) for u in range(together)]
                for number, value in zip(numbers, values, strict=True):
                    there = {form.keys: start + number, form.n: self.column}
                    load = Load(form.v.buffer, self._at(form.v, there), F32, own_columns.width)
                    end = Bound(start + number, form.keys.extent)
                    b.set(value.name, guarded(load, (end,)))
                for (number, value), g in every(zip(numbers, values, strict=True), self.groups):
                    at = number * self.s.x1 + g * self.lanes
                    b.set("power", Load(self.scores, at, F32, self.lanes))
                    for c in range(own_columns.width):
                        self._multiply(self._context(c, g), lane(value, c), self._reg("power"))

    def _add_up(self) -> None:
        """Adds the contexts of all slices into that of slice 0."""
        owned = [(c, g) for c in range(self.columns.width) for g in self.groups]

        def place(number: Index, i: int) -> Index:
            c, g = owned[i]
            column = (number * self.columns.units + self.unit) * self.columns.width + c
            return column * self.s.x1 + g * self.lanes

        contexts = [self._context(c, g) for c, g in owned]
        reduce_slices(self.b, self.part, self.columns.slices, self.scores, contexts, place)

    def _store(self) -> None:
        b, form, width = self.b, self.form, self.columns.width
        wide = width > 1 and are_whole_vectors(self.kernel.store, form.n)
        with b.only_if((Bound(self.part, 1),)):
            for g in self.groups:
                for i in range(self.lanes):
                    row = self.first + (g * self.lanes + i)
                    with b.only_if((Bound(row, form.m.extent),)):
                        b.set("all", normaliser(self.kernel, lane(self._reg("total", g), i)))
                        for c in range(width):
                            b.compute(f"o{c}", self._value(c, g, i, row))
                        found = [Reg(f"o{c}", F32) for c in range(width)]
                        for at in range(0, width, width if wide else 1):
                            part = found if wide else found[at : at + 1]
                            b.store(0, self._output(row, at), vector(part))

    def _value(self, c: int, g: int, i: int, row: Index) -> Expr:
        context = lane(self._context(c, g), i)
        return stored_value(self.kernel, self.form, Reg("all", F32), context, self._there(row, c))

    def _output(self, row: Index, c: int) -> Index:
        return self.kernel.store.substitute(self._there(row, c))

    def _there(self, row: Index, c: int) -> Values:
        return self.at | {self.form.m: row, self.form.n: self.column + c}

    # ---- registers -------------------------------------------------------------------------------

    def _at(self, load: Load, values: Values) -> Index:
        return load.index.substitute(self.at | values)

    def _reg(self, name: str, group: int | None = None) -> Reg:
        return Reg(name if group is None else f"{name}{group}", F32, self.lanes)

    def _context(self, c: int, g: int) -> Reg:
        return self._reg(f"context{c}_", g)

    def _multiply(self, total: Reg, factor: Expr, vector: Reg) -> None:
        splat = Splat(factor, self.lanes) if self.lanes > 1 else factor
        self.b.set(total.name, Call("fma", (splat, vector, total), F32, self.lanes))

    def _each(self, to: Reg, op: Op, a: Reg, b: Reg) -> None:
        """Sets `to` to op(a, b) lane by lane, since the languages have few functions of vectors."""
        self.b.set(to.name, vector([op(lane(a, i), lane(b, i)) for i in range(self.lanes)]))
