"""Answers of the page that fit a JSON schema: texts that may come, and schemas that are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from node import run
from test_language import lm_of
from test_schemas import FREE, PERSON, Noise

TREE = {
    "$defs": {
        "tree/~": {
            "type": "object",
            "properties": {"next": {"anyOf": [{"$ref": "#/$defs/tree~1~0"}, {"type": "null"}]}},
            "required": ["next"],
            "additionalProperties": False,
        }
    },
    "$ref": "#/$defs/tree~1~0",
}
SCHEMAS = (
    PERSON,
    TREE,
    {"type": "boolean"},
    {"type": ["null", "boolean"], "title": "Maybe", "default": None},
    {"enum": [1, "two", [3, {"four": 5.5}], None, "tw"]},
    {"enum": [1, "two", True, 2.5], "type": ["integer", "boolean"]},
    {"const": {"a<|im_end|>": "</s>"}},
    {"const": 'q"\\\n\u2028é漢🦊'},
    {"type": "string", "maxLength": 5},
    {"type": "string", "minLength": 2, "maxLength": 3},
    {"type": "number"},
    *(
        {"type": "integer", "minimum": low, "maximum": high}
        for low, high in ((-120, 1005), (0, 0), (-1, 1), (7, 13), (99, 10_000), (-9.5, -2.5))
    ),
    {"type": "integer", "exclusiveMinimum": -3, "exclusiveMaximum": 2.5},
    {"type": "integer", "minimum": 123456},
    {"anyOf": [{"type": "null"}, {"type": "array", "items": {"type": "null"}, "maxItems": 2}]},
    {"allOf": [{"type": "null"}]},
    {"minItems": 2, "maxItems": 3, "prefixItems": [{"const": 1}, {"const": 2}, {"const": 3}]},
    {"type": "array", "prefixItems": [{"const": 1}], "items": {"const": 2}, "maxItems": 4},
    {"type": "array", "prefixItems": [{"const": 1}], "items": False},
    {"type": "array", "items": False},
    {"type": "array", "items": {"const": 0}, "minItems": 3, "maxItems": 5},
    {
        "type": "object",
        "properties": {"a": {"type": "null"}, "b": {"type": "null"}, "c": {"type": "null"}},
        "required": ["b"],
    },
    {
        "required": ["x", "y"],
        "properties": {"y": {"const": 1}},
        "additionalProperties": {"const": 2},
    },
    {"type": "object", "properties": {"a": False, "b": {"const": "b"}}},
    {"type": "object", "additionalProperties": {"type": "boolean"}},
    {"type": "object"},
    {"type": "object", "additionalProperties": False},
    {},
)
#: A token for each byte, some longer ones, and an end, which has no bytes.
PIECES = [
    [],
    *([byte] for byte in range(256)),
    *(
        list(text.encode())
        for text in ('{"', '": ', '", "', "true", "null", "12", '"a', "é", '"]}', "[1, ", '"two"')
    ),
]
SCRIPT = """
const { grammarOf } = await import('TUNE/../language/json_schema.js');
const { Automaton, JsonMatcher, tokensInOrder } = await import('TUNE/../language/json_matcher.js');
const { mulberry32 } = await import('TUNE/../language/sampling.js');
const pieces = <pieces>;
const starts = Uint32Array.from([0, ...pieces], (_, n) => pieces.slice(0, n).flat().length);
const tokens = tokensInOrder({ bytes: Uint8Array.from(pieces.flat()), starts });
const matcherOf = (schema) => {
  const { grammar, root } = grammarOf(schema);
  return new JsonMatcher(new Automaton(grammar, root), tokens, [0]);
};
const allowed = (matcher) => [...matcher.allowed().keys()].filter((id) => matcher.allowed()[id]);
"""


def test_what_is_drawn_at_random_fits() -> None:
    """Every token with the same probability, until the end."""
    found = run(
        SCRIPT
        + """
        const random = mulberry32(7);
        const drawn = (schema) => {
          const matcher = matcherOf(schema);
          const text = [];
          while (!matcher.isComplete) {
            const ids = allowed(matcher);
            const id = ids[Math.floor(random() * ids.length)];
            if (id === 0) break;
            matcher.take(id);
            text.push(...pieces[id]);
          }
          return text;
        };
        const ten = (schema) => Array.from({ length: 10 }, () => drawn(schema));
        console.log(JSON.stringify(<schemas>.map(ten)));
        """,
        pieces=PIECES, schemas=SCHEMAS,
    )  # fmt: skip
    for schema, texts in zip(SCHEMAS, found, strict=True):
        for text in texts:
            value = json.loads(bytes(text).decode())
            jsonschema.validate(value, schema)


def taken(schema: Any, texts: list[str]) -> list[bool]:
    """Whether the grammar takes each text byte by byte, and may end after it."""
    found: list[bool] = run(
        SCRIPT
        + """
        const takes = (text) => {
          const matcher = matcherOf(<schema>);
          for (const byte of new TextEncoder().encode(text)) {
            if (matcher.isComplete || !matcher.allowed()[byte + 1]) return false;
            matcher.take(byte + 1);
          }
          return matcher.allowed()[0] === 1;
        };
        console.log(JSON.stringify(<texts>.map(takes)));
        """,
        pieces=PIECES, schema=schema, texts=texts,
    )  # fmt: skip
    return found


@pytest.mark.parametrize(
    ("schema", "fit", "others"),
    [
        (
            PERSON,
            ['{"name": "a", "age": 130, "tags": []}', '{"name": "", "age": 0, "tags": [3, null]}'],
            [
                '{"name": "a", "age": 131, "tags": []}',
                '{"name": "123456789", "age": 1, "tags": []}',
                '{"age": 1, "name": "a", "tags": []}',
                '{"name": "a","age": 1, "tags": []}',
                "{}",
            ],
        ),
        ({"type": "string"}, [r'"\n\"\\ \/é漢🦊"', '""'], ['"\n"', '"a', r'"\x"', "'a'"]),
        ({"type": "number"}, ["0", "-0", "1.50e+12"], ["01", "1.", ".5", "1e999", "+1", ""]),
        (
            {"type": "integer", "minimum": 7, "maximum": 1234},
            ["7", "10", "999", "1234"],
            ["6", "07", "1235", "2000", "12345", "-7", "7.0"],
        ),
        ({"type": "integer", "maximum": -10}, ["-10", "-999999999999999"], ["-9", "0", "10", "-0"]),
        ({"minItems": 2, "items": {"const": 1}}, ["[1, 1]", "[1, 1, 1]"], ["[1]", "[]", "[1,1]"]),
    ],
    ids=str,
)
def test_texts_that_fit_and_others(schema: Any, fit: list[str], others: list[str]) -> None:
    assert taken(schema, fit) == [True] * len(fit)
    assert taken(schema, others) == [False] * len(others)


def test_halves_of_characters_and_wrong_bytes_never_come() -> None:
    """What may follow the beginning of a string, byte by byte, is UTF-8 and nothing else."""
    found = run(
        SCRIPT
        + """
        const after = (bytes) => {
          const matcher = matcherOf({ type: 'string' });
          for (const byte of bytes) matcher.take(byte + 1);
          return allowed(matcher).filter((id) => id <= 256).map((id) => id - 1);
        };
        console.log(JSON.stringify([[], [0xe0], [0xed], [0xf0], [0xf4], [0xc3], [0x5c]].map(
          (bytes) => after([0x22, ...bytes]))));
        """,
        pieces=PIECES,
    )  # fmt: skip
    first, *rest = found
    assert first == [*range(0x20, 0x80), *range(0xC2, 0xF5)]
    assert rest == [
        [*range(0xA0, 0xC0)], [*range(0x80, 0xA0)], [*range(0x90, 0xC0)], [*range(0x80, 0x90)],
        [*range(0x80, 0xC0)], sorted(b'"\\/bfnrt'),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "word"),
    [
        ({"not": {}}, "not, at #"),
        ({"properties": {"a": {"items": {"pattern": "a"}}}}, "pattern, at #/properties/a/items"),
        ({"oneOf": [{}]}, "oneOf"),
        ({"allOf": [{}, {}]}, "allOf of several"),
        ({"anyOf": []}, "anyOf without"),
        ({"anyOf": [{}], "type": "null"}, "type beside anyOf"),
        ({"enum": [1], "minimum": 0}, "minimum beside enum"),
        ({"type": "number", "minimum": 0}, "not integers"),
        ({"type": "numbr"}, "the type numbr"),
        ({"uniqueItems": True}, "uniqueItems"),
        ({"$ref": "https://example.org/a.json"}, "example.org"),
        ({"$ref": "#/$defs/none"}, "to nothing"),
        ({"$ref": "#/%"}, "URI"),
        ({"$ref": "#/__proto__"}, "to nothing"),
        ({"enum": []}, "nothing fits"),
        ({"const": 1, "type": "string"}, "nothing fits"),
        ({"type": "integer", "minimum": 3, "maximum": 2}, "nothing fits"),
        ({"type": "object", "properties": {"a": False}, "required": ["a"]}, "nothing fits"),
        ({"maxLength": -1}, "not a count"),
        ({"maxLength": "9"}, "not a count"),
        ({"minimum": "9"}, "not a number"),
        ({"properties": []}, "not an object"),
        ({"required": "a"}, "without names"),
        ({"items": 3}, "a schema is an object, at #/items"),
        ({"prefixItems": {}}, "prefixItems without"),
        ({"enum": list(range(300_000))}, "too large"),
        (False, "nothing fits"),
        ("string", "an object"),
        (None, "an object"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_schemas_that_are_not_supported(schema: Any, word: str) -> None:
    found = run(
        SCRIPT
        + """
        try {
          grammarOf(<schema>);
          console.log('null');
        } catch (error) {
          console.log(JSON.stringify([error.code, error.message, error.hint]));
        }
        """,
        pieces=[[]], schema=schema,
    )  # fmt: skip
    code, message, hint = found
    assert (code, word in message) == ("input", True), message
    assert hint
    assert len(message) <= 300


def test_schemas_that_javascript_alone_can_write() -> None:
    found = run(
        SCRIPT
        + """
        const around = { type: 'array' };
        around.items = around;
        const deep = JSON.parse('{"items":'.repeat(9000) + 'true' + '}'.repeat(9000));
        const codes = [around, deep, { const: NaN }, { enum: [[1n]] }].map((schema) => {
          try {
            return grammarOf(schema).root.kind;
          } catch (error) {
            return error.code;
          }
        });
        console.log(JSON.stringify(codes));
        """,
        pieces=[[]],
    )  # fmt: skip
    assert found == ["input", "input", "input", "input"]


def test_a_schema_that_only_contains_itself_has_no_text() -> None:
    code = run(
        SCRIPT
        + """
        try {
          matcherOf({ $ref: '#' }).allowed();
        } catch (error) {
          console.log(JSON.stringify(error.code));
        }
        """,
        pieces=PIECES,
    )  # fmt: skip
    assert code == "input"


def test_what_python_writes_fits_the_grammar(tmp_path: Path) -> None:
    """Both write JSON in the same form."""
    schemas = [s for s in SCHEMAS[:12] if s.get("type") != "number"]
    pieces, answers = [], []
    for n, schema in enumerate(schemas):
        lm = lm_of(tmp_path, Noise(n), room=4096)
        pieces = [list(lm.vocabulary.piece(token)) for token in range(400)]
        for seed in range(3):
            answer = lm.generate("a", 4000, schema=schema, seed=seed, **FREE)
            list(answer)
            answers.append([n, [id for id in answer.ids if pieces[id]], answer.text])
    found = run(
        SCRIPT
        + """
        const schemas = <schemas>;
        console.log(JSON.stringify(<answers>.map(([n, ids]) => {
          const matcher = matcherOf(schemas[n]);
          const wrong = ids.findIndex((id) => {
            if (!matcher.allowed()[id]) return true;
            matcher.take(id);
            return false;
          });
          return [wrong, matcher.isComplete || matcher.allowed()[0]];
        })));
        """,
        pieces=pieces, schemas=schemas, answers=answers,
    )  # fmt: skip
    for (wrong, may_end), (n, _, text) in zip(found, answers, strict=True):
        # only escapes by number are not in the page's grammar
        if "\\u" not in text:
            assert (wrong, bool(may_end)) == (-1, True), (schemas[n], text)


def test_masks_are_those_of_a_plain_walk() -> None:
    """With random tokens that share beginnings: each by itself, from its first byte on."""
    rng = np.random.default_rng(3)
    letters = list(b'"{}[]:, atrue12\\n')
    pieces = [[], *([b] for b in letters)]
    pieces += [rng.choice(letters, rng.integers(2, 7)).tolist() for _ in range(800)]
    assert run(
        SCRIPT
        + """
        const schema = { type: 'array', items: { type: ['string', 'boolean'] } };
        const { grammar, root } = grammarOf(schema);
        const random = mulberry32(3);
        const automaton = new Automaton(grammar, root);
        const matcher = new JsonMatcher(automaton, tokens, [0]);
        let state = automaton.start;
        const step = (at, byte) => at && automaton.step(at, byte);
        const follow = (from, bytes) => bytes.reduce(step, from);
        let same = true;
        for (let n = 0; n < 60 && same; n++) {
          const plain = pieces.map((bytes) => bytes.length > 0 && follow(state, bytes) !== null);
          plain[0] = state.ends;
          same = plain.every((fits, id) => fits === Boolean(matcher.allowed()[id]));
          const ids = allowed(matcher).filter(Boolean);
          if (!ids.length) break;
          const id = ids[Math.floor(random() * ids.length)];
          matcher.take(id);
          state = follow(state, pieces[id]);
        }
        console.log(JSON.stringify(same));
        """,
        pieces=pieces,
    )  # fmt: skip
