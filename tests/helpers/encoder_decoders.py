"""Tiny encoder-decoder models in the form in which exporters write them, with random weights.

Input: sizes and a kind of weights.  Output: an encoder, and decoders with and without caches, as
ONNX models; onnxruntime's greedy tokens by a loop that runs the decoder over all tokens so far, or
by one that gives it the caches.
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
    """weights: f32 or int8 (quantised while it runs);  most: positions that there are
    caches:  whether decoders give their keys and values
    bias:    whether the decoder's scores have a bias by distance, as T5's
    """

    weights: str = "f32"
    layers: int = 2
    width: int = 32
    heads: int = 2
    words: int = 60
    most: int = 64
    caches: bool = False
    bias: bool = False


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


def decoder(t: Tiny, seed: int = 1, past: bool = False) -> onnx.ModelProto:
    """`logits` for `input_ids`, `encoder_attention_mask` and `encoder_hidden_states`, or caches.

    past: it takes caches, those of cross-attention included, and gives those of tokens
    """
    p = _Parts(t, seed)
    m = p.m
    before = m.size("past_key_values.0.decoder.key", 2) if past else m.ints(0)
    x = p.embedded("input_ids", before)
    after = m.op("Add", before, m.size("input_ids", 1))
    places, keys = (
        m.op("Range", m.scalar(start), m.scalar(after), m.kept(np.int64(1)))
        for start in (before, m.ints(0))
    )
    distance = m.op("Sub", m.op("Unsqueeze", places, m.ints(1)), m.op("Unsqueeze", keys, m.ints(0)))
    later = m.op("Less", distance, m.kept(np.int64(0)))
    causal = m.op("Unsqueeze", m.op("Where", later, m.number(LOW), m.number(0)), m.ints(0, 1))
    if t.bias:
        causal = m.op("Add", p.bias(distance), causal)
    seen = m.op("Cast", "encoder_attention_mask", to=TensorProto.FLOAT)
    hidden = m.op("Mul", m.op("Sub", m.number(1), seen), m.number(LOW))
    mask = m.op("Unsqueeze", hidden, m.ints(1, 2))
    for layer in range(t.layers):
        x = p.attention(x, x, causal, f"{layer}.decoder", "join" if past else "give")
        source = x if past else "encoder_hidden_states"
        x = p.attention(x, source, mask, f"{layer}.encoder", "take" if past else "give")
        x = p.gated(x)
    logits = m.product(p.norm(x), m.matrix(t.width, t.words) * np.float32(3))
    m.nodes.append(helper.make_node("Identity", [logits], ["logits"], "out"))
    inputs = [_ids("input_ids", "n"), _ids("encoder_attention_mask", "m")]
    if past:
        inputs += [p.cache(f"past_key_values.{name}") for name in p.names()]
    else:
        inputs.append(_floats("encoder_hidden_states", "m", t.width))
    given = p.names("decoder") if past else p.names() if t.caches else []
    outputs = [_floats("logits", "n", t.words), *(p.cache(f"present.{name}") for name in given)]
    return p.model(inputs, *outputs)


def merged(t: Tiny, seed: int = 1) -> onnx.ModelProto:
    """Both decoders in one model, as Optimum merges them."""
    first, second = decoder(t, seed), decoder(t, seed, past=True)
    p = _Parts(t)
    inputs = {i.name: i for i in (*first.graph.input, *second.graph.input)}
    outputs = [*first.graph.output]
    bodies = {}
    for name, model in (("then_branch", second), ("else_branch", first)):
        body = onnx.compose.add_prefix_graph(
            model.graph, f"{name}/", rename_inputs=False, rename_outputs=False
        )
        given = {o.name for o in body.output}
        for o in outputs:
            if o.name not in given:  # keys and values of the prompt go through
                taken = o.name.replace("present", "past_key_values")
                body.node.append(helper.make_node("Identity", [taken], [o.name], o.name))
        whole = helper.make_graph(
            body.node, name, [],
            [helper.make_tensor_value_info(o.name, TensorProto.FLOAT, None) for o in outputs],
            body.initializer,
        )  # fmt: skip
        bodies[name] = whole
    flag = helper.make_tensor_value_info("use_cache_branch", TensorProto.BOOL, (1,))
    names = [o.name for o in outputs]
    p.m.nodes = [helper.make_node("If", ["use_cache_branch"], names, "branches", **bodies)]
    p.m.weights.clear()
    return p.model([*inputs.values(), flag], *outputs)


def _ids(name: str, rows: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.INT64, ("batch", rows))


def _floats(name: str, rows: str, width: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ("batch", rows, width))


class _Parts:
    """Parts of both files."""

    def __init__(self, t: Tiny, seed: int = 0) -> None:
        self.t = t
        self.m = Maker(Export("optimum", weights=t.weights), seed)
        self.table = self.m.kept(self._random(t.words, t.width))

    def _random(self, *shape: int) -> Array:
        return self.m.rng.standard_normal(shape).astype(np.float32)

    def embedded(self, ids: str, before: str = "") -> str:
        """before: how many tokens there were, a vector"""
        m, t = self.m, self.t
        start = before or m.ints(0)
        count = m.scalar(m.op("Add", start, m.size(ids, 1)))
        line = m.op("Range", m.scalar(start), count, m.kept(np.int64(1)))
        places = m.op("Gather", m.kept(self._random(t.most, t.width)), line)
        return str(m.op("Add", m.op("Gather", self.table, ids), places))

    def norm(self, x: str) -> str:
        return self.m.norm(x, (1 + 0.1 * self._random(self.t.width)).astype(np.float32))

    def bias(self, distance: str) -> str:
        """[1, heads, rows, keys] by the distance of row and key, of which eight are told apart."""
        m = self.m
        table = m.kept(self._random(8, self.t.heads))
        near = m.op("Min", m.op("Abs", distance), m.kept(np.int64(7)))
        made = m.op("Transpose", m.op("Gather", table, near), perm=[2, 0, 1])
        return str(m.op("Unsqueeze", made, m.ints(0)))

    def names(self, *parts: str) -> list[str]:
        return [
            f"{layer}.{part}.{what}" for layer in range(self.t.layers)
            for part in parts or ("decoder", "encoder") for what in ("key", "value")
        ]  # fmt: skip

    def cache(self, name: str) -> onnx.ValueInfoProto:
        kind = "m" if ".encoder." in name else "past" if name.startswith("past") else "past + n"
        shape = ("batch", self.t.heads, kind, self.t.width // self.t.heads)
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    def attention(
        self, x: str, source: str, mask: str, name: str = "", how: str = "give"
    ) -> str:  # fmt: skip
        """name: of the caches of keys and values;  how: they are given, taken, or joined with
        new ones"""
        m, t = self.m, self.t
        y = self.norm(x)
        other = y if source == x else source
        batch = m.size(y, 0)  # as exporters write it, for keys of the prompt, too

        def heads(of: str, weight: Array) -> str:
            made = m.product(of, weight)
            sizes = m.ints(-1), m.ints(t.heads), m.ints(t.width // t.heads)
            shaped = m.op("Reshape", made, m.op("Concat", batch, *sizes, axis=0))
            return str(m.op("Transpose", shaped, perm=[0, 2, 1, 3]))

        def kept(weight: Array, what: str) -> str:
            if how == "take":
                return f"past_key_values.{name}.{what}"
            made = heads(other, weight)
            if how == "join":
                made = m.op("Concat", f"past_key_values.{name}.{what}", made, axis=2)
            if name and t.caches:
                m.nodes.append(helper.make_node("Identity", [made], [f"present.{name}.{what}"]))
            return made

        weights_of = [m.matrix(t.width, t.width) for _ in "qkv"]
        q = heads(y, weights_of[0])
        k, v = (
            kept(weight, what)
            for weight, what in zip(weights_of[1:], ("key", "value"), strict=True)
        )
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
        self, inputs: list[onnx.ValueInfoProto], *outputs: onnx.ValueInfoProto
    ) -> onnx.ModelProto:
        m = self.m
        graph = helper.make_graph(m.nodes, "main_graph", inputs, outputs, [*m.weights.values()])
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def greedy_with_caches(
    encoder: bytes, first: bytes, second: bytes, prompt: Sequence[int], count: int, start: int = 0
) -> tuple[list[int], list[Array]]:
    """As `greedy`, by decoders without and with past tokens."""
    one, two, three = (
        ort.InferenceSession(m, providers=["CPUExecutionProvider"])
        for m in (encoder, first, second)
    )
    mask = np.ones((1, len(prompt)), np.int64)
    (hidden,) = one.run(None, {"input_ids": np.array([prompt]), "attention_mask": mask})
    caches: dict[str, Any] = {}
    ids, rows = [start], []
    for _ in range(count):
        given = {"input_ids": np.array([ids[-1:]]), "encoder_attention_mask": mask, **caches}
        session = three if caches else two
        if not caches:
            given["encoder_hidden_states"] = hidden
        made = session.run(None, given)
        names = [o.name for o in session.get_outputs()]
        caches |= {
            name.replace("present", "past_key_values"): value
            for name, value in zip(names[1:], made[1:], strict=True)
        }
        rows.append(made[0][0, -1])
        ids.append(int(rows[-1].argmax()))
    return ids[1:], rows


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
