"""Asynchronous access to the store, with bounded waits.

Input: a function that opens the store.  Output: standings (None if the store fails) and receipts.
While the store is down, locked, full or slow, reports are refused with "later"; tuning goes on,
and the store is tried again.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import msgspec

from tilewright.base.compiler_digest import compiler_name
from tilewright.base.errors import InvalidReport, TilewrightError
from tilewright.server.client import Page
from tilewright.server.single_flight import SingleFlight
from tilewright.store import KernelStore, Key, Ranked, Receipt, Standing, StoredReport
from tilewright.tuning.messages import Browser

if TYPE_CHECKING:
    from tilewright.store import KernelStore, KeyStanding

log = logging.getLogger(__name__)
T = TypeVar("T")

#: Seconds: that a call waits for a free thread (TURN) and then for the store (TIMEOUT); without
#: calls after a failure (REST).  A page waits 15 s for `welcome`, which needs two calls: 2 * (2 +
#: 5) is less.
TURN, TIMEOUT, REST = 2.0, 5.0, 1.0
#: Seconds that a standing is cached: thousands of devices ask for the same ones.
FRESH = 10.0
#: The most bytes of cached pages.
PAGES = 64 << 20
#: Threads, and the limit of running and waiting calls: a session waits for one report at a time.
WORKERS, WAITING = 4, 4096
#: The same for pages of the overview: each takes as long as hundreds of standings.
PAGERS, PAGES_WAITING = 1, 32


class Unavailable(Exception):
    """The store cannot be asked now.  code: of the failure, such as `store-down`; "": it is busy"""

    def __init__(self, code: str = "") -> None:
        super().__init__(code)
        self.code = code


class StoreThreads:
    """A pool of threads that call the store, with a bounded queue.  After a failure only this pool
    rests.

    workers: threads;  waiting: limit of running and waiting calls together
    """

    def __init__(self, workers: int, waiting: int) -> None:
        self.failures: Counter[str] = Counter()
        self._pool = ThreadPoolExecutor(workers, "tilewright-store")
        self._free = asyncio.Semaphore(workers)
        self._waiting = waiting
        self._calls = 0
        self._not_before = 0.0
        self._failed = ""
        self._closed = False

    @property
    def resting(self) -> bool:
        """Whether the pool makes no calls for now, after a failure."""
        return time.monotonic() < self._not_before

    async def call(self, ask: Callable[[], T]) -> T:
        """Calls `ask` in a thread.  Raises Unavailable for every failure but InvalidReport."""
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
        """Running calls finish, no other starts."""
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
            raise Unavailable(self._failed)
        work = asyncio.get_running_loop().run_in_executor(self._pool, ask)
        # reads the exception, or asyncio complains when the caller has gone
        work.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            return await asyncio.wait_for(asyncio.shield(work), TIMEOUT)
        except InvalidReport:
            raise
        except Exception as error:
            # no failure of a database may stop tuning; a call that has not begun is cancelled
            work.cancel()
            self._failed = error.code if isinstance(error, TilewrightError) else _name(error)
            self.failures[self._failed] += 1
            self._not_before = time.monotonic() + REST
            log.warning("The store did not answer: %s: %s", self._failed, error)
            raise Unavailable(self._failed) from error


def _name(error: Exception) -> str:
    return "timeout" if isinstance(error, TimeoutError) else type(error).__name__


class AsyncStore:
    def __init__(self, open_store: Callable[[], KernelStore]) -> None:
        self._open = open_store
        self._opening = threading.Lock()
        self._store: KernelStore | None = None
        self._closed = False
        self._lane = StoreThreads(WORKERS, WAITING)
        # a store that is read-only or full still answers readers
        self._writer = StoreThreads(WORKERS, WAITING)
        self._pager = StoreThreads(PAGERS, PAGES_WAITING)
        self._writing = threading.Lock()
        self._standings: SingleFlight[Standing] = SingleFlight(100_000, seconds=FRESH)
        self._settled: SingleFlight[Settled] = SingleFlight(256, seconds=FRESH)
        self._pages: SingleFlight[Page] = SingleFlight(PAGES, lambda found: len(found.data), FRESH)
        self._similar: SingleFlight[tuple[Ranked, ...]] = SingleFlight(10_000, seconds=FRESH)

    @property
    def failures(self) -> Counter[str]:
        """The number of failures by code of the error."""
        return sum((lane.failures for lane in self._lanes), Counter())

    @property
    def resting(self) -> bool:
        """Whether calls of sessions back off after a failure."""
        return self._lane.resting or self._writer.resting

    @property
    def _lanes(self) -> tuple[StoreThreads, ...]:
        return self._lane, self._writer, self._pager

    async def standings(self, keys: Sequence[Key]) -> list[Standing | None]:
        """The standing of each key; None where the store is unavailable."""

        async def one(key: Key) -> Standing | None:
            try:
                return await self._standings.get(
                    key, lambda: self._call(lambda store: store.standing(key))
                )
            except Unavailable:
                return None

        return list(await asyncio.gather(*map(one, keys)))

    async def similar(self, key: Key, devices: Sequence[str]) -> tuple[Ranked, ...]:
        """The best candidates of these device classes for the key's kernel; empty if the store is
        unavailable."""
        asked = (key, tuple(devices))
        try:
            return await self._similar.get(
                asked, lambda: self._call(lambda store: store.similar(*asked))
            )
        except Unavailable:
            return ()

    async def settled(self, device: str, browser: Browser) -> Settled:
        """The defaults of a class and browser.  Raises Unavailable."""
        return await self._settled.get(
            (device, browser),
            lambda: self._call(lambda store: non_default_winners(store, device, browser)),
        )

    async def page(self, device: str | None, number: int) -> Page:
        """A page of all standings, encoded once for all clients.  Raises Unavailable."""
        return await self._pages.get(
            (device, number),
            lambda: self._pager.call(lambda: page(self._ready(), device, number)),
        )

    async def submit(self, report: StoredReport, source: str) -> tuple[bool, str]:
        """(accepted, reason), after the commit."""
        try:
            receipt = await self._writer.call(lambda: self._write(self._ready(), report, source))
        except Unavailable:
            return False, "later"
        except InvalidReport:
            return False, "refused"
        return receipt.accepted, receipt.reason

    def close(self) -> None:
        """Running calls finish, no other starts."""
        self._closed = True
        for lane in self._lanes:
            lane.close()
        if self._store is not None:
            self._store.close()

    async def _call(self, ask: Callable[[KernelStore], T]) -> T:
        return await self._lane.call(lambda: ask(self._ready()))

    def _ready(self) -> KernelStore:
        """The open store; a server may start before its database does."""
        with self._opening:
            self._store = self._store or self._open()
            if self._closed:  # `close` was called while the store was opening
                self._store.close()
                raise Unavailable
            return self._store

    def _write(self, store: KernelStore, report: StoredReport, source: str) -> Receipt:
        """Submits a report; on SQLite one at a time, since SQLite's writers poll for the lock and
        may starve."""
        with self._writing if store.database.sqlite else nullcontext():
            return store.submit(report, source)


#: The default candidate, by digest of the kernel and checksum of the space.
Settled: TypeAlias = Mapping[str, Mapping[str, int]]

#: Keys per page.
ROWS = 2000
#: Limit of pages per query.
MOST_PAGES = 1000


def page(store: KernelStore, device: str | None, number: int) -> Page:
    entries = store.overview(device, start=number * ROWS, limit=ROWS + 1)
    data = msgspec.json.encode([plain(entry) for entry in entries[:ROWS]])
    return Page(data, more=len(entries) > ROWS and number + 1 < MOST_PAGES)


def non_default_winners(store: KernelStore, device: str, browser: Browser) -> Settled:
    """The defaults of this class and browser that are not the compiler's own."""
    found: dict[str, dict[str, int]] = {}
    for entry in store.overview(device, settled=True):
        key, default = entry.key, entry.standing.default
        if default and (key.browser, key.compiler) == (browser, compiler_name()):
            found.setdefault(key.kernel, {})[key.space] = default
    return found


def plain(entry: KeyStanding) -> dict[str, object]:
    """A key and its standing in one flat record; `current`: of the compiler that serves it."""
    ranked = [
        {k: v for k, v in vars(one).items() if k not in ("device", "space", "browser")}
        for one in entry.standing.ranked
    ]
    own = {"current": entry.key.compiler == compiler_name(), "ranked": ranked, "day": entry.day}
    # not `asdict`: its copies took a third of the time of a page
    return vars(entry.key) | vars(entry.standing) | own
