"""A small model of each operator that onnxruntime adds to ONNX, for tests of damaged models.

Input: nothing.  Output: `models()`.  ONNX's own node cases have none of these.  Values are random;
what they mean is tested elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

#: What a letter stands for before a shape; `.` is an operand that is left out, and `!` a weight.
_TYPES = {
    "f": ("float32", TensorProto.FLOAT), "u": ("uint8", TensorProto.UINT8),
    "b": ("int8", TensorProto.INT8), "i": ("int32", TensorProto.INT32),
    "l": ("int64", TensorProto.INT64),
}  # fmt: skip

#: Scale and zero point of a tensor of bytes.
_Q = "!f !u"

#: Operator, operands, attributes.
NODES: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
    ("Attention", "f2,7,16 f16,48 f48 i2,7", {"num_heads": 4}),
    ("Attention", "f2,7,16 f16,48 f48 . . f2,2,7,7", {"num_heads": 2, "unidirectional": 1}),
    ("BiasGelu", "f2,3,8 f8", {}),
    ("DequantizeLinear", "u2,3 !f !u", {}),
    ("DynamicQuantizeMatMul", "f2,4 !u4,3 !f !u f3", {}),
    ("EmbedLayerNormalization", "i2,7 i2,7 f9,8 f7,8 f2,8 f8 f8 i2,7", {"epsilon": 1e-5}),
    ("FastGelu", "f3,8 f8", {}),
    ("FusedMatMul", "f2,4,3 f2,5,4", {"alpha": 0.5, "transA": 1, "transB": 1}),
    ("GatherBlockQuantized", "!u9,32 i2,3 !f9,2", {"bits": 4, "block_size": 32}),
    ("GatherBlockQuantized", "!u9,32 i2 !f9,2 !u9,2", {"bits": 8, "block_size": 16}),
    ("Gelu", "f3,8", {}),
    ("GroupQueryAttention", "f1,2,32 f1,2,16 f1,2,16 f1,2,6,8 f1,2,6,8 i1 !i f6,4 f6,4",
     {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1}),
    ("MatMulIntegerToFloat", "u2,4 !u4,3 !f !f !u !u f3", {}),
    ("MatMulNBits", "f2,32 !u5,2,8 !f5,2 !u5,1", {"K": 32, "N": 5, "bits": 4, "block_size": 16}),
    ("MultiHeadAttention", "f2,5,16 f2,7,16 f2,7,16 f48 i2,7", {"num_heads": 2}),
    ("MultiHeadAttention", "f2,3,16 f2,3,16 f2,3,16 . . . f2,2,4,8 f2,2,4,8", {"num_heads": 2}),
    ("QGemm", f"u2,4 {_Q} !u4,3 {_Q} !i3 {_Q}", {"alpha": 1.0}),
    ("QLinearAdd", f"u2,3 {_Q} u2,3 {_Q} {_Q}", {}),
    ("QLinearAveragePool", f"u1,2,5,5 {_Q} {_Q}", {"kernel_shape": [2, 2]}),
    ("QLinearConcat", f"{_Q} u2,3 {_Q} u2,4 {_Q}", {"axis": 1}),
    ("QLinearGlobalAveragePool", f"u1,2,5,5 {_Q} {_Q}", {"channels_last": 0}),
    ("QLinearLeakyRelu", f"u2,3 {_Q} {_Q}", {"alpha": 0.1}),
    ("QLinearMul", f"u2,3 {_Q} u2,3 {_Q} {_Q}", {}),
    ("QLinearSigmoid", f"u2,3 {_Q} {_Q}", {}),
    ("QLinearSoftmax", f"u2,3 {_Q} {_Q}", {"axis": -1, "opset": 13}),
    ("QuantizeLinear", "f2,3 !f !u", {"axis": 1}),
    ("QuickGelu", "f3,8", {"alpha": 1.5}),
    ("RotaryEmbedding", "f2,3,16 l2,3 f5,4 f5,4", {"num_heads": 2}),
    ("SkipLayerNormalization", "f2,3,8 f2,3,8 f8 f8 f8", {"epsilon": 1e-3}),
    ("SkipSimplifiedLayerNormalization", "f2,3,8 f2,3,8 f8", {"epsilon": 1e-3}),
    ("SimplifiedLayerNormalization", "f2,3,8 f8", {"axis": -1}),
    ("GlobalLpPool", "f1,2,4,4", {"p": 2}),
)  # fmt: skip

#: Those that are in ONNX's default domain.
_DEFAULT = ("SimplifiedLayerNormalization", "GlobalLpPool")


def models() -> list[onnx.ModelProto]:
    return [_model(*row) for row in NODES]


def _model(op: str, operands: str, attributes: Mapping[str, Any]) -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    names, inputs, weights = [], [], []
    for at, text in enumerate(operands.split()):
        names.append("" if text == "." else f"x{at}")
        if text == ".":
            continue
        kept = text.removeprefix("!")
        dtype, kind = _TYPES[kept[0]]
        shape = [int(n) for n in kept[1:].split(",") if n]
        if text == kept:
            inputs.append(helper.make_tensor_value_info(names[-1], kind, shape))
        else:
            value = np.asarray(rng.integers(1, 4, shape)).astype(dtype)
            weights.append(numpy_helper.from_array(value, names[-1]))
    domain = "" if op in _DEFAULT else "com.microsoft"
    node = helper.make_node(op, names, ["y"], domain=domain, **attributes)
    outputs = [helper.make_empty_tensor_value_info("y")]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "vendor", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)
