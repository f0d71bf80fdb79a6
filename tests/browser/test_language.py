"""Language models in real browsers: the same text as in Python, aborts, endless templates."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from helpers.whispers import sound

import tilewright as tw
from tilewright.bundle import open_bundle
from tilewright.language import LanguageModel

from . import language_model
from .conftest import Visit
from .language_model import Made
from .serving import Site, serving

pytestmark = pytest.mark.one_in(2)

HELLO = [{"role": "user", "content": "hello the cat"}]
CHOICE = {"temperature": 1.5, "topK": 0, "minP": 0, "seed": 5}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return language_model.made(tmp_path_factory.mktemp("language") / "tiny")


TRANSLATORS = {"translator": False, "translator-with-caches": True}


@pytest.fixture(scope="module")
def translators(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {
        name: language_model.translator(tmp_path_factory.mktemp(name), caches)
        for name, caches in TRANSLATORS.items()
    }


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return language_model.speech(tmp_path_factory.mktemp("speech"))


@pytest.fixture(scope="module")
def site(tiny: Made, translators: dict[str, Path], speech: Path) -> Iterator[Site]:
    with serving({"tiny": tiny.bundle, **translators, "speech": speech}) as running:
        yield running


@pytest.fixture(scope="module")
def python(tiny: Made) -> LanguageModel:
    return tw.language_model(tiny.bundle, threads=1)


def answers_as_python(found: list[dict[str, Any]], python: LanguageModel) -> None:
    """The first one is the likeliest text, the second one is drawn, the third goes on."""
    likely = python.chat(HELLO, 12)
    drawn = python.chat(HELLO, 12, temperature=1.5, top_k=0, min_p=0, seed=5)
    for answer, wanted in zip(found, (likely, drawn), strict=False):
        text = "".join(wanted)
        assert answer["ids"] == wanted.ids
        assert answer["text"] == text
        assert answer["promptTokens"] == len(wanted.prompt)
    assert found[1]["reusedTokens"] == len(likely.prompt) - 1
    assert found[2]["reusedTokens"] >= len(likely.prompt)


def chats(first: str) -> list[dict[str, Any]]:
    more = [*HELLO, {"role": "assistant", "content": first}, {"role": "user", "content": "a"}]
    return [
        {"text": HELLO, "options": {"most": 12}},
        {"text": HELLO, "options": {"most": 12, **CHOICE}},
        {"text": more, "options": {"most": 12}},
    ]


@pytest.mark.by_turns
def test_answers_are_those_of_python(visit: Visit, site: Site, python: LanguageModel) -> None:
    page = visit(site.blank)
    first = "".join(python.chat(HELLO, 12))
    found = page.do("answers", url=site.bundle("tiny"), chats=chats(first))
    answers_as_python(found, python)
    assert page.do("log")["errors"] == []


@pytest.mark.browser
def test_answers_on_webgpu_are_those_of_python(
    gpu_visit: Visit, site: Site, python: LanguageModel
) -> None:
    first = "".join(python.chat(HELLO, 12))
    page = gpu_visit(site.blank)
    load = {"device": "webgpu"}
    found = page.do("answers", url=site.bundle("tiny"), chats=chats(first), load=load)
    answers_as_python(found, python)


#: The likeliest text twice, the first time aborted; a drawn one; texts that do not fit.
TEXTS: list[dict[str, Any]] = [
    {"call": "generate", "text": "the cat", "options": {"most": 12, "after": 3}},
    {"call": "generate", "text": "the cat", "options": {"most": 12}},
    {"call": "generate", "text": "hello the cat", "options": {"most": 12, **CHOICE}},
    {"call": "generate", "text": "a " * language_model.ROOM_OF_PROMPTS, "options": {}},
    {"call": "generate", "text": "the cat", "options": {"most": 99}},
    {"call": "generate", "text": "", "options": {}},
]


def new_texts_as_python(found: list[dict[str, Any]], bundle: Path) -> None:
    with tw.language_model(bundle, threads=1) as python:
        likely = python.generate("the cat", 12)
        drawn = python.generate("hello the cat", 12, temperature=1.5, top_k=0, min_p=0, seed=5)
        for answer, wanted in zip(found[1:3], (likely, drawn), strict=True):
            text = "".join(wanted)
            assert (answer["ids"], answer["text"]) == (wanted.ids, text)
            assert (answer["promptTokens"], answer["ended"]) == (len(wanted.prompt), wanted.ended)
        assert found[0]["ids"][:3] == likely.ids[:3]
        # an aborted answer's prompt was computed
        assert [each["reusedTokens"] for each in found[:3]] == [0, len(likely.prompt), 0]
    errors = [answer["error"] for answer in found]
    assert errors == ["AbortError", "", "", "context-full", "context-full", "input"]
    assert len(found[4]["ids"]) == language_model.ROOM_OF_PROMPTS


@pytest.mark.by_turns
@pytest.mark.parametrize("name", TRANSLATORS)
def test_new_texts_are_those_of_python(
    visit: Visit, site: Site, translators: dict[str, Path], name: str
) -> None:
    page, url = visit(site.blank), site.bundle(name)
    new_texts_as_python(page.do("answers", url=url, chats=TEXTS), translators[name])
    for call, text in (("chat", HELLO), ("complete", "the cat")):
        asked = [{"call": call, "text": text, "options": {}}]
        refused = page.do("answers", url=url, chats=asked)
        assert refused["code"] == "input"
        assert "encoder-decoder" in refused["message"]
        assert "generate" in refused["hint"]
    assert page.do("log")["errors"] == []


@pytest.mark.browser
@pytest.mark.parametrize("name", TRANSLATORS)
def test_new_texts_on_webgpu_are_those_of_python(
    gpu_visit: Visit, site: Site, translators: dict[str, Path], name: str
) -> None:
    page = gpu_visit(site.blank)
    load = {"device": "webgpu"}
    found = page.do("answers", url=site.bundle(name), chats=TEXTS, load=load)
    new_texts_as_python(found, translators[name])


#: Recordings of a window and of several, with a language or without; the last one is aborted.
SPOKEN: list[dict[str, Any]] = [
    {"call": "transcribe", "text": sound(seconds, seed).tolist(), "options": options}
    for seconds, seed, options in (
        (0.3, 3, {}),
        (1.0, 4, {"language": "de", "task": "translate"}),
        (0.3, 4, {"language": "en"}),
        (0.3, 3, {"after": 2}),
    )
]


def transcripts_as_python(found: list[dict[str, Any]], bundle: Path) -> None:
    with tw.language_model(bundle, threads=1) as python:
        for answer, asked in zip(found[:3], SPOKEN, strict=False):
            wanted = python.transcribe(np.array(asked["text"], "f4"), **asked["options"])
            text = "".join(wanted)
            assert (answer["text"], answer["ids"]) == (text, wanted.ids)
            assert (answer["language"], answer["ended"]) == (wanted.language, "end")
            assert answer["duration"] == wanted.duration
    assert [answer["error"] for answer in found] == ["", "", "", "AbortError"]
    assert found[3]["ended"] == "aborted"


@pytest.mark.by_turns
def test_transcripts_are_those_of_python(visit: Visit, site: Site, speech: Path) -> None:
    page = visit(site.blank)
    transcripts_as_python(page.do("answers", url=site.bundle("speech"), chats=SPOKEN), speech)
    for call, text, options, said in (
        ("chat", HELLO, {}, "does not chat: it is a speech model"),
        ("generate", "the cat", {}, "does not read text"),
        ("transcribe", [], {}, "is empty"),
        ("transcribe", [0.0], {"language": "xx"}, "does not know the language xx"),
    ):
        asked = [{"call": call, "text": text, "options": options}]
        refused = page.do("answers", url=site.bundle("speech"), chats=asked)
        assert (refused["code"], said in refused["message"]) == ("input", True)
        assert refused["hint"]
    assert page.do("log")["errors"] == []


@pytest.mark.browser
def test_transcripts_on_webgpu_are_those_of_python(
    gpu_visit: Visit, site: Site, speech: Path
) -> None:
    load = {"device": "webgpu"}
    page = gpu_visit(site.blank)
    found = page.do("answers", url=site.bundle("speech"), chats=SPOKEN, load=load)
    transcripts_as_python(found, speech)


@pytest.mark.by_turns
def test_the_chat_survives_an_abort_and_a_full_context(visit: Visit, site: Site) -> None:
    long = [{"role": "user", "content": "the cat " * 20}]
    found = visit(site.blank).do(
        "answers",
        url=site.bundle("tiny"),
        options={"temperature": 1, "seed": 2, "topK": 0, "minP": 0},
        chats=[
            {"text": HELLO, "options": {"after": 3}},
            {"text": long},
            {"text": [{"role": "user", "content": "a " * 100}]},
            {"text": HELLO, "options": {"most": 3}},
        ],
    )
    assert [answer["error"] for answer in found] == ["AbortError", *2 * ["context-full"], ""]
    assert [answer["ended"] for answer in found] == ["aborted", *2 * ["context"], "most"]
    assert found[1]["promptTokens"] + len(found[1]["ids"]) == language_model.ROOM + 1
    assert found[0]["ids"][:3] == found[3]["ids"]


@pytest.mark.by_turns
def test_answers_that_fit_a_schema(visit: Visit, site: Site) -> None:
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 4},
            "tags": {"type": "array", "items": {"enum": ["é", None, 3]}, "maxItems": 3},
        },
        "required": ["name", "tags"],
    }
    found = visit(site.blank).do(
        "answers",
        url=site.bundle("tiny"),
        options={"schema": schema},
        chats=[
            {"text": HELLO},
            {"text": HELLO, "options": {"temperature": 2, "topK": 0, "minP": 0, "seed": 3}},
            {"text": HELLO, "options": {"most": 2}},
        ],
    )
    assert [answer["ended"] for answer in found] == ["end", "end", "most"]
    for answer in found[:2]:
        jsonschema.validate(json.loads(answer["text"]), schema)


@pytest.mark.by_turns
def test_a_template_without_an_end_ends(visit: Visit, site: Site, tiny: Made) -> None:
    """Its worker is ended; the next text gets another one."""
    files = {name: data.decode() for name, data in tiny.files.items()}
    endless = (
        "{% set ns = namespace(n=0) %}"
        + 9 * "{% for a in range(99999) %}"
        + "x"
        + (9 * "{% endfor %}")
    )
    facts = json.loads(files["language.json"]) | {"template": endless}
    found = visit(site.blank).do(
        "endlessTemplate", files=files | {"language.json": json.dumps(facts)}
    )
    assert found["endless"] == "invalid-model"
    assert found["ids"]
    assert (found["reads"], found["closed"]) == (2, "disposed")


@pytest.mark.by_turns
def test_a_bundle_without_text_files(visit: Visit, tmp_path: Path) -> None:
    """Nothing large is fetched before that is known."""
    folder = language_model.made(tmp_path / "textless", textless=True)
    with serving({"textless": folder.bundle}) as site:
        found = visit(site.blank).do("answers", url=site.bundle("textless"), chats=[])
        weights = open_bundle(folder.bundle).manifest.weights.shards
        assert site.server.asked(*(ref.file for ref in weights)) == 0
    assert found["code"] == "input"
    assert "tokenizer.json and language.json" in found["message"]
    assert "docs/language-models.md" in found["hint"]
