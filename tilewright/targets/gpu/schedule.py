"""The choices of how a group of threads computes a tile of a product, and what a group may have.

Input: nothing.  Output: `GroupSchedule`, and a product's `Sizes`.  tiles.py makes loops of it,
choice.py the first choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Protocol

from tilewright.kernel.form import BlockContraction, classify
from tilewright.kernel.spec import Kernel
from tilewright.targets.gpu.features import EVERYWHERE
from tilewright.targets.gpu.places import operands
from tilewright.targets.gpu.staging import LANES
from tilewright.targets.schedule import Schedule

WORD = 4

#: WebGPU's default limits: threads of a group, and bytes that they share.
MOST_THREADS = 256
MOST_SHARED = EVERYWHERE

#: Elements that steps of columns lie apart at most; those of rows LANES.
MOST_GAP = 8


@dataclass(frozen=True)
class GroupSchedule(Schedule):
    """Tiles of x1 by y1 in blocks of r1 steps, register tiles of x0 by y0, r0 steps unrolled.

    band:   rows of tiles that are walked together, column by column, so that what they read is
            still in the cache ("swizzle"); the largest part that divides their number
    ahead:  a block is read into registers while the one before is computed ("prefetch")
    early:  that block is asked for before the barrier, since behind it a compiler may put the reads
            off to the end of the pass; of many sums of a thread some would wait for them
    apart:  steps lie apart in shared memory, so that threads write to different banks ("padding")
    slices: parts of each block's steps, each computed by threads of its own, which add up their
            sums in the end: work for more threads where tiles are few ("split-K")
    """

    form = "group"
    x0: int = 8
    y0: int = 8
    r0: int = 4
    x1: int = 64
    y1: int = 64
    r1: int = 16
    band: int = 1
    ahead: bool = False
    apart: bool = False
    slices: int = 1
    early: bool = False

    @property
    def threads(self) -> int:
        return (self.x1 // self.x0) * (self.y1 // self.y0) * self.slices

    @property
    def shared(self) -> int:
        """Bytes of shared memory, at most."""
        gaps = MOST_GAP + LANES if self.apart else 0
        sums = (self.slices - 1) * (self.x1 // self.x0) * self.y1
        return WORD * (self.r1 * (self.x1 + self.y1 + gaps) + sums)

    def objection(self, kernel: Kernel) -> str:
        if found := super().objection(kernel):
            return found
        if self.x0 % LANES or self.y0 % LANES or self.r1 % LANES:
            return f"x0, y0 and r1 are multiples of {LANES}"
        if self.x1 % self.x0 or self.y1 % self.y0 or self.r1 % (self.r0 * self.slices):
            return "x1, y1 and r1 are multiples of x0, y0 and r0 * slices"
        form = classify(kernel)
        if isinstance(form, BlockContraction) and self.r1 % form.weights.together:
            return f"r1 is a multiple of the {form.weights.together} weights read at a time"
        return beyond(self.threads, self.shared)


class Covering(Protocol):
    """Schedules with tiles of x1 by y1."""

    @property
    def x1(self) -> int: ...

    @property
    def y1(self) -> int: ...


class Tiled(Covering, Protocol):
    """Those of which threads have register tiles of x0 by y0."""

    @property
    def x0(self) -> int: ...

    @property
    def y0(self) -> int: ...


def beyond(threads: int, shared: int, most: int = MOST_SHARED) -> str:
    """Which limit a group of so many threads and shared bytes exceeds; "" if none."""
    if threads > MOST_THREADS:
        return f"a group has at most {MOST_THREADS} threads, not {threads}"
    if shared > most:
        return f"a group shares at most {most} bytes, not {shared}"
    return ""


@dataclass(frozen=True)
class Sizes:
    """A product as its tiles see it: batches of rows by columns, and steps of the reduction."""

    batch: int
    rows: int
    cols: int
    steps: int

    @staticmethod
    def of(kernel: Kernel) -> Sizes:
        ops = operands(kernel)
        batch = prod(v.extent for v in ops.outer)
        return Sizes(batch, ops.m.extent, ops.n.extent, ops.steps)

    def tiles(self, s: Covering) -> int:
        return self.batch * -(-self.rows // s.x1) * -(-self.cols // s.y1)

    def words(self, s: GroupSchedule) -> float:
        """Words loaded and stored beyond shared memory."""
        loads = self.tiles(s) * self.steps * (s.x1 + s.y1)
        return float(loads + self.batch * self.rows * self.cols)
