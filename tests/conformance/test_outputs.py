"""Outputs that no kernel makes, on every host: inputs, constants, one tensor twice, no elements."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from conftest import TARGETS, BundleOf, RunBundle
from helpers.outputs import BUCKETS, given, model, wanted

from lab.subjects import compile_graph
from tilewright.bundle import open_bundle
from tilewright.compiler import compile_model
from tilewright.frontend import load
from tilewright.graph.node import Graph, constant
from tilewright.targets import target


@pytest.mark.parametrize(("length", "bucket"), [(3, 4), (4, 4), (5, 8), (8, 8)])
def test_every_output_is_given(
    length: int, bucket: int, host_name: str, run_bundle: RunBundle, bundle_of: BundleOf
) -> None:
    buckets, doubles = {"n": BUCKETS}, "f64" in target(TARGETS[host_name]).facts.dtypes
    path = bundle_of(
        "outputs",
        lambda options: (
            compile_model(load(model(doubles)), replace(options, buckets=buckets)).contents
        ),
    )
    found, want = run_bundle(path, {"x": given(length)}), wanted(length, bucket, doubles)
    assert list(found) == [info.name for info in open_bundle(path).manifest.outputs]
    assert found.keys() == want.keys()
    for name, array in want.items():
        assert found[name].dtype == array.dtype, name
        assert found[name].tobytes() == array.tobytes(), name
        assert found[name].shape == array.shape, name


def test_a_model_of_constants_alone(run_bundle: RunBundle, bundle_of: BundleOf) -> None:
    """No input, no kernel, and of the outputs two are one constant and one has no elements."""
    nodes = {"a": constant(np.arange(6)), "b": constant(np.zeros((2, 0), np.float32))}
    outputs = (*nodes.items(), ("c", nodes["a"]))
    graph = Graph("g", (), outputs)
    path = bundle_of("constants", lambda options: compile_graph(graph, options).contents)
    found = run_bundle(path, {})
    for name, n in outputs:
        np.testing.assert_array_equal(found[name], n.value)
        assert found[name].dtype == n.dtype.numpy
        assert found[name].shape == n.shape
