"""Models of one Resize, in code: for tests of its values and of its kernels.

Input: shape, element type, scales or sizes, attributes.  Output: `ModelProto`s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, helper, numpy_helper


def resize_model(
    x: np.ndarray[Any, Any],
    scales: Sequence[float] = (),
    sizes: Sequence[int] = (),
    roi: Sequence[float] = (),
    opset: int = 19,
    op: str = "Resize",
    **attributes: Any,
) -> ModelProto:
    """The operator on an input `x` of this array's shape and type, with all else constant."""
    weights = {
        "roi": np.array(roi, np.float32),
        "scales": np.array(scales, np.float32),
        "sizes": np.array(sizes, np.int64),
    }
    operands = ["x", "scales"] if opset < 11 else ["x", "roi", "scales", "sizes"]
    needed = ("x", "roi") if opset == 11 else ("x",)
    operands = [n if n in needed or weights[n].size else "" for n in operands]
    while not operands[-1]:
        operands.pop()
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        [helper.make_node(op, operands, ["y"], **attributes)],
        "resize",
        [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(weights[n], n) for n in operands if n in weights],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
