"""A model with all sizes fixed and folded, for jax-js's ONNX loader.

Input: an ONNX file, sizes of its named dimensions.  Output: an ONNX file in which onnxruntime has
folded constants; nodes that the loader lacks are replaced by equivalent ones: see `REWRITES`.  The
arithmetic does not change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import NodeProto, helper, numpy_helper, shape_inference

from benchmarks.peers.operands import Array


def write_fixed(source: Path, target: Path, dims: Mapping[str, int]) -> None:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(target)
    for name, size in dims.items():
        options.add_free_dimension_override_by_name(name, size)
    onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
    model = onnx.load(target)
    rewriter = Rewriter(model)
    nodes = [new for node in model.graph.node for new in rewriter.rewritten(node)]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    del model.graph.value_info[:]
    onnx.save(model, target)


class Rewriter:
    """Replaces nodes one by one; new constants go into the model's graph."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.graph = model.graph
        self.known = {i.name: i for i in model.graph.initializer}
        found = shape_inference.infer_shapes(model).graph
        self.shapes = {
            info.name: [d.dim_value for d in info.type.tensor_type.shape.dim]
            for info in (*found.input, *found.value_info)
        }

    def rewritten(self, node: NodeProto) -> list[NodeProto]:
        rewrite = REWRITES.get(node.op_type)
        return (rewrite(self, node) if rewrite else None) or [node]

    def constant(self, name: str, value: Array) -> str:
        self.graph.initializer.append(numpy_helper.from_array(value, name))
        return name

    def gather_nd(self, node: NodeProto) -> list[NodeProto] | None:
        """GatherND(x, tuples) → Gather(Reshape(x, [-1]), offsets)."""
        (x, tuples), made = node.input, node.output[0]
        if tuples not in self.known:
            return None
        index = numpy_helper.to_array(self.known[tuples])
        sizes = self.shapes[x]
        assert index.shape[-1] == len(sizes), "only whole tuples are gathered here"
        offsets = np.ravel_multi_index(tuple(np.moveaxis(index, -1, 0)), sizes).astype(np.int64)
        line = self.constant(f"{made}:line", np.array([-1], np.int64))
        at = self.constant(f"{made}:offsets", offsets)
        return [
            helper.make_node("Reshape", [x, line], [f"{made}:flat"]),
            helper.make_node("Gather", [f"{made}:flat", at], [made], axis=0),
        ]

    def reshape(self, node: NodeProto) -> list[NodeProto] | None:
        """Reshape(x, [0, …]), which keeps a size, → with that size."""
        x, shape = node.input
        wanted = numpy_helper.to_array(self.known[shape]) if shape in self.known else np.ones(1)
        if wanted.all():
            return None
        sizes = [self.shapes[x][at] if size == 0 else size for at, size in enumerate(wanted)]
        name = self.constant(f"{node.output[0]}:shape", np.array(sizes, np.int64))
        return [helper.make_node("Reshape", [x, name], node.output)]

    def average_pool(self, node: NodeProto) -> list[NodeProto] | None:
        """AveragePool of one element → Identity."""
        kernel = next(a.ints for a in node.attribute if a.name == "kernel_shape")
        if set(kernel) != {1}:
            return None
        return [helper.make_node("Identity", node.input, node.output)]

    def global_average_pool(self, node: NodeProto) -> list[NodeProto]:
        """GlobalAveragePool of an image → ReduceMean."""
        return [helper.make_node("ReduceMean", node.input, node.output, axes=[2, 3], keepdims=1)]


REWRITES: dict[str, Callable[[Rewriter, NodeProto], list[NodeProto] | None]] = {
    "AveragePool": Rewriter.average_pool,
    "GatherND": Rewriter.gather_nd,
    "GlobalAveragePool": Rewriter.global_average_pool,
    "Reshape": Rewriter.reshape,
}
