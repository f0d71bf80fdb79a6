"""Tiny GGUF files of any architecture and type of weights, and what they compute by NumPy.

Input: `Tiny`.  Output: a file that the gguf package writes, and the logits that follow from it by
an independent forward pass over weights that the gguf package dequantises.  Nothing is trained.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFReader, GGUFWriter
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize, quantize

Array = np.ndarray[Any, Any]

#: Where super-blocks have numbers of f16, of types for which the package has no quantiser.
HALVES = {
    Kind.Q2_K: (80, 82), Kind.Q3_K: (108,), Kind.Q4_K: (0, 2), Kind.Q5_K: (0, 2), Kind.Q6_K: (208,)
}  # fmt: skip
TYPES = (
    "F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K",
    "Q6_K",
)  # fmt: skip
#: A model whose tensors have all these types by turns.
MIXED = "mixed"


@dataclass(frozen=True)
class Tiny:
    """A model.  keys: further metadata, without the architecture's name
    biases, norms: of q, k, v;  fused: q, k, v in one tensor, and the gated part's
    posts: norms behind both parts
    """

    name: str = "llama"
    type: str = "F32"
    layers: int = 2
    width: int = 64
    heads: int = 4
    kv_heads: int = 2
    head: int = 16
    hidden: int = 96
    words: int = 48
    room: int = 32
    tied: bool = False
    biases: bool = False
    norms: bool = False
    fused: bool = False
    posts: bool = False
    keys: Mapping[str, Any] = field(default_factory=dict)
    vectors: Mapping[str, Any] = field(default_factory=dict)
    text: Callable[[GGUFWriter], None] | None = None


#: A model of each architecture, with what it has beyond the others.
MODELS = {
    "llama": Tiny(),
    "llama-3": Tiny(vectors={"rope_freqs.weight": np.linspace(1, 8, 8)}, kv_heads=1),
    "linear": Tiny(keys={"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}),
    "yarn": Tiny("qwen2", biases=True, keys={
        "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": 16, "rope.freq_base": 50.0,
    }),
    "mistral": Tiny("mistral", head=24),
    "smollm3": Tiny("smollm3", layers=4, tied=True),
    "qwen2": Tiny("qwen2", biases=True, tied=True, keys={"rope.freq_base": 1e6}),
    "qwen3": Tiny("qwen3", norms=True, head=32),
    "phi3": Tiny("phi3", fused=True, kv_heads=4, keys={"rope.dimension_count": 8}),
    "gemma": Tiny("gemma", tied=True, kv_heads=1),
    "gemma2": Tiny("gemma2", tied=True, posts=True, keys={
        "attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0,
        "attention.sliding_window": 4,
    }),
    "gemma3": Tiny("gemma3", tied=True, posts=True, norms=True, layers=3, keys={
        "attention.sliding_window": 4, "attention.sliding_window_pattern": 3,
        "rope.freq_base": 1e6, "rope.scaling.type": "linear", "rope.scaling.factor": 8.0,
    }),
}  # fmt: skip


def write_tiny(path: Path, tiny: Tiny, seed: int = 0) -> Path:
    """Writes the file."""
    writer, rng = GGUFWriter(path, tiny.name), np.random.default_rng(seed)
    writer.add_block_count(tiny.layers)
    writer.add_context_length(tiny.room)
    writer.add_embedding_length(tiny.width)
    writer.add_feed_forward_length(tiny.hidden)
    writer.add_head_count(tiny.heads)
    writer.add_head_count_kv(tiny.kv_heads)
    writer.add_key_length(tiny.head)
    writer.add_value_length(tiny.head)
    writer.add_layer_norm_rms_eps(1e-5)
    for key, value in tiny.keys.items():
        add = {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32}
        add[type(value)](f"{tiny.name}.{key}", value)
    if tiny.text is not None:
        tiny.text(writer)
    kinds = cycle(Kind[name] for name in (TYPES if tiny.type == MIXED else [tiny.type]))

    def matrix(name: str, rows: int, columns: int) -> None:
        kind = next(kinds)
        whole = rng.standard_normal((rows, columns)).astype(np.float32) * columns**-0.5
        writer.add_tensor(name, _quantised(whole, kind, rng), raw_dtype=kind)

    def vector(name: str, size: int, about: float = 1.0) -> None:
        writer.add_tensor(name, (about + 0.2 * rng.standard_normal(size)).astype(np.float32))

    matrix("token_embd.weight", tiny.words, tiny.width)
    vector("output_norm.weight", tiny.width)
    if not tiny.tied:
        matrix("output.weight", tiny.words, tiny.width)
    for name, value in tiny.vectors.items():
        writer.add_tensor(name, np.asarray(value, np.float32))
    wide, own = tiny.heads * tiny.head, tiny.kv_heads * tiny.head
    for layer in range(tiny.layers):
        at = f"blk.{layer}"
        for name in ("attn_norm", "ffn_norm"):
            vector(f"{at}.{name}.weight", tiny.width)
        for name in ("post_attention_norm", "post_ffw_norm") if tiny.posts else ():
            vector(f"{at}.{name}.weight", tiny.width)
        for name in ("attn_q_norm", "attn_k_norm") if tiny.norms else ():
            vector(f"{at}.{name}.weight", tiny.head)
        if tiny.fused:
            matrix(f"{at}.attn_qkv.weight", wide + 2 * own, tiny.width)
            matrix(f"{at}.ffn_up.weight", 2 * tiny.hidden, tiny.width)
        else:
            for part, rows in (("q", wide), ("k", own), ("v", own)):
                matrix(f"{at}.attn_{part}.weight", rows, tiny.width)
                if tiny.biases:
                    vector(f"{at}.attn_{part}.bias", rows, 0.0)
            for part in ("gate", "up"):
                matrix(f"{at}.ffn_{part}.weight", tiny.hidden, tiny.width)
        matrix(f"{at}.attn_output.weight", tiny.width, wide)
        matrix(f"{at}.ffn_down.weight", tiny.width, tiny.hidden)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _quantised(whole: Array, kind: Kind, rng: np.random.Generator) -> Array:
    """The bytes of the rows; random ones where the package cannot quantise."""
    if kind not in HALVES:
        return np.asarray(quantize(whole, kind))
    elements, size = GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (len(whole), whole.shape[1] // elements, size), np.uint8)
    for at in HALVES[kind]:
        scale = (1e-4 * (0.5 + rng.random(blocks.shape[:2]))).astype(np.float16)
        blocks[..., at : at + 2] = scale[..., None].view(np.uint8)
    return blocks.reshape(len(whole), -1)


#: Of all types; blocks of 256 weights fit its rows.
ALL_TYPES = Tiny(type=MIXED, width=256, heads=2, kv_heads=1, head=128, hidden=256, room=24)


# ---- what it computes ----------------------------------------------------------------------------


class Forward:
    """The whole sequence anew for each call, in f64, by the definition of each architecture."""

    def __init__(self, path: Path) -> None:
        reader = GGUFReader(path)
        self.keys = {key: field.contents() for key, field in reader.fields.items()}
        self.name = self.keys["general.architecture"]
        self.tensors = {
            t.name: dequantize(t.data, t.tensor_type).astype(np.float64) for t in reader.tensors
        }

    def key(self, name: str, default: Any = None) -> Any:
        return self.keys.get(f"{self.name}.{name}", default)

    def __call__(self, ids: Sequence[int]) -> Array:
        """The logits of the last token."""
        return np.asarray(self.logits(self.hidden(ids)[-1:])[0])

    def logits(self, hidden: Array) -> Array:
        """Of rows of `hidden`."""
        table = self.tensors.get("output.weight", self.tensors["token_embd.weight"])
        return self.capped(self.norm(hidden, "output_norm") @ table.T, "final_logit_softcapping")

    def hidden(self, ids: Sequence[int]) -> Array:
        """What the last layer gives for each token."""
        w, width = self.tensors, self.key("embedding_length")
        x = w["token_embd.weight"][list(ids)]
        gemma = self.name.startswith("gemma")
        x = x * width**0.5 if gemma else x
        for layer in range(self.key("block_count")):
            at = f"blk.{layer}."
            y = self.attention(layer, self.norm(x, at + "attn_norm"))
            x = x + (self.norm(y, at + "post_attention_norm") if self.has_posts else y)
            y = self.gated(at, self.norm(x, at + "ffn_norm"))
            x = x + (self.norm(y, at + "post_ffw_norm") if self.has_posts else y)
        return np.asarray(x)

    @property
    def has_posts(self) -> bool:
        return self.name in ("gemma2", "gemma3")

    def norm(self, x: Array, name: str) -> Array:
        power = (x * x).mean(-1, keepdims=True) + self.key("attention.layer_norm_rms_epsilon")
        return np.asarray(x / np.sqrt(power) * self.tensors[name + ".weight"])

    def capped(self, x: Array, key: str) -> Array:
        cap = self.key(key)
        return np.asarray(np.tanh(x / cap) * cap) if cap else x

    def product(self, x: Array, name: str) -> Array:
        made = x @ self.tensors[name + ".weight"].T
        return np.asarray(made + self.tensors.get(name + ".bias", 0.0))

    def attention(self, layer: int, x: Array) -> Array:
        at, heads = f"blk.{layer}.", self.key("attention.head_count")
        own, head = self.key("attention.head_count_kv", heads), self.head
        if at + "attn_qkv.weight" in self.tensors:
            cuts = [heads * head, (heads + own) * head]
            q, k, v = np.split(self.product(x, at + "attn_qkv"), cuts, axis=1)
        else:
            q, k, v = (self.product(x, at + f"attn_{part}") for part in "qkv")
        q, k, v = (part.reshape(len(x), -1, head) for part in (q, k, v))
        if at + "attn_q_norm.weight" in self.tensors:
            q, k = self.norm(q, at + "attn_q_norm"), self.norm(k, at + "attn_k_norm")
        local = self.is_local(layer)
        if self.name != "smollm3" or (layer + 1) % 4:
            q, k = self.turned(q, local), self.turned(k, local)
        k, v = (np.repeat(part, heads // own, axis=1) for part in (k, v))
        scores = np.einsum("mhd,nhd->hmn", q, k) * head**-0.5
        scores = self.capped(scores, "attn_logit_softcapping")
        row, col = np.arange(len(x))[:, None], np.arange(len(x))[None]
        hidden = col > row
        if local:
            hidden |= col <= row - self.key("attention.sliding_window")
        scores = np.where(hidden, -np.inf, scores)
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = np.einsum("hmn,nhd->mhd", powers / powers.sum(-1, keepdims=True), v)
        return self.product(mixed.reshape(len(x), -1), at + "attn_output")

    @property
    def head(self) -> int:
        usual = self.key("embedding_length") // self.key("attention.head_count")
        return int(self.key("attention.key_length", usual))

    def is_local(self, layer: int) -> bool:
        count = {"gemma2": 2, "gemma3": self.key("attention.sliding_window_pattern", 6)}
        return self.name in count and (layer + 1) % count[self.name] != 0

    def turned(self, x: Array, local: bool) -> Array:
        width = self.key("rope.dimension_count", self.head)
        rates, size = self.rates(width, local)
        turns = np.arange(len(x))[:, None, None] * rates
        cos, sin = size * np.cos(turns), size * np.sin(turns)
        made = x.copy()
        first, second = slice(0, width // 2), slice(width // 2, width)
        if self.name in ("llama", "mistral", "smollm3"):
            first, second = slice(0, width, 2), slice(1, width, 2)
        a, b = x[..., first], x[..., second]
        made[..., first], made[..., second] = a * cos - b * sin, a * sin + b * cos
        return made

    def rates(self, width: int, local: bool) -> tuple[Array, float]:
        """Radians per token of each pair, and what the results are multiplied by."""
        local = local and self.name == "gemma3"
        base = 10000.0 if local else self.key("rope.freq_base", 10000.0)
        rates = base ** (-np.arange(0, width, 2) / width)
        rates = rates / self.tensors.get("rope_freqs.weight", 1.0)
        kind, factor = self.key("rope.scaling.type", "none"), self.key("rope.scaling.factor", 1.0)
        if local or kind == "none":
            return rates, 1.0
        if kind == "linear":
            return rates / factor, 1.0
        # YaRN (arXiv 2309.00071): pairs that turn often enough keep their rate
        trained = self.key("rope.scaling.original_context_length")
        ends = [width * np.log(trained / (n * 2 * np.pi)) / (2 * np.log(base)) for n in (32, 1)]
        low, high = max(0, np.floor(ends[0])), min(width - 1, np.ceil(ends[1]))
        slow = np.clip((np.arange(width // 2) - low) / max(high - low, 1e-3), 0, 1)
        return rates / factor * slow + rates * (1 - slow), 1 + 0.1 * np.log(factor)

    def gated(self, at: str, x: Array) -> Array:
        if at + "ffn_gate.weight" in self.tensors:
            gate, up = self.product(x, at + "ffn_gate"), self.product(x, at + "ffn_up")
        else:
            gate, up = np.split(self.product(x, at + "ffn_up"), 2, axis=1)
        if self.name.startswith("gemma"):
            gate = gate * 0.5 * (1 + np.tanh((2 / np.pi) ** 0.5 * (gate + 0.044715 * gate**3)))
        else:
            gate = gate / (1 + np.exp(-gate))
        return self.product(gate * up, at + "ffn_down")
