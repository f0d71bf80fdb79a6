"""What all tuning sessions of a process share: open bundles, spaces, built candidates.

Input: bundle folders, the function that makes a candidate, workers to call it in.  Output: each of
these once, however many sessions ask.  What a candidate is worth is not known here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar

from tilewright import __version__
from tilewright.base.errors import BundleCorrupt, BundleVersion, TilewrightError
from tilewright.bundle import POINTER, Manifest, open_bundle
from tilewright.server.relinked import GRACE, Cache, Origin
from tilewright.server.shared import Shared
from tilewright.server.workers import Workers, WorkersDied
from tilewright.tuning import queue
from tilewright.tuning.candidates import Built, Space
from tilewright.tuning.messages import Objective, OtherVersion, Unknown
from tilewright.tuning.queue import Opened, Winners

log = logging.getLogger(__name__)
T = TypeVar("T")

#: What is kept: bytes of candidates, number of spaces, of bundles and of relinked ones.
ROOM, SPACES, BUNDLES, RELINKED = 64 << 20, 4096, 16, 64
#: Seconds until what failed is tried again, that making a space or a candidate may take, which are
#: a matter of milliseconds, and that linking may.
REST, MAKING, LINKING = 60.0, 30.0, 300.0

#: Which candidates were agreed on: by number of the kernel, by checksum of the space.
Best: TypeAlias = Mapping[int, Mapping[str, int]]


@dataclass(frozen=True)
class Makers:
    """The compiler's part, passed in: its functions are called in workers.

    space:    kernel, id of the device class, objective → its space
    built:    kernel, schedule, target, variant → the candidate
    relinked: bundle, id of the class, schedule by kernel → manifest, and the files that are new
    winners:  kernels, id of the class, `Best` → schedule by kernel, of spaces that are the same
    pool:     makes an executor of one worker; again, when that dies or hangs
    workers:  how many of them there are for sessions; as many link
    """

    space: Callable[..., Space]
    built: Callable[..., Built]
    relinked: Callable[..., tuple[Manifest, dict[str, bytes]]]
    winners: Callable[..., Winners]
    pool: Callable[[], Executor]
    workers: int = 1


class _Missing(Exception):
    """Nobody made a bundle with this manifest."""


class Workshop:
    """cache: folder of relinked bundles, which other processes may share."""

    def __init__(
        self, bundles: Mapping[str, Path], makers: Makers, cache: Path | None = None
    ) -> None:
        self._folders = bundles
        self._makers = makers
        self._workers = Workers(makers.pool, makers.workers, MAKING)
        # linking takes longer than anything that a session waits for
        self._linkers = Workers(makers.pool, makers.workers, LINKING)
        self._bundles: Shared[Opened] = Shared(BUNDLES)
        self._spaces: Shared[Space] = Shared(SPACES)
        self._cache = Cache(cache)
        # looked at again before anybody may delete its files
        self._relinked: Shared[Opened] = Shared(RELINKED, seconds=GRACE / 2)
        self._linked: Shared[Opened] = Shared(RELINKED, seconds=GRACE / 2)
        self._winners: Shared[Winners] = Shared(RELINKED)
        self._failed: Shared[Exception | None] = Shared(4096, seconds=REST)
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
        found = await self._by_digest(base, digest)
        if found is None:
            raise OtherVersion(
                "The bundle was built anew", hint="Load it again", bundle=name, found=base.digest
            )
        return found

    async def relinked(self, base: Opened, device: str, winners: Winners) -> Opened:
        """The bundle with these schedules in the code of this class; as built, if that failed."""
        origin = Origin.of(base.bundle, device, winners)

        async def make() -> Opened:
            bundle = await asyncio.to_thread(self._cache.made, base.bundle, origin)
            if bundle is None:
                new = await self._linkers.run(self._makers.relinked, base.bundle, device, winners)
                bundle = await asyncio.to_thread(self._cache.keep, base.bundle, origin, *new)
            return await asyncio.to_thread(queue.opened, bundle)

        key = (base.bundle.folder, origin.key)
        try:
            return await self._lasting(self._linked, key, make)
        except Exception:
            # a bug of the compiler or a full disk, and in the log: the bundle as built is there
            return base

    async def winners(self, opened: Opened, device: str, best: Best) -> Winners:
        """The schedules of these candidates; made beside the sessions, as linking is."""

        async def make() -> Winners:
            kernels = {spec: opened.kernels[spec] for spec in best}
            return await self._linkers.run(self._makers.winners, kernels, device, best)

        named = tuple((spec, *sorted(best[spec].items())) for spec in sorted(best))
        key = (opened.digest, device, named)
        return await self._lasting(self._winners, key, make)

    async def _lasting(self, kept: Shared[T], key: Hashable, make: Callable[[], Awaitable[T]]) -> T:
        """What is kept, or made now; what failed is left alone for a while: all who come would try
        it again."""

        async def attempt() -> Exception | None:
            try:
                await kept.get(key, make)
            except Exception as error:
                log.warning("It is tried again in %g s: %r", REST, error)
                return error
            return None

        error = await self._failed.get((id(kept), key), attempt)
        if error is not None:
            raise error.with_traceback(None)
        return await kept.get(key, make)

    async def _by_digest(self, base: Opened, digest: str) -> Opened | None:
        """The bundle that some process made of `base`."""

        async def find() -> Opened:
            bundle = await asyncio.to_thread(self._cache.find, base.bundle, digest)
            if bundle is None:
                raise _Missing
            return await asyncio.to_thread(queue.opened, bundle)

        try:
            return await self._relinked.get((base.bundle.folder, base.digest, digest), find)
        except (_Missing, BundleCorrupt, BundleVersion):
            return None

    def close(self) -> None:
        """Ends the workers: what is being made is not needed any more."""
        self._workers.close()
        self._linkers.close()

    @property
    def own(self) -> Path:
        """Where the files are that only relinked bundles have."""
        return self._cache.folder

    async def space(self, opened: Opened, spec: int, device: str, objective: Objective) -> Space:
        """The space of a kernel on a class; a `TilewrightError` if it cannot be made."""

        async def make() -> Space:
            return await self._workers.run(
                self._makers.space, opened.kernels[spec], device, objective
            )

        return await self._lasting(self._spaces, (opened.digest, spec, device, objective), make)

    async def candidate(
        self, opened: Opened, spec: int, space: Space, number: int, variant: str
    ) -> Built | None:
        """A candidate's module; None if it cannot be made."""
        schedule, target = space.schedule(number), space.device.target

        async def make() -> Built | TilewrightError:
            try:
                return await self._workers.run(
                    self._makers.built, opened.kernels[spec], schedule, target, variant
                )
            except WorkersDied:
                raise  # perhaps not by its fault: who comes next tries it again
            except TilewrightError as error:
                log.warning("Candidate %d of %s: %s", number, space.shape, error)
                return error

        key = (space.key, schedule, target, variant, __version__)
        try:
            found = await self.built.get(key, make)
        except WorkersDied as error:
            log.warning("Candidate %d of %s: %s", number, space.shape, error)
            return None
        return None if isinstance(found, TilewrightError) else found


def _weight(built: Built | TilewrightError) -> int:
    return 1000 + (len(built.module) if isinstance(built, Built) else 0)
