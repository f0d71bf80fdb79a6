"""Products of f32 whose model allows bytes, on hosts that multiply rows divided by their sizes: no
row is too large or too small for f16.
"""

from __future__ import annotations

import numpy as np
import pytest
from conftest import TARGETS, BundleOf, RunBundle

from lab.subjects import compile_graph, weight_of
from tilewright.base.dtypes import F32
from tilewright.bundle import open_bundle
from tilewright.graph.node import Graph, contract, elementwise, evaluate, graph_input
from tilewright.targets import target

ROWS, DEPTH, COLUMNS = 64, 96, 1024
#: Of one row each; nothing of the last one is finite.
SIZES = [1e6, 1e30, 1e-20, 1e-30, 0.0, np.nan]


def graph() -> Graph:
    x = graph_input("x", (ROWS, DEPTH), F32)
    y = contract("mk,kn->mn", x, weight_of((DEPTH, COLUMNS), 0, 4, loose="i8"))
    return Graph("divided", (("x", x),), (("y", elementwise("neg", y)),))


@pytest.mark.by_turns
def test_rows_of_any_size(host_name: str, run_bundle: RunBundle, bundle_of: BundleOf) -> None:
    path = bundle_of("divided", lambda options: compile_graph(graph(), options).contents)
    x = np.random.default_rng(4).standard_normal((ROWS, DEPTH)).astype(np.float32)
    x[: len(SIZES)] *= np.array(SIZES, np.float32)[:, None]
    names = [step.kernel for step in open_bundle(path).manifest.plans[0].steps]
    divides = any(name.startswith("divide_") for name in names)
    assert divides == target(TARGETS[host_name]).facts.f16_memory
    found = run_bundle(path, {"x": x})["y"]
    w = evaluate([weight_of((DEPTH, COLUMNS), 0, 4)])[0].astype(np.float64)
    want, last = -(x.astype(np.float64) @ w), len(SIZES) - 1
    assert np.isnan(found[last]).all()
    error = np.abs(found - want)
    size = np.abs(x).max(1, keepdims=True) * np.abs(w).sum(0)
    limit = 2.0**-9 if divides else 1e-5
    assert (np.delete(error, last, 0) <= np.delete(limit * size, last, 0)).all()
