"""The tuning endpoints: the socket at /api/tune, and classes, standings and statistics over HTTP.

Input: bundle folders, a store if there is one, the compiler's functions.  Output: routes for the
app.  The protocol is docs/tuning-protocol.md; a session is session.py.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from tilewright.base.quantiles import quantile
from tilewright.bundle.signing import Signer
from tilewright.server.client import CrowdResults
from tilewright.server.headers import REVALIDATE
from tilewright.server.rate_limits import Pseudonyms, TokenBuckets, network
from tilewright.server.session import Counts, Session, SessionLimits
from tilewright.server.session_resources import Makers, SessionResources
from tilewright.server.tuned import Tuned
from tilewright.tuning import catalogue
from tilewright.tuning.messages import Busy, Refusal, Unknown

if TYPE_CHECKING:
    from tilewright.store import KernelStore

SOCKET = "/api/tune"


@dataclass(frozen=True)
class Tuning:
    """What tuning needs beyond bundles.

    makers:  the compiler's functions
    store:   opens the store for reports; None: reports are refused, and there are no results of
             other devices
    secret:  shared by the processes of a site, so that they give a network the same pseudonym
    proxies: addresses or networks of the reverse proxies whose X-Forwarded-For is trusted
    origins: allow-list of other origins whose pages may connect; "*" is all.  Votes from a listed
             origin count separately; any other Origin is ignored, since clients can forge it
    reports: rate limit per source: per minute, and in a burst
    cache:   folder of relinked bundles, for all processes of a site; None: a temporary one
    limits:  of sessions
    signer:  the site's key, for pages that verify signatures
    """

    makers: Makers
    store: Callable[[], KernelStore] | None = None
    secret: str = ""
    proxies: tuple[str, ...] = ()
    origins: frozenset[str] = frozenset()
    reports: tuple[float, float] = (60.0, 200.0)
    cache: Path | None = None
    limits: SessionLimits = field(default_factory=SessionLimits)
    signer: Signer | None = None


class Tuner:
    """The endpoints for tuning."""

    def __init__(self, bundles: Mapping[str, Path], tuning: Tuning) -> None:
        self._tuning = tuning
        self._sources = Pseudonyms(tuning.secret)
        self._resources = SessionResources(bundles, tuning.makers, tuning.cache, tuning.signer)
        self._results = _results(tuning, self._resources)
        self._counts = Counts()
        self._sessions: Counter[tuple[str, str]] = Counter()

    def close(self) -> None:
        """Releases resources when the server ends."""
        self._resources.close()
        self._results.close()

    def routes(self) -> list[BaseRoute]:
        return [
            WebSocketRoute(SOCKET, self._socket),
            Route("/api/classes", self._classes),
            Route("/api/standing", self._standing),
            Tuned(self._resources, self._results).route(),
            Route("/api/stats", self._stats),
        ]

    async def _socket(self, socket: WebSocket) -> None:
        origin = socket.headers.get("origin", "")
        if not self._welcome(origin, socket.headers.get("host", "")):
            await socket.close(1008)
            return
        address = socket.client.host if socket.client else ""
        listed = self._tuning.origins - {"*"}
        of = origin if origin in listed else ""
        # pseudonyms change at midnight, so the address is kept in memory while the connection lasts
        source = partial(self._sources.name, address, of)
        visitor = (network(address), of)
        counts, limits = self._counts, self._tuning.limits
        await socket.accept()
        session = Session(socket, self._resources, self._results, counts, limits, source)
        for number, most, whose in (
            (counts.sessions, limits.sessions, "The server"),
            (self._sessions[visitor], limits.each, "This network"),
        ):
            if number >= most:
                counts.refused[Busy.code] += 1
                busy = Busy(
                    f"{whose} has too many sessions open", hint="Try again later", limit=most
                )
                await session.refuse(busy)
                return
        counts.sessions += 1
        counts.opened += 1
        self._sessions[visitor] += 1
        try:
            await session.run()
        finally:
            counts.sessions -= 1
            self._sessions[visitor] -= 1
            if not self._sessions[visitor]:
                del self._sessions[visitor]

    def _welcome(self, origin: str, host: str) -> bool:
        """Whether a client may connect.  Programs send no Origin; the Origin of a page must be this
        server's or on the allow-list."""
        if not origin or self._listed(origin):
            return True
        try:
            return urlsplit(origin).netloc == host
        except ValueError:  # the Origin is not a URL
            return False

    def _listed(self, origin: str) -> bool:
        return bool({origin, "*"} & self._tuning.origins)

    def _classes(self, request: Request) -> Response:
        """The table of device classes, with CORS headers for listed origins: their pages read it
        before they connect."""
        headers = {"cache-control": REVALIDATE, "vary": "origin"}
        origin = request.headers.get("origin", "")
        if origin and self._listed(origin):
            headers["access-control-allow-origin"] = origin
        return JSONResponse(catalogue.class_table(), headers=headers)

    async def _standing(self, request: Request) -> Response:
        device = request.query_params.get("device") or None
        number = request.query_params.get("page", "0")
        try:
            if not (number.isdecimal() and number.isascii() and len(number) <= 3):
                raise Unknown("There is no such page", hint="Pages are 0 to 999", page=number)
            known = await self._results.overview(device, int(number))
        except Refusal as refusal:
            return JSONResponse({"error": refusal.to_json()}, status_code=refusal.close - 4000)
        headers = {"cache-control": "no-store"}
        if known.more:
            after = ({"device": device} if device else {}) | {"page": int(number) + 1}
            headers["link"] = f'<?{urlencode(after)}>; rel="next"'
        return Response(known.data, headers=headers, media_type="application/json")

    def _stats(self, _request: Request) -> Response:
        counts, built = self._counts, self._resources.built
        stats = {
            "sessions": {"now": counts.sessions, "opened": counts.opened},
            "refused": dict(counts.refused),
            "rounds": latency_summary(counts.rounds) | {"count": counts.sent},
            "candidates": {"made": built.made, "shared": built.found},
            "verdicts": dict(counts.verdicts),
            "reports": dict(counts.reports),
            "store": self._results.stats(),
        }
        return JSONResponse(stats, headers={"cache-control": "no-store"})


def _results(tuning: Tuning, resources: SessionResources) -> CrowdResults:
    if tuning.store is None:
        return CrowdResults()
    # imported here: a site without a store needs no SQLAlchemy
    from tilewright.server.async_store import AsyncStore
    from tilewright.server.reports import StoredResults

    rate, burst = tuning.reports
    return StoredResults(AsyncStore(tuning.store), resources, TokenBuckets(rate / 60, burst))


def latency_summary(milliseconds: list[float]) -> dict[str, float]:
    """Median, 95th percentile and maximum."""
    if not milliseconds:
        return {}
    ordered = sorted(milliseconds)
    return {
        "median_ms": round(statistics.median(ordered), 3),
        "p95_ms": round(quantile(ordered, 0.95), 3),
        "most_ms": round(ordered[-1], 3),
    }
