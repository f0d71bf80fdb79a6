"""Small ONNX models and runs of the graph interpreter for the frontend's tests.

Input: nodes or a fixture's name.  Output: `ModelProto`s, files, and values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from tilewright.frontend import import_model
from tilewright.graph.node import Graph, evaluate

MODELS = Path(__file__).parents[1] / "models"
Array = np.ndarray[Any, np.dtype[Any]]
Dims = Sequence[int | str | None]


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Dims],
    outputs: Sequence[str],
    weights: Mapping[str, Array] | None = None,
    opset: int = 17,
    **more: Any,
) -> onnx.ModelProto:
    """A model with f32 inputs; `more` goes to onnx.helper.make_model."""
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, d) for n, d in inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
        [numpy_helper.from_array(v, n) for n, v in (weights or {}).items()],
    )
    opsets = more.pop("opset_imports", [helper.make_opsetid("", opset)])
    return helper.make_model(graph, opset_imports=opsets, ir_version=9, **more)


def relu(inputs: Mapping[str, Dims] | None = None, opset: int = 17) -> onnx.ModelProto:
    """The smallest model: y = max(x, 0)."""
    node = helper.make_node("Relu", ["x"], ["y"], name="the_relu")
    return model([node], inputs or {"x": [1, "n"]}, ["y"], opset=opset)


def run(graph: Graph, inputs: Mapping[str, Array]) -> list[Array]:
    """The graph interpreter's outputs."""
    return evaluate([node for _, node in graph.outputs], dict(inputs))


def run_model(
    proto: onnx.ModelProto | Path,
    inputs: Mapping[str, Array],
    dims: Mapping[str, int] | None = None,
) -> list[Array]:
    return run(import_model(proto, dims), inputs)


def reference(path: Path | bytes, inputs: Mapping[str, Array]) -> list[Array]:
    """onnxruntime's outputs for the same file."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    source = path if isinstance(path, bytes) else str(path)
    session = onnxruntime.InferenceSession(source, options)
    return [np.asarray(v) for v in session.run(None, dict(inputs))]


def example_inputs(graph: Graph, seed: int = 0) -> dict[str, Array]:
    """Random pixels, or token ids of a sentence whose end is padding."""
    random = np.random.default_rng(seed)
    made: dict[str, Array] = {}
    for name, node in graph.inputs:
        if node.dtype.is_float:
            made[name] = random.standard_normal(node.shape).astype(np.float32)
            continue
        length = max(node.shape[1] * 3 // 4, 1)
        kept = np.arange(node.shape[1])[None] < length
        ids = np.where(kept, random.integers(2, 100, node.shape), 1)
        made[name] = ids if name == "input_ids" else kept.astype(np.int64)
    return made


def distance(ours: Array, theirs: Array) -> float:
    """The error relative to the reference's norm."""
    return float(np.linalg.norm(ours - theirs) / max(float(np.linalg.norm(theirs)), 1e-30))
