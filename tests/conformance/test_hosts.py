"""Every kernel class on every host against the graph interpreter."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from cases import BUILDERS
from conftest import (
    BROWSERS,
    OTHERS,
    SLOW,
    TARGETS,
    BundleOf,
    InBrowser,
    RunBundle,
    options_for,
)
from helpers.seeds import shared_out
from making import Array, Case

from lab.subjects import compile_graph
from tilewright.base.dtypes import I64
from tilewright.base.errors import KernelTrap
from tilewright.bundle import write
from tilewright.compiler import Options
from tilewright.graph.node import (
    Graph,
    constant,
    elementwise,
    evaluate,
    gather,
    graph_input,
    scalar_like,
)
from tilewright.hosts.browser import BrowserModel
from tilewright.hosts.wasmtime import WasmtimeHost
from tilewright.targets import target


@pytest.mark.by_turns
@pytest.mark.one_in(6, *SLOW, but=["division-in-a-tile"])
@pytest.mark.one_in(3, "native", "chromium", "firefox")
@pytest.mark.parametrize("name", BUILDERS)
def test_case(name: str, host_name: str, run_bundle: RunBundle, bundle_of: BundleOf) -> None:
    case = BUILDERS[name]()
    path = bundle_of(name, lambda options: compile_graph(case.graph, options).contents)
    outputs = run_bundle(path, case.inputs)
    check(case, outputs, target(TARGETS[host_name]).facts.subnormals)


@pytest.mark.parametrize("name", shared_out(BUILDERS, 8))
def test_code_for_other_processors(name: str, tmp_path: Path) -> None:
    """No host takes it here by itself."""
    case = BUILDERS[name]()
    write(compile_graph(case.graph, Options(variants=OTHERS)).contents, tmp_path)
    for variant in OTHERS:
        check(case, WasmtimeHost(tmp_path, variant=variant).run(case.inputs).outputs)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.browser) for name in BROWSERS]
)
def test_measuring_fails_where_a_run_does(name: str, in_browser: InBrowser, tmp_path: Path) -> None:
    """Without a run before it measuring takes zeros, for which the index is out of range."""
    ids = graph_input("ids", (2, 3), I64)
    nine = elementwise("add", ids, scalar_like(9, ids))
    rows = constant(np.ones((4, 8), np.float32))
    graph = Graph("far", (("ids", ids),), (("y", gather(rows, nine, 0)),))
    write(compile_graph(graph, options_for(TARGETS[name])).contents, tmp_path)

    def traps(model: BrowserModel) -> None:
        zeros, right = np.zeros((2, 3), np.int64), np.full((2, 3), -9)
        for measure in (lambda: model.run({"ids": zeros}), model.time, model.profile):
            with pytest.raises(KernelTrap):
                measure()
        assert (model.run({"ids": right}).outputs["y"] == 1).all()
        assert model.time(runs=2).milliseconds
        assert model.profile(runs=2)

    in_browser(name, tmp_path, traps)


def check(case: Case, outputs: Mapping[str, Array], subnormals: bool = True) -> None:
    """Against the graph interpreter; a target may give zeros for subnormal numbers."""
    expected = evaluate([n for _, n in case.graph.outputs], dict(case.inputs))
    for (label, _), want in zip(case.graph.outputs, expected, strict=True):
        got = outputs[label]
        if not subnormals and want.dtype == np.float32:
            got, want = (np.where(np.abs(x) < 2.0**-126, x * 0, x) for x in (got, want))
        compare(label, got, want, case)


def compare(label: str, got: Array, want: Array, case: Case) -> None:
    assert got.shape == want.shape, label
    assert got.dtype == want.dtype, label
    if got.dtype.kind != "f" or (case.ulp is None and case.relative is None):
        np.testing.assert_array_equal(got, want, err_msg=label)
        return
    if case.ulp is not None:
        distance = np.abs(got.astype(np.float64) - want) / np.spacing(np.abs(want))
        assert distance.max() <= case.ulp, f"{label}: {distance.max()} ULP"
    if case.relative is not None:
        error = np.linalg.norm(got.astype(np.float64) - want) / np.linalg.norm(want)
        assert error <= case.relative, f"{label}: {error}"
