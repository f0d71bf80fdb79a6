"""Tiny folders as Hugging Face's libraries write them, with the weights of tiny GGUF files.

Input: a GGUF file that gguf_files.py wrote, and its `Tiny`.  Output: a folder with config.json and
safetensors files.  The tables here are not those of the product.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

from helpers.gguf_files import Tiny

Array = np.ndarray[Any, Any]

DTYPES = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}
#: Names in a folder by those of GGUF.
NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_norm": "post_attention_layernorm",
}
WITH_POSTS = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
CLASSES = {
    "llama": "Llama", "mistral": "Mistral", "smollm3": "SmolLM3", "qwen2": "Qwen2",
    "qwen3": "Qwen3", "phi3": "Phi3", "gemma": "Gemma", "gemma2": "Gemma2", "gemma3": "Gemma3",
}  # fmt: skip


def name_in_folder(name: str, tiny: Tiny) -> str:
    part, _, end = name.rpartition(".")
    names = NAMES | (WITH_POSTS if tiny.posts else {})
    if tiny.fused:
        names = names | {"ffn_up": "mlp.gate_up_proj"}
    found = re.fullmatch(r"blk\.(\d+)\.(.+)", part)
    if found is None:
        return f"{names[part]}.{end}"
    return f"model.layers.{found[1]}.{names[found[2]]}.{end}"


def config_of(tiny: Tiny) -> dict[str, Any]:
    """config.json."""
    keys, head = tiny.keys, tiny.head
    is_gemma = tiny.name.startswith("gemma")
    made: dict[str, Any] = {
        "architectures": [f"{CLASSES.get(tiny.name, tiny.name)}ForCausalLM"],
        "model_type": "gemma3_text" if tiny.name == "gemma3" else tiny.name,
        "vocab_size": tiny.words, "hidden_size": tiny.width, "intermediate_size": tiny.hidden,
        "num_hidden_layers": tiny.layers, "num_attention_heads": tiny.heads,
        "num_key_value_heads": tiny.kv_heads, "head_dim": head,
        "max_position_embeddings": tiny.room, "rms_norm_eps": 1e-5,
        "tie_word_embeddings": tiny.tied, "rope_theta": keys.get("rope.freq_base", 10000.0),
        "partial_rotary_factor": keys.get("rope.dimension_count", head) / head,
        "query_pre_attn_scalar": head,
        "hidden_activation" if is_gemma else "hidden_act":
            "gelu_pytorch_tanh" if is_gemma else "silu",
        "sliding_window": keys.get("attention.sliding_window"),
        "attn_logit_softcapping": keys.get("attn_logit_softcapping"),
        "final_logit_softcapping": keys.get("final_logit_softcapping"),
        "rope_scaling": None,
    }  # fmt: skip
    if "attention.sliding_window_pattern" in keys:
        made["sliding_window_pattern"] = keys["attention.sliding_window_pattern"]
    if "rope.scaling.type" in keys:
        made["rope_scaling"] = {
            "rope_type": keys["rope.scaling.type"], "factor": keys["rope.scaling.factor"]
        }  # fmt: skip
        if "rope.scaling.original_context_length" in keys:
            made["rope_scaling"]["original_max_position_embeddings"] = keys[
                "rope.scaling.original_context_length"
            ]
    if "rope_freqs.weight" in tiny.vectors:  # any factors at all
        factors = np.asarray(tiny.vectors["rope_freqs.weight"], np.float32).tolist()
        made["rope_scaling"] = {
            "type": "longrope", "attention_factor": 1.0, "short_factor": factors,
            "long_factor": factors,
        }  # fmt: skip
    return made


def tensors_of(gguf: Path, tiny: Tiny) -> dict[str, Array]:
    """Of a GGUF file, as a folder has them: in f32."""
    found = {}
    for tensor in GGUFReader(gguf).tensors:
        if tensor.name in tiny.vectors:
            continue
        value = np.asarray(dequantize(tensor.data, tensor.tensor_type), np.float32)
        heads = {"attn_q": tiny.heads, "attn_k": tiny.kv_heads}.get(tensor.name.split(".")[-2])
        if heads and tiny.name in ("llama", "mistral", "smollm3"):
            pairs = value.reshape(heads, tiny.head // 2, 2, -1)
            value = pairs.swapaxes(1, 2).reshape(value.shape)
        if tiny.name.startswith("gemma") and tensor.name.endswith("norm.weight"):
            value = value - np.float32(1)
        found[name_in_folder(tensor.name, tiny)] = value
    return found


def write_safetensors(path: Path, tensors: Mapping[str, Array], dtype: str = "F32") -> None:
    header, at, parts = {}, 0, []
    for name, value in tensors.items():
        data = np.ascontiguousarray(value.astype(DTYPES[dtype])).tobytes()
        header[name] = {
            "dtype": dtype, "shape": list(value.shape), "data_offsets": [at, at + len(data)]
        }  # fmt: skip
        at += len(data)
        parts.append(data)
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(parts))


def write_folder(path: Path, gguf: Path, tiny: Tiny, dtype: str = "F32", shards: int = 1) -> Path:
    """Writes the folder with the weights of the GGUF file."""
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(config_of(tiny)))
    tensors = tensors_of(gguf, tiny)
    if shards == 1:
        write_safetensors(path / "model.safetensors", tensors, dtype)
        return path
    where = {}
    for shard in range(shards):
        part = dict(list(tensors.items())[shard::shards])
        name = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        write_safetensors(path / name, part, dtype)
        where |= dict.fromkeys(part, name)
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    return path
