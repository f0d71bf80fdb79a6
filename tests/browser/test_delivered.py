"""The engine as installed packages deliver it, minified, in real browsers.

Input: bundles on the real server with the delivered files.  Output: what the checkout's files do:
run on one thread and on several, tune, and reload the page without its server.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from helpers.delivered import delivered

from tilewright.bundle import open_bundle
from tilewright.cli.compile_workers import makers
from tilewright.server import Tuning

from .bundles import Library
from .conftest import Visit
from .serving import Site, serving
from .test_modes_pages import VERDICTS, all_of
from .test_page import ready

pytestmark = [pytest.mark.by_turns, pytest.mark.one_in(2)]

CORE, WIDENING = "/engine/core.js", "/engine/weight_decoding.js"


@pytest.fixture(scope="session")
def web(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return delivered(tmp_path_factory)


@pytest.fixture
def installed(web: Path, library: Library) -> Iterator[tuple[Site, ExitStack]]:
    """A server, and what ends it."""
    bundles = {name: library.path(name) for name in ("difference", "narrow", "search")}
    with ExitStack() as running:
        tuning = Tuning(makers=makers(0))
        yield running.enter_context(serving(bundles, web=web, tuning=tuning)), running


def test_it_runs_and_tunes(
    visit: Visit, library: Library, installed: tuple[Site, ExitStack]
) -> None:
    site, _ = installed
    page = visit(site.blank)
    x, z = np.arange(96.0), np.arange(96.0)[::-1] / 8
    inputs = {"x": x.tolist(), "z": z.tolist()}
    for threads in (1, 2):
        ask = {"url": site.bundle("difference"), "inputs": inputs, "options": {"threads": threads}}
        found = page.do("engine", **ask)
        assert found["info"]["features"]["threads"] == threads
        np.testing.assert_array_equal(found["outputs"]["y"], x - z)
    found = page.do("tuneByServer", url=site.bundle("difference"))
    known = all_of(open_bundle(library.path("difference")))
    assert {(t["spec"], t["candidate"]) for t in found["trials"]} == known
    assert {t["verdict"] for t in found["trials"]} <= VERDICTS
    assert site.server.asked(CORE)


def test_widening_is_loaded_for_bundles_that_need_it(
    visit: Visit, installed: tuple[Site, ExitStack]
) -> None:
    site, _ = installed
    page = visit(site.blank)
    zeros = [0.0] * 96
    page.do("engine", url=site.bundle("difference"), inputs={"x": zeros, "z": zeros})
    assert not site.server.asked(WIDENING)
    found = page.do("engine", url=site.bundle("narrow"), inputs={"ids": [0, 127, 254]})
    assert site.server.asked(WIDENING)
    rows = np.repeat([[-63.5], [0.0], [63.5]], 12, axis=1)
    np.testing.assert_array_equal(found["outputs"]["y"], rows.ravel())


def test_the_choice_of_a_device_is_loaded_on_demand(
    visit: Visit, installed: tuple[Site, ExitStack]
) -> None:
    site, _ = installed
    page = visit(site.blank)
    zeros = [0.0] * 96
    ask = {"url": site.bundle("difference"), "inputs": {"x": zeros, "z": zeros}}
    page.do("engine", **ask)
    assert not site.server.asked("/engine/auto.js")
    found = page.do("engine", **ask, options={"device": "auto"})
    assert site.server.asked("/engine/auto.js")
    assert found["info"]["choice"]["chosen"] == "wasm"


def test_page_reloads_without_the_server(visit: Visit, installed: tuple[Site, ExitStack]) -> None:
    site, running = installed
    page = visit(site.url)
    ready(page)
    first = page.ask("hot soup")
    page.do("serviceWorker")
    running.close()
    page.do("reload")
    ready(page)
    assert page.ask("hot soup") == first
