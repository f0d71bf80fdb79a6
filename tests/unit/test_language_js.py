"""Language models in the page (web/language), beside what Python says: choices, streams, text.

The model that answers is made up: it likes the token behind its last one, and counts its runs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.gguf_files import Tiny, write_tiny
from helpers.vocabularies import TEMPLATE, merges, pieces
from node import run

from tilewright.frontend.gguf import GgufModel
from tilewright.language import Language, Sampling, gguf_text
from tilewright.language.sampling import Mulberry32, Sampler
from tilewright.language.stream import TextStream

SMALL = {"layers": 1, "width": 32, "heads": 2, "kv_heads": 1, "hidden": 32, "words": 400}
ALPHABET = "the cat sat on a mat that is  hello nation 1 2345 's 're ,.!? \n\n\t é 漢字 🦊 x_y"

# ---- choices -------------------------------------------------------------------------------------

#: Names in Python and in JavaScript.
NAMES = {
    "temperature": "temperature", "top_k": "topK", "top_p": "topP", "min_p": "minP",
    "penalty": "penalty", "recent": "recent", "seed": "seed",
    "frequency_penalty": "frequencyPenalty", "presence_penalty": "presencePenalty",
    "logit_bias": "logitBias",
}  # fmt: skip
CHOICES = (
    {},
    {"penalty": 1.5},
    {"temperature": 0.7, "seed": 1},
    {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": 2**40 + 5},
    {"temperature": 3.0, "top_k": 7, "top_p": 0.5, "seed": -3},
    {"temperature": 0.01, "min_p": 0.9, "penalty": 0.3, "recent": 0},
    {"temperature": 1.3, "top_k": 1000, "min_p": 0.0, "penalty": 1.1, "recent": 5, "seed": 9},
    {"frequency_penalty": 0.7, "presence_penalty": -0.1},
    {"temperature": 1.0, "min_p": 0.0, "frequency_penalty": -0.3, "presence_penalty": 1.9},
    {"logit_bias": {3: 2.25, 17: -100, 299: 0.1}, "temperature": 0.9, "penalty": 1.2, "seed": 4},
    {"logit_bias": {n: n / 7 for n in range(300)}, "frequency_penalty": 0.33, "top_k": 0},
)


def logits(kind: int) -> Any:
    """Of 300 tokens: ordinary, all alike, far apart, with ties."""
    rng = np.random.default_rng(kind)
    values = 4 * rng.standard_normal(300)
    made = (values, np.zeros(300), 300 * values, np.round(values))
    return made[kind].astype(np.float32)


def test_choices_are_those_of_python() -> None:
    """Bit by bit: of 40 tokens each, drawn with the text before them."""
    rows = [logits(kind) for kind in range(4)]
    some = np.arange(300) % 7 == 2
    masks = (None, some, np.arange(300) == 250)
    wanted = []
    for choice in CHOICES:
        choose, ids = Sampler(Sampling(**choice)), [3, 3, 8]
        for n in range(40):
            ids.append(choose(rows[n % 4], ids, masks[n % 3]))
        wanted.append(ids)
    found = run(
        """
        const { makeSampler, samplingOf } = await import('TUNE/../language/sampling.js');
        const rows = <rows>.map((row) => Float32Array.from(row));
        const some = Uint8Array.from(rows[0], (_, id) => id % 7 === 2);
        const masks = [undefined, some, new Uint8Array(300).fill(1, 250, 251)];
        console.log(JSON.stringify(<choices>.map((choice) => {
          const choose = makeSampler(samplingOf(choice, 300));
          const ids = [3, 3, 8];
          for (let n = 0; n < 40; n++) ids.push(choose(rows[n % 4], ids, masks[n % 3]));
          return ids;
        })));
        """,
        rows=[row.tolist() for row in rows],
        choices=[{NAMES[k]: v for k, v in choice.items()} for choice in CHOICES],
    )
    assert found == wanted


def test_random_numbers_are_those_of_python() -> None:
    found = run(
        """
        const { mulberry32 } = await import('TUNE/../language/sampling.js');
        const fifty = (seed) => Array.from({ length: 50 }, mulberry32(seed));
        console.log(JSON.stringify(<seeds>.map(fifty)));
        """,
        seeds=[0, 1, 123456789, 2**32 - 1],
    )
    for seed, numbers in zip((0, 1, 123456789, 2**32 - 1), found, strict=True):
        made = Mulberry32(seed)
        assert numbers == [made.next() for _ in range(50)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -1}, {"topK": 1.5}, {"topP": 0}, {"minP": 2}, {"penalty": 0},
        {"recent": -1}, {"seed": 0.5}, {"temperature": "hot"}, {"frequencyPenalty": "much"},
        {"presencePenalty": {}}, {"logitBias": {"1": "a"}}, {"logitBias": {"300": 1}},
        {"logitBias": {"-1": 1}}, {"logitBias": {"one": 1}}, {"logitBias": {"1.5": 1}},
    ],
    ids=str,
)  # fmt: skip
def test_settings_that_choose_nothing(wrong: dict[str, Any]) -> None:
    found = run(
        """
        const { samplingOf } = await import('TUNE/../language/sampling.js');
        try {
          samplingOf(<wrong>, 300);
          console.log('null');
        } catch (error) {
          console.log(JSON.stringify(error));
        }
        """,
        wrong=wrong,
    )
    assert found["code"] == "input"


# ---- streams -------------------------------------------------------------------------------------


def test_streams_are_those_of_python() -> None:
    """Texts cut anywhere, some damaged, with stop strings that begin and do not end."""
    rng = np.random.default_rng(5)
    cases = []
    for _ in range(200):
        whole = "".join(rng.choice(list(ALPHABET), rng.integers(1, 40))).encode()
        if rng.random() < 0.3:
            whole = bytes(rng.permutation(list(whole)).tolist())
        cuts = sorted(rng.integers(0, len(whole) + 1, 6).tolist())
        parts = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
        stops = [str(rng.choice(["at", "é", "is  h", "🦊 ", "that", ""])) for _ in range(2)]
        cases.append((parts, stops))
    wanted = []
    for parts, stops in cases:
        stream = TextStream(stops)
        shown = [stream.add(part) for part in parts]
        wanted.append([*shown, stream.add(b"", last=True), stream.stopped])
    found = run(
        """
        const { TextStream } = await import('TUNE/../language/text_stream.js');
        console.log(JSON.stringify(<cases>.map(([parts, stops]) => {
          const stream = new TextStream(stops);
          const shown = parts.map((part) => stream.add(Uint8Array.from(part)));
          return [...shown, stream.end(), stream.stopped];
        })));
        """,
        cases=[([list(part) for part in parts], stops) for parts, stops in cases],
    )
    assert found == wanted


# ---- text ----------------------------------------------------------------------------------------

TEXT = """
const { openText } = await import('TUNE/../language/text.js');
const buffer = (text) => new TextEncoder().encode(text).buffer;
const opened = (files) => openText({
  tokenizer: buffer(files['tokenizer.json']), language: buffer(files['language.json']),
});
const told = (job) => {
  try {
    return job();
  } catch (error) {
    return { code: error.code, message: error.message, hint: error.hint };
  }
};
"""


def texts(seed: int, count: int) -> list[str]:
    rng = np.random.default_rng(seed)
    parts = [*ALPHABET.split(" "), " ", "  ", *ALPHABET, "<|im_end|>", "<s>"]
    return ["".join(rng.choice(parts, rng.integers(1, 30))) for _ in range(count)]


def files_of(path: Path, write: Any) -> tuple[Language, dict[str, str]]:
    model = GgufModel(write_tiny(path / "a.gguf", Tiny(text=write, **SMALL)))
    text = gguf_text(model.file, model.words)
    files = {name: data.decode() for name, data in text.files().items()}
    return Language(text, model.words), files


@pytest.mark.parametrize("kind", ["spaces", "merges", "llama-bpe", "qwen2", "tekken", "default"])
def test_ids_and_bytes_are_those_of_python(kind: str, tmp_path: Path) -> None:
    own = pieces() if kind == "spaces" else merges("smollm" if kind == "merges" else kind)
    language, files = files_of(tmp_path, own.write)
    lines = texts(7, 300)
    found = run(
        TEXT
        + """
        const text = opened(<files>);
        const { bytes, starts } = text.pieces;
        console.log(JSON.stringify({
          ids: <lines>.map((line) => text.encode(line)),
          pieces: Array.from({ length: starts.length - 1 }, (_, id) => (
            [...bytes.subarray(starts[id], starts[id + 1])])),
          name: text.description.name,
        }));
        """,
        files=files, lines=lines,
    )  # fmt: skip
    known = language.vocabulary
    assert found["name"] == language.name
    assert found["ids"] == [known.encode(line) for line in lines]
    assert [bytes(piece) for piece in found["pieces"]] == [
        known.piece(token) for token in range(len(found["pieces"]))
    ]


def prompts(template: str | None, chats: list[Any], files: dict[str, str]) -> Any:
    """What a template makes of chats: texts, read back from their ids, or errors."""
    facts = json.loads(files["language.json"]) | {"template": template}
    return run(
        TEXT
        + """
        const text = opened({ ...<files>, 'language.json': JSON.stringify(<facts>) });
        console.log(JSON.stringify(<chats>.map((chat) => told(() => text.encode(chat)))));
        """,
        files=files, facts=facts, chats=chats,
    )  # fmt: skip


CHATS = [
    [{"role": "user", "content": "the cat {{ 1 }} <b>&amp;</b> 'é' \n"}],
    [
        {"role": "system", "content": "be"},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": " cat"},
        {"role": "user", "content": ""},
    ],
    [],
]
#: As published models have them.
TEMPLATES = (
    TEMPLATE,
    "{%- if messages and messages[0]['role'] == 'system' %}{{ messages[0]['content'] | trim }}\n"
    "{%- endif %}{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' + m['content'] }}\n"
    "  {%- if loop.last and add_generation_prompt %}{{ '<|im_end|>' }}{% endif %}\n{% endfor -%} x",
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{{ ns.n }}"
    "{{ m.content | upper | length }}{{ m | tojson }}{% endfor %}{{ eos_token }}"
    "{{ range(3) | list }}",
)


@pytest.mark.parametrize("template", TEMPLATES)
def test_prompts_are_those_of_python(template: str, tmp_path: Path) -> None:
    from tilewright.language.template import ChatTemplate

    language, files = files_of(tmp_path, merges().write)
    own = ChatTemplate(template, json.loads(files["language.json"])["texts"])
    wanted = [language.vocabulary.encode(own.render(chat)) for chat in CHATS]
    assert prompts(template, CHATS, files) == wanted


@pytest.mark.parametrize(
    ("template", "code", "said"),
    [
        ("{{ raise_exception('Only users') }}", "input", "refuses these messages: Only users"),
        ("{% for %}", "invalid-model", "template fails"),
        ("{{ messages.nothing() }}", "invalid-model", "template fails"),
        ("{{ range(100000000000) | length }}", "invalid-model", "a range of 100000000000"),
        ("{{ messages[0].constructor.constructor('return 1')() }}", "invalid-model", "fails"),
        (None, "input", "no chat template"),
    ],
)
def test_templates_that_give_no_prompt(
    template: str | None, code: str, said: str, tmp_path: Path
) -> None:
    _, files = files_of(tmp_path, merges().write)
    (found,) = prompts(template, CHATS[:1], files)
    assert found["code"] == code
    assert said in found["message"]
    assert found["hint"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tokenizer.json", "{}"), ("tokenizer.json", "no"), ("tokenizer.json", '{"model": {}}'),
        ("language.json", "{}"), ("language.json", "[1]"), ("language.json", "\ufffe{"),
    ],
)  # fmt: skip
def test_files_that_describe_no_text(name: str, text: str, tmp_path: Path) -> None:
    _, files = files_of(tmp_path, merges().write)
    found = run(
        TEXT
        + """
        console.log(JSON.stringify(told(() => opened(<files>))));
        """,
        files=files | {name: text},
    )  # fmt: skip
    assert found["code"] == "invalid-model"


# ---- answers -------------------------------------------------------------------------------------

#: Token n is the letter n; 27 ends an answer; 28 and 29 are the two halves of an é.
MODEL = """
const { Model } = await import('TUNE/../language/language.js');
const { tokensInOrder } = await import('TUNE/../language/json_matcher.js');
const { EngineError } = await import('TUNE/../engine/errors.js');
const runs = [];
let fails = () => {};
const engine = {
  info: {
    device: 'wasm', outputs: [{ name: 'logits', shape: [1, 1, 32] }], dims: { n: [1, 4] },
    inputs: [{ name: 'input_ids', shape: [1, 'n'] }, { name: 'seqlens_k', shape: [1] }],
  },
  parts: { program: { states: [{ name: 'past', shape: [1, 2, <room>, 4] }] }, losses: 0 },
  async run({ input_ids: { data }, seqlens_k: [last] }) {
    runs.push([[...data], last]);
    fails(runs.length);
    const next = data.at(-1) + 1;
    const logits = Float32Array.from({ length: 32 }, (_, id) => Number(id === next));
    return { outputs: { logits: { data: logits } } };
  },
  dispose() {},
};
const bytesOf = (letter) => [...new TextEncoder().encode(letter)];
const letters = [...'.abcdefghijklmnopqrstuvwxyz', '', '', '', ''].map(bytesOf);
letters[28] = [0xc3];
letters[29] = [0xa9];
const starts = Uint32Array.from([...letters, 0], (_, id) => letters.slice(0, id).flat().length);
const text = {
  description: { name: 'letters', template: '', ends: [27] },
  pieces: { bytes: Uint8Array.from(letters.flat()), starts },
  async encode(given) {
    const whole = typeof given === 'string' ? given : given.map(({ content }) => content).join('');
    return [...whole].map((letter) => letter === 'é' ? 28 : letter.charCodeAt(0) - 96);
  },
  async order() {
    return tokensInOrder(this.pieces);
  },
  close() {},
};
const lm = new Model(engine, text);
async function read(answer, most = 99) {
  const shown = [];
  let error = null;
  try {
    for await (const piece of answer) {
      shown.push(piece);
      if (shown.length === most) break;
    }
  } catch (caught) {
    error = caught?.code ?? String(caught);
  }
  const { text, ids, ended, promptTokens, reusedTokens } = answer;
  return { shown, error, text, ids, ended, promptTokens, reusedTokens };
}
const user = (content) => [{ role: 'user', content }];
"""


def told(script: str, room: int = 40) -> Any:
    return run(MODEL + script, room=room)


def test_an_answer_until_its_end_and_the_next_one_computes_what_is_new() -> None:
    first, second, runs, about = told(
        """
        const first = await read(lm.chat(user('uvw')));
        const before = runs.length;
        const second = await read(lm.chat(user('uvwxyzb'), { most: 2 }));
        const about = [await lm.count('abc'), lm.name, lm.context, lm.chats];
        console.log(JSON.stringify([first, second, runs.slice(before), about]));
        """
    )
    assert first["shown"] == ["x", "y", "z"]
    assert (first["text"], first["ended"], first["ids"]) == ("xyz", "end", [24, 25, 26, 27])
    assert (first["promptTokens"], first["reusedTokens"]) == (3, 0)
    assert (second["text"], second["ended"], second["reusedTokens"]) == ("cd", "most", 6)
    assert runs == [[[2], 6], [[3], 7]]
    assert about == [3, "letters", 40, True]


def test_a_prompt_that_is_held_whole_is_asked_for_its_last_token() -> None:
    first, again, runs = told(
        """
        const first = await read(lm.chat(user('abcab'), { most: 1 }));
        const before = runs.length;
        const again = await read(lm.chat(user('abcab'), { most: 1 }));
        console.log(JSON.stringify([first, again, runs.slice(before)]));
        """
    )
    assert first["text"] == again["text"] == "c"
    assert (again["reusedTokens"], runs) == (4, [[[2], 4]])


def test_stop_strings_and_characters() -> None:
    whole, cut, begun, half = told(
        """
        const whole = await read(lm.complete('st', { most: 4, stop: 'xyz' }));
        const cut = await read(lm.complete('t', { stop: ['no', 'wx'] }));
        const begun = await read(lm.complete('w', { stop: 'yzx' }));
        const half = await read(lm.complete('é', { most: 1 }));
        console.log(JSON.stringify([whole, cut, begun, half]));
        """
    )
    assert (whole["shown"], whole["ended"]) == (["u", "v", "w", "x"], "most")
    assert (cut["text"], cut["ended"]) == ("uv", "stop")
    assert (begun["shown"], begun["ended"]) == (["x", "yz"], "end")
    assert half["text"] == "\ufffd"


def test_the_chat_survives_what_goes_wrong() -> None:
    """An abort in a run, one before it, a caller who leaves, a full cache, no memory, a trap."""
    found = told(
        """
        const results = [];
        const more = async (options, most) => {
          results.push(await read(lm.chat(user('abc'), options), most));
        };
        const control = new AbortController();
        const { signal } = control;
        fails = (count) => {
          if (count < 3) return;
          control.abort('enough');
          throw signal.reason;
        };
        await more({ signal });
        fails = () => {};
        await more({ signal });
        await more({}, 2);
        await more({});
        fails = () => { throw new EngineError('memory-limit', 'no memory'); };
        await more({});
        fails = () => { throw new EngineError('kernel-trap', 'out of range'); };
        await more({});
        fails = () => {};
        await more({ most: 2 });
        results.push(await read(lm.chat(user('abc'.repeat(9)))));
        await more({ most: 2 });
        console.log(JSON.stringify(results));
        """,
        room=10,
    )
    parts = [(f["text"], f["ended"], f["error"], f["reusedTokens"]) for f in found]
    assert parts == [
        ("de", "aborted", "enough", 0),
        ("", "aborted", "enough", 0),
        ("de", "aborted", None, 2),
        ("defghijk", "context", "context-full", 2),
        ("", "memory", "memory-limit", 2),
        ("", "aborted", "kernel-trap", 2),
        ("de", "most", None, 0),
        ("", "context", "context-full", 0),
        ("de", "most", None, 2),
    ]


def test_one_answer_at_a_time_and_each_once() -> None:
    second, first, again = told(
        """
        const answer = lm.chat(user('abc'), { most: 3 });
        const pieces = answer[Symbol.asyncIterator]();
        const begun = await pieces.next();
        const second = await read(lm.chat(user('abc')));
        const first = [begun.value];
        for await (const piece of pieces) first.push(piece);
        console.log(JSON.stringify([second, first, await read(answer)]));
        """
    )
    assert second["error"] == "input"
    assert first == ["d", "e", "f"]
    assert again["error"] == "input"


def test_a_lost_device_ends_the_answer_and_empties_the_caches() -> None:
    lost, again = told(
        """
        fails = (count) => { if (count === 3) engine.parts = { ...engine.parts, losses: 1 }; };
        const lost = await read(lm.chat(user('abc')));
        console.log(JSON.stringify([lost, await read(lm.chat(user('abc'), { most: 1 }))]));
        """
    )
    assert (lost["text"], lost["error"]) == ("de", "host")
    assert (again["text"], again["reusedTokens"]) == ("d", 0)


@pytest.mark.parametrize(
    "options",
    [{"most": 0}, {"mosst": 1}, {"temperature": -1}, {"topK": -1}, {"logitBias": {32: 1}}],
    ids=str,
)
def test_options_that_cannot_be(options: dict[str, Any]) -> None:
    code = run(
        MODEL
        + """
        try {
          lm.chat(user('a'), <options>);
        } catch (error) {
          console.log(JSON.stringify(error.code));
        }
        """,
        room=10, options=options,
    )  # fmt: skip
    assert code == "input"


def test_a_model_that_chooses_its_tokens_itself() -> None:
    codes = told(
        """
        engine.info.outputs[0].name = 'token';
        const biased = { logitBias: { 1: 1 } };
        const wishes = [{ temperature: 1 }, { penalty: 2 }, { presencePenalty: 1 }, biased, {}];
        console.log(JSON.stringify(wishes.map((options) => {
          try {
            return lm.chat(user('a'), options).text;
          } catch (error) {
            return error.code;
          }
        })));
        """
    )
    assert codes == ["input"] * 4 + [""]


def test_an_answer_that_fits_a_schema() -> None:
    """It ends with its text, without a run more; the model can be used as before."""
    found, free, runs, wrong = told(
        """
        const found = await read(lm.complete('a', { schema: { type: 'boolean' } }));
        const count = runs.length;
        const free = await read(lm.complete('a', { most: 2 }));
        const wrong = [];
        for (const schema of [{ not: {} }, 3, null, false]) {
          wrong.push((await read(lm.complete('a', { schema }))).error);
        }
        for (const stop of ['a', ['', 'a']]) {
          try {
            lm.complete('a', { schema: {}, stop });
          } catch (error) {
            wrong.push(error.code);
          }
        }
        console.log(JSON.stringify([found, free, count, wrong]));
        """
    )
    assert (found["text"], found["ended"], found["error"]) == ("false", "end", None)
    assert (runs, free["text"]) == (5, "bc")
    assert wrong == ["input"] * 6


def test_a_schema_that_the_vocabulary_cannot_write() -> None:
    found, again = told(
        """
        const found = await read(lm.complete('a', { schema: { type: 'object' } }));
        console.log(JSON.stringify([found, await read(lm.complete('a', { most: 1 }))]));
        """
    )
    assert (found["error"], found["text"], again["text"]) == ("input", "", "b")


def test_biases_and_penalties_of_an_answer() -> None:
    banned, tired = told(
        """
        const banned = await read(lm.complete('a', { most: 2, logitBias: { 2: -100, 9: 0.5 } }));
        const tiring = { most: 4, logitBias: { 5: 1.8 }, frequencyPenalty: 0.5 };
        const tired = await read(lm.complete('a', tiring));
        console.log(JSON.stringify([banned, tired]));
        """
    )
    assert banned["text"] == "ij"
    assert tired["text"] == "eefg"
