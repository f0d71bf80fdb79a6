"""A model with all sizes fixed and everything folded that they decide, for jax-js's ONNX loader.

Input: an ONNX file, sizes of its named dimensions.  Output: an ONNX file in which onnxruntime has
folded what is constant, gathers by constant tuples have become gathers from a flat tensor, and
means of one element are gone: what that loader knows.  The arithmetic stays what it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import NodeProto, TensorProto, helper, numpy_helper

from .operands import Array


def write_fixed(source: Path, target: Path, dims: Mapping[str, int]) -> None:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(target)
    for name, size in dims.items():
        options.add_free_dimension_override_by_name(name, size)
    onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
    model = onnx.load(target)
    graph = model.graph
    known = {i.name: i for i in graph.initializer}
    shapes = {i.name: _shape(i) for i in (*graph.input, *graph.value_info)}
    nodes = [new for node in graph.node for new in _flat(node, graph, known, shapes)]
    del graph.node[:]
    graph.node.extend(nodes)
    del graph.value_info[:]
    onnx.save(model, target)


def _shape(info: onnx.ValueInfoProto) -> list[int]:
    return [d.dim_value for d in info.type.tensor_type.shape.dim]


def _flat(
    node: NodeProto,
    graph: onnx.GraphProto,
    known: Mapping[str, TensorProto],
    shapes: Mapping[str, list[int]],
) -> Iterator[NodeProto]:
    """GatherND(x, tuples) → Gather(Reshape(x, [-1]), offsets); AveragePool 1x1 → Identity."""
    kernel = next((list(a.ints) for a in node.attribute if a.name == "kernel_shape"), [])
    if node.op_type == "AveragePool" and set(kernel) == {1}:
        yield helper.make_node("Identity", node.input, node.output)
        return
    if node.op_type != "GatherND" or node.input[1] not in known:
        yield node
        return
    x, made = node.input[0], node.output[0]
    tuples = numpy_helper.to_array(known[node.input[1]])
    sizes = shapes[x][: tuples.shape[-1]]
    assert len(sizes) == len(shapes[x]), "only whole tuples are gathered here"
    offsets = np.ravel_multi_index(tuple(np.moveaxis(tuples, -1, 0)), sizes).astype(np.int64)
    graph.initializer.append(_constant(f"{made}:line", np.array([-1], np.int64)))
    graph.initializer.append(_constant(f"{made}:offsets", offsets))
    yield helper.make_node("Reshape", [x, f"{made}:line"], [f"{made}:flat"])
    yield helper.make_node("Gather", [f"{made}:flat", f"{made}:offsets"], [made], axis=0)


def _constant(name: str, value: Array) -> TensorProto:
    return numpy_helper.from_array(value, name)
