"""How the workers share a plan: which steps wait, which stay on one worker, tiles per ticket.

Input: each step's work, tile count, and the addresses that it reads and writes.  Output: a `Share`
per step.  Everything follows from these numbers; no step is named.  The driver obeys it
(targets/wasm/driver.py); any number of workers may follow the same plan.

    A  q = x·Wq    B  k = x·Wk    C  s = q·k      D  t = s + 1     E  u = t · 2      (D, E small)
    shared, waits  shared         shared, waits   serial, waits    serial, chained to D
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tilewright.kernel.spec import Kernel

#: Bytes [first, second) of memory.
Range = tuple[int, int]


@dataclass(frozen=True)
class Costs:
    """What decides, in nanoseconds and per nanosecond; only orders of magnitude count.

    flops, bytes: what one worker does in a nanosecond
    barrier:      a step that takes one worker less than this stays on one: sharing it could not pay
    ticket:       work that makes a ticket worth its atomic operation
    tickets:      tickets that a step should have for balance, if its tiles allow it
    """

    flops: float = 20.0
    bytes: float = 8.0
    barrier: float = 1500.0
    ticket: float = 1000.0
    tickets: int = 16


USUAL = Costs()


@dataclass(frozen=True)
class Work:
    """One step: operations, bytes touched, tiles, and what it reads and writes."""

    flops: int
    bytes: int
    tiles: int
    reads: tuple[Range, ...]
    writes: tuple[Range, ...]

    def nanoseconds(self, costs: Costs) -> float:
        return max(self.flops / costs.flops, self.bytes / costs.bytes)


def work_of(kernel: Kernel, addresses: Sequence[int], tiles: int) -> Work:
    """A step that runs `kernel` on buffers at these addresses, the output first."""
    write, *reads = (
        (at, at + b.size * b.dtype.size) for at, b in zip(addresses, kernel.buffers, strict=True)
    )
    return Work(kernel.flops, kernel.bytes, tiles, tuple(reads), (write,))


@dataclass(frozen=True)
class Share:
    """`grain`, `waits`, `chained` and `back` of bundle/image.py."""

    grain: int
    waits: bool
    chained: bool
    back: bool = False


def share(steps: Sequence[Work], costs: Costs = USUAL) -> tuple[Share, ...]:
    """The decision for every step of a plan, in order.

    A step waits if it reads what an unfinished step writes, or writes what one reads or writes: by
    address, since buffers take each other's place.

    A step whose largest operand was the largest of an earlier step walks its tiles the other way: a
    part of what that step touched last is still in the nearest cache, as on each turn of a loop
    whose weights are larger than it.
    """
    made: list[Share] = []
    pending = _Touched()  # since the last wait, without the open chain
    chain: list[Work] = []
    ways: dict[Range, bool] = {}  # of each largest operand, which way it was walked last
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
        ways[largest] = not ways.get(largest, True)
        made.append(Share(grain, not free, chained, ways[largest] and grain > 0))
    return tuple(made)


def tiles_per_ticket(step: Work, costs: Costs = USUAL) -> int:
    """Tiles per ticket; 0 for a step that one worker runs."""
    spent = step.nanoseconds(costs)
    if step.tiles < 2 or spent < costs.barrier:
        return 0
    worth = int(costs.ticket * step.tiles / spent) + 1
    return max(1, min(worth, step.tiles // costs.tickets))


class _Ranges:
    """A set of addresses: ranges in order that neither meet nor touch."""

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
    """What several steps read and write together."""

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
        """True if the step reads what they write, or writes what they read or write."""
        return any(map(self._writes.meets, (*step.reads, *step.writes))) or any(
            map(self._reads.meets, step.writes)
        )
