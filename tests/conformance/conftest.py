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
from helpers.once import made_once, shared_root

from tilewright.base.errors import HostError, UnsupportedDType
from tilewright.bundle import Contents, write
from tilewright.compiler import Options
from tilewright.hosts import cuda_on_cpu, native
from tilewright.hosts.browser import BrowserHost, BrowserModel
from tilewright.hosts.cuda import CudaHost
from tilewright.hosts.cuda_devices import CpuDevice
from tilewright.hosts.reference import ReferenceHost
from tilewright.hosts.wasmtime import FEATURES, REGISTERS, WasmtimeHost
from tilewright.hosts.wgpu import WgpuHost, adapter
from tilewright.targets import wasm

Outputs = dict[str, np.ndarray[Any, Any]]
RunBundle = Callable[[Path, Mapping[str, Any]], Outputs]
BundleOf = Callable[[str, Callable[[Options], Contents]], Path]

#: Loads a bundle into the page of a browser and gives what a function makes of it.
InBrowser = Callable[..., Any]

#: By host, the target whose code it runs.
TARGETS = {
    "reference": "wasm",
    "wasmtime": "wasm",
    "wasmtime-simd": "wasm",
    "native": "c",
    "cuda-cpu": "cuda",
    "cuda": "cuda",
    "chromium": "wasm",
    "firefox": "wasm",
    "node": "wasm",
    "chromium-webgpu": "wgsl",
    "dawn": "wgsl",
    "wgpu": "wgsl",
}
#: Those that need a compiler of this system.
COMPILED: dict[str, tuple[Callable[[], str], Callable[[Path], Any]]] = {
    "native": (native.compiler, native.NativeHost),
    "cuda-cpu": (cuda_on_cpu.compiler, lambda path: CudaHost(path, CpuDevice())),
}
#: Those for which a case takes a second or more, most of it in a compiler.
SLOW = ("cuda-cpu", "dawn", "chromium-webgpu")
#: How long a page may be silent.  A software adapter compiles a model's kernels in its first run,
#: for half a minute alone and for two beside other tests.
SILENT_SECONDS = 900.0
#: Those that open the host page, or do what it does.
BROWSERS = ("chromium", "firefox", "node", "chromium-webgpu", "dawn")

#: The WebAssembly that hosts of this machine take, and the rest.  Compiling is the longest part.
VARIANTS = tuple(t.name for t in wasm.VARIANTS.values() if t.registers == REGISTERS)
OTHERS = tuple(t.name for t in wasm.VARIANTS.values() if t.registers != REGISTERS)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """By day WebGPU's software adapters and CUDA on the CPU take a file's `ON_SOFTWARE` alone."""
    for item in items:
        by_day = getattr(getattr(item, "module", None), "ON_SOFTWARE", ())
        host = getattr(item, "callspec", None) and item.callspec.params.get("host_name")
        if (
            by_day
            and TARGETS.get(host) in ("wgsl", "cuda")
            and host != "cuda"
            and item.callspec.params["path"].stem not in by_day
        ):
            item.add_marker(pytest.mark.nightly)


def _marks(host: str) -> list[pytest.MarkDecorator]:
    """wgpu runs what Dawn does by day, under a second compiler of WGSL."""
    browser = [pytest.mark.browser] if host in BROWSERS else []
    gpu = [pytest.mark.gpu] if host == "cuda" else []
    return [*browser, *gpu, *([pytest.mark.nightly] if host == "wgpu" else [])]


def on(*hosts: str) -> pytest.MarkDecorator:
    """For a test of what these hosts alone do."""
    params = [pytest.param(host, marks=_marks(host)) for host in hosts]
    return pytest.mark.parametrize("host_name", params, indirect=True)


@pytest.fixture(scope="session", params=[pytest.param(n, marks=_marks(n)) for n in TARGETS])
def host_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def browsers() -> Iterator[Callable[[str], BrowserHost]]:
    """Each browser starts when it is first asked for, and stays."""
    with ExitStack() as stack:

        @cache
        def started(name: str) -> BrowserHost:
            try:
                host = BrowserHost(name, timeout=SILENT_SECONDS)
            except HostError as error:
                pytest.skip(str(error))
            return stack.enter_context(host)

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


@pytest.fixture
def open_host(host_name: str, request: pytest.FixtureRequest) -> Iterator[Callable[[Path], Any]]:
    """Opens a bundle on the host: something with `run`, `state`, `set_state` and `reset`."""
    if host_name == "reference":
        yield ReferenceHost
    elif host_name in COMPILED:
        compiler, host = COMPILED[host_name]
        try:
            compiler()
        except HostError as error:
            pytest.skip(str(error))
        yield host
    elif host_name == "cuda":
        yield CudaHost
    elif host_name == "wgpu":
        try:
            adapter()
        except HostError as error:
            pytest.skip(str(error))
        yield WgpuHost
    elif host_name.startswith("wasmtime"):
        features = frozenset[str]() if host_name.endswith("simd") else FEATURES
        yield lambda path: WasmtimeHost(path, features)
    else:
        host = request.getfixturevalue("browsers")(host_name)
        models: list[BrowserModel] = []

        def opened(path: Path) -> BrowserModel:
            models.append(host.load(path))
            return models[-1]

        yield opened
        for model in models:
            model.dispose()
        host.request("clear_cache", {})


@pytest.fixture
def run_bundle(host_name: str, open_host: Callable[[Path], Any]) -> RunBundle:
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
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shared_root(tmp_path_factory) / "bundles"


def options_for(target: str) -> Options:
    """Of a bundle that the hosts of this machine run."""
    return Options(targets=(target,), variants=VARIANTS if target == "wasm" else ())


@pytest.fixture
def bundle_of(root: Path, host_name: str) -> BundleOf:
    """Makes and writes a bundle once per test file, name and target, for all hosts of the target.

    A model with a dtype that the target does not have is skipped, and the run prints which.
    """
    target = TARGETS[host_name]

    def written(name: str, make: Callable[[Options], Contents]) -> Path:
        def put(folder: Path) -> None:
            write(make(options_for(target)), folder)

        try:
            return made_once(root / target / make.__module__ / name, put)
        except UnsupportedDType as error:
            pytest.skip(f"{host_name}: {error}")

    return written
