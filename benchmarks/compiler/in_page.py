"""The compiler in a page with Pyodide, compared with CPython: start and compile times.

Input: a bundle, or nothing for K0 of nnJIT (384x768x768).  Output: results/compiler.in_page.json:
per browser the start of Python and of the compiler's modules, and milliseconds per candidate; the
same candidates in CPython.  A first visit: profiles are empty, but everything is on this machine.

    python -m benchmarks compiler.in_page
"""

from __future__ import annotations

import queue
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route

from benchmarks.common import Run
from benchmarks.options import BROWSERS
from benchmarks.records import Row
from lab.paper_spaces import PAPER
from lab.subjects import compile_matmul
from tilewright.bundle import Bundle, open_bundle, write
from tilewright.hosts.browser_connection import Json
from tilewright.hosts.browser_discovery import require
from tilewright.hosts.browser_process import started
from tilewright.server import BackgroundServer, create_app
from tilewright.server.pyodide import FILES, core
from tilewright.targets.device_classes import find
from tilewright.tuning.candidates import build, space_of
from tilewright.tuning.catalogue import kernels_of
from tilewright.tuning.source_zip import source_zip

DEVICE = "wasm-x86-relaxed-48k"
#: Seconds that a page may take.
PATIENCE = 300.0

PAGE = "<!doctype html><title>compiler</title><script type=module src=/bench/page.js></script>"
SCRIPT = Path(__file__).with_suffix(".mjs")


@dataclass(frozen=True)
class Measured:
    """What a page measured, in milliseconds: the start of Python, the compiler's modules, listing
    the space, each candidate; and the candidates' kernels, numbers and digests."""

    python: float
    compiler: float
    space: float
    times: Sequence[float]
    candidates: Sequence[tuple[int, int, str]]


@contextmanager
def page(bundle: Bundle, count: int) -> Iterator[tuple[str, queue.Queue[Json]]]:
    """A page that measures as soon as it is open, and where it puts its result."""
    found: queue.Queue[Json] = queue.Queue()
    hello = {
        "digest": bundle.pointer.manifest.digest,
        "device": DEVICE,
        "variant": find(DEVICE).variant,
        "specs": list(range(len(kernels_of(bundle)))),
        "count": count,
    }

    async def take(request: Request) -> Response:
        found.put(await request.json())
        return Response(status_code=204)

    routes = [
        Route("/bench", lambda _: HTMLResponse(PAGE)),
        Route("/bench/page.js", lambda _: FileResponse(SCRIPT, media_type="text/javascript")),
        Route("/bench/hello", lambda _: JSONResponse(hello)),
        Route("/bench/result", take, methods=["POST"]),
        Mount("/", create_app({"b": bundle.folder}, pyodide=core())),
    ]
    with BackgroundServer(Starlette(routes=routes)) as server:
        yield f"{server.url}/bench", found


def in_page(browser: str, bundle: Bundle, count: int) -> Measured:
    with page(bundle, count) as (url, found), started(require(browser), url):
        told = found.get(timeout=PATIENCE)
    if "error" in told:
        raise SystemExit(f"{browser}: {told['error']}")
    candidates = [(spec, number, digest) for spec, number, digest in told["candidates"]]
    start = told["started"]
    return Measured(start["python"], start["compiler"], told["open"], told["times"], candidates)


def in_process(bundle: Bundle, candidates: Sequence[tuple[int, int, str]]) -> list[float]:
    """The same candidates here: milliseconds each; their bytes must be the same."""
    kernels, device = kernels_of(bundle), find(DEVICE)
    spaces = {spec: space_of(kernels[spec], device) for spec, *_ in candidates}
    times = []
    for spec, number, digest in candidates:
        start = time.perf_counter()
        built = build(kernels[spec], spaces[spec].schedules[number], device.target, device.variant)
        times.append((time.perf_counter() - start) * 1e3)
        if built.digest != digest:
            raise SystemExit(f"candidate {number} of kernel {spec} has other bytes in the page")
    return times


def row(what: str, times: list[float]) -> Row:
    return {
        "what": what,
        "median_ms": round(statistics.median(times), 2),
        "min_ms": round(min(times), 2),
        "max_ms": round(max(times), 2),
        "n": len(times),
    }


def main(
    run: Run,
    bundle: Annotated[Path | None, typer.Option(help="By default one of K0.")] = None,
    count: Annotated[int, typer.Option(min=1, help="Candidates in a visit.")] = 40,
    repeats: Annotated[int, typer.Option(min=1, help="Visits of each browser.")] = 3,
) -> None:
    rows = []
    with tempfile.TemporaryDirectory(prefix="tilewright-client-") as folder:
        if bundle is None:
            k0 = PAPER["K0"]
            write(compile_matmul(k0.m, k0.k, k0.n).contents, Path(folder))
        opened = open_bundle(bundle or Path(folder))
        for browser in BROWSERS:
            found = [in_page(browser, opened, count) for _ in range(repeats)]
            here = in_process(opened, found[0].candidates)
            rows += [
                row(f"{browser}: start of Python", [visit.python for visit in found]),
                row(f"{browser}: the compiler's modules", [visit.compiler for visit in found]),
                row(f"{browser}: space", [visit.space for visit in found]),
                row(f"{browser}: one candidate", [t for visit in found for t in visit.times]),
                row("CPython: one candidate", here),
            ]
    for one in rows:
        run.show(one)
    sizes = {name: (core() / name).stat().st_size for name in FILES} | {"source": len(source_zip())}
    run.save(rows, facts={"bytes": sizes})
