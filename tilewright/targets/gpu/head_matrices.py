"""Attention by the matrix units of subgroups: how a group computes many query rows of a head.

Input: an attention whose operands may be rounded to halves.  Output: `HeadMatrixSchedule`, the
areas of shared memory, and which schedules are tried.  head_matrix_tile.py makes loops of it;
docs/decisions/0036-attention-by-matrices.md says why they are so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product as every
from math import ceil, prod

from tilewright.base.dtypes import F16, F32
from tilewright.kernel.form import Attention, classify, form_as, in_halves
from tilewright.kernel.loops import MatrixUnit, Scratch, TileFn
from tilewright.kernel.spec import EIGHT, Kernel
from tilewright.targets.gpu import attention
from tilewright.targets.gpu.features import (
    EVERYWHERE,
    MATRIX,
    SHARED_SIZES,
    SIZES,
    SUBGROUPS,
    shared_of,
    size_of,
)
from tilewright.targets.gpu.features import F16 as HALVES
from tilewright.targets.gpu.head_matrix_tile import lower_tile
from tilewright.targets.gpu.matrices import MOST_SUMS, UNITS, USUAL
from tilewright.targets.gpu.matrix_tiles import PAD
from tilewright.targets.gpu.schedule import WORD, beyond
from tilewright.targets.gpu.space import Group, nearby
from tilewright.targets.gpu.staging import LANES, in_vectors
from tilewright.targets.lite import Core
from tilewright.targets.schedule import Schedule

#: What matrices multiply and add up, as the features name it.
TYPES = "f16-f32"
#: Query rows from which on a tile of matrices is worth it.
LEAST_ROWS = 16
#: Rows of a tile, matrices of a subgroup's rows, subgroups that share rows, keys of a block: what
#: is tried first, each in this order.
TILE_ROWS, ROWS, ALONG, KEYS = (64, 32, 16, 128, 8), (1, 2), (2, 1, 4), (64, 32, 128)
#: Query rows of a subgroup, about.
OWN_ROWS = 16
#: Fields that are varied.
SETTINGS = {"rows": ROWS, "down": (1, 2, 4, 8), "along": ALONG, "y1": KEYS, "room": SHARED_SIZES}
#: Candidates of each unit, and how much faster than attention in f32 they are expected to be.
EACH, PACE = 6, 8.0


@dataclass(frozen=True)
class HeadMatrixSchedule(Schedule):
    """Tiles of down x along subgroups: down has rows of the tile each, along shares keys and then
    columns of the head.

    m, n, k: sizes of the unit's matrices;  width: threads of a subgroup
    rows:    matrices that a subgroup's query rows consist of
    y1:      keys of a block
    room:    bytes of shared memory that a group may take
    """

    form = "head-matrix"
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
        sizes = f"subgroup-matrix-{TYPES}-{self.m}x{self.n}x{self.k}"
        own = {MATRIX, SUBGROUPS, HALVES, size_of(self.width), sizes}
        return frozenset(own | shared_of(self.room))

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
        if not suits(kernel):
            return f"{kernel.name} is no attention of fixed size that may be rounded to halves"
        if self.width not in SIZES:
            return f"width is one of {', '.join(map(str, SIZES))}"
        if self.m % LANES or self.n % EIGHT or self.k % EIGHT:
            return f"m is a multiple of {LANES}, n and k of {EIGHT}"
        if self.room not in (EVERYWHERE, *SHARED_SIZES):
            return f"room is one of {', '.join(map(str, (EVERYWHERE, *SHARED_SIZES)))}"
        form = form_as(kernel, Attention)
        depth, columns = form.depth.extent, form.n.extent
        if depth % self.k or columns % (self.n * self.along):
            return f"k divides the depth {depth}, and n * along the {columns} columns of a head"
        if self.y1 % self.k or self.y1 % (self.n * self.along):
            return "y1 is a multiple of k and of n * along"
        if self.threads % self.x1 or self.y1 % (EIGHT * self.threads // self.x1):
            return f"threads share whole rows, {EIGHT} keys of a block or a multiple of it each"
        if self.own * (self.y1 + columns) > MOST_SUMS * self.width * self.along:
            return f"a thread has at most {MOST_SUMS} sums"
        return beyond(self.threads, shared(kernel, self), self.room)


@dataclass(frozen=True)
class Areas:
    """How shared memory is dealt.

    left:   what matrices have as rows, in parts for the rows of a subgroup: queries, then powers
    right:  the same of columns, in parts for the subgroups beside each other: keys and values by
            turns
    scores: results, in parts for each subgroup
    rows:   a number of each thread, which others of its row read; in the end one of each row
    *_pitch: elements from line to line
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
    def of(form: Attention, s: HeadMatrixSchedule) -> Areas:
        keys, columns = s.y1 // s.along, form.n.extent // s.along
        left, key, value, score = s.y1 + PAD, form.depth.extent + PAD, columns + PAD, keys + LANES
        right = max(keys * key, s.y1 * value)
        return Areas(
            Scratch(F16, s.x1 * left, s.own * left),
            Scratch(F16, right * s.along, right),
            Scratch(F32, s.subgroups * s.own * score, s.own * score),
            Scratch(F32, s.threads),
            left, key, value, score,
        )  # fmt: skip

    @property
    def all(self) -> tuple[Scratch, ...]:
        return self.left, self.right, self.scores, self.rows


def shared(kernel: Kernel, s: HeadMatrixSchedule) -> int:
    """Bytes of shared memory; a vector of it holds the number that all threads share."""
    areas = Areas.of(form_as(kernel, Attention), s).all
    return sum(area.size * area.dtype.size for area in areas) + WORD * LANES


def suits(kernel: Kernel) -> bool:
    """True for attention of many rows, of operands that may be rounded and lie in vectors."""
    if not attention.suits(kernel) or not in_halves(kernel):
        return False
    form = form_as(kernel, Attention)
    sides = (form.q, form.depth), (form.k, form.depth), (form.v, form.n)
    whole = all(axis.extent % EIGHT == 0 for _, axis in sides)
    return (
        whole
        and form.m.extent >= LEAST_ROWS
        and all(in_vectors(load.index, axis) for load, axis in sides)
    )


def usual(kernel: Kernel) -> tuple[HeadMatrixSchedule, ...]:
    """What is tried first where nothing was tuned: of common units, for each size of memory."""
    if not isinstance(classify(kernel), Attention) or not suits(kernel):
        return ()
    units = [unit for unit in UNITS[TYPES] if unit in USUAL]
    rooms = SHARED_SIZES[::-1]
    first = (next(_of_unit(kernel, unit, room), None) for unit, room in every(units, rooms))
    return tuple(s for s in first if s is not None)


def space(kernel: Kernel, core: Core, group: Group) -> tuple[tuple[HeadMatrixSchedule, float], ...]:
    """Of each unit the first choice and what is nearest to it."""
    del core
    found = list[tuple[HeadMatrixSchedule, float]]()

    def fits(s: HeadMatrixSchedule) -> bool:
        return s.threads <= group.threads and not s.objection(kernel)

    for unit in UNITS[TYPES]:
        rooms = (next(_of_unit(kernel, unit, room), None) for room in SHARED_SIZES[::-1])
        best = next((s for s in rooms if s is not None), None)
        found += nearby(best, SETTINGS, fits)[:EACH] if best else ()
    return tuple((s, cost / PACE) for s, cost in found)


def _of_unit(
    kernel: Kernel, unit: tuple[int, int, int, int], room: int
) -> Iterator[HeadMatrixSchedule]:
    """Those of a unit, the likely best first: no more rows than the kernel has, and few tiles."""
    (m, n, k, width), rows = unit, form_as(kernel, Attention).m.extent
    owned = sorted(ROWS, key=lambda own: abs(m * own - OWN_ROWS))
    for x1, along, y1, own in every(TILE_ROWS, ALONG, KEYS, owned):
        if x1 % (m * own) == 0 and x1 < 2 * rows:
            s = HeadMatrixSchedule(m, n, k, width, own, x1 // (m * own), along, y1, room)
            if not s.objection(kernel):
                yield s


def traffic(kernel: Kernel, schedule: HeadMatrixSchedule) -> tuple[int, float]:
    """Bytes of shared memory; words loaded and stored beyond it, as if all keys were seen."""
    form, s = form_as(kernel, Attention), schedule
    rows, depth, columns = form.m.extent, form.depth.extent, form.n.extent
    each = rows * (depth + columns) + ceil(rows / s.x1) * form.keys.extent * (2 * depth + columns)
    return shared(kernel, s), float(prod(v.extent for v in form.outer) * each)


def lower(kernel: Kernel, schedule: HeadMatrixSchedule) -> TileFn:
    """Tiles of x1 query rows of one head; what lies beyond the ends is no key and not stored."""
    areas = Areas.of(form_as(kernel, Attention), schedule)
    return lower_tile(kernel, schedule, areas)
