"""The ASGI app: the routes.

Input: bundle folders by name.  Output: a Starlette app with the demo page at /, the engine at
/engine/, the bundles at /bundles/<name>/ and their list at /api/bundles.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

import tilewright
from tilewright.base.errors import TilewrightError, of_kind
from tilewright.bundle import POINTER, open_bundle
from tilewright.server.chat_completions import ENDING, ChatCompletions, ChatModel
from tilewright.server.corun import CorunFiles
from tilewright.server.file_responses import Folder, send_path
from tilewright.server.headers import (
    COMMON,
    ISOLATION,
    REVALIDATE,
    KnownHosts,
    WithHeaders,
    host_names,
)
from tilewright.server.pyodide import compiler_routes
from tilewright.server.rate_limits import trusted
from tilewright.server.tune import Tuner, Tuning

WEB = Path(tilewright.__file__).parent / "web"
HOST_SOCKET = "/_host/socket"

log = logging.getLogger(__name__)

HostSocket = Callable[[WebSocket], Awaitable[None]]


def create_app(
    bundles: Mapping[str, Path],
    *,
    host_socket: HostSocket | None = None,
    tuning: Tuning | None = None,
    isolation: bool = True,
    web: Path = WEB,
    pyodide: Path | None = None,
    names: Iterable[str] = (),
    corun: Sequence[Path] = (),
    languages: Mapping[str, ChatModel] | None = None,
) -> Starlette:
    """The app.

    bundles:     folder by name; read on every request, so the caller may add to it later
    host_socket: handler of the WebSocket over which Python drives a page (hosts/browser)
    tuning:      adds the endpoints of tune.py
    isolation:   False leaves out the isolation headers, to test pages without threads
    web:         folder of the engine and pages
    pyodide:     folder of Pyodide's core, so that pages can run the compiler themselves
    names:       host names of the site, beside those of headers.py
    corun:       files with results of co-running (corun.py)
    languages:   language models by name, for the endpoints of chat_completions.py

    Raises UsageError if a name, a proxy's address in `tuning`, its cache folder or a file with
    results cannot be used.
    """
    routes = _routes(_Bundles(bundles, tuned=tuning is not None), web, pyodide, corun)
    if host_socket is not None:
        routes.insert(0, WebSocketRoute(HOST_SOCKET, host_socket))
    if languages:
        routes[:0] = ChatCompletions(languages).routes()
    tuner = Tuner(bundles, tuning) if tuning is not None else None
    if tuner is not None:
        routes[:0] = tuner.routes()

    @asynccontextmanager
    async def life(_app: Starlette) -> AsyncGenerator[Mapping[str, object]]:
        yield {ENDING: asyncio.Event()}
        if tuner is not None:
            tuner.close()

    headers = COMMON | ISOLATION if isolation else COMMON
    layers = [
        Middleware(WithHeaders, headers=headers),
        Middleware(KnownHosts, names=host_names(names)),
    ]
    if tuning is not None and tuning.proxies:
        # X-Forwarded-For can be forged: it is read only from the proxies that the site names
        named = trusted(tuning.proxies)
        layers.append(Middleware(ProxyHeadersMiddleware, trusted_hosts=named))
    return Starlette(
        routes=routes,
        lifespan=life,
        middleware=layers,
        exception_handlers={HTTPException: _http_error, TilewrightError: _own_error},
    )


def _routes(
    bundles: _Bundles, web: Path, pyodide: Path | None, corun: Sequence[Path]
) -> list[BaseRoute]:
    """The routes of every app; the last one takes what no other does."""
    return [
        Route("/healthz", _health),
        Route("/api/bundles", bundles.list),
        Route("/bundles/{name}/{path:path}", bundles.file),
        Route("/engine/{path:path}", Folder(web / "engine").file),
        Route("/tune/{path:path}", Folder(web / "tune").file),
        Route("/language/{path:path}", Folder(web / "language").file),
        Route("/vendor/{path:path}", Folder(web / "vendor").file),
        Route("/host/{path:path}", Folder(web / "host", index="host.html").file),
        Route("/camera", Folder(web / "page", index="camera.html").file),
        Route("/chat", Folder(web / "page", index="chat.html").file),
        Route("/classes", Folder(web / "page", index="classes.html").file),
        Route("/corun", Folder(web / "page", index="corun.html").file),
        *CorunFiles(corun).routes(),
        *(compiler_routes(pyodide) if pyodide is not None else ()),
        Route("/{path:path}", Folder(web / "page").file),
    ]


class _Bundles:
    """The endpoints that serve bundles and their list."""

    def __init__(self, folders: Mapping[str, Path], *, tuned: bool) -> None:
        self.folders = folders
        self.tuned = tuned

    def list(self, _request: Request) -> Response:
        """One entry per bundle; a broken one is listed with its error, the others still work.

        `tuned`: whether versions for device classes are served too (tuned.py).
        """
        entries = [
            {"name": name, "url": f"/bundles/{quote(name, safe='')}/"}
            | _told_of(name, folder)
            | {"tuned": self.tuned}
            for name, folder in sorted(self.folders.items())
        ]
        return JSONResponse(entries, headers={"cache-control": REVALIDATE})

    def file(self, request: Request) -> Response:
        """The pointer or a blob; no other file of the folder is served."""
        folder = self.folders.get(request.path_params["name"])
        if folder is None:
            raise HTTPException(404)
        return send_path(request, folder, request.path_params["path"])


def _state(folder: Path) -> tuple[int, int, int] | None:
    """(inode, time, size) of a bundle's pointer file, which change when the bundle is built again;
    None if there is no such file."""
    try:
        found = (folder / POINTER).stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _told_of(name: str, folder: Path) -> dict[str, object]:
    try:
        return _described(folder, _state(folder))
    except TilewrightError as error:
        log.warning("Bundle %s: %s", name, error)
        return {"error": _told(error, "The bundle is broken")}


@lru_cache(maxsize=4096)
def _described(folder: Path, _state: tuple[int, int, int] | None) -> dict[str, object]:
    """The entry of a bundle in the list.  The result is cached, since opening hashes the
    manifest."""
    bundle = open_bundle(folder)
    manifest = bundle.manifest
    return {
        "bytes": bundle.bytes,
        "inputs": [_tensor(t.name, t.dtype, t.shape) for t in manifest.inputs],
        "outputs": [_tensor(t.name, t.dtype, t.shape) for t in manifest.outputs],
        "dims": manifest.dims,
    }


def _tensor(name: str, dtype: str, shape: tuple[int | str, ...]) -> dict[str, object]:
    return {"name": name, "dtype": dtype, "shape": shape}


def _health(_request: Request) -> Response:
    return JSONResponse(
        {"status": "ok", "version": tilewright.__version__}, headers={"cache-control": "no-store"}
    )


def _http_error(_request: Request, error: Exception) -> Response:
    found = of_kind(error, HTTPException, "not an error of HTTP")
    phrase = HTTPStatus(found.status_code).phrase
    body = {"code": phrase.lower().replace(" ", "-"), "message": phrase, "hint": "", "facts": {}}
    return JSONResponse({"error": body}, status_code=found.status_code, headers=found.headers)


def _own_error(_request: Request, error: Exception) -> Response:
    own = of_kind(error, TilewrightError, "not an error of ours")
    log.error("A request failed: %s", own)
    return JSONResponse({"error": _told(own, "The server failed")}, status_code=500)


def _told(error: TilewrightError, message: str) -> dict[str, object]:
    """The error as JSON, without its facts: they may name paths, which only the log may have."""
    return type(error)(message, hint="See the server's log").to_json()
