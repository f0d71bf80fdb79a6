"""Attention of a single query row: all scores at once, and sums by exchange within subgroups.

Input: an attention, and a schedule (schedule.py). Output: the loop nest of one tile.

    query to registers
    for block of keys:     neighbouring threads share a key: each multiplies its part, and exchanges
                           add the parts up;  scores to shared memory;  each thread: maximum
    barrier                maximum of all: exchange in each subgroup, then through shared memory
    each thread:           some powers := exp(score - maximum), in place;  their sum
    barrier                sum of all, in the same way
    for block of values:   context += powers * values: a thread has some of the keys and 4 columns
    add up the contexts of all slices by exchange, then through shared memory;  slice 0 stores

The next block is read as soon as registers are free; the first values are read while threads wait
for the maximum. Reads beyond the last key repeat the last key and do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import ceil, prod

from tilewright.base.dtypes import F32
from tilewright.kernel.attention_masks import last_seen
from tilewright.kernel.builder import Builder, Values
from tilewright.kernel.expr import (
    LOWEST,
    Bound,
    Call,
    Const,
    Expr,
    Guard,
    Load,
    Reg,
    ShuffleXor,
    larger,
)
from tilewright.kernel.form import Attention, form_as
from tilewright.kernel.index import Index, index, unflatten
from tilewright.kernel.loops import Barrier, Scratch, TileFn
from tilewright.kernel.spec import Kernel
from tilewright.targets.gpu.attention.schedule import (
    AttentionOneRowSchedule,
    KeyAssignment,
    elements_per_load,
)
from tilewright.targets.gpu.attention.scores import (
    add,
    exponential,
    lane,
    normaliser,
    softmax_argument,
    stored_value,
    vector,
)
from tilewright.targets.gpu.tile.epilogue import reduce_by_shuffles
from tilewright.targets.vectors import are_whole_vectors, guarded

#: A function of two numbers.
Op = Callable[[Expr, Expr], Expr]


def lower(kernel: Kernel, schedule: AttentionOneRowSchedule) -> TileFn:
    """Loops for tiles of one query row of one head."""
    keys = form_as(kernel, Attention).keys.extent
    assignment = KeyAssignment.of(kernel, schedule)
    areas = assignment.areas(keys, schedule.threads // schedule.width)
    return replace(_OneRowTile(kernel, schedule, assignment).emit(areas), subgroup=schedule.width)


class _OneRowTile:
    """Builds the loops of one tile; its methods each build one part."""

    def __init__(
        self, kernel: Kernel, s: AttentionOneRowSchedule, assignment: KeyAssignment
    ) -> None:
        self.kernel, self.s, self.assignment = kernel, s, assignment
        self.form = form = form_as(kernel, Attention)
        first = len(kernel.buffers)
        self.scores, self.shared, self.contexts = range(first, first + 3)
        shape = (*(v.extent for v in form.outer), form.m.extent, s.across)
        self.b = b = Builder({}, prod(shape), kernel, s.threads)
        *others, row, share = unflatten(b.tile, shape)
        self.at: Values = dict(zip(form.outer, others, strict=True)) | {form.m: row}
        self.subgroups = s.threads // s.width
        #: This thread's number among those that share a key, or a subgroup.
        self.lane = b.let(b.thread % assignment.threads_per_key, "t")
        self.slice, unit = (
            b.let(i, "t")
            for i in unflatten(b.thread, (assignment.slices, assignment.column_threads))
        )
        #: The vector of columns that this thread computes; surplus threads read the last one.
        self.unit = b.let_min(unit, index(assignment.units - 1), "unit")
        self.column = (share * assignment.units + self.unit) * assignment.lanes
        #: The last key that the row sees.
        self.last = index(form.keys.extent - 1)

    def emit(self, areas: Sequence[int]) -> TileFn:
        b, assignment = self.b, self.assignment
        self._read_query()
        self._read_keys(Index())
        self.last = self._last_seen()
        b.set("high", Const(LOWEST, F32))
        with self._blocks(assignment.block) as block:
            self._multiply()
            self._read_next(self._read_keys, block, assignment.block)
            self._add_up_keys()
            self._score(block)
        self._read_values(Index())
        self._combine_over_group("high", larger, 0)
        self._powers()
        self._combine_over_group("total", add, self.subgroups)
        for c in range(assignment.lanes):
            b.set(_context(c).name, Const(0.0, F32))
        step = assignment.slices * self.s.values
        with self._blocks(step) as block:
            self._add_values(block)
            self._read_next(self._read_values, block, step)
        self._add_up()
        self._store()
        return b.finish(self.kernel, tuple(Scratch(F32, size) for size in areas))

    @contextmanager
    def _blocks(self, step: int) -> Iterator[Index]:
        """A loop over blocks of `step` keys, as far as the row sees any of their keys."""
        blocks = ceil(self.form.keys.extent / step)
        with self.b.loop("block", Index(), self.last // step + 1, 1, blocks) as block:
            yield block

    def _read_next(self, read: Callable[[Index], None], block: Index, step: int) -> None:
        """Reads the next block; after the last block, reads a block that is not used."""
        if self.form.keys.extent > step:
            read(block + 1)

    def _last_seen(self) -> Index:
        """The last key that the row sees; key 0 if it sees none."""
        last = last_seen(self.form)
        if last is None:
            return self.last
        return self.b.uniform(last.substitute(self.at), self.form.keys.extent, "last")

    def _seen(self, key: Index) -> tuple[Bound, ...]:
        return (Bound(self.last - key, self.form.keys.extent),)

    # ---- scores ----------------------------------------------------------------------------------

    def _read_query(self) -> None:
        """Reads this thread's vectors of the query."""
        q, width = self.form.q, elements_per_load(self.form)
        for v in range(self.assignment.vectors):
            first = self._depth(v)
            whole = are_whole_vectors(q.index, self.form.depth)
            parts = [q.at(self._of(q, {self.form.depth: first + i})) for i in range(width)]
            found = replace(parts[0], lanes=width) if whole else vector(parts)
            self.b.set(self._query(v).name, found)

    def _depth(self, v: int) -> Index:
        """The offset in a key of the elements that this thread reads as its vector number `v`."""
        return (self.lane + v * self.assignment.threads_per_key) * elements_per_load(self.form)

    def _read_keys(self, block: Index) -> None:
        """Reads this thread's vectors of its keys, which are contiguous."""
        k, sharing = self.form.k, self.s.threads // self.assignment.threads_per_key
        first = (block * sharing + self.b.thread // self.assignment.threads_per_key) * self.s.keys
        for u in range(self.s.keys):
            key = self.b.let_min(first + u, self.last, "key")
            for v in range(self.assignment.vectors):
                at = self._of(k, {self.form.keys: key, self.form.depth: self._depth(v)})
                reg = self._key(u, v)
                self.b.set(reg.name, Load(k.buffer, at, F32, reg.lanes))

    def _multiply(self) -> None:
        """Sets `dots` to the sums of this thread's products, one for each of its keys."""
        for u in range(self.s.keys):
            total: Expr = Const(0.0, F32)
            for v in range(self.assignment.vectors):
                for i in range(elements_per_load(self.form)):
                    factors = (lane(self._key(u, v), i), lane(self._query(v), i))
                    self.b.set(_dot(u).name, Call("fma", (*factors, total), F32))
                    total = _dot(u)

    def _add_up_keys(self) -> None:
        """Sets `dot0` to the dot product of key number thread % keys, summed over all threads that
        share it.

        In each step a thread passes on the sums of half of its keys and adds up the other half.
        """
        b, count, bits = self.b, self.s.keys, 1
        while count > 1:
            count //= 2
            for i in range(count):
                a, c, even = _dot(2 * i), _dot(2 * i + 1), (Bound(b.thread // bits % 2, 1),)
                b.set("given", Guard(even, c, a))
                b.set(_dot(i).name, Guard(even, a, c))
                b.set("other", ShuffleXor(Reg("given", F32), bits))
                b.set(_dot(i).name, add(_dot(i), Reg("other", F32)))
            bits *= 2
        reduce_by_shuffles(b, _dot(0), "other", add, bits, self.assignment.threads_per_key)

    def _score(self, block: Index) -> None:
        """Stores the score of this thread's key in shared memory, and updates `high`, the
        maximum."""
        b, keys, each = self.b, self.s.keys, self.assignment.threads_per_key
        first = block * self.assignment.block + b.thread // each * keys
        key = first + b.thread % keys
        there = self.at | {self.form.keys: key}
        b.set("score", softmax_argument(self.form, _dot(0), there, self._seen(key)))
        b.set("high", larger(Reg("high", F32), Reg("score", F32)))
        with b.only_if((Bound(b.thread % each, keys),)):
            b.store(self.scores, key, Reg("score", F32))

    # ---- softmax ---------------------------------------------------------------------------------

    def _powers(self) -> None:
        """Replaces scores by exp(score - maximum), and sets `total` to the sum of this thread's."""
        b, score = self.b, Reg("score", F32)
        b.set("total", Const(0.0, F32))
        with self._blocks(b.threads) as block:
            key = block * b.threads + b.thread
            with b.only_if(self._seen(key)):
                b.set(score.name, exponential(Load(self.scores, key, F32), Reg("high", F32)))
                b.store(self.scores, key, score)
                b.set("total", add(Reg("total", F32), score))

    def _combine_over_group(self, name: str, op: Op, area: int) -> None:
        """Combines a register over all threads of the group; each of them gets the result.

        area: the shared memory through which subgroups pass their partial results
        """
        b, reg = self.b, Reg(name, F32)
        reduce_by_shuffles(b, reg, "other", op, 1, self.s.width)
        with b.only_if((Bound(b.thread % self.s.width, 1),)):
            b.store(self.shared, b.thread // self.s.width + area, reg)
        b.add(Barrier())
        for n in range(self.subgroups):
            b.set("other", Load(self.shared, index(area + n), F32))
            b.set(name, op(reg, Reg("other", F32)) if n else Reg("other", F32))

    # ---- context ---------------------------------------------------------------------------------

    def _own_keys(self, block: Index) -> list[Index]:
        """The keys of a block whose values this thread reads; neighbouring threads have
        neighbouring keys."""
        numbers = (block * self.s.values + u for u in range(self.s.values))
        return [n * self.assignment.slices + self.slice for n in numbers]

    def _read_values(self, block: Index) -> None:
        """Reads this thread's columns of its keys' values."""
        v = self.form.v
        for u, number in enumerate(self._own_keys(block)):
            key = self.b.let_min(number, self.last, "key")
            at = self._of(v, {self.form.keys: key, self.form.n: self.column})
            self.b.set(self._value(u).name, Load(v.buffer, at, F32, self.assignment.lanes))

    def _add_values(self, block: Index) -> None:
        """Adds powers * values to the context."""
        for u, key in enumerate(self._own_keys(block)):
            self.b.set("power", guarded(Load(self.scores, key, F32), self._seen(key)))
            for c in range(self.assignment.lanes):
                factors = (Reg("power", F32), lane(self._value(u), c), _context(c))
                self.b.set(_context(c).name, Call("fma", factors, F32))

    def _add_up(self) -> None:
        """Adds the contexts of all slices into that of slice 0."""
        b, assignment = self.b, self.assignment
        own = [_context(c) for c in range(assignment.lanes)]
        for reg in own:
            reduce_by_shuffles(b, reg, "other", add, assignment.column_threads, self.s.width)
        if assignment.parts == 1:
            return
        each = b.threads // assignment.parts

        def place(part: Index, unit: Index) -> Index:
            return (part * assignment.units + unit) * assignment.lanes

        with b.only_if((Bound(b.thread % each, assignment.units),)):
            b.store(self.contexts, place(b.thread // each, b.thread % each), vector(own))
        b.add(Barrier())
        with b.only_if((Bound(b.thread, assignment.units),)):
            for part in range(assignment.parts):
                other = Reg("others", F32, assignment.lanes)
                b.set(
                    other.name,
                    Load(self.contexts, place(index(part), self.unit), F32, assignment.lanes),
                )
                for c, reg in enumerate(own):
                    found = lane(other, c)
                    b.set(reg.name, add(reg, found) if part else found)

    def _store(self) -> None:
        b, assignment, store = self.b, self.assignment, self.kernel.store
        with b.only_if((Bound(b.thread, assignment.units),)):
            b.set("all", normaliser(self.kernel, Reg("total", F32)))
            for c in range(assignment.lanes):
                there = self.at | {self.form.n: self.column + c}
                value = stored_value(self.kernel, self.form, Reg("all", F32), _context(c), there)
                b.compute(f"o{c}", value)
            found = [Reg(f"o{c}", F32) for c in range(assignment.lanes)]
            lanes = assignment.lanes if are_whole_vectors(store, self.form.n) else 1
            for c in range(0, assignment.lanes, lanes):
                there = self.at | {self.form.n: self.column + c}
                b.store(0, store.substitute(there), vector(found[c : c + lanes]))

    # ---- registers -------------------------------------------------------------------------------

    def _of(self, load: Load, there: Values) -> Index:
        return load.index.substitute(self.at | there)

    def _query(self, v: int) -> Reg:
        return Reg(f"query{v}", F32, elements_per_load(self.form))

    def _key(self, u: int, v: int) -> Reg:
        return Reg(f"keys{u}_{v}", F32, elements_per_load(self.form))

    def _value(self, u: int) -> Reg:
        return Reg(f"value{u}", F32, self.assignment.lanes)


def _dot(u: int) -> Reg:
    return Reg(f"dot{u}", F32)


def _context(c: int) -> Reg:
    return Reg(f"context{c}", F32)
