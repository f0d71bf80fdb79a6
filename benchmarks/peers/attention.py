"""Attention as ONNX, in the two forms that models have it.

Input: its sizes.  Output: products and a softmax, as PyTorch's exporters write it, or the one node
that onnxruntime's tools for transformers make of it.
"""

from __future__ import annotations

import math

import onnx
from onnx import TensorProto, helper

from benchmarks.models.nets import Net
from benchmarks.peers.cases import Attention


def written_out(work: Attention) -> onnx.ModelProto:
    b = Net()

    def heads(x: str, length: int, perm: tuple[int, ...]) -> str:
        split = b.ints(1, length, work.heads, work.depth)
        return b.op("Transpose", b.op("Reshape", x, split), perm=perm)

    rows, columns = (0, 2, 1, 3), (0, 2, 3, 1)
    scores = b.op("MatMul", heads("q", work.rows, rows), heads("k", work.keys, columns))
    root = b.number(math.sqrt(work.depth))
    if work.halves:
        root = b.op("Cast", root, to=TensorProto.FLOAT16)
    weights = b.op("Softmax", b.op("Div", scores, root), axis=-1)
    mixed = b.op("MatMul", weights, heads("v", work.keys, rows))
    joined = b.op("Transpose", mixed, perm=rows)
    b.nodes.append(helper.make_node("Reshape", [joined, b.ints(*work.y)], ["y"]))
    return _model(work, b)


def as_one_node(work: Attention) -> onnx.ModelProto:
    b = Net()
    b.nodes.append(
        helper.make_node(
            "MultiHeadAttention", ["q", "k", "v"], ["y"],
            domain="com.microsoft", num_heads=work.heads,
        )
    )  # fmt: skip
    return _model(work, b)


def _model(work: Attention, b: Net) -> onnx.ModelProto:
    kind = TensorProto.FLOAT16 if work.halves else TensorProto.FLOAT
    return b.model({"q": work.x, "k": work.w, "v": work.w}, {"y": work.y}, "attention", kind, kind)
