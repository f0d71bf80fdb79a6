"""Attention of single query rows by subgroups: how a group of threads computes one row of a head.

Input: an attention of few rows.  Output: `HeadRowSchedule`, how keys and columns are dealt, and
which schedules are tried.  head_row_tile.py makes loops of it; attention.py has what needs no
subgroups.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, gcd, prod

from tilewright.kernel.form import Attention, classify, form_as
from tilewright.kernel.loops import TileFn
from tilewright.kernel.spec import Kernel
from tilewright.targets.gpu import attention
from tilewright.targets.gpu.choice import CORES, WARP
from tilewright.targets.gpu.features import SIZES, SUBGROUPS, size_of
from tilewright.targets.gpu.head_row_tile import lower_tile
from tilewright.targets.gpu.heads import vectors_of
from tilewright.targets.gpu.schedule import MOST_THREADS, WORD, beyond
from tilewright.targets.gpu.space import Group, nearby
from tilewright.targets.gpu.staging import LANES, in_vectors
from tilewright.targets.lite import Core
from tilewright.targets.schedule import Schedule

#: Query rows at most, which read all keys each: heads that share a head of keys are such rows.
FEW_ROWS = 8
#: Vectors of keys, or of values, that a thread reads together at most: they wait in registers.
MOST_READ = 32
#: Keys and values that a thread reads together; groups that share the columns of a head, of those
#: the most for which there are cores: what is tried first, each in this order.
KEYS, VALUES, ACROSS = (16, 8, 4, 2, 1), (16, 8, 4), (4, 2, 1)
#: Fields that are varied.
SETTINGS = {
    "threads": (64, 128, 256), "keys": (4, 8, 16, 32), "values": (4, 8, 16), "across": (1, 2, 4, 8)
}  # fmt: skip
#: Candidates of a device's own subgroups, and how much faster than without they are expected to be.
EACH, PACE = 16, 3.0


@dataclass(frozen=True)
class HeadRowSchedule(Schedule):
    """Tiles of one query row and a part of a head's columns, whose scores all stay in shared
    memory.

    width:  threads of a subgroup, which add up by swapping what they have
    keys:   keys of which a thread reads its part together
    values: values of which a thread reads its part together
    across: as of `HeadSchedule`
    """

    form = "head-row"
    threads: int = MOST_THREADS
    width: int = WARP
    keys: int = KEYS[0]
    values: int = VALUES[0]
    across: int = 1

    @property
    def features(self) -> frozenset[str]:
        return frozenset({SUBGROUPS, size_of(self.width)})

    def objection(self, kernel: Kernel) -> str:
        if found := super().objection(kernel):
            return found
        if self.width not in SIZES:
            return f"width is one of {', '.join(map(str, SIZES))}"
        if self.threads & (self.threads - 1) or self.threads < self.width:
            return "threads is a power of two from width on"
        form, dealt = form_as(kernel, Attention), Dealt.of(kernel, self)
        if dealt.each % self.keys:
            return f"keys divides the {dealt.each} threads that share a key"
        if max(self.keys * dealt.vectors, self.values) > MOST_READ:
            return f"a thread reads at most {MOST_READ} vectors together"
        if dealt.units * dealt.lanes * self.across != form.n.extent:
            return f"across divides the {form.n.extent} columns of a head into whole vectors"
        if dealt.owners > self.threads:
            return f"{dealt.owners} threads are needed for the columns of a head"
        return beyond(self.threads, shared(kernel, self))


@dataclass(frozen=True)
class Dealt:
    """How keys and columns are dealt to the threads of a group.

    each:    neighbouring threads that share a key;  vectors: how often each reads from it
    block:   keys that the group reads together
    lanes:   elements of a vector of columns;  units: such vectors that the group has of a head
    owners:  neighbouring threads for them, a power of two: the last ones may have none
    slices:  parts of the values, each of which as many threads add up
    parts:   of them come to shared memory what subgroups have not added up
    """

    each: int
    vectors: int
    block: int
    lanes: int
    units: int
    owners: int
    slices: int
    parts: int

    @staticmethod
    def of(kernel: Kernel, s: HeadRowSchedule) -> Dealt:
        form = form_as(kernel, Attention)
        each = gcd(vectors_of(form), s.width)
        lanes = LANES if in_vectors(form.v.index, form.n) else 1
        units = max(1, form.n.extent // lanes // s.across)
        owners = 1 << (units - 1).bit_length()
        return Dealt(
            each, vectors_of(form) // each, s.threads // each * s.keys, lanes, units, owners,
            s.threads // owners, s.threads // max(owners, s.width),
        )  # fmt: skip

    def areas(self, keys: int, subgroups: int) -> tuple[int, int, int]:
        """Elements of shared memory: scores, a maximum and a sum of each subgroup, contexts."""
        contexts = self.parts * self.units * self.lanes
        return ceil(keys / self.block) * self.block, 2 * subgroups, contexts


def shared(kernel: Kernel, s: HeadRowSchedule) -> int:
    """Bytes of shared memory; a vector of it holds the number that all threads share."""
    keys = form_as(kernel, Attention).keys.extent
    return WORD * (sum(Dealt.of(kernel, s).areas(keys, s.threads // s.width)) + LANES)


def suits(kernel: Kernel) -> bool:
    """True for attention of fixed size and few rows that cannot trap."""
    return attention.suits(kernel) and form_as(kernel, Attention).m.extent <= FEW_ROWS


def usual(kernel: Kernel) -> tuple[HeadRowSchedule, ...]:
    """What is tried first where nothing was tuned, by subgroups as most GPUs have them."""
    known = isinstance(classify(kernel), Attention) and suits(kernel)
    return _first(kernel, WARP) if known else ()


def _first(kernel: Kernel, width: int) -> tuple[HeadRowSchedule, ...]:
    """The likely best with subgroups of this size, if there is one."""
    form = form_as(kernel, Attention)
    rows = form.m.extent * prod(v.extent for v in form.outer)
    made = (
        HeadRowSchedule(width=width, keys=keys, across=across)
        for across in ACROSS
        if across == 1 or across * rows <= CORES
        for keys in KEYS
    )
    return tuple(s for s in made if not s.objection(kernel))[:1]


def space(kernel: Kernel, core: Core, group: Group) -> tuple[tuple[HeadRowSchedule, float], ...]:
    """With subgroups of the class the first choice and what is nearest to it; of other sizes the
    first choice."""

    def fits(s: HeadRowSchedule) -> bool:
        within = s.threads <= group.threads and shared(kernel, s) <= group.shared
        return within and not s.objection(kernel)

    found = list[tuple[HeadRowSchedule, float]]()
    for width in sorted(SIZES, key=lambda size: (size != core.warp_width, size)):
        for first in _first(kernel, width):
            most = EACH if width == core.warp_width else 1
            found += nearby(first, SETTINGS, fits)[:most]
    return tuple((s, cost / PACE) for s, cost in found if fits(s))


def traffic(kernel: Kernel, schedule: HeadRowSchedule) -> tuple[int, float]:
    """Bytes of shared memory; words loaded and stored beyond it, as if all keys were seen."""
    form = form_as(kernel, Attention)
    width = schedule.across * form.depth.extent + form.n.extent
    rows = form.m.extent * prod(v.extent for v in form.outer)
    return shared(kernel, schedule), float(rows * width * (1 + form.keys.extent))


def lower(kernel: Kernel, schedule: HeadRowSchedule) -> TileFn:
    """Tiles of one query row of one head."""
    keys = form_as(kernel, Attention).keys.extent
    dealt = Dealt.of(kernel, schedule)
    areas = dealt.areas(keys, schedule.threads // schedule.width)
    return replace(lower_tile(kernel, schedule, dealt, areas), subgroup=schedule.width)
