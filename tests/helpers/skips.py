"""A net whose early results are read late, so that many of them are in memory at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

#: Rows and columns of its picture of two channels, and how often it goes down and up.
SIDE, DEPTH = 64, 4


def skipping(folder: Path) -> Path:
    """The file of convolutions down and up again; those up read the results of those down."""
    info, rng = helper.make_tensor_value_info, np.random.default_rng(1)
    nodes, weights, skips, at = [], [], [], "x"
    for n in range(2 * DEPTH):
        wide = n >= DEPTH
        kernel = rng.standard_normal((2, 4 if wide else 2, 3, 3)).astype("f4")
        weights.append(numpy_helper.from_array(kernel, f"w{n}"))
        if wide:
            nodes.append(helper.make_node("Concat", [at, skips.pop()], [f"both{n}"], axis=1))
            at = f"both{n}"
        to = "y" if n == 2 * DEPTH - 1 else f"c{n}"
        nodes.append(helper.make_node("Conv", [at, f"w{n}"], [to], pads=[1, 1, 1, 1]))
        at = to
        if not wide:
            skips.append(at)
    shape = (1, 2, SIDE, SIDE)
    graph = helper.make_graph(
        nodes, "g", [info("x", TensorProto.FLOAT, shape)], [info("y", TensorProto.FLOAT, shape)],
        weights,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "net.onnx")
    return folder / "net.onnx"
