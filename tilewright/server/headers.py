"""Headers of requests and responses: which names the server answers to, isolation, caching.

Input: an ASGI app.  Output: the same app with the headers of every response (isolation, content
security policy), and for known names in the header `Host` only; 421 for others.  Otherwise a
foreign site could point its own name at this machine (DNS rebinding).  Its pages could then read
what the server serves, and tune, as if they were of this origin.  Headers of a single file (type,
ETag) are in file_responses.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from starlette.datastructures import MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tilewright.base.errors import TilewrightError, UsageError
from tilewright.server.rate_limits import address_of

IMMUTABLE = "public, max-age=31536000, immutable"
REVALIDATE = "no-cache"

# Threads need SharedArrayBuffer, and browsers give it only to pages with these two headers.
ISOLATION = {
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-embedder-policy": "require-corp",
}

_POLICY = {
    "default-src": "'self'",
    "script-src": "'self' 'wasm-unsafe-eval'",
    "worker-src": "'self'",
    "connect-src": "'self'",
    "img-src": "'self' data:",
    "style-src": "'self'",
    "object-src": "'none'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'self'",
}

COMMON = {
    "content-security-policy": "; ".join(f"{k} {v}" for k, v in _POLICY.items()),
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


@dataclass(frozen=True)
class WithHeaders:
    """Adds `headers` to every HTTP response of the app, errors included.

    It does not change WebSockets, nor the plain response 500 with which the server reports a bug.
    """

    app: ASGIApp
    headers: dict[str, str]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self.headers)
            await send(message)

        await self.app(scope, receive, send_with_headers if scope["type"] == "http" else send)


#: A name or an address, in brackets with colons or without; perhaps a port.
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9A-Za-z._-]+))(?::[0-9]{1,5})?")


class UnknownHost(TilewrightError):
    """A request for another site's name."""

    code = "unknown-host"


@dataclass(frozen=True)
class KnownHosts:
    """Answers to `localhost`, loopback addresses, the address that the client connected to, and
    `names`, whatever the port."""

    app: ASGIApp
    names: frozenset[str]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or self._known(scope):
            await self.app(scope, receive, send)
            return
        error = UnknownHost(
            "The server does not answer to this name",
            hint="If it is the server's: `tilewright serve --host-name NAME`",
            host=[value.decode("latin-1") for value in _hosts(scope)],
        )
        answer = JSONResponse({"error": error.to_json()}, status_code=421)
        await answer(scope, receive, send)

    def _known(self, scope: Scope) -> bool:
        hosts = _hosts(scope)
        name = _name(hosts[0].decode("latin-1")) if len(hosts) == 1 else ""
        own, _ = scope.get("server") or ("", None)
        address = address_of(name)
        if address is not None and (address.is_loopback or address == address_of(own)):
            return True
        return name in {"localhost", own, *self.names} - {""}


def host_names(given: Iterable[str]) -> frozenset[str]:
    """The names in the form in which they are compared: lower case, without port.  Raises
    UsageError for anything but a name or an address."""
    names = {text: _name(text) for text in given}
    for text, name in names.items():
        if name not in (text.lower(), text.lower().strip("[]")) or not (name and name.isascii()):
            raise UsageError(
                f"Not the name of a host: {text}",
                hint="Write it without scheme and port, as in `--host-name tuner.example`; other "
                "than Latin letters in their `xn--` form",
            )
    return frozenset(names.values())


def _hosts(scope: Scope) -> list[bytes]:
    return [value for name, value in scope["headers"] if name == b"host"]


def _name(host: str) -> str:
    """The host name without port and brackets, in lower case; "" if it is malformed."""
    found = _HOST.fullmatch(host)
    return (found[1] or found[2]).lower() if found else ""
