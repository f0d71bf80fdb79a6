"""The store as the event loop sees it: never waited for long, never in the way.

Input: how to open the store.  Output: standings (none, if it cannot be asked) and receipts.  A
store that is down, locked, full or slow makes reports be refused with "later"; tuning goes on, and
the store is tried again.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import TypeVar

from tilewright.base.errors import InvalidReport
from tilewright.server.client import Page
from tilewright.server.shared import Shared
from tilewright.server.standing import Settled, page, settled
from tilewright.store import KernelStore, Key, Ranked, Receipt, Standing, StoredReport
from tilewright.tuning.messages import Browser

log = logging.getLogger(__name__)
T = TypeVar("T")

#: Seconds that anybody waits for a turn, then for the store: twice both is less than the 15 that a
#: page waits for its welcome, before which two calls are made.  Seconds that the store is left
#: alone after a failure.
TURN, PATIENCE, REST = 2.0, 5.0, 1.0
#: Seconds that a standing is good: what thousands of devices ask again and again.
FRESH = 10.0
#: Bytes of pages that are kept so long.
PAGES = 64 << 20
#: Calls at work, and calls in all: a session waits for one report at a time.
WORKERS, WAITING = 4, 4096
#: The same of pages: each takes as long as hundreds of standings.
PAGERS, PAGES_WAITING = 1, 32


class Unavailable(Exception):
    """The store cannot be asked now."""


class StoreThreads:
    """Threads that ask the store, and who waits for them; a failure here makes no other lane rest.

    waiting: calls at work and calls that wait, together
    """

    def __init__(self, workers: int, waiting: int) -> None:
        self.failures = 0
        self._pool = ThreadPoolExecutor(workers, "tilewright-store")
        self._free = asyncio.Semaphore(workers)
        self._waiting = waiting
        self._calls = 0
        self._not_before = 0.0
        self._closed = False

    @property
    def resting(self) -> bool:
        """Whether it failed a moment ago."""
        return time.monotonic() < self._not_before

    async def call(self, ask: Callable[[], T]) -> T:
        """What `ask` gives, in a thread; raises `Unavailable`, and `InvalidReport` as it is."""
        if self._calls >= self._waiting:
            raise Unavailable
        self._calls += 1
        try:
            await self._turn()
            try:
                return await self._answer(ask)
            finally:
                self._free.release()
        finally:
            self._calls -= 1

    def close(self) -> None:
        """What is at work ends by itself, nothing else begins."""
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _turn(self) -> None:
        try:
            async with asyncio.timeout(TURN):
                await self._free.acquire()
        except TimeoutError as error:
            raise Unavailable from error

    async def _answer(self, ask: Callable[[], T]) -> T:
        if self.resting or self._closed:
            raise Unavailable
        work = asyncio.get_running_loop().run_in_executor(self._pool, ask)
        # somebody who no longer waits need not hear of a failure
        work.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            return await asyncio.wait_for(asyncio.shield(work), PATIENCE)
        except InvalidReport:
            raise
        except Exception as error:
            # whatever a database says, tuning must go on; what has not begun holds up nobody
            work.cancel()
            self.failures += 1
            self._not_before = time.monotonic() + REST
            log.warning("The store did not answer: %s", str(error) or type(error).__name__)
            raise Unavailable from error


class Ledger:
    def __init__(self, open_store: Callable[[], KernelStore]) -> None:
        self._open = open_store
        self._opening = threading.Lock()
        self._store: KernelStore | None = None
        self._closed = False
        self._lane = StoreThreads(WORKERS, WAITING)
        self._pager = StoreThreads(PAGERS, PAGES_WAITING)
        self._writing = threading.Lock()
        self._standings: Shared[Standing] = Shared(100_000, seconds=FRESH)
        self._settled: Shared[Settled] = Shared(256, seconds=FRESH)
        self._pages: Shared[Page] = Shared(PAGES, lambda found: len(found.data), FRESH)
        self._similar: Shared[tuple[Ranked, ...]] = Shared(10_000, seconds=FRESH)

    @property
    def failures(self) -> int:
        return self._lane.failures + self._pager.failures

    @property
    def resting(self) -> bool:
        """Whether the store failed sessions a moment ago."""
        return self._lane.resting

    async def standings(self, keys: Sequence[Key]) -> list[Standing | None]:
        """What the crowd knows of each key; None where the store cannot tell."""

        async def one(key: Key) -> Standing | None:
            try:
                return await self._standings.get(
                    key, lambda: self._call(lambda store: store.standing(key))
                )
            except Unavailable:
                return None

        return list(await asyncio.gather(*map(one, keys)))

    async def similar(self, key: Key, devices: Sequence[str]) -> tuple[Ranked, ...]:
        """The best of these classes for a kernel of which the key's own crowd knows too little."""
        asked = (key, tuple(devices))
        try:
            return await self._similar.get(
                asked, lambda: self._call(lambda store: store.similar(*asked))
            )
        except Unavailable:
            return ()

    async def settled(self, device: str, browser: Browser) -> Settled:
        """What a class and browser have agreed on; raises `Unavailable`."""
        return await self._settled.get(
            (device, browser), lambda: self._call(lambda store: settled(store, device, browser))
        )

    async def page(self, device: str | None, number: int) -> Page:
        """What the crowd knows, written down once for all who ask; raises `Unavailable`."""
        return await self._pages.get(
            (device, number),
            lambda: self._pager.call(lambda: page(self._ready(), device, number)),
        )

    async def submit(self, report: StoredReport, source: str) -> tuple[bool, str]:
        """(accepted, reason), after the commit."""
        try:
            receipt = await self._call(lambda store: self._write(store, report, source))
        except Unavailable:
            return False, "later"
        except InvalidReport:
            return False, "refused"
        return receipt.accepted, receipt.reason

    def close(self) -> None:
        """When the server ends: what is at work ends by itself, nothing else begins."""
        self._closed = True
        for lane in (self._lane, self._pager):
            lane.close()
        if self._store is not None:
            self._store.close()

    async def _call(self, ask: Callable[[KernelStore], T]) -> T:
        return await self._lane.call(lambda: ask(self._ready()))

    def _ready(self) -> KernelStore:
        """The open store; a server may start before its database does."""
        with self._opening:
            self._store = self._store or self._open()
            if self._closed:  # while it was opened
                self._store.close()
                raise Unavailable
            return self._store

    def _write(self, store: KernelStore, report: StoredReport, source: str) -> Receipt:
        """On SQLite one after the other: writers that wait by looking now and then may starve."""
        with self._writing if store.database.sqlite else nullcontext():
            return store.submit(report, source)
