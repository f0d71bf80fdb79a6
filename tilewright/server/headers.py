"""Headers of every response (isolation, content security policy), and values for caching.

Input: an ASGI app.  Output: the same app with these headers added.  Headers of a single file
(type, ETag) are in file_responses.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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

    WebSockets pass untouched, and so does the plain 500 by which the server reports a bug.
    """

    app: ASGIApp
    headers: dict[str, str]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self.headers)
            await send(message)

        await self.app(scope, receive, send_with_headers if scope["type"] == "http" else send)
