"""The server of one session: pages, npm packages, the files of cases, and the page's socket.

Input: nothing; cases are added by name.  Output: an ASGI app with isolation headers that remembers
how many bytes of code were requested.  Files are sent as immutable, the best case for an engine's
second visit.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from tilewright.hosts.browser_connection import Link
from tilewright.server import create_app
from tilewright.server.file_responses import send_file
from tilewright.server.headers import IMMUTABLE, ISOLATION, WithHeaders

HERE = Path(__file__).parent
CODE = (".js", ".mjs", ".wasm")


class Site:
    """`app` is the server; `links` are the pages' connections by their tokens."""

    def __init__(self) -> None:
        self.links: dict[str, Link] = {}
        self.bundles: dict[str, Path] = {}
        self.folders: dict[str, Path] = {}
        self.asked: dict[str, Path] = {}
        self._engine = create_app(self.bundles)
        roots = {"page": HERE / "page", "npm": HERE / "node_modules"}
        routes = [
            WebSocketRoute("/_host/socket", self._socket),
            *(Route(f"/{name}/{{path:path}}", self._below(root)) for name, root in roots.items()),
            Route("/cases/{case}/{path}", self._case),
        ]
        own = WithHeaders(Starlette(routes=routes), {**ISOLATION, **_SHARED})
        self.app = _Split(own, self._engine, ("/page/", "/npm/", "/cases/", "/_host/"), self)

    async def _socket(self, socket: WebSocket) -> None:
        link = self.links.get(socket.query_params.get("token", ""))
        if link is None:
            await socket.close(1008)
        else:
            await link.socket(socket)

    def _below(self, root: Path):  # type: ignore[no-untyped-def]
        async def give(request: Request) -> Response:
            name = request.path_params["path"]
            path = (root / name).resolve()
            if not path.is_relative_to(root.resolve()):
                raise HTTPException(404)
            if not path.is_file() and (module := _as_module(path)) is not None:
                # bare addresses inside packages, as bundlers resolve them
                return RedirectResponse(f"/npm/{module.relative_to(root.resolve())}")
            return self._file(request, path)

        return give

    async def _case(self, request: Request) -> Response:
        folder = self.folders.get(request.path_params["case"])
        name = request.path_params["path"]
        if folder is None or name.startswith("."):
            raise HTTPException(404)
        return self._file(request, folder / name)

    def _file(self, request: Request, path: Path) -> Response:
        if not path.is_file():
            raise HTTPException(404)
        status = path.stat()
        tag = f"{status.st_size:x}-{status.st_mtime_ns:x}"
        return send_file(request, path, status, tag, IMMUTABLE)

    def code_bytes(self) -> tuple[int, int]:
        """JavaScript and WebAssembly asked for so far, and the same gzipped; the harness's own page
        does not count."""
        paths = [_real(self, p) for p in self.asked if not p.startswith("/page/")]
        found = [p for p in paths if p is not None and p.suffix in CODE]
        return sum(p.stat().st_size for p in found), sum(_zipped(p) for p in found)


_SHARED: Mapping[str, str] = {"cross-origin-resource-policy": "same-origin"}


class _Split:
    """Our own addresses to one app, the engine's and the bundles' to the other; both noted."""

    def __init__(self, own: ASGIApp, rest: ASGIApp, prefixes: tuple[str, ...], site: Site) -> None:
        self.own, self.rest, self.prefixes, self.site = own, rest, prefixes, site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope.get("path", "")
        if scope["type"] == "http":
            self.site.asked.setdefault(path, Path(path))
        app = self.own if path.startswith(self.prefixes) else self.rest
        await app(scope, receive, send)


def _real(site: Site, address: str) -> Path | None:
    """The file behind an address that was asked for."""
    first, _, rest = address.strip("/").partition("/")
    import tilewright

    roots = {
        "npm": HERE / "node_modules",
        "engine": Path(tilewright.__file__).parent / "web" / "engine",
    }
    if first == "bundles":
        name, _, rest = rest.partition("/")
        path = site.bundles.get(name, Path("/nowhere")) / rest
    else:
        path = roots.get(first, Path("/nowhere")) / rest
    return path if path.is_file() else None


def _as_module(path: Path) -> Path | None:
    candidates = (path.with_name(f"{path.name}.js"), path / "index.js")
    return next((c for c in candidates if c.is_file()), None)


@cache
def _zipped(path: Path) -> int:
    return len(gzip.compress(path.read_bytes(), 6))
