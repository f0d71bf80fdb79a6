"""A language model of Llama's architecture on a GPU beside onnxruntime-web, from one ONNX file.

Input: a GPU, Node, the npm packages `webgpu` and those of package.json; sizes.  Output:
results/peers.llama.json: milliseconds of a prompt and of a token, both engines by turns, each in a
Node with Dawn, each token chosen on the device.  Weights are random and made on the spot; with
floats=16 all floats of the file have 16 bits, as published exports have them.

    python -m benchmarks peers.llama [--prompt 512] [--tokens 64] [--size floats=16]
    python -m benchmarks peers.llama --smoke
"""

from __future__ import annotations

import dataclasses
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Annotated

import numpy as np
import onnx
import typer

from benchmarks.common import Run
from benchmarks.gpu.dawn import facts
from benchmarks.gpu.llama import sized
from benchmarks.options import Rounds, Smoke
from benchmarks.peers.browsers import install
from benchmarks.peers.engines import SPEAKING_ON_GPU, Engine
from benchmarks.peers.session import Session
from benchmarks.records import Row
from lab.timing import spread, turn
from tests.helpers.llama import TINY, Sizes, llama
from tilewright.bundle import write
from tilewright.compiler import Options, compile_model
from tilewright.hosts.browser_dawn import require_dawn

#: Sizes of TinyLlama, 1.1 billion weights.
SIZES = ("layers=22", "width=2048", "kv_heads=4", "hidden=5632")
NAME, MODEL, WEIGHTS = "llama", "model.onnx", "weights.bin"


@dataclass
class Speaker:
    """An engine and what it has said."""

    engine: Engine
    session: Session
    firsts: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)

    def hear(self, prompt: list[int], most: int) -> None:
        """One answer."""
        said = self.session.speak("", prompt, most)
        times: list[float] = said["times"]
        self.ids = said["ids"]
        self.firsts.append(times[0])
        self.gaps += [b - a for a, b in pairwise(times)]

    def row(self) -> Row:
        """Medians of all rounds."""
        token = median(self.gaps)
        return {
            "engine": self.engine.name, "version": self.engine.version,
            "prompt_ms": round(median(self.firsts), 2), "token_ms": round(token, 3),
            "tokens_per_s": round(1000 / token, 1), "spread": round(spread(self.gaps), 3),
            "n": len(self.gaps), "rounds": len(self.firsts),
        }  # fmt: skip


def made(sizes: Sizes, prompt: int, folder: Path) -> None:
    """The model's file with its weights beside it, and our bundle of it."""
    path = folder / MODEL
    with (folder / WEIGHTS).open("wb") as file:
        onnx.save(llama(sizes, file=file), path)
    options = Options(
        targets=("wgsl",),
        buckets={"n": (1, prompt)},
        states=sizes.states,
        halves=sizes.floats == 16,
    )
    write(compile_model(path, options).contents, folder / "bundle")


def measure(sizes: Sizes, prompt: int, most: int, rounds: int, folder: Path) -> list[Row]:
    """A row for each engine; the first has the ratios, and how far both say the same."""
    ids = np.random.default_rng(0).integers(0, sizes.words, prompt).tolist()
    shape = [1, sizes.kv_heads, sizes.room, sizes.head]
    known = {"states": sizes.states, "shape": shape, "dtype": f"f{sizes.floats}"}
    with ExitStack() as stack:
        speakers = []
        for engine in SPEAKING_ON_GPU:
            session = stack.enter_context(Session(engine.name, 1, "dawn", engine.asked))
            session.add_folder(NAME, folder)
            session.open_task({"name": NAME, "sizes": known})
            session.speak("", ids, 4)  # pipelines are made at the first use
            speakers.append(Speaker(engine, session))
        for number in range(rounds):
            for speaker in turn(number, speakers):
                speaker.hear(ids, most)
    ours, theirs = speakers
    same = next((n for n in range(most) if ours.ids[n] != theirs.ids[n]), most)
    over: Row = {
        "prompt_over": round(median(theirs.firsts) / median(ours.firsts), 2),
        "token_over": round(median(theirs.gaps) / median(ours.gaps), 2),
        "same_tokens": same,
    }
    return [ours.row() | over, theirs.row()]


def main(
    run: Run,
    size: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Of the model, such as layers=2; repeatable."),
    ] = None,
    prompt: Annotated[int, typer.Option(min=1, help="Tokens of the prompt.")] = 512,
    tokens: Annotated[int, typer.Option(min=2, help="Tokens that are generated.")] = 64,
    rounds: Rounds = 5,
    smoke: Smoke = False,
) -> None:
    sizes = sized(size or SIZES)
    if smoke:
        sizes, prompt, tokens, rounds = (
            dataclasses.replace(TINY, token="greedy", floats=sizes.floats),
            16,
            8,
            1,
        )
    install({engine.name: engine for engine in SPEAKING_ON_GPU})
    with tempfile.TemporaryDirectory(prefix="llama-") as temporary:
        folder = Path(temporary)
        made(sizes, prompt, folder)
        rows = [
            {**dataclasses.asdict(sizes), "prompt": prompt, **row}
            for row in measure(sizes, prompt, tokens, rounds, folder)
        ]
    for row in rows:
        run.show(row)
    if not smoke:
        run.save(rows, facts=facts(require_dawn()))
