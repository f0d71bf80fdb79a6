"""The choices of how a group of threads computes some query rows of a head, and what it shares.

Input: an attention.  Output: `HeadSchedule`, how columns are dealt, the areas of shared memory, the
blocks of keys that a tile sees.  attention.py makes loops of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from tilewright.base.dtypes import I32
from tilewright.kernel.builder import Builder, Values
from tilewright.kernel.expr import Call, Const
from tilewright.kernel.form import Attention, form_as
from tilewright.kernel.index import Index, index
from tilewright.kernel.spec import Kernel
from tilewright.targets.gpu.schedule import WORD, beyond
from tilewright.targets.gpu.staging import LANES, in_vectors
from tilewright.targets.masks import last_seen
from tilewright.targets.schedule import Schedule

#: Threads of a group, unless a schedule says otherwise.
THREADS = 128


@dataclass(frozen=True)
class HeadSchedule(Schedule):
    """Tiles of x1 query rows, 1 or a multiple of 4; blocks of y1 keys; threads of a group.

    parts:  threads that share the score of a key, so that neighbours read neighbouring elements
    across: groups that share the columns of a head, each with all its scores: work for more cores
    """

    form = "head"
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
        if self.threads % self.parts or vectors_of(form) % self.parts:
            return f"parts divides threads and the {vectors_of(form)} vectors of a key"
        columns = Columns.of(form, self)
        if columns.units * columns.width * self.across != form.n.extent:
            return f"across divides the {form.n.extent} columns of a head into whole vectors"
        if columns.units > self.threads:
            return f"{columns.units} threads are needed for the columns of a head"
        return beyond(self.threads, self.shared(kernel))

    def shared(self, kernel: Kernel) -> int:
        """Bytes of shared memory; a vector of it holds the number that all threads share."""
        return WORD * (sum(areas_of(kernel, self)) + LANES)


@dataclass(frozen=True)
class Columns:
    """How the columns of a head that a group has are dealt: units of `width`, each to `slices`
    threads."""

    width: int
    units: int
    slices: int

    @staticmethod
    def of(form: Attention, schedule: HeadSchedule) -> Columns:
        width = LANES if in_vectors(form.v.index, form.n) else 1
        units, slices = max(1, form.n.extent // width // schedule.across), 1
        while 2 * slices * units <= schedule.threads:
            slices *= 2
        return Columns(width, units, slices)


def areas_of(kernel: Kernel, s: HeadSchedule) -> tuple[int, int, int]:
    """Elements of shared memory: queries, scores (later contexts), a maximum of each thread."""
    form = form_as(kernel, Attention)
    columns = Columns.of(form, s)
    contexts = columns.slices // 2 * columns.units * columns.width
    return form.depth.extent * s.x1, max(s.y1 * s.parts, contexts) * s.x1, s.threads * s.x1


def width_of(form: Attention) -> int:
    """Elements of a key that are read at a time."""
    return LANES if in_vectors(form.k.index, form.depth) else 1


def vectors_of(form: Attention) -> int:
    """How often a key is read from."""
    return form.depth.extent // width_of(form)


def blocks_seen(b: Builder, form: Attention, at: Values, last_row: Index, y1: int) -> Index:
    """The blocks of y1 keys that hold one which this row sees, and so all that rows before it do.

    at: values of the other axes
    """
    last, blocks = last_seen(form), ceil(form.keys.extent / y1)
    if last is None or blocks == 1:
        return index(blocks)
    row = {form.m: b.let_min(last_row, index(form.m.extent - 1))}
    # a last key of -1 gives no block
    key, size = last.substitute(at | row), Const(y1, I32)
    whole = Call("div", (Call("add", (key, size), I32), size), I32)
    return b.uniform(whole, blocks + 1, "blocks")
