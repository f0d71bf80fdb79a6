"""The text of folders of Hugging Face's format: their tokenizers, templates, and the tokens that
begin and end texts; and the commands on such a folder."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from cli_call import Called
from helpers.folder_texts import write_text
from helpers.gguf_files import Tiny, write_tiny
from helpers.model_folders import write_folder
from helpers.vocabularies import TEMPLATE, Merges, Pieces, merges, pieces

import tilewright
from tilewright.api.language_bundles import open_source
from tilewright.base.errors import InvalidModel, TilewrightError, UnsupportedOp
from tilewright.bundle import is_bundle, open_bundle
from tilewright.language import Language, gguf_text, text_assets
from tilewright.language.template import ChatTemplate

#: A text with words that are tokens, others that are not, numbers, spaces and other letters.
LINES = (
    "the cat is 12 hello", " the", "ing  the\n\n cat", "café, ναί 你好 🙂", "", "a" * 40,
    "that rat sat on a mat. nation", "    x\t1",
)  # fmt: skip
SIZES = {"layers": 1, "width": 32, "heads": 2, "kv_heads": 1, "hidden": 32, "words": 400}


def pair(path: Path, vocabulary: Merges | Pieces, **settings: Any) -> tuple[Path, Path]:
    """A GGUF file, and a folder of the same model."""
    tiny = Tiny(room=64, text=vocabulary.write, **SIZES)
    gguf = write_tiny(path / "model.gguf", tiny)
    folder = write_folder(path / "model", gguf, tiny)
    write_text(folder, vocabulary, **settings)
    return gguf, folder


@pytest.mark.parametrize("vocabulary", [merges(), pieces()], ids=["bytes", "spaces"])
def test_text_is_that_of_the_gguf_file(tmp_path: Path, vocabulary: Merges | Pieces) -> None:
    gguf, folder = pair(tmp_path, vocabulary)
    same, ours = open_source(gguf), open_source(folder)
    want, found = (Language(s.text, s.model.words).vocabulary for s in (same, ours))
    for line in LINES:
        ids = found.encode(line)
        assert ids == want.encode(line)
        assert found.decode(ids) == want.decode(ids)
    facts, other = ours.text.facts, same.text.facts
    assert (facts.ends, facts.begin, facts.pieces) == (other.ends, other.begin, other.pieces)
    assert (facts.name, facts.template) == ("model", other.template)
    assert facts.texts.items() <= other.texts.items()
    # unchanged, as pages read it, too
    assert ours.text.tokenizer == (folder / "tokenizer.json").read_bytes()


def facts_of(folder: Path) -> Any:
    return open_source(folder).text.facts


def test_where_templates_are(tmp_path: Path) -> None:
    """A file of its own comes first; of several by name the default."""
    folder = pair(tmp_path, merges())[1]
    assert facts_of(folder).template == TEMPLATE
    many = [{"name": "tools", "template": "b"}, {"name": "default", "template": "c"}]
    write_text(folder, merges(), chat_template=many)
    assert facts_of(folder).template == "c"
    write_text(folder, merges(), chat_template=many[:1])
    assert facts_of(folder).template == "b"
    write_text(folder, merges(), chat_template=None)
    assert facts_of(folder).template is None
    (folder / "chat_template.jinja").write_text("é{{ messages[0].content }}")
    assert facts_of(folder).template == "é{{ messages[0].content }}"
    (folder / "chat_template.jinja").write_text("x" * ((1 << 20) + 1))
    with pytest.raises(InvalidModel, match=r"chat_template\.jinja has more than"):
        open_source(folder)


def test_marks_of_answers_in_templates() -> None:
    source = (
        "{% for m in messages %}{% generation %}<{{ m.content }}>{% endgeneration %}{% endfor %}"
    )
    messages = [{"role": "user", "content": c} for c in "ab"]
    assert ChatTemplate(source, {}).render(messages) == "<a><b>"


def test_tokens_that_end_and_begin(tmp_path: Path) -> None:
    folder = pair(tmp_path, pieces())[1]
    config = json.loads((folder / "config.json").read_text())
    assert facts_of(folder).ends == (2,)
    (folder / "generation_config.json").write_text('{"eos_token_id": [5, 7, 4000]}')
    (folder / "config.json").write_text(json.dumps(config | {"eos_token_id": 6}))
    assert facts_of(folder).ends == (2, 5, 6, 7)
    assert facts_of(folder).begin == 1
    write_text(folder, pieces(), add_bos_token=False)
    assert facts_of(folder).begin is None
    write_text(folder, merges(), add_bos_token=True, bos_token="<|im_start|>")
    assert facts_of(folder).begin == merges().texts.index("<|im_start|>")
    write_text(folder, pieces(), bos_token=None)
    (folder / "config.json").write_text(json.dumps(config | {"bos_token_id": 1}))
    assert (facts_of(folder).begin, facts_of(folder).texts["bos_token"]) == (1, "<s>")


def test_added_tokens_beyond_the_model_are_left_out(tmp_path: Path) -> None:
    """As Gemma 3's text models have one for pictures."""
    folder = pair(tmp_path, pieces())[1]
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    plain = Language(open_source(folder).text, 400).vocabulary
    extra = dict(tokenizer["added_tokens"][-1], id=400, content="<image>")
    tokenizer["added_tokens"].append(extra)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    found = Language(open_source(folder).text, 400).vocabulary
    assert found.encode("the cat <s>") == plain.encode("the cat <s>")


def without(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def changed(**parts: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "tokenizer.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | parts))

    return change


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (without("tokenizer.json"), InvalidModel, "no tokenizer.json"),
        (changed(model={}), InvalidModel, "vocabulary cannot be read"),
        (changed(added_tokens=3), InvalidModel, "tokenizer.json cannot be read"),
        (changed(decoder=3), InvalidModel, "cannot be read"),
        (changed(decoder={"type": "WordPiece", "prefix": "##", "cleanup": True}), UnsupportedOp,
         "WordPiece"),
        (changed(decoder=None), UnsupportedOp, "become text"),
    ],
)  # fmt: skip
def test_tokenizers_that_are_refused(
    tmp_path: Path, change: Callable[[Path], None], error: type[TilewrightError], words: str
) -> None:
    folder = pair(tmp_path, merges())[1]
    change(folder)
    with pytest.raises(error, match=words):
        open_source(folder)


def test_vocabulary_of_another_model(tmp_path: Path) -> None:
    folder = pair(tmp_path, merges())[1]
    tiny = Tiny(room=64, **(SIZES | {"words": 30}))
    write_folder(folder, write_tiny(tmp_path / "small.gguf", tiny), tiny)
    with pytest.raises(InvalidModel, match="the model 30"):
        open_source(folder)


def test_name_in_the_cache_of_hugging_face(tmp_path: Path) -> None:
    folder = pair(tmp_path, merges())[1]
    place = tmp_path / "models--owner--Tiny-1B" / "snapshots" / "0123abcd"
    place.parent.mkdir(parents=True)
    folder.rename(place)
    assert facts_of(place).name == "Tiny-1B"


# ---- commands ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return pair(tmp_path_factory.mktemp("models"), merges())


def test_generate_gives_the_tokens_of_the_gguf_file(
    models: tuple[Path, Path], tmp_path: Path, capsys: Any
) -> None:
    """The same from the folder, from its bundle, and with its numbers in f32 said."""
    asked = ("--prompt", "the cat", "--most", 6, "--chat", "--threads", 1, "--json")
    cached = ("--cache", tmp_path / "cache")
    gguf, folder = models
    want = Called(capsys, "generate", gguf, *asked, *cached).json
    found = Called(capsys, "generate", folder, *asked, *cached).json
    assert (found["ids"], found["text"]) == (want["ids"], want["text"])
    assert found["weight_bits"] is None
    built = Called(capsys, "build", folder, "-o", tmp_path / "bundle", "--weights", 32, "--json")
    assert (built.json["weight_bits"], built.json["weight_error"]) == (32, 0)
    again = Called(capsys, "generate", tmp_path / "bundle", *asked).json
    assert (again["ids"], again["weight_bits"]) == (want["ids"], 32)


def test_weights_of_4_bits_say_their_error(
    models: tuple[Path, Path], tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    """When they are built, and when the bundle is found again."""
    asked = ("--prompt", "a", "--most", 2, "--threads", 1, "--cache", tmp_path, "--weights", 4)
    first = Called(capsys, "generate", models[1], *asked, "--json").json
    assert 0.01 < first["weight_error"] < 0.1
    monkeypatch.setattr("tilewright.compiler.compile_model", None)
    shown = Called(capsys, "generate", models[1], *asked)
    assert f"Weights of 4 bits, error {first['weight_error']:.2%}" in shown.err
    assert first["ids"] == Called(capsys, "generate", models[1], *asked, "--json").json["ids"]


def test_other_files_in_the_folder_are_another_model(
    models: tuple[Path, Path], tmp_path: Path
) -> None:
    def name() -> Any:
        with tilewright.language_model(models[1], cache=tmp_path, threads=1, context=16) as lm:
            return lm.vocabulary.facts.template

    first = name()
    (models[1] / "chat_template.jinja").write_text("b")
    assert (first, name(), sum(map(is_bundle, tmp_path.iterdir()))) == (TEMPLATE, "b", 2)
    (models[1] / "chat_template.jinja").unlink()


@pytest.mark.parametrize("bits", [5, 0, -4])
def test_bits_that_there_are_not(
    models: tuple[Path, Path], tmp_path: Path, capsys: Any, bits: int
) -> None:
    asked = ("--prompt", "a", "--cache", tmp_path, "--weights", bits, "--json")
    found = Called(capsys, "generate", models[1], *asked)
    assert (found.code, found.json["error"]["code"]) == (2, "usage")


def test_served_models_have_rounded_weights(
    models: tuple[Path, Path], tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    startup = uvicorn.Server.startup

    async def started(server: uvicorn.Server, sockets: list[socket.socket] | None = None) -> None:
        await startup(server, sockets)
        server.should_exit = True

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(uvicorn.Server, "startup", started)
    asked = ("serve", "--port", 0, "--weights", 8, "--json")
    assert Called(capsys, *asked, "--language", models[1]).code == 0
    (bundle,) = filter(is_bundle, (tmp_path / "tilewright" / "language").iterdir())
    assert text_assets(open_bundle(bundle)).facts.weights.bits == 8  # type: ignore[union-attr]
    assert Called(capsys, *asked, bundle).json["error"]["code"] == "usage"


def test_weights_of_other_models(models: tuple[Path, Path], tmp_path: Path, capsys: Any) -> None:
    asked = ("--prompt", "a", "--weights", 4, "--json")
    found = Called(capsys, "generate", models[0], *asked, "--cache", tmp_path)
    assert (found.code, found.json["error"]["code"]) == (2, "usage")
    Called(capsys, "build", models[1], "-o", tmp_path / "bundle", "--json")
    assert text_assets(open_bundle(tmp_path / "bundle")).facts.weights is None
    found = Called(capsys, "generate", tmp_path / "bundle", *asked)
    assert (found.code, found.json["error"]["code"]) == (2, "usage")


def test_both_sources_have_one_form_of_text(models: tuple[Path, Path]) -> None:
    source = open_source(models[0])
    file = source.model.file  # type: ignore[attr-defined]
    assert source.text == gguf_text(file, source.model.words)
    assert open_source(models[1]).text.files().keys() == source.text.files().keys()
