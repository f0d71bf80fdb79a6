"""Tiny encoder-decoder models in the form in which exporters write them, with random weights.

Input: sizes and a kind of weights.  Output: an encoder and a decoder without caches as ONNX models,
and onnxruntime's greedy tokens by a loop that runs the decoder over all tokens so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

from helpers.exported_models import MICROSOFT, Array, Export, Maker

LOW = float(np.finfo(np.float32).min)


@dataclass(frozen=True)
class Tiny:
    """weights: f32 or int8 (quantised while it runs);  most: positions that there are"""

    weights: str = "f32"
    layers: int = 2
    width: int = 32
    heads: int = 2
    words: int = 60
    most: int = 64


def encoder(t: Tiny, seed: int = 0) -> onnx.ModelProto:
    """`last_hidden_state` for `input_ids` and `attention_mask`."""
    p = _Parts(t, seed)
    m = p.m
    x = p.embedded("input_ids")
    seen = m.op("Cast", "attention_mask", to=TensorProto.FLOAT)
    hidden = m.op("Mul", m.op("Sub", m.number(1), seen), m.number(LOW))
    mask = m.op("Unsqueeze", hidden, m.ints(1, 2))
    for _ in range(t.layers):
        x = p.attention(x, x, mask)
        x = p.gated(x)
    m.nodes.append(helper.make_node("Identity", [p.norm(x)], ["last_hidden_state"], "out"))
    inputs = [_ids("input_ids", "m"), _ids("attention_mask", "m")]
    return p.model(inputs, _floats("last_hidden_state", "m", t.width))


def decoder(t: Tiny, seed: int = 1) -> onnx.ModelProto:
    """`logits` for `input_ids`, `encoder_hidden_states` and `encoder_attention_mask`."""
    p = _Parts(t, seed)
    m = p.m
    x = p.embedded("input_ids")
    count = m.scalar(m.size("input_ids", 1))
    line = m.op("Range", m.kept(np.int64(0)), count, m.kept(np.int64(1)))
    later = m.op("Less", m.op("Unsqueeze", line, m.ints(1)), m.op("Unsqueeze", line, m.ints(0)))
    causal = m.op("Unsqueeze", m.op("Where", later, m.number(LOW), m.number(0)), m.ints(0, 1))
    seen = m.op("Cast", "encoder_attention_mask", to=TensorProto.FLOAT)
    hidden = m.op("Mul", m.op("Sub", m.number(1), seen), m.number(LOW))
    mask = m.op("Unsqueeze", hidden, m.ints(1, 2))
    for _ in range(t.layers):
        x = p.attention(x, x, causal)
        x = p.attention(x, "encoder_hidden_states", mask)
        x = p.gated(x)
    logits = m.product(p.norm(x), m.matrix(t.width, t.words) * np.float32(3))
    m.nodes.append(helper.make_node("Identity", [logits], ["logits"], "out"))
    inputs = [
        _ids("input_ids", "n"), _floats("encoder_hidden_states", "m", t.width),
        _ids("encoder_attention_mask", "m"),
    ]  # fmt: skip
    return p.model(inputs, _floats("logits", "n", t.words))


def _ids(name: str, rows: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.INT64, ("batch", rows))


def _floats(name: str, rows: str, width: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ("batch", rows, width))


class _Parts:
    """Parts of both files."""

    def __init__(self, t: Tiny, seed: int) -> None:
        self.t = t
        self.m = Maker(Export("optimum", weights=t.weights), seed)
        self.table = self.m.kept(self._random(t.words, t.width))

    def _random(self, *shape: int) -> Array:
        return self.m.rng.standard_normal(shape).astype(np.float32)

    def embedded(self, ids: str) -> str:
        m, t = self.m, self.t
        count = m.scalar(m.size(ids, 1))
        line = m.op("Range", m.kept(np.int64(0)), count, m.kept(np.int64(1)))
        places = m.op("Gather", m.kept(self._random(t.most, t.width)), line)
        return str(m.op("Add", m.op("Gather", self.table, ids), places))

    def norm(self, x: str) -> str:
        return self.m.norm(x, (1 + 0.1 * self._random(self.t.width)).astype(np.float32))

    def attention(self, x: str, source: str, mask: str) -> str:
        m, t = self.m, self.t
        y = self.norm(x)
        other = y if source == x else source
        batch = m.size(y, 0)  # as exporters write it, for keys of the prompt, too

        def heads(of: str) -> str:
            made = m.product(of, m.matrix(t.width, t.width))
            sizes = m.ints(-1), m.ints(t.heads), m.ints(t.width // t.heads)
            shaped = m.op("Reshape", made, m.op("Concat", batch, *sizes, axis=0))
            return str(m.op("Transpose", shaped, perm=[0, 2, 1, 3]))

        q, k, v = heads(y), heads(other), heads(other)
        keys = m.op("Transpose", k, perm=[0, 1, 3, 2])
        scores = m.op("Mul", m.op("MatMul", q, keys), m.number((t.heads / t.width) ** 0.5))
        weights = m.op("Softmax", m.op("Add", scores, mask), axis=-1)
        mixed = m.op("Transpose", m.op("MatMul", weights, v), perm=[0, 2, 1, 3])
        flat = m.op("Reshape", mixed, m.op("Concat", batch, m.ints(-1), m.ints(t.width), axis=0))
        return str(m.op("Add", x, m.product(flat, m.matrix(t.width, t.width))))

    def gated(self, x: str) -> str:
        m, t = self.m, self.t
        up = m.op("Relu", m.product(self.norm(x), m.matrix(t.width, 2 * t.width)))
        return str(m.op("Add", x, m.product(up, m.matrix(2 * t.width, t.width))))

    def model(
        self, inputs: list[onnx.ValueInfoProto], output: onnx.ValueInfoProto
    ) -> onnx.ModelProto:
        m = self.m
        graph = helper.make_graph(m.nodes, "main_graph", inputs, [output], [*m.weights.values()])
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def greedy(
    encoder: bytes, decoder: bytes, prompt: Sequence[int], count: int, start: int = 0
) -> tuple[list[int], list[Array]]:
    """The likeliest tokens one after the other by onnxruntime, and the logits of each."""
    first, second = (
        ort.InferenceSession(m, providers=["CPUExecutionProvider"]) for m in (encoder, decoder)
    )
    mask = np.ones((1, len(prompt)), np.int64)
    (hidden,) = first.run(None, {"input_ids": np.array([prompt]), "attention_mask": mask})
    given: dict[str, Any] = {"encoder_hidden_states": hidden, "encoder_attention_mask": mask}
    ids, rows = [start], []
    for _ in range(count):
        rows.append(second.run(None, {"input_ids": np.array([ids]), **given})[0][0, -1])
        ids.append(int(rows[-1].argmax()))
    return ids[1:], rows
