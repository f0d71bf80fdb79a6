"""Exported encoder-decoder models with their tokenizers, in `generate`, `chat`, `build` and
`tilewright.language_model`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
from cli_call import Called
from helpers.encoder_decoders import Tiny, decoder, encoder, greedy, merged
from helpers.folder_texts import write_text
from helpers.vocabularies import merges

import tilewright as tw
from tilewright.base.errors import UsageError
from tilewright.bundle import is_bundle

SIZES = Tiny(words=300, layers=1)
START, MOST = 5, 12
SETTINGS = {"decoder_start_token_id": START, "n_positions": 48}


CACHES = replace(SIZES, caches=True)
#: Files by folder: of Optimum without and with caches, of transformers.js, with short names.
FOLDERS: dict[str, dict[str, Callable[[], onnx.ModelProto]]] = {
    "plain": {"encoder_model": lambda: encoder(SIZES), "decoder_model": lambda: decoder(SIZES)},
    "short": {"encoder": lambda: encoder(SIZES), "decoder": lambda: decoder(SIZES)},
    "two": {
        "encoder_model": lambda: encoder(SIZES),
        "decoder_model": lambda: decoder(CACHES),
        "decoder_with_past_model": lambda: decoder(CACHES, past=True),
    },
    "merged": {
        "onnx/encoder_model": lambda: encoder(SIZES),
        "onnx/decoder_model": onnx.ModelProto,  # it is not used
        "onnx/decoder_model_merged": lambda: merged(CACHES),
    },
}


@pytest.fixture(scope="module", params=FOLDERS)
def folder(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("models") / "tiny"
    (made / "onnx").mkdir(parents=True)
    for name, model in FOLDERS[request.param].items():
        onnx.save(model(), made / f"{name}.onnx")
    (made / "config.json").write_text(json.dumps(SETTINGS))
    write_text(made, merges())
    return made


def test_tokens_are_those_of_onnxruntime(folder: Path, tmp_path: Path) -> None:
    files = encoder(SIZES).SerializeToString(), decoder(SIZES).SerializeToString()
    for _ in range(2):  # the second time from the cache
        with tw.language_model(folder, threads=1, cache=tmp_path) as lm:
            assert (lm.name, lm.kind, lm.context) == ("tiny", "encoder-decoder", 48)
            answer = lm.generate("the cat", MOST)
            text = "".join(answer)
            want, _ = greedy(*files, lm.vocabulary.encode("the cat"), MOST, START)
            assert answer.ids == want[: len(answer.ids)]
            assert answer.ended == "end" or len(answer.ids) == MOST
            assert "".join(lm.generate("the cat", MOST)) == text
            for other in (lambda: lm.complete("the cat"), lambda: lm.chat([])):
                with pytest.raises(UsageError, match="does not"):
                    other()
    assert sum(map(is_bundle, tmp_path.iterdir())) == 1


def test_commands(folder: Path, tmp_path: Path, capsys: Any) -> None:
    asked = ("--prompt", "the cat", "--most", MOST, "--threads", 1)
    cache = ("--cache", tmp_path / "cache")
    found = Called(capsys, "generate", folder, *asked, *cache, "--json").json
    assert Called(capsys, "build", folder, "-o", tmp_path / "b", "--context", 40).code == 0
    shown = Called(capsys, "generate", tmp_path / "b", *asked)
    assert (shown.code, shown.out) == (0, found["text"] + "\n")
    refused = Called(capsys, "chat", tmp_path / "b")
    assert refused.code != 0
    assert "does not chat" in refused.err
    assert Called(capsys, "build", folder, "-o", tmp_path / "c", "--context", 49).code != 0
    assert Called(capsys, "build", folder, "-o", tmp_path / "c", "--weights", 4).code != 0


def test_files_with_weights_of_fewer_bits(tmp_path: Path, capsys: Any) -> None:
    """One of them is named; those that belong to it have the same ending."""
    inner = tmp_path / "tiny" / "onnx"
    inner.mkdir(parents=True)
    for name in ("encoder_model", "decoder_model_merged"):
        (inner / f"{name}.onnx").touch()
    onnx.save(encoder(SIZES), inner / "encoder_model_q4.onnx")
    onnx.save(merged(CACHES), inner / "decoder_model_merged_q4.onnx")
    (tmp_path / "tiny" / "config.json").write_text(json.dumps(SETTINGS))
    write_text(tmp_path / "tiny", merges())
    file = inner / "decoder_model_merged_q4.onnx"
    with tw.language_model(file, threads=1, cache=tmp_path / "cache") as lm:
        assert (lm.name, lm.kind) == ("tiny", "encoder-decoder")
        text = "".join(lm.generate("the cat", MOST))
    assert Called(capsys, "build", file, "-o", tmp_path / "b").code == 0
    shown = Called(capsys, "generate", tmp_path / "b", "--prompt", "the cat", "--most", MOST)
    assert (shown.code, shown.out) == (0, text + "\n")
