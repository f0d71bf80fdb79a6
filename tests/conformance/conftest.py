"""Hosts for the conformance suite: each is opened once and runs every case.

A host that cannot run here is skipped, and the run prints why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.base.errors import HostError
from tilewright.bundle import Contents, write
from tilewright.hosts.browser import BrowserHost, BrowserModel
from tilewright.hosts.browser_find import require
from tilewright.hosts.reference import ReferenceHost
from tilewright.hosts.wasmtime import FEATURES, WasmtimeHost

Outputs = dict[str, np.ndarray[Any, Any]]
RunBundle = Callable[[Path, Mapping[str, Any]], Outputs]
BundleOf = Callable[[str, Callable[[], Contents]], Path]
#: Loads a bundle into the page of a browser and gives what a function makes of it.
InBrowser = Callable[..., Any]

HOSTS = (
    "reference",
    "wasmtime",
    "wasmtime-simd",
    pytest.param("chromium", marks=pytest.mark.browser),
    pytest.param("firefox", marks=pytest.mark.browser),
)


@pytest.fixture(scope="session")
def browsers() -> Iterator[Callable[[str], BrowserHost]]:
    """Each browser starts when it is first asked for, and stays."""
    with ExitStack() as stack:

        @cache
        def started(name: str) -> BrowserHost:
            try:
                require(name)
            except HostError as error:
                pytest.skip(str(error))
            return stack.enter_context(BrowserHost(name))

        yield started


@pytest.fixture(scope="session")
def in_browser(browsers: Callable[[str], BrowserHost]) -> InBrowser:
    """Loads a bundle, and forgets it afterwards: what a page keeps makes its next load slower."""

    def use(name: str, path: Path, act: Callable[[BrowserModel], Any], **options: Any) -> Any:
        host = browsers(name)
        model = host.load(path, **options)
        try:
            return act(model)
        finally:
            model.dispose()
            host.request("clear_cache", {})

    return use


@pytest.fixture(scope="session", params=HOSTS)
def run_bundle(request: pytest.FixtureRequest, in_browser: InBrowser) -> RunBundle:
    """Runs a bundle once on the host."""
    name = request.param
    if name == "reference":
        return lambda path, inputs: ReferenceHost(path).run(inputs).outputs
    if name.startswith("wasmtime"):
        features = frozenset[str]() if name.endswith("simd") else FEATURES
        return lambda path, inputs: WasmtimeHost(path, features).run(inputs).outputs
    return lambda path, inputs: in_browser(name, path, lambda model: model.run(inputs).outputs)


@pytest.fixture(scope="session")
def bundle_of(tmp_path_factory: pytest.TempPathFactory) -> BundleOf:
    """Makes and writes a bundle once per name, for all hosts."""
    root = tmp_path_factory.mktemp("bundles")

    def written(name: str, make: Callable[[], Contents]) -> Path:
        path = root / name
        if not path.exists():
            write(make(), path)
        return path

    return written
