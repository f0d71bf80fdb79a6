"""Logits of language models beside llama.cpp and an exact forward pass, on the same GGUF file.

Input: GGUF files; llama.cpp's package llama-cpp-python.  Output: results/language.logits.json: over
the first tokens of text.txt the share of equal likeliest tokens, the mean divergence and the
perplexity, of llama.cpp and of Tilewright on each host.  The exact forward pass is NumPy's in f64
over the file's own weights.  It shows who rounds more, for llama.cpp rounds what it multiplies to
8 bits.

    python -m benchmarks language.logits SmolLM2-135M-Instruct.Q4_1.gguf --host wasmtime
    python -m benchmarks language.logits MODEL.gguf --type Q8_0 --type Q6_K
    python -m benchmarks language.logits MODEL.gguf --host dawn --halves --bytes
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.common import BUILD, Run
from benchmarks.language import llama_cpp
from benchmarks.language.agreement import agreement, perplexity
from benchmarks.options import Hosts, one_of
from benchmarks.records import Row
from tests.helpers.gguf_files import TYPES, Forward
from tilewright.api.host_registry import open_runner, targets_of, variants_of
from tilewright.api.language_bundles import LanguageSource, compile_language, open_source
from tilewright.base.numpy_scalars import Array
from tilewright.bundle import write
from tilewright.cli.options import Bytes, Halves
from tilewright.compiler import Options
from tilewright.frontend.language import ROWS
from tilewright.language import CacheSession, Language

TEXT = Path(__file__).with_name("text.txt")
#: Rows of logits that the exact forward pass computes at once.
CHUNK = 64


@dataclass(frozen=True)
class Settings:
    """How Tilewright computes.  prompt: how many tokens each run takes"""

    host: str
    halves: bool
    bytes: bool
    prompt: int


def main(
    run: Run,
    models: Annotated[list[Path], typer.Argument(help="GGUF files.")],
    kinds: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            metavar="TYPE",
            parser=one_of(TYPES),
            help=f"A copy of each file with this type of weights; repeatable: {', '.join(TYPES)}.",
        ),
    ] = None,
    host: Hosts = None,
    halves: Halves = False,
    as_bytes: Bytes = False,
    prompt: Annotated[
        int, typer.Option(min=1, help="Tokens of a run; only the last one of each has logits.")
    ] = 1,
    tokens: Annotated[int, typer.Option(min=2, help="Tokens of the text.")] = 512,
    threads: Annotated[int, typer.Option(min=1, help="Threads of both engines.")] = 2,
) -> None:
    """Agreement with llama.cpp and with an exact forward pass, and perplexity."""
    llama_cpp.package()  # without it nothing is computed
    settings = [Settings(name, halves, as_bytes, prompt) for name in host or ("wasmtime",)]
    for model in (made for given in models for made in _files(given, kinds or ())):
        for row in measure(model, settings, tokens, threads):
            facts = {"model": model.stem, "tokens": tokens, "threads": threads}
            run.keep({**facts, **row}, facts={"llama_cpp": llama_cpp.version()})


def measure(model: Path, settings: Sequence[Settings], tokens: int, threads: int) -> Iterator[Row]:
    """A row for llama.cpp, then one for each of the settings."""
    source = open_source(model, tokens)
    vocabulary = Language(source.text, source.model.words).vocabulary
    ids = vocabulary.encode(TEXT.read_text())[:tokens]
    exact, start = _exact(model, ids), time.perf_counter()
    theirs = llama_cpp.logits(model, ids, threads)
    yield {
        "engine": "llama.cpp", "host": "native", "halves": False, "bytes": False,
        "prompt": len(ids), **_apart("exact", theirs, exact),
        "perplexity": perplexity(theirs, ids), "exact_perplexity": perplexity(exact, ids),
        "seconds": round(time.perf_counter() - start, 1),
    }  # fmt: skip
    for how in settings:
        start = time.perf_counter()
        ends = range(how.prompt, len(ids) + 1, how.prompt)
        ours = _ours(source, model, how, ids, ends, threads)
        at = [end - 1 for end in ends]
        row = {
            "engine": "tilewright", **asdict(how), **_apart("exact", ours, exact[at]),
            **_apart("llama", ours, theirs[at]),
            "seconds": round(time.perf_counter() - start, 1),
        }  # fmt: skip
        yield row | ({"perplexity": perplexity(ours, ids)} if how.prompt == 1 else {})


def _apart(whom: str, found: Array, wanted: Array) -> Row:
    return {f"{whom}_{name}": value for name, value in asdict(agreement(found, wanted)).items()}


def _exact(model: Path, ids: Sequence[int]) -> Array:
    forward = Forward(model)
    hidden = forward.hidden(ids)
    parts = (hidden[at : at + CHUNK] for at in range(0, len(ids), CHUNK))
    return np.concatenate([forward.logits(part).astype(np.float32) for part in parts])


def _ours(
    source: LanguageSource, model: Path, how: Settings, ids: Sequence[int], ends: Sequence[int],
    threads: int,
) -> Array:  # fmt: skip
    """Logits after each run: the rows before `ends`."""
    loose = "i8" if how.bytes else "f16" if how.halves else ""
    source = open_source(model, source.model.room, loose) if loose else source
    options = Options(
        targets=targets_of(how.host), variants=variants_of(how.host), halves=how.halves,
        bytes=how.bytes, buckets={ROWS: sorted({1, how.prompt})},
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as folder:
        manifest = write(compile_language(source, options).contents, Path(folder))
        with open_runner(how.host, Path(folder), threads) as run_once:
            session = CacheSession(lambda inputs: run_once(inputs).outputs, manifest)
            rows = [session.read(ids[:end]) for end in ends]
    return np.array([row for row in rows if row is not None])


def _files(model: Path, kinds: Sequence[str]) -> Iterator[Path]:
    """The file itself, or its copies of other types."""
    if not kinds:
        yield model
    for kind in kinds:
        made = BUILD / "language" / f"{model.stem.rpartition('.')[0] or model.stem}.{kind}.gguf"
        made.parent.mkdir(parents=True, exist_ok=True)
        yield made if made.exists() else llama_cpp.requantised(model, kind, made)
