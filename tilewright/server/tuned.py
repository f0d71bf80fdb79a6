"""Bundles relinked with the fastest known schedules of a device class (nnJIT: initial kernels).

Input: a bundle's name, a device class and a browser family, in the URL.  Output: the bundle's
files, with pointer, manifest, kernel module and plan images of the relinked bundle.  The relinked
bundle is made in the background.  Until it is ready, or while there are no winners, visitors get
the bundle as built.
"""

from __future__ import annotations

import asyncio
import logging
from typing import cast, get_args

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tilewright.bundle import POINTER
from tilewright.bundle.format import digest, is_blob_name
from tilewright.server.client import CrowdResults
from tilewright.server.file_responses import inside, send_bytes, send_path
from tilewright.server.relink_cache import Relinked
from tilewright.server.session_resources import SessionResources
from tilewright.tuning import catalogue
from tilewright.tuning.catalogue import OpenedBundle
from tilewright.tuning.messages import Browser, Unknown

log = logging.getLogger(__name__)

#: Seconds that a visitor waits for a bundle that is being relinked.
TIMEOUT = 0.25
ADDRESS = "/tuned/{device}/{browser}/{name}/{path:path}"


class Tuned:
    """The endpoint that serves relinked bundles."""

    def __init__(self, resources: SessionResources, results: CrowdResults) -> None:
        self._resources = resources
        self._results = results

    def route(self) -> Route:
        return Route(ADDRESS, self._file)

    async def _file(self, request: Request) -> Response:
        path: str = request.path_params["path"]
        if not (path == POINTER or is_blob_name(path)):
            raise HTTPException(404)
        try:
            base = await self._resources.current(request.path_params["name"])
            if path != POINTER:
                own = inside(self._resources.own, path)
                return send_path(request, self._resources.own if own else base.bundle.folder, path)
            found = await self._soon(base, request)
        except Unknown as error:
            raise HTTPException(404) from error
        if isinstance(found.bundle, Relinked):
            pointer = found.bundle.shown
            return send_bytes(request, pointer, digest(pointer), ".json")
        return send_path(request, base.bundle.folder, path)

    async def _soon(self, base: OpenedBundle, request: Request) -> OpenedBundle:
        """The relinked bundle if it is ready within `TIMEOUT` seconds; else the one as built."""
        device, browser = (request.path_params[name] for name in ("device", "browser"))
        if browser not in get_args(Browser):
            raise Unknown("There is no such browser family", browser=browser)
        catalogue.device_class(device)  # raises Unknown if there is none
        work = asyncio.ensure_future(self._relinked(base, device, cast(Browser, browser)))
        work.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            return await asyncio.wait_for(asyncio.shield(work), TIMEOUT)
        except TimeoutError:
            return base
        except Exception as error:
            # the bundle as built always works
            log.warning("Bundle %s is not relinked: %r", base.bundle.manifest.name, error)
            return base

    async def _relinked(self, base: OpenedBundle, device: str, browser: Browser) -> OpenedBundle:
        winners = await self._results.winners(base, device, browser)
        return await self._resources.relinked(base, device, winners) if winners else base
