"""One browser of each kind and means for the whole session; servers and pages for one test.

Input: the browsers of this machine.  Output: fixtures.  A browser that is missing is skipped with
what to install.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from helpers.once import shared_root

from tilewright.base.errors import HostError
from tilewright.hosts import browser as browser_module
from tilewright.hosts.browser import BrowserHost, BrowserModel
from tilewright.hosts.browser_dawn import Dawn, require_dawn
from tilewright.hosts.browser_discovery import KINDS, Browser, require
from tilewright.hosts.browser_programs import program
from tilewright.server import create_app

from .bundles import Library
from .driver import Driver, Page, closing
from .driver import Visit as Visit
from .serving import Site, Watched, serving

Load = Callable[..., BrowserModel]


@dataclass(frozen=True)
class Lab:
    """A host page that Python drives, with its server under observation."""

    host: BrowserHost
    server: Watched

    def forget(self) -> None:
        """Empties the engine's cache: else a file that is broken on the server is never asked."""
        self.host.request("clear_cache", {})


@pytest.fixture(scope="session")
def dawn() -> Dawn:
    """Dawn in Node with an adapter; what is missing is said."""
    try:
        return require_dawn()
    except HostError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session", params=[pytest.param(k, marks=pytest.mark.browser) for k in KINDS])
def browser(request: pytest.FixtureRequest) -> Browser:
    try:
        return require(request.param)
    except HostError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    root = shared_root(tmp_path_factory) / "library"
    return Library(root, tmp_path_factory.mktemp("library"))


@pytest.fixture(scope="session")
def lab(browser: Browser) -> Iterator[Lab]:
    servers: list[Watched] = []

    def watched(*args: object, **options: object) -> Watched:
        servers.append(Watched(create_app(*args, **options)))  # type: ignore[arg-type]
        return servers[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(browser_module, "create_app", watched)
        with BrowserHost(browser) as host:
            yield Lab(host, servers[0])


@pytest.fixture
def load(lab: Lab, library: Library) -> Iterator[Load]:
    """Loads a bundle of the library, or of a folder, into the host page; frees it afterwards."""
    with ExitStack() as stack:

        def loaded(bundle: str | Path, **options: Any) -> BrowserModel:
            path = library.path(bundle) if isinstance(bundle, str) else bundle
            model = lab.host.load(path, **options)
            stack.callback(model.dispose)
            return model

        yield loaded


@pytest.fixture(scope="session")
def driver(browser: Browser) -> Iterator[Driver]:
    with Driver(browser) as driver:
        yield driver


@pytest.fixture
def visit(driver: Driver) -> Iterator[Visit]:
    """Opens pages and closes them when the test is over."""
    with closing(driver) as opened:
        yield opened


def on_software(*flags: str) -> Driver:
    """Chromium with its software adapter of WebGPU, and with more flags."""
    try:
        found: Browser = program("chromium-webgpu")  # type: ignore[assignment]
        return Driver(replace(found, flags=(*found.flags, *flags)))
    except HostError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def gpu_driver() -> Iterator[Driver]:
    with on_software() as driver:
        yield driver


@pytest.fixture
def gpu_visit(gpu_driver: Driver) -> Iterator[Visit]:
    with closing(gpu_driver) as opened:
        yield opened


@pytest.fixture(scope="session")
def settled(driver: Driver, library: Library) -> Iterator[Page]:
    """A demo page that is ready, for all tests that leave it so."""
    with serving({"search": library.path("search")}) as site:
        page = driver.open(site.url)
        assert page.wait("ready", "error")["state"] == "ready"
        yield page
        page.do("close")


@pytest.fixture
def shop(library: Library, tmp_path: Path) -> Iterator[Site]:
    """A server of this test's own with a copy of the search bundle."""
    with serving({"search": library.copied("search", tmp_path / "search")}) as site:
        yield site
