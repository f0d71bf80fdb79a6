"""Models whose inputs have a length: a small transformer, and how onnxruntime runs it.

Input: sizes and a seed.  Output: ONNX models with the named dimension "n".
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

VOCABULARY, WIDTH, HEADS, LAYERS, MOST = 50, 32, 4, 2, 64
Array = np.ndarray[Any, np.dtype[Any]]


class Made:
    """Collects nodes and weights."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, *shape: int, scale: float = 0.3) -> str:
        return self.constant((self.rng.standard_normal(shape) * scale).astype(np.float32))

    def constant(self, value: Array) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(value, name))
        return name

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        out = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [out], out, **attributes))
        return out

    def named(self, value: str, name: str) -> None:
        self.nodes.append(helper.make_node("Identity", [value], [name], name))

    def norm(self, x: str) -> str:
        scale, shift = self.weight(WIDTH), self.weight(WIDTH)
        return self.op("LayerNormalization", x, scale, shift, axis=-1)

    def linear(self, x: str, depth: int, width: int) -> str:
        return self.op("Add", self.op("MatMul", x, self.weight(depth, width)), self.weight(width))

    def heads(self, x: str) -> str:
        split = self.op("Reshape", x, self.ints(0, -1, HEADS, WIDTH // HEADS))
        return self.op("Transpose", split, perm=[0, 2, 1, 3])

    def attention(self, x: str, fused: bool = True) -> str:
        q, k, v = (self.heads(self.linear(x, WIDTH, WIDTH)) for _ in range(3))
        scores = self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2]))
        scale = self.constant(np.array((WIDTH / HEADS) ** -0.5, np.float32))
        scores = self.op("Mul", scores, scale)
        if not fused:
            self.named(scores, f"scores{len(self.nodes)}")
        context = self.op("MatMul", self.op("Softmax", scores, axis=-1), v)
        joined = self.op("Transpose", context, perm=[0, 2, 1, 3])
        return self.linear(self.op("Reshape", joined, self.ints(0, -1, WIDTH)), WIDTH, WIDTH)

    def model(self, inputs: list[Any], outputs: list[Any]) -> onnx.ModelProto:
        graph = helper.make_graph(self.nodes, "lengths", inputs, outputs, self.weights)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
        made.ir_version = 9
        return made


def transformer(fused: bool = True, most: int = MOST) -> onnx.ModelProto:
    """ids [1, n] -> tokens [1, n, WIDTH], pooled [1, WIDTH], scores of each token, the largest.

    Not fused: the scores of attention are outputs, so that no kernel may swallow them.
    """
    m = Made()
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, [1, "n"])
    x = m.op("Gather", m.weight(VOCABULARY, WIDTH), "ids")
    length = m.op("Gather", m.op("Shape", "ids"), m.ints(1))
    places = m.op("Slice", m.weight(most, WIDTH), m.ints(0), length, m.ints(0))
    x = m.op("Add", x, m.op("Unsqueeze", places, m.ints(0)))
    scores = []
    for _ in range(LAYERS):
        x = m.norm(m.op("Add", x, m.attention(x, fused)))
        scores += [node.output[0] for node in m.nodes if node.output[0].startswith("scores")][-1:]
        inner = m.op("Tanh", m.linear(x, WIDTH, 3 * WIDTH))
        x = m.norm(m.op("Add", x, m.linear(inner, 3 * WIDTH, WIDTH)))
    m.named(x, "tokens")
    m.named(m.op("ReduceMean", x, m.ints(1), keepdims=0), "pooled")
    m.named(m.op("ReduceMax", x, m.ints(1), keepdims=0), "largest")
    m.named(m.op("Squeeze", m.linear(x, WIDTH, 1), m.ints(2)), "each")
    outputs = [("tokens", [1, "n", WIDTH]), ("pooled", [1, WIDTH]), ("largest", [1, WIDTH]),
               ("each", [1, "n"])]  # fmt: skip
    outputs += [(name, [1, HEADS, "n", "n"]) for name in scores]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, s) for name, s in outputs]
    return m.model([ids], infos)


def rows() -> onnx.ModelProto:
    """x [1, 4, n] -> reductions along n, long enough to be shared by a group of threads."""
    m = Made()
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, "n"])
    m.named(m.op("Softmax", "x", axis=-1), "soft")
    m.named(m.op("ReduceMean", "x", m.ints(2), keepdims=0), "mean")
    m.named(m.op("ReduceLogSumExp", "x", m.ints(1, 2), keepdims=0), "all")
    shapes = {"soft": [1, 4, "n"], "mean": [1, 4], "all": [1]}
    infos = [helper.make_tensor_value_info(k, TensorProto.FLOAT, s) for k, s in shapes.items()]
    return m.model([x], infos)


def saved(model: onnx.ModelProto, folder: Path, name: str = "model") -> Path:
    path = folder / f"{name}.onnx"
    onnx.save(model, path)
    return path


def session(path: Path) -> Any:
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def tokens(n: int, seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(1000 * seed + n)
    return {"ids": rng.integers(0, VOCABULARY, (1, n)).astype(np.int64)}


def expected(path: Path, inputs: dict[str, Array]) -> dict[str, Array]:
    """What onnxruntime gives at this very length."""
    run = session(path)
    names = [output.name for output in run.get_outputs()]
    return dict(zip(names, run.run(None, inputs), strict=True))
