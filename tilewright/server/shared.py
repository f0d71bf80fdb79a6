"""Results that many sessions wait for, each made once and kept while there is room.

Input: a key, and how to make what belongs to it.  Output: that, from the cache, from whoever makes
it at the moment, or made now.  One event loop; failures are not kept.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

V = TypeVar("V")


class Shared(Generic[V]):
    """room: the most that all values may weigh; seconds: how long one is good."""

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
            # a failure that nobody waits for any more is no news
            coming.add_done_callback(lambda f: f.cancelled() or f.exception())
        else:
            self.found += 1
        # who waits may go away; the others still get it
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
