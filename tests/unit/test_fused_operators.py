"""Operators that onnxruntime's optimiser makes (operators/fused.py); onnxruntime judges."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from frontend_factory import Array, distance, reference, run_model
from helpers.graphs import steps_of
from onnx import TensorProto, helper, numpy_helper

from tilewright.base.errors import TilewrightError
from tilewright.frontend import import_model
from tilewright.graph.passes import optimise
from tilewright.targets.protocol import PACKING

Case = tuple[str, list[Array | None], dict[str, Any]]
RNG = np.random.default_rng(0)
KINDS = {
    "float32": TensorProto.FLOAT, "int32": TensorProto.INT32, "uint8": TensorProto.UINT8
}  # fmt: skip


def _f(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def _i(most: int, *shape: int) -> Array:
    return RNG.integers(0, most, shape).astype(np.int32)


def _b(*shape: int) -> Array:
    return RNG.integers(0, 256, shape).astype(np.uint8)


LENGTHS = np.array([4, 7], np.int32)
KEPT = np.array([[1] * 4 + [0] * 3, [1] * 7], np.int32)
#: Operator, operands by order (None: left out), attributes.
CASES: dict[str, Case] = {
    "gelu": ("Gelu", [_f(3, 8)], {}),
    "bias gelu": ("BiasGelu", [_f(2, 3, 8), _f(8)], {}),
    "fast gelu": ("FastGelu", [_f(3, 8)], {}),
    "fast gelu with a bias": ("FastGelu", [_f(3, 8), _f(8)], {}),
    "quick gelu": ("QuickGelu", [_f(3, 8)], {"alpha": 1.5}),
    "skip norm": ("SkipLayerNormalization", [_f(2, 3, 8), _f(2, 3, 8), _f(8), _f(8)], {}),
    "skip norm with all": (
        "SkipLayerNormalization", [_f(2, 3, 8), _f(3, 8), _f(8), _f(8), _f(8)], {"epsilon": 1e-3}
    ),
    "skip norm without beta": ("SkipLayerNormalization", [_f(1, 3, 8), _f(1, 3, 8), _f(8)], {}),
    "embeddings": (
        "EmbedLayerNormalization",
        [_i(9, 2, 7), _i(2, 2, 7), _f(9, 8), _f(7, 8), _f(2, 8), _f(8), _f(8), KEPT], {},
    ),
    "embeddings without segments": (
        "EmbedLayerNormalization", [_i(9, 2, 5), None, _f(9, 8), _f(7, 8), None, _f(8), _f(8)], {}
    ),
    "embeddings at positions": (
        "EmbedLayerNormalization",
        [_i(9, 2, 5), None, _f(9, 8), _f(7, 8), None, _f(8), _f(8), None, _i(7, 2, 5)], {},
    ),
    "product": ("FusedMatMul", [_f(3, 4), _f(4, 5)], {"alpha": 0.5}),
    "turned product": (
        "FusedMatMul", [_f(2, 4, 3), _f(2, 5, 4)], {"alpha": 0.125, "transA": 1, "transB": 1}
    ),
    "product of turned batches": (
        "FusedMatMul", [_f(3, 2, 4), _f(3, 2, 4)], {"transBatchA": 1, "transBatchB": 1, "transB": 1}
    ),
    "self-attention": ("Attention", [_f(2, 7, 16), _f(16, 48), _f(48)], {"num_heads": 4}),
    "self-attention, lengths": (
        "Attention", [_f(2, 7, 16), _f(16, 48), _f(48), LENGTHS], {"num_heads": 2}
    ),
    "self-attention, mask": (
        "Attention", [_f(2, 7, 16), _f(16, 48), _f(48), KEPT], {"num_heads": 2, "scale": 0.3}
    ),
    "self-attention, mask of rows": (
        "Attention", [_f(2, 7, 16), _f(16, 48), _f(48), _i(2, 2, 7, 7)], {"num_heads": 2}
    ),
    "self-attention, causal": (
        "Attention", [_f(2, 7, 16), _f(16, 48), _f(48)], {"num_heads": 2, "unidirectional": 1}
    ),
    "self-attention, bias": (
        "Attention", [_f(2, 7, 16), _f(16, 48), _f(48), None, None, _f(2, 2, 7, 7)],
        {"num_heads": 2},
    ),
    "heads": (
        "MultiHeadAttention", [_f(2, 5, 16), _f(2, 7, 16), _f(2, 7, 16)], {"num_heads": 4}
    ),
    "heads with biases": (
        "MultiHeadAttention", [_f(2, 5, 16), _f(2, 7, 16), _f(2, 7, 24), _f(56)], {"num_heads": 4}
    ),
    "heads, mask": (
        "MultiHeadAttention", [_f(2, 5, 16), _f(2, 7, 16), _f(2, 7, 16), None, KEPT],
        {"num_heads": 2, "mask_filter_value": -50.0},
    ),
    "heads, bias of scores": (
        "MultiHeadAttention",
        [_f(2, 5, 16), _f(2, 7, 16), _f(2, 7, 16), None, None, _f(1, 2, 5, 7)], {"num_heads": 2},
    ),
    "heads, causal": (
        "MultiHeadAttention", [_f(2, 7, 16), _f(2, 7, 16), _f(2, 7, 16)],
        {"num_heads": 2, "unidirectional": 1},
    ),
    "heads, keys by heads": (
        "MultiHeadAttention", [_f(2, 5, 16), _f(2, 2, 7, 8), _f(2, 2, 7, 8)], {"num_heads": 2}
    ),
    "rows of a table": (
        "GatherBlockQuantized",
        [_b(9, 32), np.array([[0, 8, 2], [1, 1, 3]], np.int32), _f(9, 2)],
        {"bits": 4, "block_size": 32, "quantize_axis": 1},
    ),
    "rows of a table with zeros": (
        "GatherBlockQuantized", [_b(9, 32), np.array([8, 0], np.int32), _f(9, 4), _b(9, 2)],
        {"bits": 4, "block_size": 16, "quantize_axis": -1},
    ),
    "rows of bytes": (
        "GatherBlockQuantized", [_b(9, 32), np.array([8, 0], np.int32), _f(9, 2)],
        {"bits": 8, "block_size": 16, "quantize_axis": 1},
    ),
    "heads behind a cache": (
        "MultiHeadAttention",
        [_f(2, 3, 16), _f(2, 3, 16), _f(2, 3, 16), None, None, None, _f(2, 2, 4, 8),
         _f(2, 2, 4, 8)], {"num_heads": 2},
    ),
}  # fmt: skip
#: Results of an operator, where it is not one.
RESULTS = {"SkipLayerNormalization": 4, "EmbedLayerNormalization": 3, "MultiHeadAttention": 3}


def model_of(case: Case) -> tuple[onnx.ModelProto, dict[str, Array]]:
    kind, operands, attributes = case
    given = {f"x{n}": x for n, x in enumerate(operands) if x is not None}
    count = RESULTS.get(kind, 1)
    results = [f"y{n}" for n in range(count)]
    if kind == "SkipLayerNormalization":
        results = ["y0", "", "", "y3"]  # onnxruntime has no mean on the CPU
    if kind == "MultiHeadAttention" and len(operands) < 8:
        results = results[:1]
    kinds = {"y1": TensorProto.INT32} if kind == "EmbedLayerNormalization" else {}
    node = helper.make_node(
        kind, [f"x{n}" if x is not None else "" for n, x in enumerate(operands)], results,
        domain="com.microsoft", **attributes,
    )  # fmt: skip
    graph = helper.make_graph(
        [node],
        "fused",
        [helper.make_tensor_value_info(n, KINDS[x.dtype.name], x.shape) for n, x in given.items()],
        [
            helper.make_tensor_value_info(n, kinds.get(n, TensorProto.FLOAT), None)
            for n in results
            if n
        ],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9), given


@pytest.mark.parametrize("name", CASES)
def test_as_onnxruntime(name: str) -> None:
    proto, inputs = model_of(CASES[name])
    theirs = reference(proto.SerializeToString(), inputs)
    ours = run_model(proto, inputs)
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.shape == other.shape
        assert mine.dtype == other.dtype
        assert distance(mine, other) < 2e-6


@pytest.mark.parametrize("parts", [3, 2])
def test_operands_in_one(parts: int) -> None:
    """Which onnxruntime has for GPUs alone."""
    q, whole = _f(2, 7, 16), _f(2, 7, 2, parts, 8)
    split = [np.ascontiguousarray(whole[:, :, :, n]).reshape(2, 7, 16) for n in range(parts)]
    packed, apart = ([whole], split) if parts == 3 else ([q, whole], [q, *split])
    found = []
    for operands in (packed, apart):
        proto, inputs = model_of(("MultiHeadAttention", [*operands], {"num_heads": 2}))
        found.append(run_model(proto, inputs)[0])
    assert distance(*found) < 1e-6


@pytest.mark.parametrize("name", ["self-attention, mask", "heads, causal"])
def test_attention_is_one_kernel(name: str) -> None:
    """Its scores are kept nowhere."""
    packed = optimise(import_model(model_of(CASES[name])[0]), PACKING)
    kinds = [step.kernel.anchor for step in steps_of(packed)]
    assert kinds.count("attention") == 1
    assert "rowwise" not in kinds


@pytest.mark.parametrize(
    ("name", "at", "operand"),
    [
        ("self-attention, mask", 3, np.ones((2, 1, 7, 7), np.int32)),
        ("self-attention", 4, _f(2, 2, 2, 4, 8)),
        ("heads", 0, _f(2, 5, 18)),
    ],
)
def test_what_is_not_supported_says_so(name: str, at: int, operand: Array) -> None:
    kind, operands, attributes = CASES[name]
    changed = [*operands, *[None] * (at + 1 - len(operands))]
    changed[at] = operand
    proto, _ = model_of((kind, changed, attributes))
    with pytest.raises(TilewrightError) as caught:
        import_model(proto)
    assert caught.value.code in ("unsupported-op", "shape")


def test_weights_may_be_constants() -> None:
    """As in files: the weights of self-attention are packed like any product's."""
    proto, inputs = model_of(CASES["self-attention, mask"])
    kept = {n: inputs.pop(n) for n in ("x1", "x2")}
    del proto.graph.input[1:3]
    proto.graph.initializer.extend(numpy_helper.from_array(x, n) for n, x in kept.items())
    (theirs,) = reference(proto.SerializeToString(), inputs)
    (ours,) = run_model(proto, inputs)
    assert distance(ours, theirs) < 2e-6
