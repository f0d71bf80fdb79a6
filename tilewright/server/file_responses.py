"""Answers a request with a file: media type, strong ETag, 304, byte ranges; text with gzip.

Input: a request and a path.  Output: a response with the file.  `Folder` serves all files of a
folder, `send_path` only the files of a bundle.
"""

from __future__ import annotations

import gzip
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response

from tilewright.bundle.format import POINTER, digest, is_blob_name
from tilewright.server.headers import IMMUTABLE, REVALIDATE

# Not the system's table, which differs between machines: browsers refuse modules of a wrong type.
TYPES = {
    ".bin": "application/octet-stream",
    ".css": "text/css",
    ".html": "text/html",
    ".ico": "image/x-icon",
    ".js": "text/javascript",
    ".json": "application/json",
    ".map": "application/json",
    ".mjs": "text/javascript",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".ts": "text/plain",
    ".txt": "text/plain",
    ".wasm": "application/wasm",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
    ".zip": "application/zip",
}
#: Sent with gzip to clients that accept it; blobs of bundles hardly compress.
TEXT = frozenset({".css", ".html", ".js", ".json", ".map", ".mjs", ".svg", ".ts", ".txt"})
PLAIN: Mapping[str, str] = {}
GZIP = {"content-encoding": "gzip"}


@dataclass(frozen=True)
class Folder:
    """Endpoint `file` for `…/{path:path}`: the files below `root`, nothing outside it."""

    root: Path
    index: str = "index.html"

    async def file(self, request: Request) -> Response:
        path = inside(self.root, request.path_params.get("path") or self.index)
        if path is None:
            raise HTTPException(404)
        return await send_whole(request, path)


async def send_whole(request: Request, path: Path) -> Response:
    """A file with the digest of its content as tag; text with gzip for clients that take it."""
    status = path.stat()
    content = path, status.st_mtime_ns, status.st_size
    tag = await run_in_threadpool(_content_digest, *content)
    if path.suffix not in TEXT:
        return send_file(request, path, status, tag, REVALIDATE)
    if _takes_gzip(request.headers.get("accept-encoding", "")):
        data = await run_in_threadpool(_gzipped, *content)
        answer = send_bytes(request, data, f"{tag}-gzip", path.suffix, GZIP)
    else:
        answer = send_file(request, path, status, tag, REVALIDATE)
    answer.headers["vary"] = "accept-encoding"
    return answer


def inside(root: Path, name: str) -> Path | None:
    """The file `name` below `root`; None if it does not exist or lies outside."""
    parts = name.split("/")
    if "\\" in name or "\0" in name or any(p == "" or p.startswith(".") for p in parts):
        return None
    root = root.resolve()
    path = root.joinpath(*parts).resolve()
    try:
        return path if path.is_relative_to(root) and path.is_file() else None
    except OSError:  # the name is too long, or a folder is not readable
        return None


def send_file(
    request: Request, path: Path, status: os.stat_result, tag: str, cache: str
) -> Response:
    """The file, a part of it, or 304; `tag` is the digest of its content."""
    headers = {"etag": f'"{tag}"', "cache-control": cache}
    if _has(request.headers.get("if-none-match"), tag):
        return Response(status_code=304, headers=headers)
    media_type = TYPES.get(path.suffix, "application/octet-stream")
    return FileResponse(path, headers=headers, media_type=media_type, stat_result=status)


def send_path(request: Request, folder: Path, name: str) -> Response:
    """The pointer or a blob of a bundle in a folder; 404 for anything else."""
    path = inside(folder, name) if name == POINTER or is_blob_name(name) else None
    if path is None:
        raise HTTPException(404)
    if name == POINTER:
        return send_file(request, path, path.stat(), digest(path.read_bytes()), REVALIDATE)
    return send_file(request, path, path.stat(), path.stem, IMMUTABLE)


def send_bytes(
    request: Request, data: bytes, tag: str, suffix: str, coding: Mapping[str, str] = PLAIN
) -> Response:
    """A response with data from memory, or 304 if the client has it.  tag: digest of the data as
    sent; suffix: file ending, which decides the media type;  coding: headers of the content
    encoding"""
    headers = {"etag": f'"{tag}"', "cache-control": REVALIDATE}
    if _has(request.headers.get("if-none-match"), tag):
        return Response(status_code=304, headers=headers)
    return Response(data, headers={**headers, **coding}, media_type=TYPES[suffix])


def _takes_gzip(accept_encoding: str) -> bool:
    """RFC 9110, 12.5.3: gzip is listed, and its weight is not 0."""
    entries = (e.replace(" ", "").lower() for e in accept_encoding.split(","))
    return any(re.fullmatch(r"gzip(;q=(?!0(\.0*)?$).*)?", entry) for entry in entries)


def _has(if_none_match: str | None, tag: str) -> bool:
    """RFC 9110, 13.1.2: `*` or a list of tags, compared weakly."""
    if if_none_match is None:
        return False
    listed = (t.strip().removeprefix("W/") for t in if_none_match.split(","))
    return any(t in ("*", f'"{tag}"') for t in listed)


@lru_cache(maxsize=1024)
def _content_digest(path: Path, _mtime_ns: int, _size: int) -> str:
    return digest(path.read_bytes())


@lru_cache(maxsize=256)
def _gzipped(path: Path, _mtime_ns: int, _size: int) -> bytes:
    return gzip.compress(path.read_bytes(), 9, mtime=0)
