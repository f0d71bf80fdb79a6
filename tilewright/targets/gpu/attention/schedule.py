"""Schedules of attention: how a workgroup computes query rows of a head, and its shared memory.

Input: an attention. Output: three kinds of schedule (some rows; one row; many rows by matrix
units), how each assigns keys and columns to threads, and its areas of shared memory. strategies.py
chooses the schedules to try; some_rows.py, one_row.py and many_rows.py make their loops.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, gcd

from tilewright.base.abi import WORD_BYTES
from tilewright.base.dtypes import F16, F32
from tilewright.kernel.form import Attention, classify, form_as, rounds_to_f16
from tilewright.kernel.gathers import may_trap
from tilewright.kernel.loops import MatrixUnit, Scratch
from tilewright.kernel.spec import F16_VECTOR, Kernel
from tilewright.targets.gpu.workgroup_limits import (
    F16_FEATURE,
    F16_LINE_GAP,
    MATRIX_FEATURE,
    MOST_SUMS_PER_THREAD,
    MOST_THREADS,
    SHARED_EVERYWHERE,
    SHARED_SIZES,
    SUBGROUP_SIZES,
    SUBGROUPS_FEATURE,
    WARP,
    limit_objection,
    shared_memory_feature,
    subgroup_feature,
    value_objection,
)
from tilewright.targets.schedule import Schedule
from tilewright.targets.vectors import LANES, are_whole_vectors

#: The default number of threads in a group.
THREADS = 128


@dataclass(frozen=True)
class AttentionSomeRowsSchedule(Schedule):
    """Tiles of x1 query rows, 1 or a multiple of 4; blocks of y1 keys; threads of a group.

    parts:  threads that share the dot product of a key, so that they read neighbouring elements
    across: groups that divide the columns of a head; each computes all scores, so more cores have
            work
    """

    tag = "head"
    x1: int = 4
    y1: int = 256
    threads: int = THREADS
    parts: int = 1
    across: int = 1

    def objection(self, kernel: Kernel) -> str:
        if found := super().objection(kernel):
            return found
        if self.x1 > 1 and self.x1 % LANES:
            return f"x1 is 1 or a multiple of {LANES}"
        if self.threads < 2 or self.threads & (self.threads - 1) or self.y1 % self.threads:
            return "threads is a power of two, and y1 a multiple of it"
        form = form_as(kernel, Attention)
        if self.threads % self.parts or loads_per_key(form) % self.parts:
            return f"parts divides threads and the {loads_per_key(form)} vectors of a key"
        columns = ColumnAssignment.of(form, self)
        if columns.units * columns.width * self.across != form.n.extent:
            return f"across divides the {form.n.extent} columns of a head into whole vectors"
        if columns.units > self.threads:
            return f"{columns.units} threads are needed for the columns of a head"
        return limit_objection(self.threads, self.shared(kernel))

    def shared(self, kernel: Kernel) -> int:
        """Bytes of shared memory, with a vector for a number that is broadcast to all threads."""
        return WORD_BYTES * (sum(some_rows_areas(kernel, self)) + LANES)


@dataclass(frozen=True)
class ColumnAssignment:
    """How a group divides its columns of a head: `units` vectors of `width` columns.  `slices`
    threads share a unit, each with a part of the keys."""

    width: int
    units: int
    slices: int

    @staticmethod
    def of(form: Attention, schedule: AttentionSomeRowsSchedule) -> ColumnAssignment:
        width = LANES if are_whole_vectors(form.v.index, form.n) else 1
        units, slices = max(1, form.n.extent // width // schedule.across), 1
        while 2 * slices * units <= schedule.threads:
            slices *= 2
        return ColumnAssignment(width, units, slices)


def some_rows_areas(kernel: Kernel, s: AttentionSomeRowsSchedule) -> tuple[int, int, int]:
    """Elements of shared memory: queries, scores (later contexts), and a maximum for each
    thread."""
    form = form_as(kernel, Attention)
    columns = ColumnAssignment.of(form, s)
    contexts = columns.slices // 2 * columns.units * columns.width
    return form.depth.extent * s.x1, max(s.y1 * s.parts, contexts) * s.x1, s.threads * s.x1


def elements_per_load(form: Attention) -> int:
    """Elements of a key that one load reads."""
    return LANES if are_whole_vectors(form.k.index, form.depth) else 1


def loads_per_key(form: Attention) -> int:
    """The number of loads that read a whole key."""
    return form.depth.extent // elements_per_load(form)


def is_attention_of_fixed_size(kernel: Kernel) -> bool:
    """True for attention of fixed size that cannot trap."""
    form = classify(kernel)
    if not isinstance(form, Attention) or kernel.extents or may_trap(kernel):
        return False
    return not AttentionSomeRowsSchedule(x1=1, threads=THREADS, y1=THREADS).objection(kernel)


#: The most vectors of keys or values that a thread loads before it uses them; they take registers.
MOST_LOADED_VECTORS = 32

#: Default numbers of keys and values that a thread loads together for one row, most wanted first.
KEYS, VALUES = (16, 8, 4, 2, 1), (8, 16, 4)


@dataclass(frozen=True)
class AttentionOneRowSchedule(Schedule):
    """Tiles of one query row and a part of a head's columns.  All scores stay in shared memory.

    width:  threads of a subgroup, which exchange registers to add up
    keys:   keys whose parts a thread loads together
    values: values whose parts a thread loads together
    across: groups that divide the columns of a head, as in `AttentionSomeRowsSchedule`
    room:   bytes of shared memory that a group may use
    """

    tag = "head-row"
    threads: int = MOST_THREADS
    width: int = WARP
    keys: int = KEYS[0]
    values: int = VALUES[0]
    across: int = 1
    room: int = SHARED_EVERYWHERE

    @property
    def features(self) -> frozenset[str]:
        own = {SUBGROUPS_FEATURE, subgroup_feature(self.width)}
        return frozenset(own | shared_memory_feature(self.room))

    def objection(self, kernel: Kernel) -> str:
        if found := super().objection(kernel):
            return found
        if found := value_objection("width", self.width, SUBGROUP_SIZES):
            return found
        if self.threads & (self.threads - 1) or self.threads < self.width:
            return "threads is a power of two from width on"
        form, assignment = form_as(kernel, Attention), KeyAssignment.of(kernel, self)
        if assignment.threads_per_key % self.keys:
            return f"keys divides the {assignment.threads_per_key} threads that share a key"
        if max(self.keys * assignment.vectors, self.values) > MOST_LOADED_VECTORS:
            return f"a thread reads at most {MOST_LOADED_VECTORS} vectors together"
        if assignment.units * assignment.lanes * self.across != form.n.extent:
            return f"across divides the {form.n.extent} columns of a head into whole vectors"
        if assignment.column_threads > self.threads:
            return f"{assignment.column_threads} threads are needed for the columns of a head"
        if found := value_objection("room", self.room, (SHARED_EVERYWHERE, *SHARED_SIZES)):
            return found
        return limit_objection(self.threads, one_row_shared_bytes(kernel, self), self.room)


@dataclass(frozen=True)
class KeyAssignment:
    """How keys and columns are assigned to the threads of a group.

    threads_per_key: neighbouring threads that share a key
    vectors: loads of each of them from a key
    block:   keys that the group reads together
    lanes:   elements of a vector of columns;  units: such vectors in the group's part of a head
    column_threads: neighbouring threads with a unit each, a power of two; the last ones may have
        none
    slices:  parts of the keys, whose contexts are added up at the end
    parts:   partial contexts that go through shared memory, after each subgroup has added up its
             own
    """

    threads_per_key: int
    vectors: int
    block: int
    lanes: int
    units: int
    column_threads: int
    slices: int
    parts: int

    @staticmethod
    def of(kernel: Kernel, s: AttentionOneRowSchedule) -> KeyAssignment:
        form = form_as(kernel, Attention)
        each = gcd(loads_per_key(form), s.width)
        lanes = LANES if are_whole_vectors(form.v.index, form.n) else 1
        units = max(1, form.n.extent // lanes // s.across)
        owners = 1 << (units - 1).bit_length()
        return KeyAssignment(
            each, loads_per_key(form) // each, s.threads // each * s.keys, lanes, units, owners,
            s.threads // owners, s.threads // max(owners, s.width),
        )  # fmt: skip

    def areas(self, keys: int, subgroups: int) -> tuple[int, int, int]:
        """Elements of shared memory: scores, a maximum and a sum of each subgroup, and contexts."""
        contexts = self.parts * self.units * self.lanes
        return ceil(keys / self.block) * self.block, 2 * subgroups, contexts


def one_row_shared_bytes(kernel: Kernel, s: AttentionOneRowSchedule) -> int:
    """Bytes of shared memory, with a vector for a number that is broadcast to all threads."""
    keys = form_as(kernel, Attention).keys.extent
    return WORD_BYTES * (sum(KeyAssignment.of(kernel, s).areas(keys, s.threads // s.width)) + LANES)


#: Types of the matrix unit, as feature names have them: f16 operands, f32 results.
UNIT_TYPES = "f16-f32"

#: The least number of query rows for which matrix units are tried.
LEAST_ROWS = 16


def suits_matrix_units(kernel: Kernel) -> bool:
    """True for attention of many rows whose operands may be rounded to f16 and load as vectors."""
    if not is_attention_of_fixed_size(kernel) or not rounds_to_f16(kernel):
        return False
    form = form_as(kernel, Attention)
    sides = (form.q, form.depth), (form.k, form.depth), (form.v, form.n)
    whole = all(axis.extent % F16_VECTOR == 0 for _, axis in sides)
    return (
        whole
        and form.m.extent >= LEAST_ROWS
        and all(are_whole_vectors(load.index, axis) for load, axis in sides)
    )


@dataclass(frozen=True)
class AttentionManyRowsSchedule(Schedule):
    """Tiles of down x along subgroups.  Each of `down` has rows of the tile; `along` subgroups with
    the same rows divide first the keys of a block, then the columns of the head.

    m, n, k: sizes of the unit's matrices;  width: threads of a subgroup
    rows:    matrices that cover a subgroup's query rows
    y1:      keys of a block
    room:    bytes of shared memory that a group may use
    """

    tag = "head-matrix"
    m: int = 16
    n: int = 16
    k: int = 16
    width: int = 32
    rows: int = 1
    down: int = 4
    along: int = 2
    y1: int = 64
    room: int = SHARED_SIZES[-1]

    @property
    def features(self) -> frozenset[str]:
        sizes = f"subgroup-matrix-{UNIT_TYPES}-{self.m}x{self.n}x{self.k}"
        own = {MATRIX_FEATURE, SUBGROUPS_FEATURE, F16_FEATURE, subgroup_feature(self.width), sizes}
        return frozenset(own | shared_memory_feature(self.room))

    @property
    def x1(self) -> int:
        """Query rows of a tile."""
        return self.own * self.down

    @property
    def own(self) -> int:
        """Query rows of a subgroup."""
        return self.m * self.rows

    @property
    def subgroups(self) -> int:
        return self.down * self.along

    @property
    def threads(self) -> int:
        return self.width * self.subgroups

    @property
    def unit(self) -> MatrixUnit:
        return MatrixUnit(self.m, self.n, self.k, F16, F32, self.width)

    def objection(self, kernel: Kernel) -> str:
        if found := super().objection(kernel):
            return found
        if not suits_matrix_units(kernel):
            return f"{kernel.name} needs a fixed size and operands that may be rounded to halves"
        if found := value_objection("width", self.width, SUBGROUP_SIZES):
            return found
        if self.m % LANES or self.n % F16_VECTOR or self.k % F16_VECTOR:
            return f"m is a multiple of {LANES}, n and k of {F16_VECTOR}"
        if found := value_objection("room", self.room, (SHARED_EVERYWHERE, *SHARED_SIZES)):
            return found
        form = form_as(kernel, Attention)
        depth, columns = form.depth.extent, form.n.extent
        if depth % self.k or columns % (self.n * self.along):
            return f"k divides the depth {depth}, and n * along the {columns} columns of a head"
        if self.y1 % self.k or self.y1 % (self.n * self.along):
            return "y1 is a multiple of k and of n * along"
        if self.threads % self.x1 or self.y1 % (F16_VECTOR * self.threads // self.x1):
            return (
                f"threads share whole rows, {F16_VECTOR} keys of a block or a multiple of it each"
            )
        if self.own * (self.y1 + columns) > MOST_SUMS_PER_THREAD * self.width * self.along:
            return f"a thread has at most {MOST_SUMS_PER_THREAD} sums"
        return limit_objection(self.threads, many_rows_shared_bytes(kernel, self), self.room)


@dataclass(frozen=True)
class SharedAreas:
    """The areas of shared memory.

    left:   left operands, a part for the rows of each subgroup: queries, later powers
    right:  right operands, a part for each subgroup beside another: keys and values in turn
    scores: results, a part for each subgroup
    rows:   a number of each thread that the others of its row read; at the end one number per row
    *_pitch: elements from one line to the next
    """

    left: Scratch
    right: Scratch
    scores: Scratch
    rows: Scratch
    left_pitch: int
    key_pitch: int
    value_pitch: int
    score_pitch: int

    @staticmethod
    def of(form: Attention, s: AttentionManyRowsSchedule) -> SharedAreas:
        keys, columns = s.y1 // s.along, form.n.extent // s.along
        left, key, value, score = (
            s.y1 + F16_LINE_GAP,
            form.depth.extent + F16_LINE_GAP,
            columns + F16_LINE_GAP,
            keys + LANES,
        )
        right = max(keys * key, s.y1 * value)
        return SharedAreas(
            Scratch(F16, s.x1 * left, s.own * left),
            Scratch(F16, right * s.along, right),
            Scratch(F32, s.subgroups * s.own * score, s.own * score),
            Scratch(F32, s.threads),
            left, key, value, score,
        )  # fmt: skip

    @property
    def all(self) -> tuple[Scratch, ...]:
        return self.left, self.right, self.scores, self.rows


def many_rows_shared_bytes(kernel: Kernel, s: AttentionManyRowsSchedule) -> int:
    """Bytes of shared memory, with a vector for a number that is broadcast to all threads."""
    areas = SharedAreas.of(form_as(kernel, Attention), s).all
    return sum(area.size * area.dtype.size for area in areas) + WORD_BYTES * LANES
