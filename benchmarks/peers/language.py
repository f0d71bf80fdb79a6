"""Language models in browsers, beside llama.cpp in WebAssembly (wllama), on the same GGUF file.

Input: GGUF files.  Output: results/peers.language.json: tokens a second of a prompt and of an
answer, first token, time to load, memory and bytes of code; both engines by turns in one run, each
in a browser of its own, each with the likeliest token.

    python -m benchmarks peers.language SmolLM2-135M-Instruct.Q4_1.gguf --threads 1 --threads 2
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.common import BUILD, Run
from benchmarks.options import Browser, Rounds
from benchmarks.peers.engines import SPEAKING, Engine
from benchmarks.peers.session import Session
from benchmarks.records import Row
from lab.timing import spread, turn
from tilewright.api.language_bundles import compile_language, open_source
from tilewright.bundle import is_bundle, open_bundle, write
from tilewright.compiler import Options
from tilewright.language import Language
from tilewright.language.vocabulary import Vocabulary

#: About 240 tokens.
PROMPT = """A lighthouse keeper writes down what he sees. On Monday the sea is calm and three
boats pass before noon. On Tuesday the wind turns to the north, the lamp is cleaned, and a
letter comes from the harbour office that asks for the oil that is left. On Wednesday there is
fog until four o'clock; he rings the bell every two minutes, and at night he can hear an engine,
but he cannot see a light. On Thursday the fog is gone, and on the rocks below the tower lies a
small green boat, dry, with two oars in it and nobody near. He climbs down with a rope and a
lantern. In the boat he finds a tin box, a map of the coast with a cross on it, and a coat that
is still warm. He calls, and only the gulls answer. In the afternoon he writes to the harbour
office: a boat has come ashore without its crew, please send somebody at once. Then he sits at
the window with the map before him and looks for the place with the cross. It is the lighthouse
itself, and beside it stands a date, which is tomorrow. On Friday morning he wakes early, puts
the kettle on the stove, opens the door of the tower, and"""


@dataclass
class Speaker:
    """One engine with one number of threads, and what it has said."""

    engine: Engine
    threads: int
    session: Session
    load: float = 0.0
    firsts: list[float] = field(default_factory=list)
    tokens: list[float] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    @property
    def first_ms(self) -> float:
        """The median of the times until the first token."""
        return statistics.median(self.firsts)

    @property
    def token_ms(self) -> float:
        """The median of the times from one token to the next."""
        return statistics.median(self.tokens)

    def row(self, prompt: int, file_bytes: int) -> Row:
        """Medians of all rounds."""
        first, token, memory = self.first_ms, self.token_ms, self.session.memory()
        code, zipped = self.session.site.code_bytes()
        return {
            "engine": self.engine.name, "version": self.engine.version, "threads": self.threads,
            "load_ms": round(self.load), "first_ms": round(first, 1), "prompt_tokens": prompt,
            "prompt_per_s": round(1000 * prompt / first, 1), "token_ms": round(token, 2),
            "tokens_per_s": round(1000 / token, 2), "spread": round(spread(self.tokens), 3),
            "n": len(self.tokens), "rounds": len(self.firsts), "text": self.texts[-1],
            **memory, "code_bytes": code, "code_gzip_bytes": zipped,
            "wasm_over_file": round(memory["wasm_bytes"] / file_bytes, 2),
        }  # fmt: skip


def main(
    run: Run,
    models: Annotated[list[Path], typer.Argument(help="GGUF files.")],
    threads: Annotated[
        list[int] | None, typer.Option(min=1, help="By default 1 and all; repeatable.")
    ] = None,
    browser: Browser = "chromium",
    context: Annotated[int, typer.Option(min=1, help="Tokens that the caches hold.")] = 2048,
    most: Annotated[int, typer.Option(min=2, help="Tokens of an answer.")] = 48,
    rounds: Rounds = 3,
) -> None:
    """Beside wllama: prompt, tokens a second, load, memory."""
    for model in models:
        for count in threads or sorted({1, os.cpu_count() or 1}):
            for row in measure(model, browser, count, context, most, rounds):
                run.keep({"model": model.stem, "browser": browser, **row})


def measure(
    model: Path, browser: str, threads: int, context: int, most: int, rounds: int
) -> list[Row]:
    """A row for each engine; the speeds of the first row are also given over the second's."""
    folder = prepared(model, context)
    vocabulary = Language.of(open_bundle(folder / "bundle")).vocabulary
    ids = vocabulary.encode(PROMPT)
    task = {"name": model.stem, "sizes": {"context": context}}
    with ExitStack() as stack:
        speakers = []
        for engine in SPEAKING:
            session = stack.enter_context(Session(engine.name, threads, browser))
            session.add_folder(model.stem, folder)
            speaker = Speaker(engine, threads, session)
            speaker.load = session.open_task(task)["milliseconds"]
            session.speak("Once", ids[:1], 4)  # what the browser compiles late
            speakers.append(speaker)
        for number in range(rounds):
            for speaker in turn(number, speakers):
                _heard(speaker, vocabulary, ids, most)
        rows = [speaker.row(len(ids), model.stat().st_size) for speaker in speakers]
    ours, theirs = speakers
    over: Row = {
        "prompt_per_s_over": round(theirs.first_ms / ours.first_ms, 2),
        "tokens_per_s_over": round(theirs.token_ms / ours.token_ms, 2),
        "same_text": _common(ours.texts[-1], theirs.texts[-1]),
    }
    return [rows[0] | over, rows[1]]


def _heard(speaker: Speaker, vocabulary: Vocabulary, ids: Sequence[int], most: int) -> None:
    """One answer; an engine whose caches hold the prompt already would have no first token."""
    said = speaker.session.speak(PROMPT, ids, most)
    times: list[float] = said["times"]
    speaker.firsts.append(times[0])
    speaker.tokens += [b - a for a, b in pairwise(times)]
    made = said.get("ids")
    text = vocabulary.decode(made) if made is not None else said["text"]
    speaker.texts.append(text)


def _common(one: str, other: str) -> float:
    """The share of the shorter text up to the first difference."""
    short = min(len(one), len(other))
    same = next((n for n in range(short) if one[n] != other[n]), short)
    return round(same / max(short, 1), 2)


def prepared(model: Path, context: int) -> Path:
    """A folder with the file and its bundle."""
    folder = BUILD / "language" / f"{model.stem}-{context}"
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / "model.gguf"
    link.unlink(missing_ok=True)
    link.symlink_to(model.resolve())
    if not is_bundle(folder / "bundle"):
        compiled = compile_language(open_source(model, context), Options(targets=("wasm",)))
        write(compiled.contents, folder / "bundle")
    return folder
