"""Speech to text: tokens of tiny Whisper models against NumPy, recordings, windows, silence, and
the command `transcribe`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_call import Called
from helpers.folder_texts import write_text
from helpers.gguf_files import Tiny as TinyText
from helpers.gguf_files import write_tiny
from helpers.vocabularies import merges
from helpers.whispers import (
    SPECIAL,
    Tiny,
    config_of,
    greedy,
    logits,
    sound,
    tensors_of,
    write_converted,
    write_published,
    write_speech_text,
    write_wav,
)

import tilewright as tw
from tilewright.base.errors import InputError, InvalidModel, TilewrightError, UsageError
from tilewright.frontend.folder import open_folder
from tilewright.frontend.speech import WhisperFolder
from tilewright.language import Language, TextAssets, speech_text
from tilewright.language.assets import LanguageFacts, SpeechFacts
from tilewright.language.recordings import samples_of, windows
from tilewright.language.transcript import Hearing, Transcript
from tilewright.language.vocabulary import vocabulary

Array = np.ndarray[Any, Any]

TINY, SEED = Tiny(), 3
NEVER, NEVER_FIRST = [5, 80], [33, 250]


@pytest.fixture(scope="module", params=["published", "converted"])
def folder(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that knows English alone, by both kinds of folders."""
    made: Path = tmp_path_factory.mktemp("models") / "tiny"
    if request.param == "published":
        write_published(made, TINY)
        settings = {"suppress_tokens": NEVER, "begin_suppress_tokens": NEVER_FIRST}
        (made / "generation_config.json").write_text(json.dumps(settings))
    else:
        write_converted(made, TINY)
        settings = {"suppress_ids": NEVER, "suppress_ids_begin": NEVER_FIRST, "lang_ids": [1]}
        (made / "config.json").write_text(json.dumps(settings))
    write_speech_text(made)
    return made


@pytest.fixture(scope="module")
def ids(folder: Path) -> dict[str, int]:
    return write_speech_text(folder)


def test_tokens_are_those_of_numpy(folder: Path, ids: dict[str, int], tmp_path: Path) -> None:
    prompt = [ids["<|startoftranscript|>"], ids["<|notimestamps|>"]]
    with tw.language_model(folder, threads=1, cache=tmp_path) as lm:
        assert (lm.name, lm.kind, lm.context) == ("tiny", "speech", TINY.room)
        for seed, seconds in ((SEED, 0.3), (4, 0.4), (SEED, 0.3)):
            samples = sound(seconds, seed)
            said = lm.transcribe(samples)
            text = "".join(said)
            want = greedy(TINY, samples, prompt, ids["<|endoftext|>"], NEVER, NEVER_FIRST)
            assert said.ids == want != []
            assert (said.ended, said.language, said.duration) == ("end", "", seconds)
            assert text == said.text == lm.vocabulary.decode(said.ids).removeprefix(" ")


def test_a_long_recording_is_the_texts_of_its_windows(folder: Path, tmp_path: Path) -> None:
    samples = sound(1.0)
    with tw.language_model(folder, threads=1, cache=tmp_path) as lm:
        parts = windows(samples, TINY.window, 16000)
        assert len(parts) == 3
        assert [start for start, _ in parts] == [0, *(end for _, end in parts[:-1])]
        apart = [token for start, end in parts for token in _ids(lm, samples[start:end])]
        assert _ids(lm, samples) == apart


def _ids(lm: Any, samples: Array) -> list[int]:
    said = lm.transcribe(samples)
    assert "".join(said) == said.text
    return list(said.ids)


def test_two_transcripts_at_once_and_stopping(folder: Path, tmp_path: Path) -> None:
    """They take turns, and compute again what the other one displaced."""
    with tw.language_model(folder, threads=1, cache=tmp_path) as lm:
        want = [_ids(lm, sound(0.3, seed)) for seed in (3, 4)]
        both = [lm.transcribe(sound(0.3, seed)) for seed in (3, 4)]
        for piece in both[0]:
            next(both[1], piece)
        "".join(both[1])
        assert [said.ids for said in both] == want

        async def read() -> str:
            return "".join([piece async for piece in lm.transcribe(sound(0.3, SEED))])

        assert asyncio.run(read()) == "".join(lm.transcribe(sound(0.3, SEED)))
        stopped = lm.transcribe(sound(0.3, SEED))
        next(stopped)
        stopped.stop()
        assert list(stopped) == []
        assert (stopped.ended, len(stopped.ids)) == ("stopped", 1)
    with pytest.raises(UsageError, match="closed"):
        next(lm.transcribe(sound(0.3)))


def test_languages_and_tasks(tmp_path: Path) -> None:
    """Of a model that knows several: what is asked for, or the likeliest language."""
    folder = write_published(tmp_path / "tiny", TINY)
    (folder / "generation_config.json").write_text(json.dumps({"is_multilingual": True}))
    ids = write_speech_text(folder)
    start, plain, end = (
        ids[f"<|{n}|>"] for n in ("startoftranscript", "notimestamps", "endoftext")
    )
    samples = sound(0.3, SEED)
    with tw.language_model(folder, threads=1, cache=tmp_path / "cache") as lm:
        for language in ("en", "de"):
            for task in ("transcribe", "translate"):
                said = lm.transcribe(samples, language, task)
                text = "".join(said)
                prompt = [start, ids[f"<|{language}|>"], ids[f"<|{task}|>"], plain]
                assert (said.ids, said.language) == (greedy(TINY, samples, prompt, end), language)
                assert text == said.text
        first = logits(TINY, tensors_of(TINY), samples, [start])[-1]
        heard = lm.transcribe(samples)
        text = "".join(heard)
        assert heard.language == max(("en", "de"), key=lambda code: first[ids[f"<|{code}|>"]])
        assert text == "".join(lm.transcribe(samples, heard.language))
        for arguments, match in ((("xx",), "the language 'xx'"), (("en", "sing"), "task 'sing'")):
            with pytest.raises(UsageError, match=match):
                lm.transcribe(samples, *arguments)


@pytest.mark.parametrize(("words", "settings", "is_multilingual"), [
    (51864, {}, False), (51865, {}, True), (51866, {"is_multilingual": None}, True),
    (51865, {"is_multilingual": False}, False), (51864, {"is_multilingual": True}, True),
])  # fmt: skip
def test_models_that_know_several_languages(
    tmp_path: Path, words: int, settings: dict[str, Any], is_multilingual: bool
) -> None:
    folder = write_published(tmp_path / "tiny", TINY)
    ids = write_speech_text(folder)
    (folder / "generation_config.json").write_text(json.dumps(settings))
    facts = speech_text(open_folder(folder), words).facts
    assert facts.speech is not None
    languages = {code: ids[f"<|{code}|>"] for code in ("en", "de")}
    assert facts.speech.languages == (languages if is_multilingual else {})
    assert set(facts.speech.tasks) == ({"transcribe", "translate"} if is_multilingual else set())
    assert facts.ends == (ids["<|endoftext|>"],)
    assert facts.speech.silence == ids["<|nospeech|>"]


def test_a_vocabulary_of_another_model(tmp_path: Path) -> None:
    folder = write_published(tmp_path / "tiny", TINY)
    write_text(folder, merges())
    with pytest.raises(InvalidModel, match=r"no token <\|startoftranscript\|>"):
        tw.language_model(folder, cache=tmp_path / "cache")


def test_ids_that_the_model_does_not_have(tmp_path: Path) -> None:
    """A hostile bundle's."""
    folder = write_published(tmp_path / "tiny", TINY)
    write_speech_text(folder)
    text = speech_text(open_folder(folder), TINY.words)
    for wrong in ({"never": (TINY.words,)}, {"languages": {"en": -1}}, {"silence": 10**9}):
        speech = SpeechFacts(rate=16000, start=1, plain=2, **wrong)
        facts = LanguageFacts(name="x", pieces="bytes", speech=speech)
        with pytest.raises(InvalidModel, match="another model"):
            Language(TextAssets(text.tokenizer, facts), TINY.words)


# ---- silence -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("silence", "sure", "want"), [
    (0.5, 0.1, [7, 8]), (0.7, 0.9, [7, 8]), (0.7, 0.2, []), (0.7, 0.5, [7, 8]),
])  # fmt: skip
def test_silence(tmp_path: Path, silence: float, sure: float, want: list[int]) -> None:
    """A window is left out if silence is likely, and its tokens are not."""
    folder = write_published(tmp_path / "tiny", TINY)
    ids = write_speech_text(folder)
    text = speech_text(open_folder(folder), TINY.words)
    start, quiet, end = (ids[f"<|{n}|>"] for n in ("startoftranscript", "nospeech", "endoftext"))

    def after(_: Array, given: Sequence[int], __: Callable[[], bool]) -> Array:
        if list(given) == [start]:
            return _logits(quiet, silence)
        return _logits([7, 8, end][len(given) - 2], sure)

    words, facts = vocabulary(text, TINY.words), text.facts.speech
    assert facts is not None
    hearing = Hearing(TINY.room, TINY.window, after)
    said = Transcript(hearing, words, facts, sound(0.1), "", "transcribe")
    assert "".join(said) == words.decode(want)
    assert said.ids == want


def _logits(token: int, share: float) -> Array:
    """Of which one token has this probability, and all others an equal one."""
    made = np.full(TINY.words, np.log((1 - share) / (TINY.words - 1)), "f4")
    made[token] = np.log(share)
    return made


# ---- recordings ----------------------------------------------------------------------------------


def test_windows_end_where_it_is_quiet() -> None:
    samples = np.full(100_000, 0.5, "f4")
    samples[27_000:28_600] = samples[60_000:60_400] = 0.001
    parts = windows(samples, 32_000, 16000)
    assert 27_000 < parts[0][1] < 28_600
    assert [start for start, _ in parts] == [0, *(end for _, end in parts[:-1])]
    assert parts[-1][1] == len(samples)
    assert all(0 < end - start <= 32_000 for start, end in parts)
    assert windows(samples[:32_000], 32_000, 16000) == [(0, 32_000)]


def test_wav_files(tmp_path: Path) -> None:
    """Two channels become their mean; another rate is changed."""
    samples = sound(0.5)
    whole = np.rint(samples * 32767) / 32768
    for channels in (1, 2):
        found = samples_of(write_wav(tmp_path / "a.wav", samples, channels=channels), 16000)
        assert np.abs(found - whole).max() < 1e-6
    time = np.arange(44100) / 44100
    tone = samples_of(
        write_wav(tmp_path / "a.wav", np.sin(2 * np.pi * 440 * time) / 2, 44100), 16000
    )
    want = np.sin(2 * np.pi * 440 * np.arange(16000) / 16000) / 2
    assert len(tone) == len(want)
    assert np.abs(tone - want)[100:-100].max() < 1e-3


def test_recordings_that_are_refused(tmp_path: Path) -> None:
    path = write_wav(tmp_path / "a.wav", sound(0.1))
    whole = path.read_bytes()
    cases: list[tuple[Any, str]] = [
        (tmp_path / "none.wav", "No such file"),
        (write_wav(tmp_path / "b.wav", sound(0.1), width=1), "8 bits"),
        (write_wav(tmp_path / "c.wav", sound(0.1), width=3), "24 bits"),
        (write_wav(tmp_path / "d.wav", sound(0.0)), "empty"),
        (np.zeros((2, 5), "f4"), "one channel"),
        (np.zeros(5, "i2"), "floating-point"),
        (np.array([0, np.nan], "f4"), "not finite"),
        ([], "empty"),
    ]
    for number, data in enumerate((b"", b"ID3", whole[:20], whole[:40], b"RIFF" + bytes(60))):
        (tmp_path / f"{number}.wav").write_bytes(data)
        cases.append((tmp_path / f"{number}.wav", r"no .wav file of 16-bit PCM|empty"))
    for recording, match in cases:
        with pytest.raises(InputError, match=match):
            samples_of(recording, 16000)


def test_two_hundred_damaged_wav_files(tmp_path: Path) -> None:
    path, rng = write_wav(tmp_path / "a.wav", sound(0.02)), np.random.default_rng(0)
    whole, errors = path.read_bytes(), 0
    for _ in range(200):
        data = bytearray(whole)
        for at in rng.integers(0, 44, rng.integers(1, 4)):
            data[at] = rng.choice([0, 1, 0x7F, 0xFF, rng.integers(256)])
        path.write_bytes(data)
        try:
            samples_of(path, 16000)
        except InputError:
            errors += 1
    assert errors > 50


# ---- commands ------------------------------------------------------------------------------------


def test_commands(folder: Path, tmp_path: Path, capsys: Any) -> None:
    recording = write_wav(tmp_path / "a.wav", sound(0.3, SEED))
    cache = ("--cache", tmp_path / "cache", "--threads", 1)
    found = Called(capsys, "transcribe", folder, recording, *cache, "--json").json
    assert (found["ended"], found["duration_seconds"], found["language"]) == ("end", 0.3, None)
    assert found["ids"]
    assert Called(capsys, "build", folder, "-o", tmp_path / "b").code == 0
    shown = Called(capsys, "transcribe", tmp_path / "b", recording, "--threads", 1)
    assert (shown.code, shown.out) == (0, found["text"] + "\n")
    assert "0.3 s of sound" in shown.err
    for arguments, match in (
        (("chat", tmp_path / "b"), "does not chat: it is a speech model"),
        (("generate", tmp_path / "b", "--prompt", "x"), "does not read text"),
        (("build", folder, "-o", tmp_path / "c", "--context", 10), "for models of text"),
        (("transcribe", tmp_path / "b", recording, "--language", "de"), "the language 'de'"),
        (("transcribe", tmp_path / "b", recording, "--translate"), "the task 'translate'"),
        (("transcribe", tmp_path / "b", tmp_path / "none.wav"), "cannot read the recording"),
    ):
        refused = Called(capsys, *arguments)
        assert refused.code != 0
        assert match in refused.err.replace("\n", " ")


def test_weights_of_eight_bits(tmp_path: Path, capsys: Any) -> None:
    folder = write_published(tmp_path / "tiny", TINY)
    write_speech_text(folder)
    recording = write_wav(tmp_path / "a.wav", sound(0.3))
    found = Called(
        capsys, "transcribe", folder, recording, "--weights", 8, "--cache", tmp_path, "--json"
    ).json
    assert found["weight_bits"] == 8
    assert 0 < found["weight_error"] < 0.01


def test_models_of_text_do_not_hear(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "a.gguf", TinyText(text=merges().write, words=400, layers=1))
    lm = tw.language_model(path, threads=1, cache=tmp_path / "cache", context=16)
    with lm, pytest.raises(UsageError, match="does not hear: it is a language model"):
        lm.transcribe(sound(0.1))


def test_sources(tmp_path: Path) -> None:
    """Both folders hold one model."""
    published, converted = (
        write(tmp_path / write.__name__, TINY) for write in (write_published, write_converted)
    )
    names = {tuple(sorted(WhisperFolder(path).source.tensors)) for path in (published, converted)}
    assert len(names) == 1
    assert config_of(TINY)["vocab_size"] > len(SPECIAL)
    (converted / "model.bin").unlink()
    with pytest.raises(TilewrightError):
        tw.language_model(converted, cache=tmp_path / "cache")
