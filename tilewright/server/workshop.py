"""What all tuning sessions of a process share: open bundles, spaces, built candidates.

Input: bundle folders, the function that makes a candidate, workers to call it in.  Output: each of
these once, however many sessions ask.  What a candidate is worth is not known here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import BrokenExecutor, Executor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tilewright import __version__
from tilewright.base.errors import BundleCorrupt, BundleVersion, TilewrightError
from tilewright.bundle import POINTER, open_bundle
from tilewright.server.shared import Shared
from tilewright.tuning import queue
from tilewright.tuning.candidates import Built, Space
from tilewright.tuning.messages import Objective, OtherVersion, Unknown
from tilewright.tuning.queue import Opened

log = logging.getLogger(__name__)
T = TypeVar("T")

#: Bytes of built candidates, number of spaces and of bundles that are kept.
ROOM, SPACES, BUNDLES = 64 << 20, 4096, 16


@dataclass(frozen=True)
class Makers:
    """The compiler's part, passed in: both functions are called in workers.

    space: kernel, id of the device class, objective → its space
    built: kernel, schedule, variant → the candidate
    pool:  makes the workers; they are made anew when one of them dies
    """

    space: Callable[..., Space]
    built: Callable[..., Built]
    pool: Callable[[], Executor]


class Workshop:
    def __init__(self, bundles: Mapping[str, Path], makers: Makers) -> None:
        self._folders = bundles
        self._makers = makers
        self._pool: Executor | None = None
        self._bundles: Shared[Opened] = Shared(BUNDLES)
        self._spaces: Shared[Space] = Shared(SPACES)
        self.built: Shared[Built | TilewrightError] = Shared(ROOM, _weight)

    async def open(self, name: str, digest: str) -> Opened:
        """The bundle of this name, if it is still the one that the client loaded."""
        folder = self._folders.get(name)
        if folder is None:
            raise Unknown(
                "There is no such bundle", hint="GET /api/bundles lists them", bundle=name
            )

        async def read() -> Opened:
            return await asyncio.to_thread(lambda: queue.opened(open_bundle(folder)))

        try:
            state = (folder / POINTER).stat()
            opened = await self._bundles.get((name, state.st_mtime_ns, state.st_size), read)
        except (OSError, BundleCorrupt, BundleVersion) as error:
            log.warning("Bundle %s: %s", name, error)
            raise Unknown(
                "The bundle cannot be read", hint="Try again later", bundle=name
            ) from error
        if opened.digest != digest:
            raise OtherVersion(
                "The bundle was built anew", hint="Load it again", bundle=name, found=opened.digest
            )
        return opened

    async def space(self, opened: Opened, spec: int, device: str, objective: Objective) -> Space:
        """The space of a kernel on a class."""

        async def make() -> Space:
            return await self._run(self._makers.space, opened.kernels[spec], device, objective)

        return await self._spaces.get((opened.digest, spec, device, objective), make)

    async def candidate(
        self, opened: Opened, spec: int, space: Space, number: int, variant: str
    ) -> Built | None:
        """A candidate's module; None if it cannot be made."""
        schedule = space.schedules[number]

        async def make() -> Built | TilewrightError:
            try:
                return await self._run(self._makers.built, opened.kernels[spec], schedule, variant)
            except TilewrightError as error:
                log.warning("Candidate %d of %s: %s", number, space.shape, error)
                return error

        key = (space.key, schedule, variant, __version__)
        found = await self.built.get(key, make)
        return None if isinstance(found, TilewrightError) else found

    async def _run(self, function: Callable[..., T], *given: object) -> T:
        loop = asyncio.get_running_loop()
        for _ in range(2):
            pool = self._pool = self._pool or self._makers.pool()
            try:
                return await loop.run_in_executor(pool, function, *given)
            except BrokenExecutor as error:
                log.warning("A compile worker died: %s", error)
                if self._pool is pool:
                    self._pool = None
                broken = error
        raise TilewrightError("The compile workers die", hint="See the server's log") from broken

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None


def _weight(built: Built | TilewrightError) -> int:
    return 1000 + (len(built.module) if isinstance(built, Built) else 0)
