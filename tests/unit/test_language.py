"""Words of language models: vocabularies, templates, choices, streams, caches."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from gguf import GGUFWriter
from helpers.gguf_files import Tiny, write_tiny
from helpers.vocabularies import TEMPLATE, merges, pieces
from helpers.waiting import PATIENCE

from tilewright.base.errors import (
    ContextFull,
    InputError,
    InvalidModel,
    UnsupportedOp,
    UsageError,
)
from tilewright.bundle import Manifest, StateEntry, TensorInfo, Weights
from tilewright.bundle.format import FileRef
from tilewright.frontend.gguf import GgufModel
from tilewright.language import (
    CacheSession,
    Language,
    LanguageModel,
    Sampling,
    TextAssets,
    gguf_text,
)
from tilewright.language.gguf_vocabulary import PATTERNS
from tilewright.language.logprobs import token_logprob
from tilewright.language.sampling import Mulberry32, Sampler
from tilewright.language.stream import TextStream
from tilewright.language.template import ChatTemplate

SMALL = {"layers": 1, "width": 32, "heads": 2, "kv_heads": 1, "hidden": 32}
ALPHABET = "the cat sat on a mat that is  hello nation 1 2345 's 're ,.!? \n\n\t é 漢字 🦊 x_y"


def model_of(path: Path, write: Any, words: int = 400, **more: Any) -> GgufModel:
    return GgufModel(write_tiny(path / "a.gguf", Tiny(words=words, text=write, **SMALL, **more)))


def language_of(path: Path, write: Any, **more: Any) -> Language:
    model = model_of(path, write, **more)
    return Language(gguf_text(model.file, model.words), model.words)


def texts(seed: int, count: int) -> list[str]:
    """Mulberry32 rows of words and letters."""
    rng = np.random.default_rng(seed)
    parts = [*ALPHABET.split(" "), " ", "  ", *ALPHABET]
    return ["".join(rng.choice(parts, rng.integers(1, 30))) for _ in range(count)]


# ---- vocabularies --------------------------------------------------------------------------------


def test_sentence_pieces_as_the_definition_says(tmp_path: Path) -> None:
    own = pieces()
    found = language_of(tmp_path, own.write).vocabulary
    for text in texts(1, 300):
        ids = found.encode(text)
        assert ids == own.ids(text), text
        assert found.decode(ids) == " " + text


def test_merges_of_bytes_as_the_definition_says(tmp_path: Path) -> None:
    own = merges()
    found = language_of(tmp_path, own.write).vocabulary
    for text in texts(2, 300):
        ids = found.encode(text)
        assert ids == own.ids(text), text
        assert found.decode(ids) == text


def test_names_of_control_tokens_mean_them_only_where_allowed(tmp_path: Path) -> None:
    own = merges()
    found = language_of(tmp_path, own.write).vocabulary
    end = len(own.texts) - 1
    assert found.encode("hello<|im_end|>")[-1] == end
    assert end not in found.encode("hello<|im_end|>", special=False)
    assert found.ends == {end}
    assert found.decode([end]) == ""


@pytest.mark.parametrize("name", PATTERNS)
def test_every_way_to_cut_keeps_the_text(tmp_path: Path, name: str) -> None:
    found = language_of(tmp_path, merges(name).write).vocabulary
    for text in texts(3, 20):
        ids = found.encode(text)
        assert found.decode(ids if found.facts.begin is None else ids[1:]) == text


def test_vocabularies_that_do_not_fit(tmp_path: Path) -> None:
    with pytest.raises(InvalidModel, match="the model 48"):
        language_of(tmp_path, merges().write, words=48)
    with pytest.raises(UnsupportedOp, match="'rwkv'"):
        language_of(tmp_path, merges("rwkv").write)
    with pytest.raises(InvalidModel, match="0 tokens"):
        language_of(tmp_path, None)

    def unigram(writer: GGUFWriter) -> None:
        writer.add_tokenizer_model("t5")
        writer.add_token_list(["a"])

    with pytest.raises(UnsupportedOp, match="'t5'"):
        language_of(tmp_path, unigram)


def test_a_merge_of_what_is_no_token(tmp_path: Path) -> None:
    def wrong(writer: GGUFWriter) -> None:
        writer.add_tokenizer_model("gpt2")
        writer.add_token_list(["a", "b"])
        writer.add_token_merges(["a b"])

    with pytest.raises(InvalidModel, match="but has no token"):
        language_of(tmp_path, wrong)


def test_what_a_bundle_may_say_of_its_text(tmp_path: Path) -> None:
    """Tokens of the kinds that give no text, and files that are not what their names say."""
    model = model_of(tmp_path, pieces().write)
    text = gguf_text(model.file, model.words)
    found = Language(text, model.words)
    assert [found.vocabulary.piece(i) for i in (0, 1, 2, 3 + 10)] == [b"", b"", b"", b"\n"]
    assert found.vocabulary.piece(model.words - 1) == b""
    assert text.facts.texts == {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    assert (text.facts.begin, text.facts.ends, text.facts.pieces) == (1, (2,), "spaces")
    broken = (
        b"{}",
        b"\xff",
        text.tokenizer[:-9],
        text.tokenizer.replace(b'"vocab":{', b'"vocab":{"":', 1),
    )
    for data in broken:
        with pytest.raises(InvalidModel, match="cannot be read"):
            Language(replace(text, tokenizer=data), model.words)
    for words, begin in ((100, 1), (400, 400), (400, -1)):
        facts = msgspec.structs.replace(text.facts, begin=begin)
        with pytest.raises(InvalidModel, match="tokens, the model"):
            Language(TextAssets(text.tokenizer, facts), words)


def test_a_tokenizer_that_panics(tmp_path: Path) -> None:
    """A merge of two tokens that is no token ends in a panic of the package."""
    model = model_of(tmp_path, merges().write)
    text = gguf_text(model.file, model.words)
    lying = json.loads(text.tokenizer)
    lying["model"]["vocab"], lying["model"]["merges"] = {"a": 0, "b": 1}, [["a", "b"]]
    with pytest.raises(InvalidModel, match="cannot be read"):
        Language(TextAssets(json.dumps(lying).encode(), text.facts), model.words)


def test_a_text_that_is_not_unicode(tmp_path: Path) -> None:
    """As arguments of commands and JSON may have them."""
    with pytest.raises(InputError, match="character at 1"):
        language_of(tmp_path, merges().write).vocabulary.encode("a\ud83d")


def test_a_token_that_is_there_twice(tmp_path: Path) -> None:
    def twice(writer: GGUFWriter) -> None:
        writer.add_tokenizer_model("gpt2")
        writer.add_token_list(["a", "b", "a"])

    with pytest.raises(InvalidModel, match="'a' twice"):
        language_of(tmp_path, twice)


def test_a_piece_of_a_million_characters(tmp_path: Path) -> None:
    """Each place to cut it would be tried."""
    made = pieces()
    long = replace(made, texts=(*made.texts[:-1], "ab" * 500_000))
    with pytest.raises(InvalidModel, match="a token of 1000000 characters"):
        language_of(tmp_path, long.write)


# ---- templates -----------------------------------------------------------------------------------


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def test_template() -> None:
    made = ChatTemplate("{{ bos_token }}" + TEMPLATE, {"bos_token": "<s>"}).render(user("Hi"))
    assert made == "<s><|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


def test_a_template_may_refuse_messages() -> None:
    with pytest.raises(InputError, match="no system"):
        ChatTemplate("{{ raise_exception('no system') }}", {}).render(user("Hi"))


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{{ 'x' * 10 ** 10 }}",
        "{{ 9 ** 10 ** 9 ** 9 ** 9 ** 9 }}",
        *(
            f"{{% set n = namespace(x={x}) %}}{{% for a in range(99) %}}"
            f"{{% set n.x = n.x {op} n.x %}}{{% endfor %}}"
            for x, op in (("'ab'", "+"), ("'ab'", "~"), ("9", "*"))
        ),
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ messages[7].content + 1 }}",
        "{{ range(10 ** 9) | list }}",
        "{% for a in range(9999) %}{{ 'x' * 9999 }}{% endfor %}",
        # wide fields and other methods and filters that fill texts
        "{{ '%999999999d' % 1 }}",
        "{{ '%*d' % (10 ** 9, 1) }}",
        "{{ '%999999999d'|format(1) }}",
        "{{ '{:999999999}'.format(1) }}",
        "{{ '{0:{1}}'.format(1, 10 ** 9) }}",
        "{{ ('{0}' * 9999).format('x' * 9999) }}",
        "{{ 'a'.ljust(3 * 10 ** 9) | length }}",
        "{{ ('x' * 10000).replace('x', 'y' * 1000000) | length }}",
        "{{ ('x' * 10000) | replace('x', 'y' * 1000000) | length }}",
        "{{ ('y' * 1000000).join('x' * 10000) | length }}",
        "{{ ('x' * 10000) | join('y' * 1000000) | length }}",
        "{{ ('\n' * 100000) | indent(100000) }}",
        "{{ ('x' * 100000).translate({120: 'y' * 100000}) | length }}",
        "{{ [[0] * 10 ** 7] * 5 }}",
        # many texts that are each short enough
        "{% set s = 'x' * 10 ** 7 %}{% set n = namespace(x=[]) %}"
        "{% for i in range(99) %}{% set n.x = n.x + [s[i:]] %}{% endfor %}",
        # lists that are in others twice
        *(
            "{% set n = namespace(x=[], y=[]) %}{% for a in range(60) %}{% set n.x = [n.x, n.x] %}"
            f"{{% set n.y = {{0: n.y, 1: n.y}} %}}{{% endfor %}}{{{{ {use} }}}}"
            for use in ("n.x", "n.x | tojson", "n.x == n.y")
        ),
        "{% macro f(x) %}{{ f([x, x]) }}{% endmacro %}{{ f(1) }}",
    ],
)
def test_a_template_that_loops_or_breaks_out_ends_soon(source: str) -> None:
    start = time.process_time()
    with pytest.raises(InvalidModel, match="chat template fails"):
        ChatTemplate(source, {}).render(user("Hi"))
    assert time.process_time() - start < 10


def test_a_namespace_does_not_show_its_values() -> None:
    """Each of them may be in it several times."""
    names = "{% set n = namespace() %}" + 60 * "{% set n.x = n %}{% set n.y = n %}" + "{{ n }}"
    assert ChatTemplate(names, {}).render(user("Hi")) == "<Namespace>"


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in 'xx' %}" * 30 + "{% endfor %}" * 30,
        "{% if 1 %}" * 150 + "{% endif %}" * 150,
        "{{ " + "(" * 400 + "1" + ")" * 400 + " }}",
        "{{ 1" + "+1" * 20000 + " }}",
        "{{ 'a' | center(10 ** 9) }}",
        "{% continue %}",
        "{% debug %}",
    ],
)
def test_a_template_that_cannot_be_compiled(source: str) -> None:
    with pytest.raises(InvalidModel, match="chat template cannot be read") as error:
        ChatTemplate(source, {})
    assert len(error.value.message) <= 200
    assert error.value.hint


def test_what_templates_may_do_with_texts_and_lists() -> None:
    source = (
        "{{ '%s-%d' % ('a', 7) }} {{ '{}{}'.format('b', 2) }} {{ '%s!' | format('c') }} "
        "{{ 'a\nb' | indent(2) }} {{ 'a\nb' | indent(2, true) }} {{ ['x', 'y'] | join(', ') }} "
        "{{ 'aXa'.replace('a', 'bc', 1) }} {{ 'aXa' | replace('a', 'b') }} {{ [1] + [2] * 2 }} "
        "{{ {'a': [1, 'é']} | tojson }} {{ {'a': 1} | tojson(indent=2) }} "
        "{% for k, v in {'p': (1, 2)}.items() %}{{ k }}{{ v[0] }}{% endfor %} "
        "{{ ['b', 'a'] | sort | join }} {{ messages | map(attribute='role') | list }}"
    )
    assert ChatTemplate(source, {}).render(user("Hi")) == (
        'a-7 b2 c! a\n  b   a\n  b x, y bcXa bXb [1, 2, 2] {"a": [1, "é"]} '
        "{\n  \"a\": 1\n} p1 ab ['user']"
    )


def test_no_template_at_all(tmp_path: Path) -> None:
    with pytest.raises(InvalidModel, match="cannot be read"):
        ChatTemplate("{% if %}", {})
    language = language_of(tmp_path, pieces().write)
    with pytest.raises(UsageError, match="no chat template"):
        language.prompt(user("Hi"))


# ---- choices -------------------------------------------------------------------------------------

LOGITS = np.log(np.array([0.05, 0.4, 0.3, 0.2, 0.05], "f4"))


def shares(choice: Sampling, count: int = 4000) -> list[float]:
    choose = Sampler(choice)
    found = [choose(LOGITS, ()) for _ in range(count)]
    return [found.count(i) / count for i in range(len(LOGITS))]


def test_greedy_takes_the_likeliest_and_the_first_of_equals() -> None:
    assert Sampler(Sampling())(LOGITS, ()) == 1
    assert Sampler(Sampling())(np.zeros(3, "f4"), ()) == 0


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (Sampling(1, 0, 1, 0), [0.05, 0.4, 0.3, 0.2, 0.05]),
        (Sampling(0.5, 0, 1, 0), [0.0085, 0.5424, 0.3051, 0.1356, 0.0085]),
        (Sampling(1, 2, 1, 0), [0, 4 / 7, 3 / 7, 0, 0]),
        (Sampling(1, 0, 0.65, 0), [0, 4 / 7, 3 / 7, 0, 0]),
        (Sampling(1, 0, 1, 0.45), [0, 4 / 9, 3 / 9, 2 / 9, 0]),
    ],
)
def test_shares(choice: Sampling, expected: Sequence[float]) -> None:
    """4000 draws: a share of p differs by less than 4 sqrt(p (1 - p) / 4000) < 0.032."""
    assert np.abs(np.array(shares(choice)) - expected).max() < 0.032


def test_the_smallest_temperature_takes_the_likeliest() -> None:
    assert shares(Sampling(5e-324, 0, 1, 0), 9) == [0, 1, 0, 0, 0]


@pytest.mark.parametrize("temperature", [0, 1])
def test_logits_that_are_not_numbers(temperature: float) -> None:
    logits = LOGITS.copy()
    logits[2] = np.nan
    with pytest.raises(InvalidModel, match="not numbers"):
        Sampler(Sampling(temperature=temperature))(logits, [])


def test_a_seed_repeats_the_choice() -> None:
    one, same, other = (
        [Sampler(Sampling(1, seed=s))(LOGITS, ()) for _ in range(1)]
        + shares(Sampling(1, seed=s), 50)
        for s in (1, 1, 2)
    )
    assert one == same
    assert one != other


def test_random_numbers_are_those_of_mulberry32() -> None:
    """The generator in JavaScript gives these for the seed 1."""
    random = Mulberry32(1)
    assert [random.next() for _ in range(3)] == pytest.approx(
        [0.6270739405881613, 0.002735721180215478, 0.5274470399599522], abs=1e-15
    )


def test_penalty() -> None:
    assert Sampler(Sampling(penalty=1.5))(np.array([2.0, 1.9, -1], "f4"), [0]) == 1
    assert Sampler(Sampling(penalty=1.5))(np.array([-1.0, -1.2], "f4"), [0]) == 1
    assert Sampler(Sampling(penalty=1.5, recent=1))(np.array([2.0, 1.9], "f4"), [0, 1]) == 0


def chosen(choice: Sampling, logits: Sequence[float], count: int) -> list[int]:
    """After a prompt that has the first token three times, which only `penalty` counts."""
    choose, ids = Sampler(choice), [0, 0, 0]
    for _ in range(count):
        ids.append(choose(np.array(logits, "f4"), ids))
    return ids[3:]


def test_penalties_of_what_the_answer_has() -> None:
    assert chosen(Sampling(frequency_penalty=0.5), [3, 2.2], 6) == [0, 0, 1, 0, 1, 0]
    assert chosen(Sampling(presence_penalty=0.5), [3, 2.8], 4) == [0, 1, 0, 0]
    assert chosen(Sampling(presence_penalty=-0.5), [3, 3.2], 2) == [1, 1]


def test_biases() -> None:
    assert chosen(Sampling(logit_bias={1: 100}), [9, -9, 3], 2) == [1, 1]
    assert chosen(Sampling(logit_bias={0: -100}), [9, -9, 3], 2) == [2, 2]
    # after the penalty, which would halve it
    assert chosen(Sampling(logit_bias={0: 2}, penalty=2), [4, 3.5], 1) == [0]
    huge = Sampling(logit_bias=dict.fromkeys(range(300000), -1.0))
    assert Sampler(huge)(np.zeros(300_000, "f4"), ()) == 0


@pytest.mark.parametrize("token", [-1, 400, "1", 0.5])
def test_a_bias_of_no_token(tmp_path: Path, token: Any) -> None:
    with pytest.raises(UsageError, match="the model has 400"):
        lm_of(tmp_path, Echo()).complete("a", logit_bias={token: 1})


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -1}, {"top_p": 0}, {"min_p": 2}, {"penalty": 0},
        {"frequency_penalty": float("nan")}, {"presence_penalty": float("inf")},
        {"logit_bias": {1: float("inf")}},
    ],
)  # fmt: skip
def test_settings_that_choose_nothing(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Sampling(**wrong)


def test_log_probabilities(tmp_path: Path) -> None:
    """Of the model itself: neither temperature nor biases change them."""
    lm = lm_of(tmp_path, Echo())
    answer = lm.complete("a", 2, logprobs=3, temperature=2, logit_bias={98: 9}, seed=1)
    list(answer)
    whole = np.log(np.e + WORDS - 1)
    likeliest = {0: 98, 1: answer.ids[0] + 1}
    for at, told in enumerate(answer.logprobs):
        assert (told.id, told.piece) == (answer.ids[at], lm.vocabulary.piece(answer.ids[at]))
        assert told.logprob == pytest.approx((told.id == likeliest[at]) - whole)
        assert [each.id for each in told.top] == [likeliest[at], 0, 1]
        assert [each.logprob for each in told.top] == pytest.approx([1 - whole, -whole, -whole])
    plain = lm.complete("a", 2)
    list(plain)
    assert plain.logprobs == []
    with pytest.raises(UsageError, match="likeliest"):
        lm.complete("a", logprobs=-1)


def test_the_logarithm_of_nothing_is_a_number(tmp_path: Path) -> None:
    known = language_of(tmp_path, merges().write).vocabulary
    end = known.encode("<|im_end|>")[0]
    logits = np.full(400, -np.inf, "f4")
    logits[5] = 0
    told = token_logprob(logits, end, 500, known)
    assert (told.logprob, told.name, told.piece, len(told.top)) == (-9999.0, "<|im_end|>", b"", 400)
    assert (told.top[0].id, told.top[0].logprob) == (5, 0.0)


# ---- streams -------------------------------------------------------------------------------------


def test_a_character_is_never_split() -> None:
    stream = TextStream()
    shown = [stream.add(bytes([b])) for b in "aé漢🦊".encode()]
    assert [s for s in shown if s] == ["a", "é", "漢", "🦊"]
    assert stream.add("🦊".encode()[:2]) == ""
    assert stream.add(b"", last=True) == "�"


def test_stop_strings_are_not_shown_not_even_in_part() -> None:
    stream = TextStream(["STOP", "\n\n"])
    assert [stream.add(p) for p in (b"go S", b"TO", b"RE S", b"TOP after")] == [
        "go ", "", "STORE ", ""
    ]  # fmt: skip
    assert stream.stopped
    assert stream.add(b"more", last=True) == ""
    held = TextStream(["STOP"])
    assert held.add(b"ST") + held.add(b"", last=True) == "ST"
    assert not held.stopped


# ---- caches --------------------------------------------------------------------------------------

WORDS = 300


class Echo:
    """A model that says the last id plus one; `runs`: the ids of each run and the last key."""

    def __init__(self) -> None:
        self.runs: list[tuple[list[int], int]] = []

    def __call__(self, inputs: Any) -> dict[str, Any]:
        ids, last = inputs["input_ids"][0].tolist(), int(inputs["seqlens_k"][0])
        self.runs.append((ids, last))
        logits = np.zeros((1, 1, WORDS), "f4")
        logits[0, 0, (ids[-1] + 1) % WORDS] = 1
        return {"logits": logits}


def session(run: Any, sizes: Sequence[int] = (1, 4, 8), room: int = 32) -> CacheSession:
    empty = FileRef(file="", digest="", bytes=0)
    info = [TensorInfo(name=n, dtype="i64", shape=()) for n in ("input_ids", "seqlens_k")]
    state = StateEntry(name="k", dtype="f32", shape=(1, 1, room, 2))
    manifest = Manifest(
        tool="", name="", dims={"n": tuple(sizes)}, extents=(), inputs=tuple(info), outputs=(),
        states=(state,), weights=Weights(bytes=0), kernels=empty, plans=(), targets={}, assets=(),
    )  # fmt: skip
    return CacheSession(run, manifest)


def test_prompts_in_parts_that_fit() -> None:
    """Only the first part of an empty cache is padded."""
    echo = Echo()
    own = session(echo)
    own.read(range(11))
    own.read(range(24))
    assert [(len(ids), last) for ids, last in echo.runs] == [
        (3, 2), (8, 10), (8, 18), (4, 22), (1, 23)
    ]  # fmt: skip


def test_what_the_caches_hold_is_not_computed_again() -> None:
    echo = Echo()
    own = session(echo)
    own.read([1, 2, 3, 4, 5, 6])
    own.read([1, 2, 3, 9])
    own.read([1, 2, 3, 9])
    assert [ids for ids, _ in echo.runs] == [[1, 2, 3, 4, 5, 6], [9], [9]]


def test_texts_that_share_a_beginning_compute_it_once() -> None:
    """Several answers to one prompt compute its last row again; another chat its own message."""
    echo = Echo()
    own = session(echo)
    prompt = [*range(11)]
    for seed in range(3):
        for count in range(3):
            own.read([*prompt, *range(20 + seed, 20 + seed + count)])
    own.read([*prompt[:9], 30, 31])
    rows = [len(ids) for ids, _ in echo.runs]
    assert rows == [3, 8, 1, 1, *[1, 1, 1] * 2, 1, 1]


def lm_of(tmp_path: Path, run: Any, room: int = 32) -> LanguageModel:
    return LanguageModel(language_of(tmp_path, merges().write), session(run, room=room))


def test_an_answer(tmp_path: Path) -> None:
    """After `a` come `b`, `c`, …"""
    echo = Echo()
    lm = lm_of(tmp_path, echo)
    answer = lm.complete("a", 4)
    assert list(answer) == ["b", "c", "d", "e"]
    assert (answer.text, answer.ended, len(answer.ids)) == ("bcde", "most", 4)
    again = lm.complete("ab", 2)
    assert ("".join(again), again.reused) == ("cd", 2)


def test_an_answer_that_is_stopped_by_text_or_by_hand(tmp_path: Path) -> None:
    lm = lm_of(tmp_path, Echo())
    answer = lm.complete("a", 10, stop="de")
    assert ("".join(answer), answer.ended) == ("bc", "stop")
    answer = lm.complete("a", 10)
    shown = [next(answer) for _ in range(3)]
    assert answer.ended is None
    answer.stop()
    assert (shown, list(answer), answer.ended, answer.text) == (
        ["b", "c", "d"],
        [],
        "stopped",
        "bcd",
    )
    assert "".join(lm.complete("abcd", 2)) == "ef"


def test_reading_goes_on_where_it_was_left(tmp_path: Path) -> None:
    answer = lm_of(tmp_path, Echo()).complete("a", 4)
    assert next(iter(answer)) == "b"
    assert (list(answer), list(answer), answer.ended) == (["c", "d", "e"], [], "most")


def test_two_answers_by_turns(tmp_path: Path) -> None:
    """Each has its own text; the caches follow whoever is next."""
    lm = lm_of(tmp_path, Echo())
    one, other = lm.complete("a", 3), lm.complete("p", 3)
    assert list(zip(one, other, strict=True)) == [("b", "q"), ("c", "r"), ("d", "s")]


def test_answers_in_threads(tmp_path: Path) -> None:
    lm = lm_of(tmp_path, Echo())
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda first: "".join(lm.complete(first, 3)), "abcdefgh"))
    assert found == ["bcd", "cde", "def", "efg", "fgh", "ghi", "hij", "ijk"]


def test_an_answer_in_an_event_loop(tmp_path: Path) -> None:
    """With `async for` the loop goes on meanwhile; plain reading works there, too."""
    lm, gone = lm_of(tmp_path, Echo()), threading.Event()

    def run(inputs: Any) -> Any:
        assert gone.wait(PATIENCE)  # the loop sets it while the first token is computed
        return Echo()(inputs)

    async def both() -> tuple[list[str], list[str]]:
        asyncio.get_running_loop().call_later(0.01, gone.set)
        slow = lm_of(tmp_path, run)
        return [piece async for piece in slow.complete("a", 3)], list(lm.complete("a", 2))

    assert asyncio.run(both()) == (["b", "c", "d"], ["b", "c"])


def test_an_answer_that_a_loop_leaves_is_stopped(tmp_path: Path) -> None:
    async def first() -> tuple[str, list[str]]:
        answer = lm_of(tmp_path, Echo()).complete("a", 9)
        pieces = aiter(answer)
        found = await anext(pieces)
        await pieces.aclose()  # type: ignore[attr-defined]
        return found, list(answer)

    assert asyncio.run(first()) == ("b", [])


def test_a_closed_model(tmp_path: Path) -> None:
    closed: list[int] = []
    with LanguageModel(
        language_of(tmp_path, merges().write), session(Echo()), "here", lambda: closed.append(1)
    ) as lm:
        answer = lm.complete("a", 4)
        assert next(answer) == "b"
        assert "on here, 32 tokens" in repr(lm)
        assert repr(answer) == "<Completion of 1 + 1 tokens, not ended>"
    lm.close()
    assert (closed, "closed" in repr(lm)) == ([1], True)
    with pytest.raises(UsageError, match="closed"):
        next(answer)


def test_what_an_answer_cannot_be(tmp_path: Path) -> None:
    lm = lm_of(tmp_path, Echo())
    with pytest.raises(UsageError, match="0 tokens"):
        lm.complete("a", 0)
    with pytest.raises(UsageError, match="cannot choose a token"):
        lm.complete("a", temperature=float("nan"))
    for messages in ([], [{"role": "user"}], [{"role": "user", "content": None}], ["hello"]):
        with pytest.raises(InputError):
            lm.chat(messages)  # type: ignore[arg-type]


def test_an_answer_ends_at_its_token(tmp_path: Path) -> None:
    lm = lm_of(tmp_path, Echo())
    end = next(iter(lm.vocabulary.ends))
    answer = lm.complete("<|im_start|>", 10)
    assert ("".join(answer), answer.ids, answer.ended) == ("", [end], "end")


def test_a_full_context_is_an_error_behind_the_text(tmp_path: Path) -> None:
    lm = lm_of(tmp_path, Echo(), room=5)
    answer, shown = lm.complete("abc", 9), []
    with pytest.raises(ContextFull) as caught:
        shown.extend(answer)
    assert ("".join(shown), answer.ended, caught.value.facts["context"]) == ("def", "context", 5)
    with pytest.raises(ContextFull, match="6 tokens"):
        list(lm.complete("abcdef", 1))


def test_an_empty_prompt(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="empty"):
        list(lm_of(tmp_path, Echo()).complete("", 1))


def test_a_chat_goes_on_where_it_was(tmp_path: Path) -> None:
    echo = Echo()
    lm = lm_of(tmp_path, echo, room=300)
    messages = user("ab")
    list(answer := lm.chat(messages, 3))
    before = len(lm.session.ids)
    messages += [{"role": "assistant", "content": answer.text}, *user("cd")]
    list(answer := lm.chat(messages, 3))
    assert answer.reused >= before
