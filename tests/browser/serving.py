"""The real server under observation: what was asked for, what violated the content policy.

Input: bundles by name.  Output: a running server whose requests can be counted and whose answers
can be held back, so that a test can act in the middle of a download.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tilewright.server import BackgroundServer, create_app

from .patient import shared

REPORTS = "/csp-reports"
PATIENCE = 300.0
STALL = 0.01
NONE: Mapping[str, str] = {}


class Watched:
    """An ASGI app around the server's.  It changes nothing but that violations are reported."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.violations: list[dict[str, Any]] = []
        self._seen: list[str] = []
        self._news = threading.Condition()
        self._held: tuple[str, ...] = ()
        self._refused: tuple[str, ...] = ()
        #: Other content types by the end of a path.
        self.types: dict[str, str] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path: str = scope["path"]
        if path == REPORTS:
            report = json.loads(await Request(scope, receive).body())["csp-report"]
            with self._news:
                self.violations.append(report)
                self._news.notify_all()
            await Response(status_code=204)(scope, receive, send)
            return
        with self._news:
            self._seen.append(path)
            self._news.notify_all()
        if path.endswith(self._refused):
            await Response(status_code=503)(scope, receive, send)
            return

        async def pass_on(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                policy = headers["content-security-policy"]
                headers["content-security-policy"] = f"{policy}; report-uri {REPORTS}"
                for end, kind in self.types.items():
                    if path.endswith(end):
                        headers["content-type"] = kind
            # The head has gone out: whoever waits here is in the middle of a download.
            while message["type"] == "http.response.body" and path.endswith(self._held):
                await asyncio.sleep(STALL)
            await send(message)

        await self.app(scope, receive, pass_on)

    def asked(self, *files: str) -> int:
        """How often these files were asked for, under whatever folder."""
        return sum(path.endswith(files) for path in self._seen)

    @contextmanager
    def holding(self, *files: str) -> Iterator[None]:
        """Answers for these files stop after their head until the context ends."""
        self._held = files
        try:
            yield
        finally:
            self._held = ()

    @contextmanager
    def refusing(self, *files: str) -> Iterator[None]:
        """Requests for these files fail, as of a server in trouble, until the context ends."""
        self._refused = files
        try:
            yield
        finally:
            self._refused = ()

    def wait_until_asked(self, file: str, times: int = 1) -> None:
        with self._news:
            asked = self._news.wait_for(lambda: self.asked(file) >= times, PATIENCE)
        assert asked, f"nobody asked for {file}"

    def wait_for_violation(self, blocked: str) -> None:
        """Waits until the browser has reported that it blocked this address."""
        with self._news:
            told = self._news.wait_for(
                lambda: any(blocked in v["blocked-uri"] for v in self.violations), PATIENCE
            )
        assert told, f"no report of {blocked}"


@dataclass(frozen=True)
class Site:
    """A running server."""

    url: str
    server: Watched

    def bundle(self, name: str) -> str:
        return f"{self.url}/bundles/{name}/"

    @property
    def blank(self) -> str:
        """A page of this origin that does nothing by itself."""
        return f"{self.url}/host/host.html"


class _Quiet(SimpleHTTPRequestHandler):
    """Files of a folder, as `python -m http.server` gives them, with these headers; `query`: of
    bundles' files, which are refused without it."""

    def __init__(self, *given: Any, more: Mapping[str, str], query: str, **options: Any) -> None:
        # the base class answers before its own __init__ returns
        self._more, self._query = more, query
        super().__init__(*given, **options)

    def do_GET(self) -> None:
        if (
            self._query
            and self.path.startswith("/b/")
            and not self.path.endswith(f"?{self._query}")
        ):
            self.send_error(403)
            return
        super().do_GET()

    def end_headers(self) -> None:
        for name, value in self._more.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


@contextmanager
def plain(folder: Path, headers: Mapping[str, str] = NONE, query: str = "") -> Iterator[str]:
    """Any server of static files: no headers of ours but these.  Gives its address."""
    handler = partial(_Quiet, directory=folder, more=headers, query=query)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join(PATIENCE)


@contextmanager
def serving(bundles: Mapping[str, Path], **options: Any) -> Iterator[Site]:
    """`options` are those of the app."""
    server = Watched(create_app(bundles, **{"web": shared(), **options}))
    with BackgroundServer(server) as running:
        yield Site(running.url, server)
