"""The figures of a thread with vectors that schedules must respect, and size arithmetic on them.

Input: none.  Output: `Machine`, data only; the wanted amount of work in a tile; part sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


#: Multiply-accumulates for which a tile of a product is worth a ticket (about 10 microseconds).
TILE_WORK = 1 << 17

#: Elements for which a tile of an elementwise or row-wise kernel is worth a ticket.
TILE_ELEMENTS = 4096

#: The number of tiles that balances the work of a few workers.
ENOUGH_TILES = 24


def even(count: int, most: int) -> int:
    """The part size that splits `count` evenly into parts of at most `most`."""
    return -(-count // -(-count // max(1, most)))


#: Reduction steps per pass, most wanted first: usual passes, long ones, and passes for a machine
#: with chained sums.
USUAL: Sequence[int] = (8, 7, 9, 10, 6, 12, 5)
LONG: Sequence[int] = (16, 15, 17, 14, 18, 20, 13, 12, 24)
SHORT: Sequence[int] = (2, 3)


def unroll(extent: int, about: Sequence[int] = USUAL) -> int:
    """Reduction steps per pass: a divisor of the extent if there is one nearby."""
    if extent <= about[0]:
        return max(1, extent)
    return next((n for n in about if extent % n == 0), about[0])


def around(size: int) -> tuple[int, ...]:
    """Sizes around this one: halved and doubled several times."""
    return tuple(max(1, n) for n in (size // 4, size // 2, 2 * size, 4 * size))


def whole(size: int, part: int, extent: int) -> int:
    """`size` rounded to whole parts: at least one, and no more than `extent` needs."""
    return part * max(1, min(size // part, -(-extent // part)))


def aligned(size: int) -> int:
    """Bytes of a scratch buffer for `size` bytes, with alignment."""
    return -(-size // 64) * 64
