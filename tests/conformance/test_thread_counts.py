"""The same bits for every number of threads, on every host that has threads: kernels and models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import BUILDERS
from conftest import BundleOf, InBrowser, options_for
from helpers.once import made_once
from helpers.sharing import sharing
from test_models import MODELS, inputs_for

from lab.subjects import compile_graph
from tilewright.bundle import Contents, open_bundle, write
from tilewright.compiler import Options, compile_model
from tilewright.frontend import load
from tilewright.hosts.browser import BrowserModel
from tilewright.hosts.wasmtime import WasmtimeHost

THREADS = (1, 2, 3)
RUNS = 3
#: What has a barrier of its own kind: reductions, rows, contractions, movement, gathered indices, a
#: loop that walks its weights to and fro.
KERNELS = (
    "matmul-100x3x2", "matmul-64x48x64", "attention-10", "softmax", "layer-norm-37", "conv-grouped",
    "max-pool", "movement", "embedding", "row-sums", "recurrent-7-steps",
)  # fmt: skip

Outputs = Mapping[str, np.ndarray[Any, Any]]
RunAt = Callable[[Path, int, Mapping[str, Any]], list[Outputs]]
HOSTS = ("wasmtime", *(pytest.param(b, marks=pytest.mark.browser) for b in ("chromium", "firefox")))


@pytest.fixture(scope="session", params=HOSTS)
def run_at(request: pytest.FixtureRequest, in_browser: InBrowser) -> RunAt:
    """Runs a bundle a few times with so many threads."""
    name = request.param

    def run(path: Path, threads: int, inputs: Mapping[str, Any]) -> list[Outputs]:
        host = WasmtimeHost(path, threads=threads)
        return [host.run(inputs).outputs for _ in range(RUNS)]

    def run_there(path: Path, threads: int, inputs: Mapping[str, Any]) -> list[Outputs]:
        def runs(model: BrowserModel) -> list[Outputs]:
            assert model.info["features"]["threads"] == threads
            return [model.run(inputs).outputs for _ in range(RUNS)]

        found: list[Outputs] = in_browser(name, path, runs, threads=threads)
        return found

    return run if name == "wasmtime" else run_there


@pytest.fixture(scope="module")
def bundle_of(root: Path) -> BundleOf:
    """Of WebAssembly alone, whose workers share a run."""

    def written(name: str, make: Callable[[Options], Contents]) -> Path:
        return made_once(root / "shared" / name, lambda to: write(make(options_for("wasm")), to))

    return written


def agree(run_at: RunAt, path: Path, inputs: Mapping[str, Any]) -> None:
    found = [outputs for threads in THREADS for outputs in run_at(path, threads, inputs)]
    for outputs in found[1:]:
        assert outputs.keys() == found[0].keys()
        for name, array in outputs.items():
            assert array.tobytes() == found[0][name].tobytes(), name


@pytest.mark.one_in(2, "chromium", "firefox")
@pytest.mark.by_turns
@pytest.mark.parametrize("name", KERNELS)
def test_kernels(name: str, run_at: RunAt, bundle_of: BundleOf) -> None:
    case = BUILDERS[name]()
    path = bundle_of(f"{name}-shared", lambda _: compile_graph(case.graph, sharing()).contents)
    agree(run_at, path, case.inputs)


@pytest.mark.by_turns
@pytest.mark.one_in(2, "chromium", "firefox")
@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_models(path: Path, run_at: RunAt, bundle_of: BundleOf) -> None:
    buckets = dict.fromkeys(load(path).dim_names, (12,))
    folder = bundle_of(
        f"{path.stem}-shared", lambda _: compile_model(path, sharing(buckets=buckets)).contents
    )
    agree(run_at, folder, inputs_for(open_bundle(folder).manifest, 10))
