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
from tilewright.bundle import POINTER, Manifest, open_bundle
from tilewright.server.relinked import Relinked
from tilewright.server.shared import Shared
from tilewright.tuning import queue
from tilewright.tuning.candidates import Built, Space
from tilewright.tuning.messages import Objective, OtherVersion, Unknown
from tilewright.tuning.queue import Opened, Winners

log = logging.getLogger(__name__)
T = TypeVar("T")

#: What is kept: bytes of candidates and of relinked bundles, number of spaces and of bundles.
ROOM, RELINKED, SPACES, BUNDLES = 64 << 20, 256 << 20, 4096, 16


@dataclass(frozen=True)
class Makers:
    """The compiler's part, passed in: its functions are called in workers.

    space:    kernel, id of the device class, objective → its space
    built:    kernel, schedule, variant → the candidate
    relinked: bundle, id of the class, schedule by kernel → manifest, and the files that are new
    pool:     makes the workers; they are made anew when one of them dies
    """

    space: Callable[..., Space]
    built: Callable[..., Built]
    relinked: Callable[..., tuple[Manifest, dict[str, bytes]]]
    pool: Callable[[], Executor]


class Workshop:
    def __init__(self, bundles: Mapping[str, Path], makers: Makers) -> None:
        self._folders = bundles
        self._makers = makers
        self._pool: Executor | None = None
        self._bundles: Shared[Opened] = Shared(BUNDLES)
        self._spaces: Shared[Space] = Shared(SPACES)
        self._relinked: Shared[Opened] = Shared(RELINKED, _own_bytes)
        self.built: Shared[Built | TilewrightError] = Shared(ROOM, _weight)

    async def current(self, name: str) -> Opened:
        """The bundle of this name as it is in its folder now."""
        folder = self._folders.get(name)
        if folder is None:
            raise Unknown("There is no such bundle", hint="See GET /api/bundles", bundle=name)

        async def read() -> Opened:
            return await asyncio.to_thread(lambda: queue.opened(open_bundle(folder)))

        try:
            state = (folder / POINTER).stat()
            return await self._bundles.get((name, state.st_mtime_ns, state.st_size), read)
        except (OSError, BundleCorrupt, BundleVersion) as error:
            log.warning("Bundle %s: %s", name, error)
            raise Unknown("The bundle is broken", hint="Try again later", bundle=name) from error

    async def open(self, name: str, digest: str) -> Opened:
        """The bundle of this name that the client loaded, as built or relinked."""
        base = await self.current(name)
        if base.digest == digest:
            return base
        found = next((o for o in self._relinked.values() if o.digest == digest), None)
        if found is None or found.bundle.folder != base.bundle.folder:
            raise OtherVersion(
                "The bundle was built anew", hint="Load it again", bundle=name, found=base.digest
            )
        return found

    async def relinked(self, base: Opened, device: str, winners: Winners) -> Opened:
        """The bundle with these schedules in the code of this class."""

        async def make() -> Opened:
            manifest, own = await self._run(self._makers.relinked, base.bundle, device, winners)
            bundle = Relinked.of(base.bundle, manifest, own)
            return await asyncio.to_thread(queue.opened, bundle)

        chosen = tuple(sorted(winners.items(), key=lambda winner: winner[0]))
        return await self._relinked.get((base.digest, device, chosen), make)

    def own(self, path: str) -> bytes | None:
        """A file that only a relinked bundle has."""
        for found in self._relinked.values():
            bundle = found.bundle
            if isinstance(bundle, Relinked) and path in bundle.own:
                return bundle.own[path]
        return None

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
        """Calls a function in a worker; if workers die, once more in new ones."""
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


def _own_bytes(opened: Opened) -> int:
    return opened.bundle.weight if isinstance(opened.bundle, Relinked) else 0


def _weight(built: Built | TilewrightError) -> int:
    return 1000 + (len(built.module) if isinstance(built, Built) else 0)
