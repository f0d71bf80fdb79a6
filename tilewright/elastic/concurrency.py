"""How many normal models run at once, and whether they have gates: the choices.

Input: the number of normal models, what the user asked for.  Output: choices in the order in which
they are tried.  calibration.py measures how much each one slows critical models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

#: Numbers of normal models at once that are tried if a bound cannot be kept beside all of them.
FEWER = (2, 1)


class Concurrency(NamedTuple):
    """max_concurrent: the most normal models that run at once
    gated: True if their runs have gates (gates.py)
    """

    max_concurrent: int
    gated: bool = False


def choices(
    every: int, asked: int | None, promises: bool, may_wait: Callable[[], bool]
) -> Iterator[Concurrency]:
    """Choices in the order in which they are tried: more normal work first (decision 59).

    every: normal models;  asked: of them at once, 0: all; None: as many as bounds allow
    promises: True if the policy has bounds; otherwise only the first choice is tried
    may_wait: whether gates are possible; called only if the first choice breaks a bound
    """
    most = min(asked or every, every)
    yield Concurrency(most)
    if not promises:
        return
    gated = may_wait()
    if gated:
        yield Concurrency(most, True)
    if asked is None:
        yield from (Concurrency(number, gated) for number in FEWER if number < every)
