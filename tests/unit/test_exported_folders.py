"""Exported language models with their tokenizers, as exporters lay out their folders: in `chat`,
`generate`, `build` and `tilewright.language_model`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from cli_call import Called
from helpers.exported_models import Export, exported, greedy
from helpers.folder_texts import write_text
from helpers.vocabularies import merges

import tilewright as tw
from tilewright.api import file_digests
from tilewright.api.language_bundles import open_source
from tilewright.base.errors import InvalidModel, UsageError
from tilewright.bundle import is_bundle, open_bundle
from tilewright.frontend.exports import ExportedModel, onnx_file

GENAI = Export(words=300, layers=1)
OPTIMUM = Export("optimum", words=300, layers=1)


def settings(**values: Any) -> str:
    return json.dumps({"model_type": "llama", "max_position_embeddings": 48} | values)


def optimum(folder: Path, name: str = "model.onnx", **values: Any) -> Path:
    """A folder of Optimum's; also the one of transformers.js."""
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(exported(OPTIMUM), file)
    (folder / "config.json").write_text(settings(**values))
    write_text(folder, merges())
    return file


def genai(folder: Path, **values: Any) -> Path:
    """A folder of onnxruntime-genai's model builder, with its weights in a file beside."""
    folder.mkdir(parents=True, exist_ok=True)
    proto = exported(GENAI)
    onnx.save(proto, folder / "decoder.onnx", save_as_external_data=True, location="decoder.data",
              size_threshold=256)  # fmt: skip
    model = {"decoder": {"filename": "decoder.onnx"}, "context_length": 32} | values
    (folder / "genai_config.json").write_text(json.dumps({"model": model}))
    write_text(folder, merges())
    return folder / "decoder.onnx"


LAYOUTS: dict[str, Callable[[Path], Path]] = {
    "optimum": optimum,
    "transformers.js": lambda folder: optimum(folder, "onnx/model_q4.onnx"),
    "genai": genai,
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_tokens_are_those_of_onnxruntime(tmp_path: Path, name: str) -> None:
    """By the folder and by the file, with the text of the files around."""
    file = LAYOUTS[name](tmp_path / "tiny")
    with tw.language_model(tmp_path / "tiny", threads=1, cache=tmp_path / "cache") as lm:
        prompt = lm.vocabulary.encode("the cat")
        tokens, _ = greedy(file, prompt, 20)
        answer = lm.complete("the cat", 20)
        shown = "".join(answer)
        want = tokens[: len(answer.ids)]
        assert answer.ids == want
        assert answer.ended == "end" or len(want) == 20
        assert (lm.name, lm.context) == ("tiny", 32 if name == "genai" else 48)
    with tw.language_model(file, threads=1, cache=tmp_path / "cache") as lm:
        assert "".join(lm.complete("the cat", 20)) == shown
        assert lm.chat([{"role": "user", "content": "the cat"}], 2).ended is None
    made = [path for path in (tmp_path / "cache").iterdir() if is_bundle(path)]
    assert len(made) == 1  # the same of the folder and of the file


def test_commands(tmp_path: Path, capsys: Any) -> None:
    file = optimum(tmp_path / "tiny")
    asked = ("--prompt", "the cat", "--chat", "--most", 4, "--json")
    cache = ("--cache", tmp_path / "cache", "--threads", 1)
    found = Called(capsys, "generate", file, *asked, *cache).json
    assert Called(capsys, "build", file, "-o", tmp_path / "b", "--context", 40).code == 0
    assert open_bundle(tmp_path / "b").manifest.states[0].shape[-2] == 40
    assert Called(capsys, "generate", tmp_path / "b", *asked).json["ids"] == found["ids"]
    assert Called(capsys, "build", tmp_path / "tiny", "-o", tmp_path / "c").code == 0
    shown = Called(capsys, "show", file, "--stage", "graph", "--json").json["text"]
    assert "seqlens_k" in shown


def test_sizes_of_ones_own_make_a_plain_bundle(tmp_path: Path, capsys: Any) -> None:
    """A model with its own inputs, without a tokenizer."""
    file = optimum(tmp_path / "tiny")
    (tmp_path / "tiny" / "tokenizer.json").unlink()
    caches = [f"past_key_values.0.{part}=1x2x3x16" for part in ("key", "value")]
    given = ["input_ids=1x1", "position_ids=1x1", "attention_mask=1x4", *caches]
    shapes = [word for each in given for word in ("--shape", each)]
    found = Called(capsys, "build", file, "-o", tmp_path / "b", *shapes, "--json")
    assert found.code == 0, found.out
    names = [each.name for each in open_bundle(tmp_path / "b").manifest.inputs]
    assert "attention_mask" in names


def test_what_the_text_says(tmp_path: Path) -> None:
    """Ends and lengths: those of genai_config.json come before those of config.json."""
    genai(tmp_path, eos_token_id=[7, 8])
    (tmp_path / "config.json").write_text(settings(eos_token_id=9, max_position_embeddings=16))
    source = open_source(tmp_path)
    end = len(merges().texts) - 1
    assert source.text.facts.ends == (7, 8, end)
    assert source.model.room == 32
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 11}')
    assert open_source(tmp_path).text.facts.ends == (7, 8, 11, end)


def test_lengths(tmp_path: Path) -> None:
    """By the settings, the tables of the rotation or the usual number."""
    optimum(tmp_path / "a", max_position_embeddings=None, text_config={"n_positions": 24})
    assert open_source(tmp_path / "a").model.room == 24
    with pytest.raises(UsageError, match="context of 25 tokens"):
        open_source(tmp_path / "a", context=25)
    optimum(tmp_path / "b", max_position_embeddings=None)
    assert open_source(tmp_path / "b").model.room == 4096
    genai(tmp_path / "c", context_length=10**6)
    assert open_source(tmp_path / "c").model.room == GENAI.most


# ---- which file ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "chosen"),
    [
        (("model_q4.onnx",), "model_q4.onnx"),
        (("onnx/model_fp16.onnx",), "onnx/model_fp16.onnx"),
        (("decoder_model.onnx", "decoder_with_past_model.onnx"), "decoder_with_past_model.onnx"),
        (("decoder_model.onnx", "decoder_model_merged.onnx", "decoder_with_past_model.onnx"),
         "decoder_model_merged.onnx"),
        (("onnx/model.onnx", "onnx/model_q4.onnx"), None),
        (("model.onnx", "onnx/model.onnx"), None),
    ],
)  # fmt: skip
def test_the_file_of_a_folder(tmp_path: Path, files: tuple[str, ...], chosen: str | None) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    if chosen is not None:
        assert onnx_file(tmp_path) == tmp_path / chosen
        return
    with pytest.raises(UsageError, match="has 2") as caught:
        onnx_file(tmp_path)
    assert f"{tmp_path / files[0]}" in caught.value.hint
    assert caught.value.facts["files"] == [*files]


def test_safetensors_come_before_onnx(tmp_path: Path) -> None:
    """A folder with both is what Hugging Face's libraries read; the .onnx file can be named."""
    file = optimum(tmp_path, "onnx/model.onnx")
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(InvalidModel, match=r"model\.safetensors"):
        open_source(tmp_path)
    assert isinstance(open_source(file).model, ExportedModel)


# ---- what is refused -----------------------------------------------------------------------------


def test_a_model_without_a_tokenizer(tmp_path: Path) -> None:
    """The error names the file and the places where it was looked for."""
    file = optimum(tmp_path, "onnx/model.onnx")
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(InvalidModel, match=r"no tokenizer\.json with the model model\.onnx") as no:
        tw.language_model(file, cache=tmp_path / "cache")
    places = (tmp_path / "onnx", tmp_path)
    assert no.value.facts["searched"] == [str(place / "tokenizer.json") for place in places]


def test_other_models(tmp_path: Path) -> None:
    """What `build` compiles as before is no language model elsewhere."""
    shutil.copy(Path(__file__).parents[1] / "models" / "bert-tiny-eager-dynamo.onnx", tmp_path)
    write_text(tmp_path, merges())
    with pytest.raises(Exception, match="no output 'logits'") as caught:
        tw.language_model(tmp_path / "bert-tiny-eager-dynamo.onnx", cache=tmp_path / "cache")
    assert "with caches" in str(caught.value)


@pytest.mark.parametrize("name", ["other.onnx", "../decoder.onnx", 3])
def test_a_file_that_genai_config_names_in_vain(tmp_path: Path, name: Any) -> None:
    genai(tmp_path / "a", decoder={"filename": name})
    shutil.copy(tmp_path / "a" / "decoder.onnx", tmp_path)
    with pytest.raises(InvalidModel, match=r"genai_config\.json names the file"):
        open_source(tmp_path / "a")


def test_bits_of_weights(tmp_path: Path) -> None:
    file = optimum(tmp_path)
    with pytest.raises(UsageError, match="--weights is for folders with safetensors"):
        open_source(file, weights=4)


@pytest.mark.parametrize("path", ["nowhere", "nowhere.onnx", "nowhere.gguf"])
def test_a_mistyped_path_is_named_and_no_option(tmp_path: Path, capsys: Any, path: str) -> None:
    for option in ("--weights", "--context"):
        for command in ("build", "chat", "generate"):
            more = {"build": ("-o", tmp_path / "b"), "generate": ("--prompt", "a")}.get(command, ())
            found = Called(capsys, command, tmp_path / path, option, 4, *more)
            assert found.code == 3
            assert path in found.err
            assert option not in found.err


def test_a_mistyped_folder_is_named_and_no_option(tmp_path: Path, capsys: Any) -> None:
    found = Called(capsys, "generate", tmp_path, "--weights", 4, "--prompt", "a")
    assert "is not a bundle" in found.err


# ---- the digest of files -------------------------------------------------------------------------


def test_the_external_data_count(tmp_path: Path) -> None:
    genai(tmp_path / "a")
    open_ = lambda: tw.language_model(tmp_path / "a", threads=1, cache=tmp_path / "cache")  # noqa: E731
    open_().close()
    data = bytearray((tmp_path / "a" / "decoder.data").read_bytes())
    data[-4:] = b"\0\0\0\0"
    (tmp_path / "a" / "decoder.data").write_bytes(data)
    open_().close()
    assert sum(map(is_bundle, (tmp_path / "cache").iterdir())) == 2


def test_files_that_did_not_change_are_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    genai(tmp_path / "a")
    monkeypatch.setattr(file_digests, "FRESH", -(1 << 62))
    file = tmp_path / "a" / "decoder.onnx"
    first = list(file_digests.file_digests(file, tmp_path / "memory"))
    assert len(first) == 2
    with monkeypatch.context() as patch:
        patch.setattr("hashlib.file_digest", None)
        assert list(file_digests.file_digests(file, tmp_path / "memory")) == first
    (tmp_path / "a" / "decoder.data").write_bytes(b"other")
    second = list(file_digests.file_digests(file, tmp_path / "memory"))
    assert second[0] == first[0]
    assert second[1] != first[1]


def test_what_was_just_written_or_is_damaged_is_read_again(tmp_path: Path) -> None:
    """A file may change twice within a tick of the file system's clock."""
    path, memory = tmp_path / "model.gguf", tmp_path / "memory"
    path.write_bytes(b"a")
    (first,) = file_digests.file_digests(path, memory)
    assert not memory.exists()
    path.write_bytes(b"b")
    assert list(file_digests.file_digests(path, memory)) != [first]
    memory.write_bytes(b"no folder")
    assert len(list(file_digests.file_digests(path, memory))) == 1
