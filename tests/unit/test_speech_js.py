"""Speech to text in the page (web/language): windows as Python cuts them, and transcripts of a
model that is made up: it hears the letters of a word, and counts its runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.vocabularies import merges
from node import run
from test_language_js import MODEL, TEXT, files_of

from tilewright.language.recordings import windows


def test_windows_are_those_of_python() -> None:
    rng = np.random.default_rng(3)
    cases = [(count, size) for count in (1, 900, 5000, 20_000) for size in (300, 1000, 4799)]
    lines = [rng.normal(0, 1, count).astype(np.float32) for count, _ in cases]
    found = run(
        """
        const { windowsOf } = await import('TUNE/../language/from_sound.js');
        console.log(JSON.stringify(<cases>.map(([, size], at) => (
          windowsOf(Float32Array.from(<lines>[at]), size, 1000)))));
        """,
        cases=cases, lines=[line.tolist() for line in lines],
    )  # fmt: skip
    wanted = [windows(x, size, 1000) for x, (_, size) in zip(lines, cases, strict=True)]
    assert [[tuple(part) for part in parts] for parts in found] == wanted
    assert all(0 < b - a <= size for parts, (_, size) in zip(wanted, cases, strict=True)
               for a, b in parts)  # fmt: skip


#: Hears the letters of a word; 40 begins, 41 and 42 are languages, 43 a task, 44 asks for no times,
#: 45 is silence, 46 a time.  Letter 5 is never chosen, and letter 1 never first.
HEARING = (
    MODEL
    + """
const SHARES = <shares>;
const word = <word>;
const likely = [];
const speaking = {
  ...engine,
  info: {
    ...engine.info, dims: { n: [1], samples: [0, 9] },
    outputs: [{ name: 'logits', shape: [1, 1, 50] }],
    inputs: [...engine.info.inputs, { name: 'samples', shape: [1, 'samples'] }],
  },
  parts: {
    losses: 0,
    program: {
      states: ['past_encoder.0.key', 'past_decoder.0.key'].map((name, at) => (
        { name, shape: [1, 2, [60, 40][at], 4] })),
    },
  },
  async run({ samples, sample_count: [count], input_ids: { data: [id] }, seqlens_k: [last] }) {
    runs.push([[...samples.data], samples.shape, count, id, last]);
    fails(runs.length);
    const at = last - <prompt>;
    const chosen = id === 40 ? (SHARES.silence > 0.5 ? 45 : 42) : word[at] ?? 27;
    const share = id === 40 ? SHARES.silence : SHARES.word;
    const logits = new Float32Array(50).fill(Math.log((1 - share) / 49));
    logits[chosen] = Math.log(share);
    if (at === 0) logits[1] = logits[5] = 80;
    return { outputs: { logits: { data: logits } } };
  },
};
const speech = {
  rate: 3, start: 40, plain: 44, languages: <languages>, tasks: <tasks>,
  never: [5, 45], neverFirst: [1], silence: <silence>,
};
const description = { ...text.description, speech };
const hearing = new Model(speaking, { ...text, description });
async function said(samples, options) {
  const answer = hearing.transcribe(samples, options);
  const found = await read(answer);
  return { ...found, language: answer.language, duration: answer.duration };
}
"""
)
LANGUAGES = {"languages": {"en": 41, "de": 42}, "tasks": {"transcribe": 43}}


def hears(script: str, **facts: Any) -> Any:
    usual = {"shares": {"silence": 0.4, "word": 0.9}, "word": [8, 9], "silence": None, "prompt": 1}
    return run(HEARING + script, room=40, **({"languages": {}, "tasks": {}} | usual | facts))


def test_a_transcript_and_its_runs() -> None:
    one, three, runs = hears(
        """
        const one = await said([1, 2, 3]);
        const three = await said([1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1]);
        console.log(JSON.stringify([one, three, runs]));
        """
    )
    assert (one["text"], one["ids"], one["ended"]) == ("hi", [8, 9], "end")
    assert (one["language"], one["duration"]) == ("", 1)
    assert (three["text"], three["duration"]) == ("hihi", 4)
    assert runs[:4] == [
        [[1, 2, 3], [1, 3], 3, 40, 0], [[], [1, 0], 3, 44, 1],
        [[], [1, 0], 3, 8, 2], [[], [1, 0], 3, 9, 3],
    ]  # fmt: skip
    begins = [(count, len(data)) for data, _, count, _, last in runs if last == 0]
    assert begins == [(3, 3), (7, 7), (5, 5)]


def test_a_language_that_is_asked_for_or_heard() -> None:
    heard, asked, refused = hears(
        """
        const heard = await said([1], {});
        const asked = await said([1], { language: 'en' });
        const refused = [];
        for (const options of [{ language: 'xx' }, { task: 'translate' }, { most: 3 }]) {
          try {
            hearing.transcribe([1], options);
          } catch ({ code, message }) {
            refused.push([code, message]);
          }
        }
        console.log(JSON.stringify([heard.language, asked.language, refused,
          runs.filter(([, , , id]) => id > 27).map(([, , , id]) => id)].slice(0, 3)));
        """,
        **LANGUAGES, prompt=3,
    )  # fmt: skip
    assert (heard, asked) == ("de", "en")
    assert [code for code, _ in refused] == ["input"] * 3
    assert "language xx" in refused[0][1]


@pytest.mark.parametrize(
    ("shares", "text"),
    [
        ({"silence": 0.55, "word": 0.1}, "hi"),
        ({"silence": 0.7, "word": 0.9}, "hi"),
        ({"silence": 0.7, "word": 0.2}, ""),
    ],
)
def test_a_silent_window(shares: dict[str, float], text: str) -> None:
    found = hears("console.log(JSON.stringify(await said([1])));", shares=shares, silence=45)
    assert (found["text"], found["ended"]) == (text, "end")


def test_a_long_text_of_a_window_ends_at_half_the_room() -> None:
    found, runs = hears(
        "const found = await said([1]); console.log(JSON.stringify([found, runs.length]));",
        word=[*[8] * 30],
    )
    assert (found["text"], runs) == ("h" * 20, 21)


def test_times_are_no_text_and_the_model_survives_an_abort() -> None:
    found, aborted, again = hears(
        """
        const found = await said([1]);
        const control = new AbortController();
        fails = (count) => {
          control.abort('enough');
          control.signal.throwIfAborted();
        };
        const aborted = await said([1], { signal: control.signal });
        fails = () => {};
        console.log(JSON.stringify([found, aborted, await said([1])]));
        """,
        word=[8, 46, 9],
    )
    assert (found["text"], found["ids"]) == ("hi", [8, 46, 9])
    assert (aborted["error"], aborted["ended"]) == ("enough", "aborted")
    assert again == found


def test_what_a_speech_model_does_not_do() -> None:
    found = hears(
        """
        const results = [];
        for (const call of [
          () => hearing.chat(user('a')), () => hearing.complete('a'), () => hearing.generate('a'),
          () => lm.transcribe([1]), () => hearing.transcribe([]), () => hearing.transcribe([NaN]),
        ]) {
          try {
            call();
          } catch ({ code, message, hint }) {
            results.push([code, message, hint]);
          }
        }
        console.log(JSON.stringify(results));
        """
    )
    assert [code for code, *_ in found] == ["input"] * 6
    assert "speech model" in found[0][1]
    assert "transcribe" in found[0][2]
    assert "does not hear" in found[3][1]


@pytest.mark.parametrize(
    ("change", "is_read"),
    [
        ({}, True), ({"languages": {"en": 7}, "silence": 3}, True), ({"start": -1}, False),
        ({"rate": 0}, False), ({"never": [0.5]}, False), ({"never": 5}, False),
        ({"languages": {"en": "7"}}, False), ({"tasks": None}, False), ({"plain": None}, False),
    ],
    ids=str,
)  # fmt: skip
def test_facts_of_speech(change: dict[str, Any], is_read: bool, tmp_path: Path) -> None:
    _, files = files_of(tmp_path, merges().write)
    speech = {"rate": 16000, "start": 1, "plain": 2, "never": [3], "never_first": [4]} | change
    facts = json.loads(files["language.json"]) | {"speech": speech}
    found = run(
        TEXT
        + """
        console.log(JSON.stringify(told(() => opened(<files>).description.speech)));
        """,
        files=files | {"language.json": json.dumps(facts)},
    )
    if is_read:
        assert (found["start"], found["neverFirst"]) == (1, [4])
    else:
        assert found["code"] == "invalid-model"
