"""The figures of a thread with vectors that schedules must respect: data only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Machine:
    """f32 lanes of a vector, usable vector registers, bytes of caches.

    fma:     True if a multiply-add is one instruction; otherwise a product needs a register of its
             own
    chained: True if the engine's compiler finishes one sum of a pass before it starts the next, and
             first loads the vectors of all steps: passes are then short, and those vectors take
             registers
    """

    lanes: int = 4
    registers: int = 15
    l1: int = 32768
    l2: int = 524288
    fma: bool = True
    chained: bool = False


def by_machine(choose: Callable[[Any, Machine], Any]) -> Callable[[Any, Any], Any]:
    """Turns a choice by `Machine` into a choice by a dict of its fields, as compiler options have
    it."""
    return lambda kernel, variant: choose(kernel, variant.machine)
