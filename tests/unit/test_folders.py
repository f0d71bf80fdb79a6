"""Folders of Hugging Face's format as graphs: the same logits as the GGUF file with these weights
and as a NumPy forward pass; and folders that lie."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import MODEL_ARCH_NAMES, get_tensor_name_map
from helpers.gguf_files import MODELS, Forward, Tiny, write_tiny
from helpers.model_folders import config_of, tensors_of, write_folder, write_safetensors
from helpers.prompts import AFTER, CLOSE, PROMPT, logits
from safetensors.numpy import load_file, save_file

from tilewright.base.errors import (
    CompilerBug,
    InvalidModel,
    TilewrightError,
    UnsupportedDType,
    UnsupportedOp,
    UsageError,
)
from tilewright.frontend.folder import FolderModel, is_folder
from tilewright.frontend.folder.folder_model import TensorNames
from tilewright.frontend.folder.safetensors_file import read_safetensors
from tilewright.frontend.gguf import GgufModel
from tilewright.frontend.language.architectures import ARCHITECTURES
from tilewright.frontend.language.quantise import integers_of, scales_of
from tilewright.frontend.language.rotation import Rotation
from tilewright.frontend.language.weights import ModelTensor

Array = np.ndarray[Any, Any]
SMALL = Tiny(layers=1, width=32, heads=2, kv_heads=1, hidden=32, words=8)


def pair(path: Path, tiny: Tiny, **more: Any) -> tuple[Path, Path]:
    """A GGUF file, and a folder with its weights."""
    gguf = write_tiny(path / "tiny.gguf", tiny)
    return gguf, write_folder(path / "tiny", gguf, tiny, **more)


def small(path: Path, tiny: Tiny = SMALL, **config: Any) -> Path:
    """A folder with other settings."""
    folder = pair(path, tiny)[1]
    (folder / "config.json").write_text(json.dumps(config_of(tiny) | config))
    return folder


@pytest.mark.parametrize("name", MODELS)
def test_architecture(tmp_path: Path, name: str) -> None:
    gguf, folder = pair(tmp_path, MODELS[name])
    want, same = Forward(gguf), logits(GgufModel(gguf), PROMPT, AFTER)
    for count, row in enumerate(logits(FolderModel(folder), PROMPT, AFTER)):
        expected = want([*PROMPT, *AFTER[:count]])
        most = CLOSE * max(1, np.abs(expected).max())
        assert np.abs(row - expected).max() <= most
        assert np.abs(row - same[count]).max() <= most


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_narrow_numbers_in_shards_are_kept(tmp_path: Path, dtype: str) -> None:
    """The same as a file with numbers of the type."""
    folder = pair(tmp_path, SMALL, dtype=dtype, shards=3)[1]
    model = FolderModel(folder)
    for tensor in model.source.tensors.values():
        rounded = tensor.whole().astype(np.float16).astype(np.float32)
        assert tensor.stored == dtype.lower()
        assert dtype == "BF16" or np.array_equal(rounded, tensor.whole())
    exact = tensors_of(tmp_path / "tiny.gguf", SMALL)
    name = "model.layers.0.mlp.down_proj.weight"
    error = np.abs(model.source.tensors["blk.0.ffn_down.weight"].whole() - exact[name]).max()
    assert 0 < error <= np.abs(exact[name]).max() * (2**-8 if dtype == "BF16" else 2**-11)
    model.graph()


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_names_are_those_that_the_gguf_package_knows(name: str) -> None:
    kind = ARCHITECTURES[name]
    names = TensorNames(kind)
    known = {text: arch for arch, text in MODEL_ARCH_NAMES.items()}
    table = get_tensor_name_map(known.get(name, known["llama"]), 4)
    parts = ["attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_down"]
    parts += ["post_attention_norm", "post_ffw_norm"] if kind.posts else []
    parts += [part.removesuffix(".weight") for part in kind.folder.needs if "norm" in part]
    # files of Gemma have no output of their own
    parts = ["token_embd", "output_norm", *(f"blk.3.{part}" for part in parts)]
    for role in [*parts, *([] if name in ("gemma", "gemma2") else ["output"])]:
        assert table.get_name(names.called(f"{role}.weight"), (".weight",)) == f"{role}.weight"


# ---- settings ------------------------------------------------------------------------------------


def test_settings_inside_a_model_with_pictures(tmp_path: Path) -> None:
    """The text model's settings and tensors are one part, and all others are left alone."""
    tiny = MODELS["gemma3"]
    gguf, folder = pair(tmp_path, tiny)
    inner = config_of(tiny)
    outer = {"model_type": "gemma3", "text_config": inner,
             "architectures": ["Gemma3ForConditionalGeneration"]}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(outer))
    tensors = {f"language_model.{name}": x for name, x in tensors_of(gguf, tiny).items()}
    tensors["vision_tower.encoder.weight"] = np.ones((2, 2), "f4")
    write_safetensors(folder / "model.safetensors", tensors)
    found = logits(FolderModel(folder), PROMPT, ())[0]
    assert np.abs(found - Forward(gguf)(PROMPT)).max() <= CLOSE * 10


@pytest.mark.parametrize(
    ("name", "settings", "local"),
    [
        ("mistral", {"sliding_window": 4}, (True, True)),
        ("mistral", {"sliding_window": None}, (False, False)),
        ("phi3", {"sliding_window": 4}, (True, True)),
        ("llama", {"sliding_window": 4}, (False, False)),
        ("qwen2", {"sliding_window": 4}, (False, False)),
        ("qwen2", {"sliding_window": 4, "use_sliding_window": True, "max_window_layers": 1},
         (False, True)),
        ("qwen3", {"sliding_window": 4, "use_sliding_window": True,
                   "layer_types": ["sliding_attention", "full_attention"]}, (True, False)),
        ("gemma2", {"sliding_window": 4}, (True, False)),
        ("gemma3", {"sliding_window": 4, "sliding_window_pattern": 3}, (True, True, False)),
        ("smollm3", {"use_sliding_window": True, "sliding_window": 4},
         (False, False, False, True)),
    ],
)  # fmt: skip
def test_windows(
    tmp_path: Path, name: str, settings: Mapping[str, Any], local: tuple[bool, ...]
) -> None:
    sizes = FolderModel(small(tmp_path, MODELS[name], **settings)).sizes
    assert (sizes.local, sizes.window) == (local, 4 if any(local) else sizes.window)


def test_layers_without_rotation(tmp_path: Path) -> None:
    tiny = MODELS["smollm3"]
    assert FolderModel(small(tmp_path, tiny)).sizes.turned == (True, True, True, False)
    folder = small(tmp_path, tiny, no_rope_layers=[1, 0, 1, 1])
    assert FolderModel(folder).sizes.turned == (True, False, True, True)


def rates(folder: Path) -> tuple[Array, float]:
    """Radians per token of each pair, and what cosines are multiplied by."""
    rotation = FolderModel(folder).source.rotation
    cos, sin = (table[1].astype(np.float64) for table in rotation.tables(2))
    return np.arctan2(sin, cos), float(np.hypot(sin, cos)[0])


def test_scaling_of_llama_3(tmp_path: Path) -> None:
    """By wavelengths: short ones stay, long ones are stretched, in between both are mixed."""
    rope = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64}  # fmt: skip
    tiny = replace(SMALL, head=32)
    plain = 10000.0 ** (-np.arange(0, 32, 2) / 32)
    want = []
    for rate in plain:
        length = 2 * np.pi / rate
        mixed = (64 / length - 1) / (4 - 1)
        if length < 64 / 4:
            want.append(rate)
        elif length > 64 / 1:
            want.append(rate / 8)
        else:
            want.append((1 - mixed) * rate / 8 + mixed * rate)
    found, size = rates(small(tmp_path, tiny, rope_scaling=rope))
    assert np.allclose(found, want, rtol=1e-5)
    assert size == pytest.approx(1)
    newer = small(tmp_path, tiny, rope_parameters=rope | {"rope_theta": 10000.0}, rope_theta=None)
    assert np.array_equal(rates(newer)[0], found)


def test_dynamic_scaling_changes_nothing_within_the_trained_length(tmp_path: Path) -> None:
    plain = rates(small(tmp_path))
    rope = {"type": "dynamic", "factor": 4.0}
    assert np.array_equal(rates(small(tmp_path, rope_scaling=rope))[0], plain[0])


def test_scaling_of_phi_3_depends_on_the_context(tmp_path: Path) -> None:
    rope = {"type": "su", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
    folder = small(tmp_path, replace(MODELS["phi3"], keys={}), rope_scaling=rope,
                   original_max_position_embeddings=16)  # fmt: skip
    rotation = FolderModel(folder).source.rotation
    size = np.sqrt(1 + np.log(2) / np.log(16))
    near, far = (rotation.tables(room)[1][1] / size for room in (16, 17))
    plain = 10000.0 ** (-np.arange(0, 16, 2) / 16)
    assert np.allclose(np.arcsin(near), plain, rtol=1e-4)
    assert np.allclose(np.arcsin(far), plain / 2, rtol=1e-4)


@pytest.mark.parametrize(
    ("rope", "size"),
    [
        ({}, 1 + 0.1 * np.log(4)),
        ({"attention_factor": 1.5}, 1.5),
        ({"mscale": 0.7, "mscale_all_dim": 0.5}, (1 + 0.07 * np.log(4)) / (1 + 0.05 * np.log(4))),
    ],
)
def test_what_yarn_multiplies_by(tmp_path: Path, rope: Mapping[str, Any], size: float) -> None:
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, **rope}
    assert rates(small(tmp_path, rope_scaling=scaling))[1] == pytest.approx(size, rel=1e-5)


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"model_type": "mamba"}, UnsupportedOp, "'mamba'"),
        ({"architectures": ["LlamaForSequenceClassification"]}, UnsupportedOp, "no text"),
        ({"hidden_act": "relu"}, UnsupportedOp, "'relu'"),
        ({"use_bidirectional_attention": True}, UnsupportedOp, "later tokens"),
        ({"rope_scaling": {"rope_type": "spiral"}}, UnsupportedOp, "'spiral'"),
        ({"rope_scaling": {"rope_type": "linear"}}, InvalidModel, "rope_scaling.factor"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 0}}, InvalidModel, "scaled by 0"),
        ({"rope_scaling": {"rope_type": "longrope", "short_factor": [1]}}, InvalidModel, "list"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4,
                           "high_freq_factor": 4}}, InvalidModel, "between"),
        ({"rope_theta": -1}, InvalidModel, "base"),
        ({"partial_rotary_factor": 0.1}, UnsupportedOp, "rotated"),
        ({"hidden_size": "wide"}, InvalidModel, "hidden_size"),
        ({"num_hidden_layers": 0}, InvalidModel, "num_hidden_layers"),
        ({"num_key_value_heads": 3}, UnsupportedOp, "heads"),
        ({"head_dim": 8}, InvalidModel, "wrong shape"),
        ({"num_hidden_layers": 2}, InvalidModel, r"layers\.1\..* is missing"),
        ({"model_type": "qwen3"}, InvalidModel, "q_norm.weight' is missing"),
        ({"model_type": "qwen2"}, InvalidModel, "q_proj.bias' is missing"),
        ({"quantization_config": {"quant_method": "gptq"}}, UnsupportedDType, "gptq"),
        ({"quantization_config": {"quant_method": "awq"}}, UnsupportedDType, "awq"),
        ({"quantization_config": {"quant_method": "bitsandbytes"}}, UnsupportedDType, "bitsandby"),
        ({"quantization": {"bits": 4}}, UnsupportedDType, "MLX"),
    ],
)  # fmt: skip
def test_settings_that_are_refused(
    tmp_path: Path, settings: Mapping[str, Any], error: type[Exception], words: str
) -> None:
    folder = small(tmp_path, **settings)
    with pytest.raises(error, match=words) as caught:
        FolderModel(folder).graph()
    assert isinstance(caught.value, TilewrightError)
    assert caught.value.hint or caught.value.facts


# ---- files ---------------------------------------------------------------------------------------


def test_files_of_the_safetensors_package(tmp_path: Path) -> None:
    """Both packages read what the other one's file has."""
    folder = pair(tmp_path, SMALL)[1]
    path = folder / "model.safetensors"
    tensors = load_file(path)
    save_file({**tensors, "extra": np.zeros((0, 3), "f4")}, path, {"format": "pt"})
    found = read_safetensors(path)
    assert found.keys() - tensors.keys() == {"extra"}
    assert all(found[name].data.tobytes() == x.tobytes() for name, x in tensors.items())


def test_tensors_of_another_type_or_without_a_place(tmp_path: Path) -> None:
    folder = small(tmp_path)
    tensors = load_file(folder / "model.safetensors")
    save_file({**tensors, "lm_head.weight": np.zeros((8, 32), "i4")}, folder / "model.safetensors")
    with pytest.raises(UnsupportedDType, match=r"lm_head\.weight.*I32"):
        FolderModel(folder)
    save_file({**tensors, "surprise": np.zeros(3, "f4")}, folder / "model.safetensors")
    with pytest.raises(UnsupportedOp, match="'surprise' has no place"):
        FolderModel(folder).graph()
    inner = "language_model.lm_head.weight"
    save_file({**tensors, inner: np.zeros((8, 32), "f4")}, folder / "model.safetensors")
    with pytest.raises(InvalidModel, match="the same role"):
        FolderModel(folder)


def test_output_that_is_the_embeddings(tmp_path: Path) -> None:
    """A second table in the file is not used if the settings say so; without one it is needed."""
    tiny = replace(SMALL, words=48)
    folder = small(tmp_path, tiny, tie_word_embeddings=True)
    tied = logits(FolderModel(folder), PROMPT, ())[0]
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config_of(tiny)))
    assert np.array_equal(logits(FolderModel(folder), PROMPT, ())[0], tied)
    save_file({n: x for n, x in tensors.items() if n != "lm_head.weight"},
              folder / "model.safetensors")  # fmt: skip
    with pytest.raises(InvalidModel, match=r"lm_head\.weight' is missing"):
        FolderModel(folder)
    config = config_of(tiny)
    del config["tie_word_embeddings"]
    (folder / "config.json").write_text(json.dumps(config))
    assert np.array_equal(logits(FolderModel(folder), PROMPT, ())[0], tied)


def without(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def renamed(name: str, other: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).rename(folder / other) and None


def written(name: str, text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(text) and None


INDEX, SECOND = "model.safetensors.index.json", "model-00002-of-00003.safetensors"


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (without("config.json"), InvalidModel, r"config\.json"),
        (written("config.json", "[1"), InvalidModel, r"config\.json"),
        (written("config.json", "[" * 100_000), InvalidModel, r"config\.json"),
        (written("config.json", "[]"), InvalidModel, "not an object"),
        (without(SECOND), InvalidModel, f"no {SECOND}"),
        (without(INDEX), InvalidModel, r"no model\.safetensors"),
        (written(INDEX, "{}"), InvalidModel, "names no files"),
        (written(INDEX, '{"weight_map": {"a": "../b.safetensors"}}'), InvalidModel, "outside"),
        (written(INDEX, '{"weight_map": {"a": ".."}}'), InvalidModel, "outside"),
        (written(INDEX, '{"weight_map": {"a": 3}}'), InvalidModel, "names no files"),
        (written(SECOND, ""), InvalidModel, SECOND),
    ],
)
def test_folders_that_are_not_complete(
    tmp_path: Path, change: Callable[[Path], None], error: type[Exception], words: str
) -> None:
    folder = pair(tmp_path, SMALL, shards=3)[1]
    change(folder)
    with pytest.raises(error, match=words):
        FolderModel(folder).graph()


def test_pickled_weights_are_refused_with_the_way_out(tmp_path: Path) -> None:
    folder = small(tmp_path)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(UnsupportedOp, match=r"pytorch_model\.bin, a pickled file") as caught:
        FolderModel(folder)
    assert "save_pretrained" in (caught.value.hint or "")
    assert is_folder(folder)
    assert not is_folder(folder / "config.json")


def test_one_tensor_in_two_shards(tmp_path: Path) -> None:
    folder = pair(tmp_path, SMALL, shards=3)[1]
    whole = load_file(folder / SECOND)
    first = folder / "model-00001-of-00003.safetensors"
    save_file(load_file(first) | dict([next(iter(whole.items()))]), first)
    with pytest.raises(InvalidModel, match="in two files"):
        FolderModel(folder)


def entry(dtype: str = "F32", shape: Any = (2,), ends: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": ends}


@pytest.mark.parametrize(
    "header",
    [
        b"", b"{", b"[]", b'{"a": 1}', b"[" * 100_000, b"\xff{}", b'{"a": {}, "a": {}}',
        *(json.dumps(h).encode() for h in (
            {"a": entry(ends=(0, 16))}, {"a": entry(ends=(8, 0))}, {"a": entry(ends=(0, 8, 8))},
            {"a": entry(ends=(-8, 0))}, {"a": entry(ends=(0.0, 8.0))}, {"a": entry(ends=(0, True))},
            {"a": entry(shape=(3,))}, {"a": entry(shape=(1 << 40, 1 << 40))},
            {"a": entry(shape=(1,) * 9)}, {"a": entry(shape=2)}, {"a": entry(dtype="F64")},
            {"a": entry(ends=(8, 16))}, {"a": entry(), "b": entry()}, {"a": entry(dtype=["F32"])},
            {"a": entry() | {"more": 1}}, {"a": entry(shape=(0,), ends=(0, 0))},
            {"a": entry(shape=(1,), ends=(0, 4))},
        )),
    ],
)  # fmt: skip
def test_headers_that_lie(tmp_path: Path, header: bytes) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    with pytest.raises(InvalidModel, match=r"a\.safetensors is not a readable"):
        read_safetensors(path)


def test_unknown_type(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    header = json.dumps({"a": entry(dtype="F7")}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    with pytest.raises(UnsupportedDType, match="'F7'"):
        read_safetensors(path)


@pytest.mark.parametrize("length", [0, 7, 8, 1 << 25, 1 << 62, (1 << 64) - 1])
def test_lengths_are_compared_before_they_are_used(tmp_path: Path, length: int) -> None:
    """The file is as long as it says, but for the last two; no more than 16 MiB are read."""
    path = tmp_path / "a.safetensors"
    with path.open("wb") as file:
        file.write(length.to_bytes(8, "little")[: max(1, length) if length < 8 else 8])
        file.truncate(8 + length if 8 <= length < 1 << 30 else None)
    with pytest.raises(InvalidModel):
        read_safetensors(path)


def test_three_hundred_damaged_folders(tmp_path: Path) -> None:
    """Bytes of a header or of the settings are changed at random: a graph or a typed error."""
    folder, rng = small(tmp_path), np.random.default_rng(0)
    model, config = folder / "model.safetensors", folder / "config.json"
    whole = {path: path.read_bytes() for path in (model, config)}
    ends = {model: 8 + int.from_bytes(whole[model][:8], "little"), config: len(whole[config])}
    kinds = set()
    for number in range(300):
        path = (model, config)[number % 2]
        data = bytearray(whole[path])
        for at in rng.integers(0, ends[path], rng.integers(1, 4)):
            data[at] = rng.choice([0, 0x22, 0x30, 0x39, 0x5D, 0x7B, rng.integers(256)])
        path.write_bytes(data)
        try:
            FolderModel(folder).graph()
        except TilewrightError as error:
            kinds.add(type(error))
        path.write_bytes(whole[path])
    assert {InvalidModel, UnsupportedOp} <= kinds
    assert CompilerBug not in kinds


# ---- fewer bits ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("bits", "most"), [(4, 0.1), (8, 0.006)])
def test_blocks(bits: int, most: float) -> None:
    """Of weights as they are; each integer is the nearest one to its weight, and the error is told
    as it is."""
    x = np.random.default_rng(0).standard_normal((8, 4, 32)).astype(np.float32)
    x[0, 0] = 0
    halves, error = scales_of(x, bits)
    scale = halves.astype(np.float32)
    whole = integers_of(x, scale, bits)
    made = whole * scale[..., None]
    assert halves.dtype == np.float16
    assert whole.min() >= -(1 << bits - 1)
    assert whole.max() < 1 << bits - 1
    assert error == pytest.approx(np.square(made - x).sum(), rel=1e-4)
    assert (error / np.square(x).sum()) ** 0.5 <= most
    assert not made[0, 0].any()
    for nearby in (whole - 1.0, whole + 1.0):
        inside = (nearby >= -(1 << bits - 1)) & (nearby < 1 << bits - 1)
        better = np.abs(nearby * scale[..., None] - x) < np.abs(made - x) - 1e-6
        assert not (better & inside).any()


@pytest.mark.parametrize("bits", [4, 8, 16, 32])
def test_logits_with_fewer_bits(tmp_path: Path, bits: int) -> None:
    """Those of a folder with the rounded numbers; embeddings have 8 bits where others have 4."""
    tiny = replace(MODELS["llama"], kv_heads=4)
    gguf, folder = pair(tmp_path, tiny)
    model, plain = FolderModel(folder, bits=bits), tensors_of(gguf, tiny)
    rounded = {t.name: numbers(t) for t in model.source.tensors.values()}
    other = write_folder(tmp_path / "rounded", gguf, tiny)
    write_safetensors(other / "model.safetensors", rounded)
    found = logits(model, PROMPT, AFTER)
    for a, b in zip(found, logits(FolderModel(other), PROMPT, AFTER), strict=True):
        assert np.abs(a - b).max() <= CLOSE * max(1, np.abs(b).max())
    matrices = [name for name, x in plain.items() if x.ndim == 2]
    error = sum(np.square(rounded[n] - plain[n]).sum() for n in matrices)
    size = sum(np.square(plain[n]).sum() for n in matrices)
    assert model.quantiser.error == pytest.approx((error / size) ** 0.5, rel=1e-3)
    kinds = {t.kind for t in model.source.tensors.values() if len(t.shape) == 2}
    assert kinds == {4: {"4 bits", "8 bits"}, 8: {"8 bits"}}.get(bits, {"F32"})


def numbers(tensor: ModelTensor) -> Array:
    whole = tensor.whole()
    if tensor.scale is None:
        return whole
    return whole * np.repeat(tensor.scale(), tensor.group, axis=1)


def test_weights_that_cannot_have_fewer_bits(tmp_path: Path) -> None:
    folder = small(tmp_path, replace(SMALL, width=48))
    with pytest.raises(UsageError, match="5 bits"):
        FolderModel(folder, bits=5)
    kept = FolderModel(folder, bits=4).source.tensors
    assert kept["blk.0.ffn_up.weight"].dtype.name == "f32"
    assert kept["blk.0.ffn_down.weight"].dtype.name == "i8"
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.0.mlp.down_proj.weight"][0, 0] = np.inf
    save_file(tensors, folder / "model.safetensors")
    for bits in (4, 16):
        with pytest.raises(InvalidModel, match="not finite"):
            FolderModel(folder, bits=bits).source.tensors["blk.0.ffn_down.weight"].whole()


def test_numbers_beyond_f16_become_its_largest(tmp_path: Path) -> None:
    folder = small(tmp_path)
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"][0, 0] = -1e6
    save_file(tensors, folder / "model.safetensors")
    made = FolderModel(folder, bits=16).source.tensors["output.weight"].whole()
    assert made[0, 0] == -65504


def test_rotation_without_a_base() -> None:
    with pytest.raises(InvalidModel, match="base"):
        Rotation(8, 1.0)
