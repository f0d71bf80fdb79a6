"""What a schedule must fit on one thread with vectors: data only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Machine:
    """f32 lanes of a vector, usable vector registers, bytes of caches.

    fma:     multiply-add is one instruction (without it, a product needs a register of its own)
    chained: the engine's compiler finishes one sum of a pass before it begins the next, and loads
             the vectors of all steps first: passes are short, and those vectors take registers
    """

    lanes: int = 4
    registers: int = 15
    l1: int = 32768
    l2: int = 524288
    fma: bool = True
    chained: bool = False


def by_machine(choose: Callable[[Any, Machine], Any]) -> Callable[[Any, Any], Any]:
    """A choice of schedules by a machine's numbers, as compiler options take it."""
    return lambda kernel, variant: choose(kernel, variant.machine)
