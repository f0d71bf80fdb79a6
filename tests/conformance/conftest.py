"""Hosts for the conformance suite: each is opened once and runs every case.

A host that cannot run here is skipped, and the run prints why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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

HOSTS = (
    "reference",
    "wasmtime",
    "wasmtime-simd",
    pytest.param("chromium", marks=pytest.mark.browser),
    pytest.param("firefox", marks=pytest.mark.browser),
)


@pytest.fixture(scope="session", params=HOSTS)
def open_host(request: pytest.FixtureRequest) -> Iterator[Callable[[Path], Any]]:
    """Opens a bundle on the host: something with `run`, `state`, `set_state` and `reset`."""
    name = request.param
    if name == "reference":
        yield ReferenceHost
    elif name.startswith("wasmtime"):
        features = frozenset[str]() if name.endswith("simd") else FEATURES
        yield lambda path: WasmtimeHost(path, features)
    else:
        try:
            require(name)
        except HostError as error:
            pytest.skip(str(error))
        with BrowserHost(name) as host:
            yield host.load


@pytest.fixture(scope="session")
def run_bundle(open_host: Callable[[Path], Any]) -> RunBundle:
    """Runs a bundle once on the host."""

    def run(path: Path, inputs: Mapping[str, Any]) -> Outputs:
        model = open_host(path)
        try:
            found: Outputs = model.run(inputs).outputs
        finally:
            if isinstance(model, BrowserModel):
                model.dispose()
        return found

    return run


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
