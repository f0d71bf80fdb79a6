"""Every kernel class on every host against the graph interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from cases import BUILDERS, Array, Case
from conftest import TARGETS, BundleOf, RunBundle

from tilewright.benchkernel import compile_graph
from tilewright.compiler import Options
from tilewright.graph.node import evaluate
from tilewright.targets import target


@pytest.mark.parametrize("name", BUILDERS)
def test_case(name: str, host_name: str, run_bundle: RunBundle, bundle_of: BundleOf) -> None:
    case = BUILDERS[name]()
    path = bundle_of(name, lambda t: compile_graph(case.graph, Options(targets=t)).contents)
    outputs = run_bundle(path, case.inputs)
    expected = evaluate([n for _, n in case.graph.outputs], dict(case.inputs))
    subnormals = target(TARGETS[host_name]).facts.subnormals
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
