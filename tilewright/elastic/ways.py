"""Ways in which normal models run beside critical ones: how many at once, with gates or without.

Input: how many models there are, what the user asks.  Output: ways in the order in which a session
tries them.  What each costs critical models is measured (session.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

#: Normal models at once, where a bound cannot be kept beside all of them.
FEWER = (2, 1)


class NormalWay(NamedTuple):
    """together: normal models that run at once, at most
    gated: their runs have gates (gates.py)
    """

    together: int
    gated: bool = False


def ways(
    every: int, asked: int | None, promises: bool, may_wait: Callable[[], bool]
) -> Iterator[NormalWay]:
    """Those that let more normal work through come first (decision 59).

    every: normal models;  asked: of them at once, 0: all; None: as many as bounds allow
    promises: whether the policy has bounds; without them the first way does
    may_wait: whether there may be gates; called only if the first way does not do
    """
    most = min(asked or every, every)
    yield NormalWay(most)
    if not promises:
        return
    gated = may_wait()
    if gated:
        yield NormalWay(most, True)
    if asked is None:
        yield from (NormalWay(number, gated) for number in FEWER if number < every)
