"""One multiprocessor (SM): blocks share its throughput, and it tells when the next one is done.
Input: blocks with work, in microseconds that each would take alone.  Output: the work done as time
passes.  If blocks together need more than the SM has, all are slowed by the same factor.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from lab.simulator.launches import KernelLaunch
from tilewright.elastic.policy import Gpu

#: Microseconds of work; less than this is a rounding error.
NOTHING = 1e-6


@dataclass(eq=False)
class ResidentBlock:
    """A resident block.

    left:  work until its next stop: the end of its tile, or of the chunk after which it leaves
    later: work of the tile that remains after that stop;  begun: time at which it became resident
    """

    owner: KernelLaunch
    worker: int
    threads: int
    compute: float
    memory: float
    left: float
    begun: float
    later: float = 0.0


@dataclass(eq=False)
class Multiprocessor:
    """One SM.

    threads, compute, memory: sums over its blocks
    slowed: at least 1: the factor by which the GPU's blocks overload its memory, times the factor
            of its clock
    """

    number: int
    gpu: Gpu
    blocks: list[ResidentBlock] = field(default_factory=list)
    at: float = 0.0
    threads: int = 0
    compute: float = 0.0
    memory: float = 0.0
    slowed: float = 1.0
    #: The number of its latest scheduled stop; events of older ones are ignored.
    version: int = 0

    def room(self, threads: int) -> bool:
        return (
            self.threads + threads <= self.gpu.threads and len(self.blocks) < self.gpu.blocks
        ) or not self.blocks

    def advance(self, now: float) -> float:
        """Advances to a time; returns the work that each block has done."""
        work = max(0.0, now - self.at) * self._rate
        self.at, self.version = now, self.version + 1
        for block in self.blocks:
            block.left -= work
        return work

    def add(self, block: ResidentBlock) -> None:
        self.blocks.append(block)
        self._count()

    def remove(self, block: ResidentBlock) -> None:
        self.blocks.remove(block)
        self._count()

    def _count(self) -> None:
        """Sums over the blocks again, so that blocks that left leave no rounding errors."""
        self.threads = sum(block.threads for block in self.blocks)
        self.compute = sum(block.compute for block in self.blocks)
        self.memory = sum(block.memory for block in self.blocks)

    def stopped(self) -> list[ResidentBlock]:
        return [block for block in self.blocks if block.left <= NOTHING]

    @property
    def stop(self) -> float:
        """The time at which the next block is done, if nothing changes."""
        least = min((block.left for block in self.blocks), default=inf)
        return inf if least == inf else self.at + max(0.0, least) / self._rate

    @property
    def _rate(self) -> float:
        return 1 / (max(1.0, self.compute) * self.slowed)
