"""A cache that makes each value once for all callers that await it at the same time.

Input: a key, and a function that makes its value.  Output: the value: cached, awaited from the
call in progress, or made now.  For one event loop; failures are not cached.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

V = TypeVar("V")


class SingleFlight(Generic[V]):
    """Values by key; the least recently used are dropped if there is no room.

    room:    the largest sum of the values' weights
    weigh:   gives the weight of a value; 1 if left out
    seconds: age after which a value is made again
    """

    def __init__(
        self,
        room: int,
        weigh: Callable[[V], int] = lambda _: 1,
        seconds: float = float("inf"),
    ) -> None:
        self.made = 0
        self.found = 0
        self._room = room
        self._weigh = weigh
        self._seconds = seconds
        self._weight = 0
        self._kept: OrderedDict[Hashable, tuple[V, float]] = OrderedDict()
        self._coming: dict[Hashable, asyncio.Future[V]] = {}

    async def get(self, key: Hashable, make: Callable[[], Awaitable[V]]) -> V:
        kept = self._kept.get(key)
        if kept is not None and time.monotonic() < kept[1]:
            self.found += 1
            self._kept.move_to_end(key)
            return kept[0]
        coming = self._coming.get(key)
        if coming is None:
            coming = asyncio.ensure_future(self._make(key, make))
            self._coming[key] = coming
            # reads the exception, or asyncio complains when all callers have gone
            coming.add_done_callback(lambda f: f.cancelled() or f.exception())
        else:
            self.found += 1
        # a cancelled caller must not cancel it for the others
        return await asyncio.shield(coming)

    async def _make(self, key: Hashable, make: Callable[[], Awaitable[V]]) -> V:
        try:
            value = await make()
        finally:
            del self._coming[key]
        self.made += 1
        self._drop(key)
        self._kept[key] = (value, time.monotonic() + self._seconds)
        self._weight += self._weigh(value)
        while self._weight > self._room and len(self._kept) > 1:
            self._drop(next(iter(self._kept)))
        return value

    def _drop(self, key: Hashable) -> None:
        old = self._kept.pop(key, None)
        if old is not None:
            self._weight -= self._weigh(old[0])
