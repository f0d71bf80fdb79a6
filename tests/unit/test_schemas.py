"""Answers that fit a JSON schema, whatever the model would rather say."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import numpy as np
import pytest
from helpers.vocabularies import merges, pieces
from test_language import Echo, lm_of, model_of, session

from tilewright.base.errors import InputError, UsageError
from tilewright.language import Language, LanguageModel, TextAssets, gguf_text

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "tags": {"type": "array", "items": {"enum": ["é 漢", "b", 3, None]}, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
#: With an end: strings and lists of some length, or closed by chance soon.
SCHEMAS = (
    PERSON,
    {"type": "boolean"},
    {"enum": [1, "two", [3, {"four": 5.5}], None]},
    {"const": {"a<|im_end|>": "</s>"}},
    {"type": "string", "maxLength": 5},
    {"type": "string", "pattern": "^[a-c]{2,4}$"},
    {"type": "string", "format": "date"},
    {"type": "number", "minimum": -1, "maximum": 1},
    {"type": "integer", "multipleOf": 7, "minimum": 0, "maximum": 1000},
    {"type": ["null", "boolean"]},
    {"anyOf": [{"type": "null"}, {"type": "array", "items": {"type": "null"}, "maxItems": 2}]},
    {"allOf": [{"type": "integer"}, {"minimum": 3}, {"maximum": 30}]},
    {"type": "array", "prefixItems": [{"const": 1}], "items": {"const": 2}, "maxItems": 4},
    {
        "$defs": {
            "tree": {
                "type": "object",
                "properties": {"next": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]}},
                "required": ["next"],
                "additionalProperties": False,
            }
        },
        "$ref": "#/$defs/tree",
    },
    {
        "type": "object",
        "properties": {"a": {"type": "boolean"}},
        "required": ["a"],
        "additionalProperties": {"type": "null"},
        "maxProperties": 3,
    },
)
FREE = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
ROOM = 4096


class Noise:
    """A model with random weights, so to say: logits that depend on nothing but the step."""

    def __init__(self, seed: int, words: int = 400) -> None:
        self._rng, self._words = np.random.default_rng(seed), words
        self.runs = 0

    def __call__(self, inputs: Any) -> dict[str, Any]:
        self.runs += 1
        return {"logits": self._rng.standard_normal((1, 1, self._words)).astype("f4")}


class Wish:
    """A model that always says the same token."""

    def __init__(self, token: int) -> None:
        self._logits = np.zeros((1, 1, 400), "f4")
        self._logits[..., token] = 9

    def __call__(self, inputs: Any) -> dict[str, Any]:
        return {"logits": self._logits}


def fits(text: str, schema: Any) -> bool:
    jsonschema.validate(json.loads(text), schema)
    return True


@pytest.fixture(scope="module", params=["bpe", "spm"])
def language(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Language:
    write = merges().write if request.param == "bpe" else pieces().write
    model = model_of(tmp_path_factory.mktemp("schemas"), write)
    return Language(gguf_text(model.file, model.words), model.words)


@pytest.mark.parametrize("schema", SCHEMAS, ids=json.dumps)
def test_random_weights_give_json_that_fits(language: Language, schema: Any) -> None:
    for seed in range(8):
        noise = Noise(seed)
        lm = LanguageModel(language, session(noise, room=ROOM))
        answer = lm.generate("a", ROOM - 8, schema=schema, seed=seed, **FREE)
        assert fits("".join(answer), schema)
        assert answer.ended == "end"
        assert noise.runs == len(answer.ids)


def test_what_a_schema_leaves_open_is_drawn(language: Language) -> None:
    """Not always the same answer, and the likeliest of what fits."""
    lm = LanguageModel(language, session(Noise(1), room=ROOM))
    texts = {"".join(lm.generate("a", 99, schema=PERSON, seed=n, **FREE)) for n in range(5)}
    assert len(texts) == 5
    b = lm.vocabulary.encode("b")[-1]
    lm = LanguageModel(language, session(Wish(b), room=ROOM))
    assert "".join(lm.generate("a", 99, schema={"enum": ["a", "b", "bb"]})) == '"bb"'


def test_a_model_that_wants_to_end_may_where_the_json_is_whole(language: Language) -> None:
    (end, *_) = language.vocabulary.ends
    lm = LanguageModel(language, session(Wish(end), room=ROOM))
    for schema, text in (
        ({"type": "string", "minLength": 2, "maxLength": 9}, None),
        ({"enum": [12, 123]}, "12"),
        ({"type": "array", "items": {"type": "null"}}, "[]"),
    ):
        answer = lm.generate("a", 99, schema=schema)
        found = "".join(answer)
        assert fits(found, schema)
        assert text in (None, found)
        assert answer.ended == "end"


def test_neither_biases_nor_a_small_choice_break_the_form(language: Language) -> None:
    bias = dict.fromkeys(range(400), -100.0) | {language.vocabulary.encode("x")[-1]: 100.0}
    lm = LanguageModel(language, session(Noise(2), room=ROOM))
    for more in ({"logit_bias": bias}, {"top_k": 1}, {"min_p": 1.0}, {"penalty": 9.0}):
        answer = lm.generate("a", 999, schema=PERSON, temperature=1, seed=3, **more)
        assert fits("".join(answer), PERSON)


def test_a_model_without_an_end(tmp_path: Path) -> None:
    """The last bracket ends the answer."""
    model = model_of(tmp_path, merges().write)
    text = gguf_text(model.file, model.words)
    facts = msgspec.structs.replace(text.facts, ends=())
    endless = Language(TextAssets(text.tokenizer, facts), model.words)
    answer = LanguageModel(endless, session(Noise(4), room=ROOM)).generate("a", 999, schema=PERSON)
    assert fits("".join(answer), PERSON)
    assert answer.ended == "end"


def test_a_limit_cuts_and_says_so(tmp_path: Path) -> None:
    lm = lm_of(tmp_path, Noise(5), room=16)
    answer = lm.generate("a", 3, schema=PERSON)
    assert ("".join(answer)[:1], answer.ended) == ("{", "most")
    endless = {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}
    with pytest.raises(InputError, match=r"limit|context"):
        list(lm.generate("a", schema=endless))


@pytest.mark.parametrize(
    ("schema", "word"),
    [
        ({"not": {}}, "not"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"x-guidance": {"lenient": True}, "uniqueItems": True, "type": "array"}, "uniqueItems"),
        ({"oneOf": [{"type": "null"}, {"type": "null"}]}, "oneOf"),
        ({"type": "numbr"}, "numbr"),
        ({"$ref": "https://example.org/a.json"}, "example.org"),
        ({"$ref": "#/$defs/none"}, "none"),
        ({"enum": []}, "Unsatisfiable"),
        ({"type": "integer", "minimum": 3, "maximum": 2}, "greater"),
        ({"type": "string", "pattern": "(?=a)b"}, "look-around"),
        ({"type": "string", "pattern": "["}, "regex"),
        ({"type": "string", "format": "poem"}, "poem"),
        ({"const": float("nan")}, "float"),
        ({"const": {1, 2}}, "serializable"),
        (True, "object"),
        ("string", "object"),
        ({"items": json.loads("[" * 500 + "]" * 500)}, "recursion"),
    ],
    ids=str,
)
def test_schemas_that_are_not_supported(tmp_path: Path, schema: Any, word: str) -> None:
    """Told before anything is computed."""
    noise = Noise(6)
    with pytest.raises(UsageError, match=f"not supported.*{word}") as error:
        lm_of(tmp_path, noise).generate("a", schema=schema)
    assert "language-models.md" in error.value.hint
    assert noise.runs == 0


def test_a_schema_that_contains_itself(tmp_path: Path) -> None:
    around: dict[str, Any] = {"type": "array"}
    around["items"] = around
    with pytest.raises(UsageError, match="not supported"):
        lm_of(tmp_path, Echo()).generate("a", schema=around)


def test_a_schema_that_nothing_fits(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot go on"):
        list(lm_of(tmp_path, Noise(7)).generate("a", schema={"$ref": "#"}))


def test_stop_texts_would_cut_json(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="stop text"):
        lm_of(tmp_path, Echo()).generate("a", stop="}", schema=PERSON)


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(UsageError, match="llguidance") as error:
        lm_of(tmp_path, Echo()).generate("a", schema=PERSON)
    assert "tilewright[schema]" in error.value.hint
