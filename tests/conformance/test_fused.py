"""A small encoder as onnxruntime's optimiser writes it (frontend/operators/fused.py), on each host.

Input: embeddings, layers of Attention, SkipLayerNormalization and MultiHeadAttention, a table of 4
bits, and tokens of which the last are padding; onnxruntime judges.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from conftest import BundleOf, RunBundle
from onnx import TensorProto, helper, numpy_helper

from tilewright.compiler import compile_model

LENGTH, WIDTH, HEADS, WORDS = 12, 32, 4, 40
MICROSOFT = "com.microsoft"


def encoder() -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    stored: list[onnx.TensorProto] = []

    def weight(*shape: int, scale: float = 0.2, mean: float = 0.0) -> str:
        data = (mean + scale * rng.standard_normal(shape)).astype(np.float32)
        stored.append(numpy_helper.from_array(data, f"w{len(stored)}"))
        return stored[-1].name

    def norm() -> tuple[str, str]:
        return weight(WIDTH, scale=0.1, mean=1.0), weight(WIDTH, scale=0.1)

    nodes = [
        helper.make_node(
            "EmbedLayerNormalization",
            ["ids", "", weight(WORDS, WIDTH), weight(LENGTH, WIDTH), "", *norm(), "mask"],
            ["x", "count"], domain=MICROSOFT,
        ),
        helper.make_node(
            "Attention", ["x", weight(WIDTH, 3 * WIDTH), weight(3 * WIDTH), "mask"], ["a"],
            domain=MICROSOFT, num_heads=HEADS,
        ),
        helper.make_node(
            "SkipLayerNormalization", ["a", "x", *norm(), weight(WIDTH)], ["b"], domain=MICROSOFT
        ),
        helper.make_node("MatMul", ["b", weight(WIDTH, 2 * WIDTH)], ["c"]),
        helper.make_node("BiasGelu", ["c", weight(2 * WIDTH)], ["d"], domain=MICROSOFT),
        helper.make_node(
            "FusedMatMul", ["d", weight(WIDTH, 2 * WIDTH)], ["e"], domain=MICROSOFT, transB=1,
            alpha=0.5,
        ),
        helper.make_node("SkipLayerNormalization", ["e", "b", *norm()], ["f"], domain=MICROSOFT),
        helper.make_node(
            "MultiHeadAttention", ["f", "b", "x", weight(3 * WIDTH), "mask"], ["g"],
            domain=MICROSOFT, num_heads=HEADS,
        ),
        helper.make_node("QuickGelu", ["g"], ["y"], domain=MICROSOFT),
        helper.make_node(
            "GatherBlockQuantized", ["table", "ids", weight(WORDS, 2)], ["z"], domain=MICROSOFT,
            bits=4, block_size=16, quantize_axis=1,
        ),
    ]  # fmt: skip
    table = rng.integers(0, 256, (WORDS, WIDTH // 2), np.uint8)
    stored.append(numpy_helper.from_array(table, "table"))
    graph = helper.make_graph(
        nodes,
        "fused",
        [helper.make_tensor_value_info(n, TensorProto.INT32, [1, LENGTH]) for n in ("ids", "mask")],
        [
            helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, LENGTH, WIDTH])
            for n in ("y", "z")
        ],
        stored,
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


@pytest.mark.by_turns
def test_an_optimised_encoder(run_bundle: RunBundle, bundle_of: BundleOf) -> None:
    proto = encoder()
    path = bundle_of("fused", lambda options: compile_model(proto, options).contents)
    ids = np.random.default_rng(1).integers(0, WORDS, (1, LENGTH)).astype(np.int32)
    inputs = {"ids": ids, "mask": np.array([[1] * 9 + [0] * 3], np.int32)}
    want = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, inputs)
    found = run_bundle(path, inputs)
    for name, expected in zip(("y", "z"), want, strict=True):
        assert np.linalg.norm(found[name] - expected) <= 1e-5 * np.linalg.norm(expected)
