"""What all tuning sessions of a process share: open bundles, spaces, built candidates.

Input: bundle folders, the compiler's functions, workers to call them in.  Output: each of these,
made once for all sessions.  It measures and ranks nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias, TypeVar

from tilewright.base.errors import BundleCorrupt, BundleVersion, TilewrightError
from tilewright.bundle import POINTER, Manifest, open_bundle
from tilewright.bundle.signing import Signer
from tilewright.server.relink_cache import GRACE, Cache, Origin
from tilewright.server.single_flight import SingleFlight
from tilewright.server.workers import Workers, WorkersDied
from tilewright.tuning import catalogue
from tilewright.tuning.candidates import Built, Space
from tilewright.tuning.catalogue import OpenedBundle, Winners
from tilewright.tuning.messages import Objective, OtherVersion, Unknown

log = logging.getLogger(__name__)
T = TypeVar("T")

#: Cache sizes: bytes of candidates; numbers of spaces, bundles and relinked bundles.
ROOM, SPACES, BUNDLES, RELINKED = 64 << 20, 4096, 16, 64
#: Seconds until a retry after a failure; timeouts of making a space or a candidate (milliseconds
#: are usual) and of linking.
REST, MAKING, LINKING = 60.0, 30.0, 300.0

#: Default candidates, by number of the kernel and checksum of the space.
Best: TypeAlias = Mapping[int, Mapping[str, int]]


@dataclass(frozen=True)
class Makers:
    """The compiler's functions, which are called in workers.

    space:    kernel, id of the device class, objective → its space
    built:    kernel, schedule, target, variant → the candidate
    relinked: bundle, id of the class, schedule by kernel → manifest, and the files that are new
    winners:  kernels, id of the class, `Best` → schedule by kernel, for spaces with the same
              checksum
    pool:     makes an executor with one worker; called again if that dies or hangs
    workers:  number of workers for sessions; the same number again is for linking
    """

    space: Callable[..., Space]
    built: Callable[..., Built]
    relinked: Callable[..., tuple[Manifest, dict[str, bytes]]]
    winners: Callable[..., Winners]
    pool: Callable[[], Executor]
    workers: int = 1


class _Missing(Exception):
    """No process made a bundle with this manifest."""


class SessionResources:
    """bundles: folder by name;  cache: folder of relinked bundles, which processes may share
    signer:  signs relinked bundles, and candidates when they are sent
    """

    def __init__(
        self,
        bundles: Mapping[str, Path],
        makers: Makers,
        cache: Path | None = None,
        signer: Signer | None = None,
    ) -> None:
        self.signer = signer
        self._folders = bundles
        self._makers = makers
        self._workers = Workers(makers.pool, makers.workers, MAKING)
        # workers of their own, so that sessions do not wait for linking, which takes longer
        self._linkers = Workers(makers.pool, makers.workers, LINKING)
        self._bundles: SingleFlight[OpenedBundle] = SingleFlight(BUNDLES)
        self._spaces: SingleFlight[Space] = SingleFlight(SPACES)
        self._cache = Cache(cache)
        # a bundle is looked up again, which marks its files as used, before they may be deleted
        self._relinked: SingleFlight[OpenedBundle] = SingleFlight(RELINKED, seconds=GRACE / 2)
        self._linked: SingleFlight[OpenedBundle] = SingleFlight(RELINKED, seconds=GRACE / 2)
        self._winners: SingleFlight[Winners] = SingleFlight(RELINKED)
        self._failed: SingleFlight[Exception | None] = SingleFlight(4096, seconds=REST)
        self.built: SingleFlight[Built | TilewrightError] = SingleFlight(ROOM, _weight)

    async def current(self, name: str) -> OpenedBundle:
        """The bundle of this name as it is in its folder now.  Raises Unknown."""
        folder = self._folders.get(name)
        if folder is None:
            raise Unknown("There is no such bundle", hint="See GET /api/bundles", bundle=name)

        async def read() -> OpenedBundle:
            return await asyncio.to_thread(lambda: catalogue.opened(open_bundle(folder)))

        try:
            state = (folder / POINTER).stat()
            return await self._bundles.get((name, state.st_mtime_ns, state.st_size), read)
        except (OSError, BundleCorrupt, BundleVersion) as error:
            log.warning("Bundle %s: %s", name, error)
            raise Unknown("The bundle is broken", hint="Try again later", bundle=name) from error

    async def open(self, name: str, digest: str) -> OpenedBundle:
        """The bundle that the client loaded, as built or relinked.  Raises Unknown, OtherVersion.

        digest: of its manifest
        """
        base = await self.current(name)
        if base.digest == digest:
            return base
        found = await self._by_digest(base, digest)
        if found is None:
            raise OtherVersion(
                "The bundle was rebuilt", hint="Load it again", bundle=name, found=base.digest
            )
        return found

    async def relinked(self, base: OpenedBundle, device: str, winners: Winners) -> OpenedBundle:
        """The bundle with these schedules in the class's variant; as built, if linking failed."""
        origin = Origin.of(base.bundle, device, winners)

        async def make() -> OpenedBundle:
            bundle = await asyncio.to_thread(self._cache.made, base.bundle, origin)
            if bundle is None:
                new = await self._linkers.run(self._makers.relinked, base.bundle, device, winners)
                bundle = await asyncio.to_thread(self._cache.keep, base.bundle, origin, *new)
            if self.signer:
                # the serial of the bundle as built: other schedules do not make it newer
                serial = base.bundle.pointer.serial or 0
                pointer = self.signer.pointer(bundle.pointer, bundle.manifest.name, serial)
                bundle = replace(bundle, pointer=pointer)
            return await asyncio.to_thread(catalogue.opened, bundle)

        key = (base.bundle.folder, origin.key)
        try:
            return await self._lasting(self._linked, key, make)
        except Exception:
            # a bug of the compiler or a full disk: it is logged already, and the bundle as built
            # works
            return base

    async def winners(self, opened: OpenedBundle, device: str, best: Best) -> Winners:
        """The schedules of these candidates, made in the workers for linking."""

        async def make() -> Winners:
            kernels = {spec: opened.kernels[spec] for spec in best}
            return await self._linkers.run(self._makers.winners, kernels, device, best)

        named = tuple((spec, *sorted(best[spec].items())) for spec in sorted(best))
        key = (opened.digest, device, named)
        return await self._lasting(self._winners, key, make)

    async def _lasting(
        self, kept: SingleFlight[T], key: Hashable, make: Callable[[], Awaitable[T]]
    ) -> T:
        """The cached value, or one made now.  A failure is remembered for `REST` seconds, or every
        caller would try it again."""

        async def attempt() -> Exception | None:
            try:
                await kept.get(key, make)
            except Exception as error:
                log.warning("The next attempt is in %g s: %r", REST, error)
                return error
            return None

        error = await self._failed.get((id(kept), key), attempt)
        if error is not None:
            raise error.with_traceback(None)
        return await kept.get(key, make)

    async def _by_digest(self, base: OpenedBundle, digest: str) -> OpenedBundle | None:
        """The bundle that some process relinked from `base`; None if there is none."""

        async def find() -> OpenedBundle:
            bundle = await asyncio.to_thread(self._cache.find, base.bundle, digest)
            if bundle is None:
                raise _Missing
            return await asyncio.to_thread(catalogue.opened, bundle)

        try:
            return await self._relinked.get((base.bundle.folder, base.digest, digest), find)
        except (_Missing, BundleCorrupt, BundleVersion):
            return None

    def close(self) -> None:
        """Ends the workers and the calls that run in them."""
        self._workers.close()
        self._linkers.close()

    @property
    def own(self) -> Path:
        """Folder of the files that only relinked bundles have."""
        return self._cache.folder

    async def space(
        self, opened: OpenedBundle, spec: int, device: str, objective: Objective
    ) -> Space:
        """The space of a kernel on a class.  Raises TilewrightError if it cannot be made."""

        async def make() -> Space:
            return await self._workers.run(
                self._makers.space, opened.kernels[spec], device, objective
            )

        return await self._lasting(self._spaces, (opened.digest, spec, device, objective), make)

    async def candidate(
        self, opened: OpenedBundle, spec: int, space: Space, number: int, variant: str
    ) -> Built | None:
        """A candidate's module; None if it cannot be made."""
        schedule, target = space.schedule(number), space.device.target

        async def make() -> Built | TilewrightError:
            try:
                return await self._workers.run(
                    self._makers.built, opened.kernels[spec], schedule, target, variant
                )
            except WorkersDied:
                raise  # perhaps not the candidate's fault, so the failure is not cached
            except TilewrightError as error:
                log.warning("Candidate %d of %s: %s", number, space.shape, error)
                return error

        key = (space.key, schedule, target, variant)
        try:
            found = await self.built.get(key, make)
        except WorkersDied as error:
            log.warning("Candidate %d of %s: %s", number, space.shape, error)
            return None
        return None if isinstance(found, TilewrightError) else found


def _weight(built: Built | TilewrightError) -> int:
    return 1000 + (len(built.module) if isinstance(built, Built) else 0)
