"""Tiny Whisper models with random weights, in both kinds of folders, and their logits by NumPy.

Input: sizes.  Output: tensors, folders, a bytewise writer of CTranslate2's files, and a reference
in f64 that transforms with `np.fft`, convolves by plain loops over taps, and computes all tokens at
once without caches.
"""

from __future__ import annotations

import json
import struct
import wave
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import erf
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from helpers.folder_texts import write_text
from helpers.vocabularies import merges

Array = np.ndarray[Any, Any]
Tensors = dict[str, Array]

TYPES = ("float32", "int8", "int16", "int32", "float16")


@dataclass(frozen=True)
class Tiny:
    """The window has positions * 320 samples."""

    width: int = 32
    bands: int = 16
    positions: int = 20
    room: int = 24
    words: int = 320
    layers: tuple[int, int] = (1, 2)
    heads: int = 2

    @property
    def window(self) -> int:
        return self.positions * 320


def tensors_of(t: Tiny, seed: int = 0) -> Tensors:
    """By Hugging Face's names, without `model.`."""
    rng = np.random.default_rng(seed)
    d = t.width

    def matrix(*shape: int) -> Array:
        return np.asarray(rng.normal(0, np.prod(shape[1:]) ** -0.5, shape), np.float32)

    def vector(near: float = 0.0) -> Array:
        return np.asarray(rng.normal(near, 0.1, d), np.float32)

    made = {
        "encoder.conv1.weight": matrix(d, t.bands, 3), "encoder.conv1.bias": vector(),
        "encoder.conv2.weight": matrix(d, d, 3), "encoder.conv2.bias": vector(),
        "encoder.embed_positions.weight": matrix(t.positions, d),
        "decoder.embed_positions.weight": matrix(t.room, d),
        "decoder.embed_tokens.weight": matrix(t.words, d) * np.float32(4),
    }  # fmt: skip
    for part, count in zip(("encoder", "decoder"), t.layers, strict=True):
        for layer in range(count):
            at = f"{part}.layers.{layer}"
            kinds = ("self_attn", "encoder_attn")[: 1 + (part == "decoder")]
            for kind in kinds:
                for name in ("q", "k", "v", "out"):
                    made[f"{at}.{kind}.{name}_proj.weight"] = matrix(d, d) * np.float32(1.5)
                    if name != "k":
                        made[f"{at}.{kind}.{name}_proj.bias"] = vector()
            made[f"{at}.fc1.weight"] = matrix(4 * d, d)
            made[f"{at}.fc1.bias"] = np.tile(vector(), 4)
            made |= {f"{at}.fc2.weight": matrix(d, 4 * d), f"{at}.fc2.bias": vector()}
            for name in (*(f"{kind}_layer_norm" for kind in kinds), "final_layer_norm"):
                made |= {f"{at}.{name}.weight": vector(1.0), f"{at}.{name}.bias": vector()}
        made[f"{part}.layer_norm.weight"], made[f"{part}.layer_norm.bias"] = vector(1.0), vector()
    return made


# ---- folders -------------------------------------------------------------------------------------


def config_of(t: Tiny) -> dict[str, Any]:
    return {
        "architectures": ["WhisperForConditionalGeneration"], "model_type": "whisper",
        "d_model": t.width, "num_mel_bins": t.bands, "vocab_size": t.words,
        "max_source_positions": t.positions, "max_target_positions": t.room,
        "encoder_layers": t.layers[0], "decoder_layers": t.layers[1],
        "encoder_attention_heads": t.heads, "decoder_attention_heads": t.heads,
        "encoder_ffn_dim": 4 * t.width, "decoder_ffn_dim": 4 * t.width,
        "activation_function": "gelu", "scale_embedding": False,
    }  # fmt: skip


def write_published(folder: Path, t: Tiny, dtype: type[np.generic] = np.float32) -> Path:
    """Hugging Face's."""
    folder.mkdir(exist_ok=True)
    made = {f"model.{name}": x.astype(dtype) for name, x in tensors_of(t).items()}
    save_file(made, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config_of(t)))
    return folder


def write_converted(folder: Path, t: Tiny, dtype: type[np.generic] = np.float32) -> Path:
    """CTranslate2's; with int8, matrices have a scale for each row."""
    folder.mkdir(exist_ok=True)
    (folder / "model.bin").write_bytes(ct2_bytes(variables_of(t, dtype)))
    (folder / "config.json").write_text(json.dumps({"suppress_ids": [], "lang_ids": []}))
    return folder


def variables_of(t: Tiny, dtype: type[np.generic] = np.float32) -> Tensors:
    """By CTranslate2's names."""
    x = tensors_of(t)
    number = np.array(t.heads, np.int16)
    made: Tensors = {
        "decoder/activation": np.array(3, np.int8), "decoder/pre_norm": np.array(1, np.int8),
        "decoder/alibi": np.array(0, np.int8), "decoder/num_heads": number,
        "decoder/scale_embeddings": np.array(0, np.int8), "encoder/num_heads": number,
        "decoder/alignment_layer": np.array(-1, np.int16),
    }  # fmt: skip

    def add(name: str, weight: Array, bias: Array | None, kind: type[np.generic] = dtype) -> None:
        if kind is np.int8:
            rows = weight.reshape(len(weight), -1)
            scale = np.asarray(127 / np.abs(rows).max(1), np.float32)
            made[f"{name}_scale"] = scale
            made[name] = np.rint(rows * scale[:, None]).astype(np.int8).reshape(weight.shape)
        else:
            made[name] = weight.astype(kind)
        if bias is not None:
            made[name.removesuffix("weight") + "bias"] = bias

    for n in (1, 2):
        at = f"encoder/conv{n}"
        add(f"{at}/weight", x[f"encoder.conv{n}.weight"], x[f"encoder.conv{n}.bias"])
    add("decoder/embeddings/weight", x["decoder.embed_tokens.weight"], None)
    for part, count in zip(("encoder", "decoder"), t.layers, strict=True):
        made[f"{part}/position_encodings/encodings"] = x[f"{part}.embed_positions.weight"]
        norms = {f"{part}/layer_norm": f"{part}.layer_norm"}
        for layer in range(count):
            own, at = f"{part}.layers.{layer}", f"{part}/layer_{layer}"
            parts = [("self_attention", "self_attn", ("qkv", "out"))]
            if part == "decoder":
                parts.append(("attention", "encoder_attn", ("q", "kv", "out")))
            for place, name, products in parts:
                for number_, letters in enumerate(products):
                    names = [letters] if letters == "out" else [*letters]
                    found = [f"{own}.{name}.{letter}_proj" for letter in names]
                    weight = np.concatenate([x[f"{each}.weight"] for each in found])
                    none = np.zeros(t.width, np.float32)
                    bias = np.concatenate([x.get(f"{each}.bias", none) for each in found])
                    add(f"{at}/{place}/linear_{number_}/weight", weight, bias)
                norms[f"{at}/{place}/layer_norm"] = f"{own}.{name}_layer_norm"
            for number_, name in enumerate(("fc1", "fc2")):
                place = f"{at}/ffn/linear_{number_}/weight"
                add(place, x[f"{own}.{name}.weight"], x[f"{own}.{name}.bias"])
            norms[f"{at}/ffn/layer_norm"] = f"{own}.final_layer_norm"
        for place, name in norms.items():
            made[f"{place}/gamma"], made[f"{place}/beta"] = x[f"{name}.weight"], x[f"{name}.bias"]
    return made


SPECIAL = (
    "<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|de|>", "<|translate|>",
    "<|transcribe|>", "<|startoflm|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>",
)  # fmt: skip


def write_speech_text(folder: Path) -> dict[str, int]:
    """tokenizer.json; returns the ids of control tokens.  Tokens behind them are times."""
    usual = merges()
    texts = (*usual.texts[: -len(usual.special)], *SPECIAL)
    write_text(folder, replace(usual, texts=texts, special=SPECIAL))
    return {text: texts.index(text) for text in SPECIAL}


def ct2_bytes(variables: Mapping[str, Array], kind: str = "WhisperSpec", version: int = 6) -> bytes:
    """A file of CTranslate2."""
    parts = [struct.pack("<I", version), _text(kind), struct.pack("<II", 3, len(variables))]
    for name, x in variables.items():
        head = struct.pack(f"<B{x.ndim}IBI", x.ndim, *x.shape, TYPES.index(x.dtype.name), x.nbytes)
        parts += [_text(name), head, x.tobytes()]
    alias = _text("decoder/projection/weight") + _text("decoder/embeddings/weight")
    return b"".join([*parts, struct.pack("<I", 1), alias])


def _text(text: str) -> bytes:
    return struct.pack("<H", len(text) + 1) + text.encode() + b"\0"


# ---- reference -----------------------------------------------------------------------------------


def features(samples: Array, bands: int, frames: int) -> Array:
    """[frames, bands]: of each frame of the recording, and then zeros."""
    recorded = len(samples) // 160
    line = np.pad(samples.astype(np.float64), (0, 160))
    line = np.pad(line, (200, 200 + 400), mode="reflect")
    window = np.hanning(401)[:-1]
    heard = np.stack([line[160 * f : 160 * f + 400] * window for f in range(recorded + 1)])
    power = np.abs(np.fft.rfft(heard)) ** 2 @ triangles(bands).T
    x = np.log10(np.maximum(power, 1e-10))
    x = (np.maximum(x, x.max() - 8) + 4) / 4
    made = np.zeros((frames, bands))
    made[:recorded] = x[:recorded]
    return made


def triangles(bands: int) -> Array:
    """Slaney's mel bands by hand, one after the other."""

    def hertz(mel: float) -> float:
        return mel * 200 / 3 if mel < 15 else 1000 * 6.4 ** ((mel - 15) / 27)

    top = 15 + 27 * np.log(8) / np.log(6.4)
    edges = [hertz(top * n / (bands + 1)) for n in range(bands + 2)]
    made = np.zeros((bands, 201))
    for b in range(bands):
        low, middle, high = edges[b : b + 3]
        for k in range(201):
            f = k * 40.0
            if low < f < high:
                side = (f - low) / (middle - low) if f < middle else (high - f) / (high - middle)
                made[b, k] = side * 2 / (high - low)
    return made


def logits(t: Tiny, x: Mapping[str, Array], samples: Array, ids: Sequence[int]) -> Array:
    """[tokens, words]"""
    x = {name: value.astype(np.float64) for name, value in x.items()}
    h = features(samples, t.bands, 2 * t.positions)
    for n, stride in ((1, 1), (2, 2)):
        w, padded = x[f"encoder.conv{n}.weight"], np.pad(h, ((1, 1), (0, 0)))
        rows = len(h)
        made = sum(padded[tap : tap + rows] @ w[:, :, tap].T for tap in range(3))
        h = _gelu((made + x[f"encoder.conv{n}.bias"])[::stride])
    h = h + x["encoder.embed_positions.weight"]
    for layer in range(t.layers[0]):
        at = f"encoder.layers.{layer}"
        normal = _norm(x, f"{at}.self_attn_layer_norm", h)
        h = h + _attention(t, x, f"{at}.self_attn", normal, normal, False)
        h = _fed(x, at, h)
    encoded = _norm(x, "encoder.layer_norm", h)
    embeddings = x["decoder.embed_tokens.weight"]
    h = embeddings[list(ids)] + x["decoder.embed_positions.weight"][: len(ids)]
    for layer in range(t.layers[1]):
        at = f"decoder.layers.{layer}"
        normal = _norm(x, f"{at}.self_attn_layer_norm", h)
        h = h + _attention(t, x, f"{at}.self_attn", normal, normal, True)
        normal = _norm(x, f"{at}.encoder_attn_layer_norm", h)
        h = h + _attention(t, x, f"{at}.encoder_attn", normal, encoded, False)
        h = _fed(x, at, h)
    return np.asarray(_norm(x, "decoder.layer_norm", h) @ embeddings.T)


def greedy(
    t: Tiny, samples: Array, prompt: Sequence[int], end: int,
    never: Sequence[int] = (), never_first: Sequence[int] = (),
) -> list[int]:  # fmt: skip
    """The likeliest tokens, without the end."""
    x, found = tensors_of(t), list[int]()
    while len(found) < min(t.room // 2, t.room - len(prompt)):
        row = logits(t, x, samples, [*prompt, *found])[-1]
        row[list(never)] = -np.inf
        if not found:
            row[list(never_first)] = -np.inf
        if (token := int(row.argmax())) == end:
            break
        found.append(token)
    return found


def _fed(x: Mapping[str, Array], at: str, h: Array) -> Array:
    wide = _gelu(_linear(x, f"{at}.fc1", _norm(x, f"{at}.final_layer_norm", h)))
    return h + _linear(x, f"{at}.fc2", wide)


def _attention(
    t: Tiny, x: Mapping[str, Array], at: str, h: Array, other: Array, causal: bool
) -> Array:
    q, k, v = (_linear(x, f"{at}.{n}_proj", y) for n, y in (("q", h), ("k", other), ("v", other)))
    head, made = t.width // t.heads, np.empty_like(q)
    for n in range(t.heads):
        part = slice(n * head, (n + 1) * head)
        scores = q[:, part] @ k[:, part].T / np.sqrt(head)
        if causal:
            scores[np.triu_indices(len(scores), 1)] = -np.inf
        powers = np.exp(scores - scores.max(1, keepdims=True))
        made[:, part] = powers / powers.sum(1, keepdims=True) @ v[:, part]
    return _linear(x, f"{at}.out_proj", made)


def _linear(x: Mapping[str, Array], name: str, h: Array) -> Array:
    return np.asarray(h @ x[f"{name}.weight"].T + x.get(f"{name}.bias", 0.0))


def _norm(x: Mapping[str, Array], name: str, h: Array) -> Array:
    centred = h - h.mean(1, keepdims=True)
    root = np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)
    return np.asarray(centred / root * x[f"{name}.weight"] + x[f"{name}.bias"])


def _gelu(h: Array) -> Array:
    return np.asarray(h * (1 + np.vectorize(erf)(h / np.sqrt(2))) / 2)


def sound(seconds: float, seed: int = 0) -> Array:
    """A few tones that come and go, and noise, of 16 kHz."""
    rng = np.random.default_rng(seed)
    time = np.arange(int(seconds * 16000)) / 16000
    tones = sum(
        rng.uniform(0.05, 0.2) * np.sin(2 * np.pi * rng.uniform(100, 4000) * time)
        * np.sin(2 * np.pi * rng.uniform(0.5, 5) * time) ** 2
        for _ in range(6)
    )  # fmt: skip
    return np.asarray(tones + rng.normal(0, 0.003, time.size), np.float32)


def write_wav(
    path: Path, samples: Array, rate: int = 16000, channels: int = 1, width: int = 2
) -> Path:
    """A .wav file whose channels are equal; of another width than 16 bits, of zeros."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        whole = np.rint(samples * 32767).astype("<i2")
        file.writeframes(np.repeat(whole, channels).tobytes() if width == 2 else bytes(400))
    return path
