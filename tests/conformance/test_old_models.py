"""Models of opset 9 that come with the onnx package, on wasmtime against onnxruntime.

Input: its "light" models: classic convolutional networks whose weights are one number each.  Random
weights take their place, and the last softmax is left out, so that a wrong element shows.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from tilewright.bundle import write
from tilewright.compiler import compile_model
from tilewright.frontend import check
from tilewright.hosts.wasmtime import WasmtimeHost

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
BOUND = 1e-4
QUICK = ("squeezenet",)
LONG = (
    "bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet",
    "vgg19", "zfnet512",
)  # fmt: skip


def with_weights(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Weights that keep the size of activations, where the file has constants of a shape."""
    random, graph = np.random.default_rng(1), proto.graph
    held = {t.name: t for t in graph.initializer}
    made, rest = {}, []
    for node in graph.node:
        if node.op_type != "ConstantOfShape":
            rest.append(node)
            continue
        shape = numpy_helper.to_array(held[node.input[0]])
        if len(shape) > 1:
            value = random.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))
        else:
            value = random.uniform(0.5, 1.5, shape)
        made[node.output[0]] = value.astype(np.float32)
    if rest[-1].op_type == "Softmax":
        graph.output[0].name = rest.pop().input[0]
    kept = {name for node in rest for name in node.input}
    weights = [t for t in graph.initializer if t.name in kept]
    weights += [numpy_helper.from_array(value, name) for name, value in made.items()]
    inputs = [i for i in graph.input if i.name not in held]
    return helper.make_model(
        helper.make_graph(rest, graph.name, inputs, list(graph.output), weights),
        opset_imports=list(proto.opset_import),
        ir_version=4,
    )


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in LONG)]
)
def test_a_classic_network_agrees_with_onnxruntime(name: str, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(with_weights(onnx.load(LIGHT / f"light_{name}.onnx")), path)
    session = onnxruntime.InferenceSession(str(path))
    (given,) = session.get_inputs()
    inputs = {given.name: np.random.default_rng(2).standard_normal(given.shape, np.float32)}
    (want,) = session.run(None, inputs)
    write(compile_model(path).contents, tmp_path / "bundle")
    (got,) = WasmtimeHost(tmp_path / "bundle").run(inputs).outputs.values()
    assert got.shape == want.shape
    assert np.linalg.norm(got - want) / np.linalg.norm(want) <= BOUND


@pytest.mark.parametrize("name", [*QUICK, *LONG])
def test_every_node_of_a_classic_network_is_supported(name: str) -> None:
    """As the file comes: its weights are inputs with initializers, as old file formats want it."""
    report = check(LIGHT / f"light_{name}.onnx")
    assert report.ok, report.unsupported_ops
    assert report.opsets[""] == 9
    assert report.notes == ("opset 9, converted to 13",)
