"""The tiles worth trying for a product on a class of GPUs: nnJIT's lite space, as groups share it.

Input: a product, the figures of one core, the limits of a group.  Output: schedules with what a
small model expects of each, the default first, the others from the likely best on.  Equal input
gives equal schedules in every process.  It measures nothing and makes no code.

Of the paper's heuristics (targets/lite.py) 2 and 5 hold as they are; 6 counts what a group shares
here, blocks of both operands, since sums stay in registers; 7, that registers are what runs out
first, is no rule but a part of the cost, because phone GPUs have no tile that meets it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product as every
from math import gcd, log2
from typing import Any, TypeVar

from tilewright.kernel.spec import Kernel
from tilewright.targets.gpu.choice import default
from tilewright.targets.gpu.schedule import MOST_SHARED, MOST_THREADS, GroupSchedule, Sizes
from tilewright.targets.lite import Core
from tilewright.targets.schedule import Schedule

S = TypeVar("S", bound=Schedule)
G = TypeVar("G", bound=GroupSchedule)


@dataclass(frozen=True)
class Group:
    """What a group of threads may have on every device of a class.

    threads: in one group;  shared: bytes of their shared memory
    """

    threads: int = MOST_THREADS
    shared: int = MOST_SHARED


#: Candidates of a kernel, with the default: what a device tries in a few seconds.
MOST = 45
#: Best shapes that are also tried with other settings, beside the default.
VARIED = 2

#: Rows and columns of a register tile; of a tile; steps of a block.
REGISTERS = (4, 8)
ROWS = (8, 16, 32, 64, 128)
COLUMNS = (16, 32, 64, 128, 256)
STEPS = (8, 16, 32)
#: Rows of tiles that are walked together; other fields, of which one at a time is varied.
BANDS = (1, 8)
SETTINGS: Mapping[str, Sequence[Any]] = {
    "r0": (4, 8, 16), "ahead": (False, True), "early": (False, True), "slices": (1, 2, 4)
}  # fmt: skip

#: Groups of fewer threads leave most of a core's lanes without work.
LEAST_THREADS = 16
#: Threads in flight below which a core waits for its memory.
BUSY = 256
#: Multiply-adds in the time of a word: from shared memory, and from the memory beyond.
SHARED, BEYOND = 2.0, 16.0
#: Words of registers that a thread needs for addresses and counts.
OVERHEAD = 24
#: How much worse an unusual setting is expected to be, so that other shapes come in between.
UNUSUAL = 1.1
#: Cores of a usual GPU: small ones have 6, large ones 130.
CORES = 48


@lru_cache(maxsize=64)
def space(kernel: Kernel, core: Core, group: Group) -> tuple[tuple[GroupSchedule, float], ...]:
    """At most `MOST` schedules with their costs: the default, then the others, the likely best
    first."""
    return tiles_around(kernel, default(kernel), core, group)


def tiles_around(kernel: Kernel, usual: G, core: Core, group: Group) -> tuple[tuple[G, float], ...]:
    """The same for a default of any type of tiles."""
    sizes = Sizes.of(kernel)

    def fits(s: GroupSchedule) -> bool:
        within = LEAST_THREADS <= s.threads <= group.threads and s.shared <= group.shared
        return within and not s.objection(kernel)

    def expected(s: GroupSchedule) -> float:
        unusual = sum(getattr(s, name) != getattr(usual, name) for name in SETTINGS)
        return cost(s, sizes, core) * float(UNUSUAL**unusual)

    def rank(s: GroupSchedule) -> tuple[float, str]:
        return expected(s), str(s)

    shapes = sorted(filter(fits, _shapes(usual, sizes)), key=rank)
    varied = [v for s in (usual, *shapes[:VARIED]) for v in _varied(s)]
    walked = (replace(s, band=_band(s.band, s, sizes)) for s in (*varied, *shapes))
    found = dict.fromkeys(filter(fits, walked))
    for same in (usual, replace(usual, band=_band(usual.band, usual, sizes))):
        found.pop(same, None)
    chosen = (usual, *sorted([*found][: MOST - 1], key=rank))
    return tuple((s, expected(s)) for s in chosen)


def nearby(
    usual: S, settings: Mapping[str, Sequence[int]], fits: Callable[[S], bool]
) -> tuple[tuple[S, float], ...]:
    """The usual schedule, then others of these settings: for want of a model of such kernels, those
    nearest to it first."""

    def distance(s: S) -> float:
        return sum(abs(log2(getattr(s, name) / getattr(usual, name))) for name in settings)

    every_one = (dict(zip(settings, values, strict=True)) for values in every(*settings.values()))
    found = {replace(usual, **chosen) for chosen in every_one} - {usual}
    others = sorted(filter(fits, found), key=lambda s: (distance(s), str(s)))
    return tuple((s, float(UNUSUAL ** distance(s))) for s in (usual, *others[: MOST - 1]))


def cost(schedule: GroupSchedule, sizes: Sizes, core: Core) -> float:
    """Time in no unit: multiply-adds with their loads, over how much of the device is at work."""
    s = schedule
    work = sizes.tiles(s) * s.x1 * s.y1 * -(-sizes.steps // s.r1) * s.r1
    each = 1 + SHARED * (1 / s.x0 + 1 / s.y0) + BEYOND * (1 / s.x1 + 1 / s.y1)
    barriers = 1 + 2 / s.r1
    return work * each * barriers / at_work(sizes.tiles(s), s.threads, registers(s), s.shared, core)


def at_work(tiles: int, threads: int, registers: int, shared: int, core: Core) -> float:
    """How much of the device is: cores that have a tile, and what these have in flight.

    registers: words of a thread;  shared: bytes of a group
    """
    spread = tiles / (CORES * -(-tiles // CORES))
    return spread * _flight(threads, registers, shared, core, max(1.0, tiles / CORES))


def registers(schedule: GroupSchedule) -> int:
    """Words that a thread keeps: sums, one step of both operands, and what it copies ahead."""
    s = schedule
    copied = s.r1 * (s.x1 + s.y1) // s.threads
    return s.x0 * s.y0 + s.x0 + s.y0 + copied + OVERHEAD


def _flight(threads: int, registers: int, shared: int, core: Core, most: float) -> float:
    """The part of the threads that a core needs in flight for which it has room and work: groups,
    at most so many; warps that are not full count as far as they are."""
    warps = -(-threads // core.warp_width)
    lanes = threads / (warps * core.warp_width)
    room = core.registers / (registers * threads), core.l1 / max(shared, 1), core.warps / warps
    return lanes * min(1.0, max(min(*room, most), 0.25) * threads / BUSY)


def _shapes(usual: G, sizes: Sizes) -> Iterator[G]:
    """Every tile of the ranges that is not twice as large as the product, with usual settings."""
    slices = sorted({1, usual.slices})
    for x0, y0, x1, y1, r1, parts in every(REGISTERS, REGISTERS, ROWS, COLUMNS, STEPS, slices):
        oversized = x1 >= 2 * max(sizes.rows, ROWS[0]) or y1 >= 2 * max(sizes.cols, COLUMNS[0])
        if not oversized and x0 <= x1 and y0 <= y1 and r1 < 2 * max(sizes.steps, STEPS[0]):
            r0 = gcd(usual.r0, r1 // parts)
            shape = replace(usual, x0=x0, y0=y0, r0=r0, x1=x1, y1=y1, r1=r1, band=BANDS[-1])
            yield replace(shape, slices=parts)


def _varied(s: G) -> Iterator[G]:
    """The same shape, and each with one other setting."""
    yield from (replace(s, band=band) for band in BANDS)
    for name, values in SETTINGS.items():
        yield from (replace(s, **{name: value}) for value in values)


def _band(most: int, s: GroupSchedule, sizes: Sizes) -> int:
    """The band that comes of it (`GroupSchedule.band`), so that equal walks are one candidate."""
    return gcd(most, -(-sizes.rows // s.x1))
