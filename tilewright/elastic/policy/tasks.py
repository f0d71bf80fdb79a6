"""The policy's facts about the GPU and the models that share it, measured beforehand.

Input: numbers.  Output: frozen records.  Times are microseconds.  A *worker* is a block of a normal
kernel that takes one tile after the other; the *budget* is how many workers may stay.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import inf, isfinite

from tilewright.base.errors import UsageError

#: The most phases of a model and points of a curve: choosing budgets takes longer with either.
MOST_PHASES, MOST_POINTS = 64, 32


def _within(name: str, value: float, least: float, most: float = inf) -> None:
    if not (isfinite(value) and least <= value <= most):
        limit = f"{least} or more" if most == inf else f"{least} to {most}"
        raise UsageError(f"{name} is {value}", hint=f"Give {limit}", name=name)


def _above_zero(name: str, value: float) -> None:
    if not (isfinite(value) and value > 0):
        raise UsageError(f"{name} is {value}", hint="Give a number above 0", name=name)


@dataclass(frozen=True)
class Gpu:
    """The part of a GPU that the tasks share.

    threads, blocks: the most on an SM
    launch_us: from the end of a kernel to the start of the next one in its stream
    submit_us: from the host's call until the GPU begins
    """

    sms: int
    threads: int = 2048
    blocks: int = 32
    launch_us: float = 1.0
    submit_us: float = 5.0


@dataclass(frozen=True)
class KernelCost:
    """One kernel of a model.

    tiles: blocks of the plain form;  threads: of a block;  tile_us: a block alone on an SM
    chunk_us: between two checks of the budget; tile_us if a tile is not divided
    compute: share of an SM's throughput that one block uses;  memory: share of the GPU's bandwidth
    whole_us: measured time of the launch alone; 0: estimated from its tiles

    Raises UsageError for impossible numbers.
    """

    tiles: int
    threads: int
    tile_us: float
    chunk_us: float
    compute: float = 0.25
    memory: float = 0.0
    whole_us: float = 0.0

    def __post_init__(self) -> None:
        _within("whole_us", self.whole_us, 0)
        _within("tiles", self.tiles, 1)
        _within("threads", self.threads, 1)
        _above_zero("tile_us", self.tile_us)
        _above_zero("chunk_us", self.chunk_us)
        _within("compute", self.compute, 0)
        _within("memory", self.memory, 0)

    def residents(self, gpu: Gpu) -> int:
        """The most blocks that the GPU runs at once."""
        return gpu.sms * max(1, min(gpu.blocks, gpu.threads // self.threads))

    def alone_us(self, gpu: Gpu) -> float:
        """Microseconds of the launch with nothing beside it."""
        return self.whole_us or self.tile_us * -(-self.tiles // self.residents(gpu))


@dataclass(frozen=True)
class Curve:
    """Slowdown of critical kernels, by the number of workers of normal kernels beside them.

    points: (workers, slowdown), by workers, from 0 on; a slowdown of 1 is the time alone

    Raises UsageError for invalid points.
    """

    points: tuple[tuple[int, float], ...] = ((0, 1.0),)

    def __post_init__(self) -> None:
        workers = [w for w, _ in self.points]
        if not workers or workers[0] != 0 or workers != sorted(set(workers)):
            raise UsageError(
                "a slowdown curve must begin at 0 workers and ascend",
                hint="Measure it again: tilewright.elastic.measure_curves",
                workers=workers,
            )
        _within("points of a curve", len(self.points), 1, MOST_POINTS)
        for _, slowdown in self.points:
            _above_zero("slowdown", slowdown)

    @cached_property
    def levels(self) -> tuple[tuple[int, float], ...]:
        """The points, made monotonic: noise may show less slowdown with more workers."""
        worst = accumulate((max(1.0, slowdown) for _, slowdown in self.points), max)
        return tuple(zip((w for w, _ in self.points), worst, strict=True))

    def at(self, workers: int) -> float:
        """The slowdown for this number of workers: interpolated linearly, constant after the last
        point."""
        above = bisect_right(self.levels, workers, key=lambda level: level[0])
        low, low_slowdown = self.levels[above - 1]
        if above == len(self.levels):
            return low_slowdown
        high, high_slowdown = self.levels[above]
        return low_slowdown + (high_slowdown - low_slowdown) * (workers - low) / (high - low)


@dataclass(frozen=True)
class Phase:
    """Consecutive kernels of a critical model that run under one budget.

    Raises UsageError for impossible numbers.
    """

    kernels: int
    solo_us: float
    curve: Curve = Curve()

    def __post_init__(self) -> None:
        _within("kernels of a phase", self.kernels, 1)
        _above_zero("solo_us", self.solo_us)


@dataclass(frozen=True)
class Critical:
    """A model whose slowdown is bounded.

    kernels: its costs, if a policy plans by kernels;  priority: larger goes first
    deadline_us: from arrival to answer;  rate_hz: the most requests per second; None: not known
    gap_us: the least time between two requests; 0: not known.  A request that comes earlier is
            answered, too, but its bound may be exceeded
    lease_us: the longest time for which one request holds normal work back; 0: from its time alone

    Raises UsageError for impossible numbers.
    """

    name: str
    phases: tuple[Phase, ...]
    kernels: tuple[KernelCost, ...] = ()
    max_slowdown: float = 1.05
    priority: int = 0
    deadline_us: float | None = None
    rate_hz: float | None = None
    lease_us: float = 0.0
    gap_us: float = 0.0

    def __post_init__(self) -> None:
        _within("phases", len(self.phases), 1, MOST_PHASES)
        _above_zero("max_slowdown", self.max_slowdown)
        _within("deadline_us", self.deadline_us or 0.0, 0)
        _within("rate_hz", self.rate_hz or 0.0, 0)
        _within("lease_us", self.lease_us, 0)
        _within("gap_us", self.gap_us, 0)

    @classmethod
    def unbounded(cls, name: str) -> Critical:
        """A task for measurements: one phase without a bound that matters, and without a lease."""
        return cls(name, (Phase(1, 1.0),), max_slowdown=1e9, lease_us=1e12)

    @cached_property
    def solo_us(self) -> float:
        return sum(phase.solo_us for phase in self.phases)

    @property
    def longest_us(self) -> float:
        """The longest time that a request may take, once it has begun."""
        return self.solo_us * self.max_slowdown

    @property
    def effective_lease_us(self) -> float:
        return self.lease_us or max(20 * self.longest_us, 100_000.0)


@dataclass(frozen=True)
class Normal:
    """A model that uses the capacity that critical models leave."""

    name: str
    kernels: tuple[KernelCost, ...]
    priority: int = 0
