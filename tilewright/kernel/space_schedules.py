"""The space of one kernel: every schedule that is worth trying on a device, and in which order.

Input: a kernel, the machine that schedules must fit, the core of the lite space.  Output:
`Candidate`s, each once, the default first; equal input gives equal candidates in every process.
Two parts: "lite" are the tiles of kernel/space.py, for matrix products; "extended" are our own:
what a change or two make of the default, and of what it would be with other register tiles.
It lowers nothing.  docs/spaces.md explains what is varied and why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Literal

from tilewright.kernel.roles import Attention, attention, operands
from tilewright.kernel.roles_dot import byte_windows, dot_operands
from tilewright.kernel.schedule import Machine, Schedule
from tilewright.kernel.space import RELAXATION, Core
from tilewright.kernel.space_products import Contraction, Dots, usual_tiles
from tilewright.kernel.space_rules import Rules, aligned, around, whole
from tilewright.kernel.spec import Kernel
from tilewright.kernel.windows import Windows, windows

Mark = Literal["default", "lite", "extended"]

#: Bytes of scratch memory that a worker has for schedules other than the default one.
SCRATCH = 256 * 1024


@dataclass(frozen=True)
class Candidate:
    """A schedule, where it comes from, and what the model expects of it (smaller is better)."""

    schedule: Schedule
    mark: Mark
    cost: float
    scratch: int
    words: float


def candidates(
    kernel: Kernel,
    default: Schedule,
    machine: Machine,
    core: Core,
    relaxation: float = RELAXATION,
    choices: Callable[[Schedule], Iterable[Schedule]] = lambda schedule: (schedule,),
) -> list[Candidate]:
    """The default and, each once, all others: lite ones in the paper's order, then our own.

    `choices` gives a lite tile the settings of what is no size: loop order, copies.
    """
    rules = _rules(kernel, default, machine)
    found: dict[Schedule, Candidate] = {}

    def take(schedules: Iterable[Schedule], mark: Mark) -> None:
        for schedule in schedules:
            normal = rules.normal(schedule)
            scratch = rules.scratch(normal)
            if normal in found or (mark != "default" and scratch > SCRATCH):
                continue
            cost, words = rules.cost(normal), rules.words(normal)
            kept = schedule if mark == "default" else normal
            found[normal] = Candidate(kept, mark, cost, scratch, words)

    take([default], "default")
    take((c for s in rules.lite(core, relaxation) for c in choices(s)), "lite")
    take((s for s in rules.extended() if rules.balanced(s)), "extended")
    return list(found.values())


def _rules(kernel: Kernel, default: Schedule, machine: Machine) -> Rules:
    roles = operands(kernel)
    if roles is not None:
        return Contraction(kernel, default, machine, roles)
    heads = attention(kernel)
    if heads is not None:
        return AttentionRules(kernel, default, machine, heads)
    dots = dot_operands(kernel)
    if dots is not None:
        return Dots(kernel, default, machine, dots)
    across = windows(kernel)
    if across is not None:
        taps = byte_windows(kernel) is not None
        return WindowRules(kernel, default, machine, across, taps)
    return Rules(kernel, default, machine)


@dataclass(frozen=True)
class WindowRules(Rules):
    """Windows: pixels and channels in registers, units and channels of a tile."""

    across: Windows
    taps: bool

    def extended(self) -> Iterator[Schedule]:
        d, lanes = self.usual, self.machine.lanes
        widths = (d.y0,) if self.taps else (lanes, 2 * lanes, 4 * lanes)
        for x0 in range(1, min(8, self.across.pixel.extent) + 1):
            for y0 in widths:
                if x0 * y0 // lanes <= self.machine.registers - 2 or self.taps:
                    yield replace(d, x0=x0, y0=y0)
        for x1 in around(d.x1):
            yield replace(d, x1=x1)
        for y1 in around(d.y1):
            yield replace(d, y1=y1)
        for r0 in () if self.taps else (1, 2, self.across.taps):
            yield replace(d, r0=r0)

    def normal(self, s: Schedule) -> Schedule:
        x0 = min(s.x0, self.across.pixel.extent)
        units = prod(v.extent for v in self.across.rows) * -(-self.across.pixel.extent // x0)
        y1 = whole(s.y1, s.y0, self.across.channel.extent)
        return replace(s, x0=x0, x1=min(s.x1, units), y1=y1)

    def tiles(self, s: Schedule) -> int:
        s = self.normal(s)
        units = prod(v.extent for v in self.across.rows) * -(-self.across.pixel.extent // s.x0)
        return -(-units // s.x1) * -(-self.across.channel.extent // s.y1)


@dataclass(frozen=True)
class AttentionRules(Rules):
    """Register tiles of both products, query rows of a tile, keys of a block, what is copied."""

    heads: Attention

    def extended(self) -> Iterator[Schedule]:
        d = self.usual
        rows, keys = self.heads.m.extent, self.heads.keys.extent
        for x0, y0 in usual_tiles(rows, keys, self.machine):
            yield replace(d, x0=x0, y0=y0, x1=max(1, d.x1 // x0) * x0)
        for cache in ("", "k", "v", "kv"):
            yield replace(d, cache=cache)
        for x1 in (d.x1 // 4, d.x1 // 2, d.x1 * 2):
            for y1 in (d.y1, 64, 128, 256):
                yield replace(d, x1=max(d.x0, x1), y1=y1)
        for y1 in (64, 128, 256, keys):
            yield replace(d, y1=y1)
        for r0 in (2, 4, 16):
            yield replace(d, r0=r0)

    def normal(self, s: Schedule) -> Schedule:
        rows = self.heads.m.extent
        x0 = min(s.x0, rows)
        return replace(s, x0=x0, x1=whole(s.x1, x0, rows), y1=min(s.y1, self.heads.keys.extent))

    def tiles(self, s: Schedule) -> int:
        return prod(v.extent for v in self.heads.outer) * -(-self.heads.m.extent // s.x1)

    def scratch(self, s: Schedule) -> int:
        at, wide = self.heads, 16
        most, keys = min(s.x1, at.m.extent), min(s.y1, at.keys.extent)
        words = most * (-(-keys // wide) * wide + 4 + at.n.extent) + at.depth.extent * s.y0
        if "v" in s.cache:
            words += keys * -(-at.n.extent // s.y0) * s.y0
        return aligned(4 * words)
