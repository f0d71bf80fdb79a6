"""Whisper models from folders: features and logits against NumPy in f64, and folders that lie."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.whispers import (
    Tiny,
    config_of,
    ct2_bytes,
    features,
    logits,
    sound,
    tensors_of,
    variables_of,
    write_converted,
    write_published,
)

from tilewright.base.dtypes import F32, I32
from tilewright.base.errors import (
    CompilerBug,
    InvalidModel,
    TilewrightError,
    UnsupportedDType,
    UnsupportedOp,
    UsageError,
)
from tilewright.bundle import write
from tilewright.compiler import Options, compile_model
from tilewright.frontend.speech import Whisper, WhisperFolder, is_whisper_folder
from tilewright.frontend.speech.ctranslate2_file import read_ct2
from tilewright.frontend.speech.log_mel import log_mel
from tilewright.graph.node import evaluate, graph_input
from tilewright.hosts.wasmtime import WasmtimeHost

TINY = Tiny()
IDS = (7, 250, 3, 3, 91, 0, 319)
#: What sums in f32 may differ from those in f64, of logits up to 20.
CLOSE = 2e-4
#: What f32 changes of a logarithm of a power that is 10^8 times below the loudest one.
EXACT = 1e-4


@pytest.mark.parametrize("count", [0, 1, 159, 160, 4000, 6399, 6400])
def test_features(count: int) -> None:
    """Of recordings from no sample to a full window."""
    samples = np.zeros(TINY.window, "f4")
    samples[:count] = sound(TINY.window / 16000)[:count]
    given = graph_input("samples", samples.shape, F32), graph_input("count", (1,), I32)
    made = log_mel(*given, TINY.bands)
    (found,) = evaluate([made], {"samples": samples, "count": np.array([count], "i4")})
    want = features(samples[:count], TINY.bands, 2 * TINY.positions)
    assert found.shape == want.shape
    assert np.abs(found - want).max() < EXACT


def computed(model: Whisper, samples: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """Logits by the graphs' own meaning, one token after the other."""
    padded = np.zeros((1, model.window), "f4")
    padded[0, : len(samples)] = samples
    states = {
        name: np.zeros(n.shape, "f4") for name, n in graph_of(model, 0).inputs if "past" in name
    }
    rows = []
    for at, token in enumerate(IDS):
        graph = graph_of(model, 0 if at else model.window)
        given = {
            "samples": padded[:, :0] if at else padded,
            "sample_count": np.array([len(samples)], "i4"),
            "input_ids": np.array([[token]], "i8"), "seqlens_k": np.array([at], "i4"),
        }  # fmt: skip
        made = evaluate([n for _, n in graph.outputs], {**given, **states})
        results = dict(zip((name for name, _ in graph.outputs), made, strict=True))
        states = {old: results[new] for old, new in model.states.items()}
        rows.append(results["logits"].ravel())
    return rows


def graph_of(model: Whisper, samples: int) -> Any:
    return model.graph({"samples": samples, "n": 1})


@pytest.mark.parametrize("write_folder", [write_published, write_converted])
@pytest.mark.parametrize("seconds", [0.3, 0.4])
def test_logits(tmp_path: Path, write_folder: Callable[..., Path], seconds: float) -> None:
    folder = write_folder(tmp_path / "tiny", TINY)
    assert is_whisper_folder(folder)
    model, samples = WhisperFolder(folder), sound(seconds)
    assert (model.name, model.words, model.window) == ("tiny", TINY.words, TINY.window)
    want = logits(TINY, tensors_of(TINY), samples, IDS)
    for row, found in zip(want, computed(model, samples), strict=True):
        assert np.abs(found - row).max() < CLOSE


@pytest.mark.parametrize("write_folder", [write_published, write_converted])
def test_narrow_numbers_are_kept(tmp_path: Path, write_folder: Callable[..., Path]) -> None:
    model = WhisperFolder(write_folder(tmp_path / "tiny", TINY, np.float16))
    assert model.source.tensors["decoder.embed_tokens.weight"].stored == "f16"
    narrow = {name: x.astype(np.float16) for name, x in tensors_of(TINY).items()}
    whole = tensors_of(TINY) if write_folder is write_converted else narrow
    kept = {n: narrow[n] if x.ndim > 1 and "positions" not in n else whole[n]
            for n, x in whole.items()}  # fmt: skip
    want = logits(TINY, kept, sound(0.3), IDS)
    assert np.abs(np.stack(computed(model, sound(0.3))) - want).max() < CLOSE


def test_integers_with_a_scale_for_each_row(tmp_path: Path) -> None:
    """As CTranslate2 quantises to int8."""
    model = WhisperFolder(write_converted(tmp_path / "tiny", TINY, np.int8))
    assert model.source.tensors["decoder.embed_tokens.weight"].group == TINY.width
    near = {}
    for name, x in tensors_of(TINY).items():
        rows = x.reshape(len(x), -1)
        scale = np.abs(rows).max(1, keepdims=True) / 127
        is_whole = x.ndim == 1 or "positions" in name
        near[name] = x if is_whole else (np.rint(rows / scale) * scale).reshape(x.shape)
    want = logits(TINY, near, sound(0.3), IDS)
    assert np.abs(np.stack(computed(model, sound(0.3))) - want).max() < CLOSE


@pytest.mark.parametrize("kind", [np.float32, np.int8])
def test_kernels(tmp_path: Path, kind: type[np.generic]) -> None:
    """A bundle on wasmtime, for two recordings one after the other."""
    model = WhisperFolder(write_converted(tmp_path / "tiny", TINY, kind))
    options = Options(buckets={"samples": (0, model.window), "n": (1,)}, states=model.states)
    write(compile_model(model, options).contents, tmp_path / "b")
    host = WasmtimeHost(tmp_path / "b")
    for seed, seconds in ((0, 0.3), (1, 0.4)):
        samples = sound(seconds, seed)
        for at, (token, want) in enumerate(zip(IDS, computed(model, samples), strict=True)):
            given = {
                "samples": samples[None, : 0 if at else None],
                "sample_count": np.array([len(samples)], "i4"),
                "input_ids": np.array([[token]], "i8"), "seqlens_k": np.array([at], "i4"),
            }  # fmt: skip
            found = np.asarray(host.run(given).outputs["logits"]).ravel()
            assert np.abs(found - want).max() < CLOSE


def test_weights_of_eight_bits(tmp_path: Path) -> None:
    model = WhisperFolder(write_published(tmp_path / "tiny", TINY), bits=8)
    assert 0.001 < model.weight_error(lambda *_: None) < 0.01
    whole = logits(TINY, tensors_of(TINY), sound(0.3), IDS)
    found = np.stack(computed(model, sound(0.3)))
    assert np.linalg.norm(found - whole) < 0.05 * np.linalg.norm(whole)


# ---- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("dims", [{}, {"samples": 1, "n": 1}, {"samples": 0, "n": 2}])
def test_other_sizes(tmp_path: Path, dims: dict[str, int]) -> None:
    model = WhisperFolder(write_published(tmp_path / "tiny", TINY))
    with pytest.raises(UsageError, match="no plan"):
        model.graph(dims)
    with pytest.raises(UsageError, match="plans of its own"):
        compile_model(model, Options(buckets={name: (size,) for name, size in dims.items()}))


@pytest.mark.parametrize(("change", "error", "match"), [
    ({"activation_function": "relu"}, UnsupportedOp, "activation_function = relu"),
    ({"scale_embedding": True}, UnsupportedOp, "scale_embedding"),
    ({"d_model": None}, InvalidModel, "d_model"),
    ({"d_model": 64}, InvalidModel, "wrong shape"),
    ({"encoder_layers": 2}, InvalidModel, "encoder.layers.1"),
    ({"encoder_layers": 1 << 20}, InvalidModel, "encoder_layers"),
    ({"decoder_layers": 1}, UnsupportedOp, "no place"),
    ({"decoder_attention_heads": 5}, InvalidModel, "5 heads"),
    ({"tie_word_embeddings": 3}, InvalidModel, "tie_word_embeddings"),
])  # fmt: skip
def test_settings_that_are_refused(
    tmp_path: Path, change: dict[str, Any], error: type[TilewrightError], match: str
) -> None:
    folder = write_published(tmp_path / "tiny", TINY)
    (folder / "config.json").write_text(json.dumps(config_of(TINY) | change))
    with pytest.raises(error, match=match):
        graph_of(model := WhisperFolder(folder), model.window)


def zeros(*shape: int, dtype: str = "f4") -> np.ndarray[Any, Any]:
    return np.zeros(shape, dtype)


@pytest.mark.parametrize(("change", "error", "match"), [
    ({"decoder/activation": zeros(dtype="i1")}, UnsupportedOp, "decoder/activation = 0"),
    ({"decoder/pre_norm": zeros(dtype="f4")}, InvalidModel, "not a whole number"),
    ({"encoder/num_heads": zeros(dtype="i2")}, InvalidModel, "heads"),
    ({"decoder/num_heads": zeros(1, dtype="i2")}, InvalidModel, "not a whole number"),
    ({"decoder/layer_0/ffn/other/weight": zeros(3)}, UnsupportedOp, "no place"),
    ({"decoder/projection/weight": zeros(320, 32)}, UnsupportedOp, "no place"),
    ({"decoder/embeddings/weight": zeros(320)}, InvalidModel, "embed_tokens"),
    ({"decoder/embeddings/weight": zeros(320, 32, dtype="i2")}, UnsupportedDType, "I16"),
    ({"decoder/embeddings/weight": zeros(320, 32, dtype="i1")}, UnsupportedDType, "I8"),
    ({"encoder/conv1/weight": zeros(32, 16)}, InvalidModel, "conv1"),
    ({"encoder/layer_0/self_attention/linear_0/weight": zeros(95, 32)}, InvalidModel, "cut"),
    ({"encoder/layer_0/self_attention/linear_0/weight": zeros()}, InvalidModel, "cut"),
    ({"encoder/layer_99999/ffn/linear_0/bias": zeros(32)}, InvalidModel, "counted"),
])  # fmt: skip
def test_variables_that_are_refused(
    tmp_path: Path, change: dict[str, Any], error: type[TilewrightError], match: str
) -> None:
    folder = write_converted(tmp_path / "tiny", TINY)
    (folder / "model.bin").write_bytes(ct2_bytes(variables_of(TINY) | change))
    with pytest.raises(error, match=match):
        graph_of(model := WhisperFolder(folder), model.window)


def test_scales_of_another_shape(tmp_path: Path) -> None:
    folder = write_converted(tmp_path / "tiny", TINY)
    change = {"decoder/embeddings/weight_scale": zeros(7)}
    (folder / "model.bin").write_bytes(ct2_bytes(variables_of(TINY, np.int8) | change))
    with pytest.raises(InvalidModel, match="no scale for each row"):
        WhisperFolder(folder)


def test_other_files_of_ctranslate2(tmp_path: Path) -> None:
    folder = write_converted(tmp_path / "tiny", TINY)
    for data, match in (
        (ct2_bytes({}, kind="TransformerSpec"), "'TransformerSpec' of CTranslate2"),
        (ct2_bytes({}, version=4), "version 6"),
    ):
        (folder / "model.bin").write_bytes(data)
        with pytest.raises(UnsupportedOp, match=match):
            WhisperFolder(folder)


def test_lengths_are_compared_with_the_file_before_they_are_used(tmp_path: Path) -> None:
    """Of 2^32 variables, axes or bytes nothing is read: each answer comes at once."""
    path, huge, one = tmp_path / "model.bin", b"\xff" * 4, b"\1\0\0\0"
    head = b"\6\0\0\0\2\0w\0" + one
    for body in (
        huge,
        one + b"\xff\xffa\0",
        one + b"\2\0ab" + bytes(20),
        one + b"\2\0a\0" + b"\xff" + huge * 40,
        one + b"\2\0a\0" + b"\2" + huge * 2 + b"\0" + huge,
        one + b"\2\0a\0" + b"\1" + one + b"\0" + huge,
        one + b"\2\0a\0" + b"\1" + one + b"\0" + b"\5\0\0\0" + bytes(5),
        (one + b"\2\0a\0\0\1" + one + b"\7") * 2,
        bytes(4) + huge,
        bytes(4) + bytes(4) + b"more",
    ):
        path.write_bytes(head + body + bytes(64) * (body[:4] != bytes(4)))
        with pytest.raises(InvalidModel, match="not a readable file"):
            read_ct2(path)


@pytest.mark.parametrize("length", [0, 3, 20, 200, 2000, -1])
def test_truncated(tmp_path: Path, length: int) -> None:
    folder = write_converted(tmp_path / "tiny", TINY)
    path = folder / "model.bin"
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(InvalidModel):
        WhisperFolder(folder)


def test_three_hundred_damaged_files(tmp_path: Path) -> None:
    """Bytes of names, shapes and types are changed at random: a graph or a typed error."""
    folder, rng = write_converted(tmp_path / "tiny", TINY), np.random.default_rng(0)
    path, kinds = folder / "model.bin", set()
    whole = path.read_bytes()
    places = [whole.index(name.encode()) for name in variables_of(TINY)]
    for _ in range(300):
        data = bytearray(whole)
        for at in rng.choice(places, rng.integers(1, 4)):
            where = at + rng.integers(-2, 48)
            data[where] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.integers(256)])
        path.write_bytes(data)
        try:
            graph_of(model := WhisperFolder(folder), model.window)
        except TilewrightError as error:
            kinds.add(type(error))
    assert {InvalidModel, UnsupportedOp} <= kinds
    assert CompilerBug not in kinds
