"""Exported encoder-decoder models with their tokenizers, in `generate`, `chat`, `build` and
`tilewright.language_model`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from cli_call import Called
from helpers.encoder_decoders import Tiny, decoder, encoder, greedy
from helpers.folder_texts import write_text
from helpers.vocabularies import merges

import tilewright as tw
from tilewright.base.errors import UsageError
from tilewright.bundle import is_bundle

SIZES = Tiny(words=300, layers=1)
START, MOST = 5, 12
SETTINGS = {"decoder_start_token_id": START, "n_positions": 48}


@pytest.fixture(scope="module", params=["?_model", "onnx/?_model", "?"])
def folder(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of Optimum, of transformers.js, or with short names; its decoder with caches is not
    used."""
    made: Path = tmp_path_factory.mktemp("models") / "tiny"
    inner = (made / request.param).parent
    inner.mkdir(parents=True)
    for part, model in (("encoder", encoder(SIZES)), ("decoder", decoder(SIZES))):
        onnx.save(model, made / f"{request.param.replace('?', part)}.onnx")
    (inner / "decoder_with_past_model.onnx").touch()
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
