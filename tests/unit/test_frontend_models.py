"""Models as PyTorch's two exporters write them give onnxruntime's results.

Input: the fixtures of tests/models.  The graph interpreter runs what the frontend made.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from frontend_factory import MODELS, distance, example_inputs, reference, run
from onnx import helper

from tilewright.base.dtypes import BOOL, F32
from tilewright.frontend import check, combinations, import_model, load
from tilewright.graph import ops
from tilewright.graph.node import Graph

FILES = sorted(MODELS.glob("*.onnx"))
TEXT = [f for f in FILES if "bert" in f.name]


def named(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("path", FILES, ids=named)
def test_every_node_is_supported(path: Path) -> None:
    report = check(path)
    assert report.ok, report.unsupported_ops
    assert report.counts == {"supported": len(report.rows)}


@pytest.mark.parametrize("path", FILES, ids=named)
def test_agrees_with_onnxruntime_in_every_bucket(path: Path) -> None:
    model = load(path)
    sizes = {"n": (1, 16, 31), "m": (4, 23)}
    for dims in combinations({name: sizes[name] for name in model.dim_names}):
        graph = import_model(model, dims)
        inputs = example_inputs(graph)
        ours, theirs = run(graph, inputs), reference(path, inputs)
        for a, b in zip(ours, theirs, strict=True):
            assert a.shape == b.shape
            assert a.dtype == b.dtype
            assert distance(a, b) < 2e-6, (path.name, dims)


@pytest.mark.parametrize("kind", ["bert-tiny-sdpa", "bert-tiny-eager", "resnet-tiny"])
def test_both_exporters_give_the_same_model(kind: str) -> None:
    graphs = [
        import_model(MODELS / f"{kind}-{exporter}.onnx", {"n": 16} if "bert" in kind else None)
        for exporter in ("torchscript", "dynamo")
    ]
    inputs = example_inputs(graphs[0])
    first, second = (run(graph, inputs)[0] for graph in graphs)
    assert distance(first, second) < 2e-6


@pytest.mark.parametrize("path", TEXT, ids=named)
def test_buckets_share_weights_and_differ_in_shapes_only(path: Path) -> None:
    model = load(path)
    small, large = (import_model(model, {"n": n}) for n in (16, 32))
    assert weights(small) == weights(large)
    assert small.outputs[0][1].shape == (1, 16, 32)
    assert large.outputs[0][1].shape == (1, 32, 32)


def weights(graph: Graph) -> set[str]:
    return {n.op.name for n in graph.nodes() if isinstance(n.op, ops.Weight)}


@pytest.mark.parametrize("path", TEXT, ids=named)
def test_a_text_model_has_no_shape_arithmetic_left(path: Path) -> None:
    graph = import_model(path, {"n": 16})
    left = [
        n
        for n in graph.nodes()
        if isinstance(n.op, ops.Elementwise) and n.dtype not in (F32, BOOL) and n.size == 1
    ]
    assert not left


def test_nodes_say_where_they_come_from() -> None:
    graph = import_model(MODELS / "resnet-tiny-torchscript.onnx")
    contractions = [n for n in graph.nodes() if isinstance(n.op, ops.Contract)]
    assert len(contractions) == 21
    assert all(n.source for n in contractions)
    assert contractions[0].source.node == "/0/Conv"


def test_a_convolution_has_the_channel_innermost_on_both_sides() -> None:
    graph = import_model(MODELS / "resnet-tiny-torchscript.onnx")
    found = [n.op for n in graph.nodes() if isinstance(n.op, ops.Contract)]
    specs = {(op.a, op.b, op.out) for op in found}
    assert ("nhwijc", "oijc", "nhwo") in specs
    assert ("nhwc", "oc", "nhwo") in specs  # 1x1: no windows


def test_matmul_with_a_weight_keeps_the_leading_axes_apart() -> None:
    graph = import_model(MODELS / "bert-tiny-sdpa-dynamo.onnx", {"n": 16})
    specs = {(n.op.a, n.op.b, n.op.out) for n in graph.nodes() if isinstance(n.op, ops.Contract)}
    assert specs == {("amk", "kn", "amn"), ("abmk", "abkn", "abmn")}


def test_importing_reads_no_weight() -> None:
    graph = import_model(MODELS / "bert-tiny-sdpa-dynamo.onnx", {"n": 16})
    large = [n for n in graph.nodes() if isinstance(n.op, ops.Constant) and n.size > 4096]
    assert not large
    table = next(n for n in graph.nodes() if isinstance(n.op, ops.Weight) and n.shape == (100, 32))
    assert isinstance(table.op, ops.Weight)
    assert table.op.load().shape == (100, 32)


def test_model_local_functions_are_inlined() -> None:
    from frontend_factory import model

    body = [
        helper.make_node("Mul", ["a", "b"], ["t"]),
        helper.make_node("Add", ["t", "b"], ["c"]),
    ]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    function = helper.make_function("own", "MulAdd", ["a", "b"], ["c"], body, opsets[:1])
    inner = [helper.make_node("MulAdd", ["a", "a"], ["c"], domain="own")]
    outer = helper.make_function("own", "Twice", ["a"], ["c"], inner, opsets)
    nodes = [
        helper.make_node("Twice", ["x"], ["t"], domain="own"),
        helper.make_node("MulAdd", ["t", "w"], ["y"], domain="own"),
    ]
    weight = np.arange(40, dtype=np.float32)
    proto = model(
        nodes, {"x": [40]}, ["y"], {"w": weight}, functions=[function, outer], opset_imports=opsets
    )
    x = np.linspace(-1, 1, 40, dtype=np.float32)
    (y,) = run(import_model(proto), {"x": x})
    np.testing.assert_allclose(y, (x * x + x) * weight + weight, rtol=1e-6)
