"""What a schedule must fit on one thread with vectors: data only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Machine:
    """f32 lanes of a vector, usable vector registers, bytes of caches.

    fma: multiply-add is one instruction (without it, a product needs a register of its own)
    """

    lanes: int = 4
    registers: int = 15
    l1: int = 32768
    l2: int = 524288
    fma: bool = True
