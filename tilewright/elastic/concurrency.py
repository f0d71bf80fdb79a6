"""How many normal models run at once beside critical ones, and whether their runs have gates.

Input: how many models there are, what the user asks.  Output: choices in the order in which they
are tried.  What each of them costs critical models is measured (corun.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

#: Normal models at once, where a bound cannot be kept beside all of them.
FEWER = (2, 1)


class Concurrency(NamedTuple):
    """together: normal models that run at once, at most
    gated: their runs have gates (gates.py)
    """

    together: int
    gated: bool = False


def choices(
    every: int, asked: int | None, promises: bool, may_wait: Callable[[], bool]
) -> Iterator[Concurrency]:
    """Those that let more normal work through come first (decision 59).

    every: normal models;  asked: of them at once, 0: all; None: as many as bounds allow
    promises: whether the policy has bounds; without them only the first choice is tried
    may_wait: whether there may be gates; called only if the first choice breaks a bound
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
