"""One multiprocessor: blocks that share its throughput, and when the next of them is done.

Input: blocks with work, in microseconds that they would take alone.  Output: work done, as time
passes.  Blocks that together ask for more than the SM has are slowed down alike.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from lab.simulator.launches import KernelLaunch
from tilewright.elastic.policy import Gpu

#: Work of less than this is rounding.
NOTHING = 1e-6


@dataclass(eq=False)
class ResidentBlock:
    """A block that is resident.

    left: until its next stop (a tile's end, or the chunk's at which it leaves)
    later: what remains of the tile after that;  begun: since when it is resident
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
    """threads, compute, memory: of all blocks together
    slowed: by how much all blocks of the GPU together overload its memory, 1 or more, and by how
            much longer all work takes at its clock
    """

    number: int
    gpu: Gpu
    blocks: list[ResidentBlock] = field(default_factory=list)
    at: float = 0.0
    threads: int = 0
    compute: float = 0.0
    memory: float = 0.0
    slowed: float = 1.0
    #: Of the announcement of its next stop; older ones are void.
    version: int = 0

    def room(self, threads: int) -> bool:
        return (
            self.threads + threads <= self.gpu.threads and len(self.blocks) < self.gpu.blocks
        ) or not self.blocks

    def advance(self, now: float) -> float:
        """Lets time pass; the work that each block has done."""
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
        """Anew each time, so that no rounding is left of blocks that went."""
        self.threads = sum(block.threads for block in self.blocks)
        self.compute = sum(block.compute for block in self.blocks)
        self.memory = sum(block.memory for block in self.blocks)

    def stopped(self) -> list[ResidentBlock]:
        return [block for block in self.blocks if block.left <= NOTHING]

    @property
    def stop(self) -> float:
        """When the next block is done, if nothing changes."""
        least = min((block.left for block in self.blocks), default=inf)
        return inf if least == inf else self.at + max(0.0, least) / self._rate

    @property
    def _rate(self) -> float:
        return 1 / (max(1.0, self.compute) * self.slowed)
