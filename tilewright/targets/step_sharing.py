"""Decides how workers share a plan: which steps wait, run on one worker, or take several tickets.

Input: each step's work, tile count, and the addresses that it reads and writes.  Output: a
`StepSharing` per step.  The decision depends on these numbers only.  The driver follows it
(targets/wasm/driver.py); any number of workers may run the same plan.

    A  q = x·Wq    B  k = x·Wk    C  s = q·k      D  t = s + 1     E  u = t · 2      (D, E small)
    shared, waits  shared         shared, waits   serial, waits    serial, chained to D
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tilewright.kernel.spec import Kernel

#: A range of byte addresses, [first, second).
Range = tuple[int, int]


@dataclass(frozen=True)
class Costs:
    """The figures behind the decision, in nanoseconds and per nanosecond; their order of magnitude
    matters.

    flops, bytes: what one worker does in a nanosecond
    barrier:      the time below which a step stays on one worker: a barrier would cost more
    ticket:       the least work of a ticket, so that its atomic operation does not count
    tickets:      the wanted number of tickets of a step, for balance
    """

    flops: float = 20.0
    bytes: float = 8.0
    barrier: float = 1500.0
    ticket: float = 1000.0
    tickets: int = 16


USUAL = Costs()


@dataclass(frozen=True)
class Work:
    """One step: operations, bytes touched, tiles, and the addresses that it reads and writes."""

    flops: int
    bytes: int
    tiles: int
    reads: tuple[Range, ...]
    writes: tuple[Range, ...]

    def nanoseconds(self, costs: Costs) -> float:
        return max(self.flops / costs.flops, self.bytes / costs.bytes)


def work_of(kernel: Kernel, addresses: Sequence[int], tiles: int) -> Work:
    """The work of a step that runs `kernel` on buffers at these addresses, the output first."""
    write, *reads = (
        (at, at + b.run * b.dtype.size) for at, b in zip(addresses, kernel.buffers, strict=True)
    )
    return Work(kernel.flops, kernel.bytes, tiles, tuple(reads), (write,))


@dataclass(frozen=True)
class StepSharing:
    """How one step is shared; targets/wasm/plan_image.py explains the fields."""

    grain: int
    waits: bool
    chained: bool
    back: bool = False


def share(steps: Sequence[Work], costs: Costs = USUAL) -> tuple[StepSharing, ...]:
    """The decision for every step of a plan, in order.

    A step waits if it reads what an unfinished step writes, or writes what one reads or writes.
    The test compares addresses, since buffers reuse each other's memory.

    If two steps have the same largest operand, the second one visits its tiles in reverse order: a
    part of what the first one touched last is still in the nearest cache.  This also holds for the
    passes of a loop whose weights exceed that cache.
    """
    made: list[StepSharing] = []
    pending = _Touched()  # since the last wait, without the open chain
    chain: list[Work] = []
    reverse: dict[Range, bool] = {}  # by largest operand: whether the last visit was in reverse
    for step in steps:
        grain = tiles_per_ticket(step, costs)
        free = not pending.conflicts(step)
        chained = grain == 0 and bool(chain) and free
        if not chained:
            free = free and not _Touched(chain).conflicts(step)
            if not free:
                pending, chain = _Touched(), []
            for other in chain:
                pending.add(other)
            chain = []
        if grain:
            pending.add(step)
        else:
            chain.append(step)
        largest = max(step.reads, key=lambda r: r[1] - r[0], default=(0, 0))
        reverse[largest] = not reverse.get(largest, True)
        made.append(StepSharing(grain, not free, chained, reverse[largest] and grain > 0))
    return tuple(made)


def tiles_per_ticket(step: Work, costs: Costs = USUAL) -> int:
    """Tiles per ticket; 0 for a step that one worker runs."""
    spent = step.nanoseconds(costs)
    if step.tiles < 2 or spent < costs.barrier:
        return 0
    worth = int(costs.ticket * step.tiles / spent) + 1
    return max(1, min(worth, step.tiles // costs.tickets))


class _Ranges:
    """A set of addresses, as sorted ranges with gaps between them."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, new: Range) -> None:
        start, end = new
        first, last = bisect_left(self._ends, start), bisect_right(self._starts, end)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last], self._ends[first:last] = [start], [end]

    def meets(self, other: Range) -> bool:
        start, end = other
        before = bisect_left(self._starts, end)
        return before > 0 and self._ends[before - 1] > start


class _Touched:
    """The addresses that several steps read and write."""

    def __init__(self, steps: Iterable[Work] = ()) -> None:
        self._reads, self._writes = _Ranges(), _Ranges()
        for step in steps:
            self.add(step)

    def add(self, step: Work) -> None:
        for r in step.reads:
            self._reads.add(r)
        for r in step.writes:
            self._writes.add(r)

    def conflicts(self, step: Work) -> bool:
        """True if the step reads what these steps write, or writes what they read or write."""
        return any(map(self._writes.meets, (*step.reads, *step.writes))) or any(
            map(self._reads.meets, step.writes)
        )
