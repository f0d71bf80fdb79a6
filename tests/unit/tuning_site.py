"""A small bundle of real kernels, and the app that tunes it, for tests of the tuning socket."""

from __future__ import annotations

import json
import urllib.request
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from lab.subjects import compile_graph
from tilewright.base.dtypes import F32
from tilewright.bundle import open_bundle, write
from tilewright.cli.compile_workers import makers
from tilewright.compiler import Options
from tilewright.graph.node import Graph, contract, elementwise, graph_input, reduce
from tilewright.server import Tuning, create_app

VARIANT = "x86"
SECONDS = 300.0


@cache
def bundle() -> Path:
    """Four kernels: two products of different shape, a map and a sum."""
    folder = Path(mkdtemp(prefix="tilewright-"))
    a, b = graph_input("a", (24, 32), F32), graph_input("b", (32, 16), F32)
    y = contract("mk,kn->mn", a, b)
    z = contract("mk,nk->mn", elementwise("exp", y), y)
    graph = Graph("m", (("a", a), ("b", b)), (("y", y), ("z", z), ("s", reduce("sum", z, [1]))))
    write(compile_graph(graph, Options(variants=(VARIANT, "x86-simd"))).contents, folder)
    return folder


@cache
def digest() -> str:
    return open_bundle(bundle()).pointer.manifest.digest


def app(*, names: tuple[str, ...] = (), **tuning: Any) -> Any:
    """The app with the bundle `m`; candidates are made in a thread, and clients may say where they
    are, as a proxy on this machine would.  names: of the site"""
    given: dict[str, Any] = {"makers": makers(0), "proxies": ("127.0.0.1",)}
    return create_app({"m": bundle()}, tuning=Tuning(**given | tuning), names=names)


def stats(url: str) -> Any:
    with urllib.request.urlopen(url + "/api/stats", timeout=SECONDS) as answer:
        return json.loads(answer.read())
