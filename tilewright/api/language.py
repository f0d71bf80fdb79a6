"""A language model that is ready to answer, from a file or a bundle.

Input: a path and the name of a host.  Output: `LanguageModel`.  Commands and the server open their
models here.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tilewright.api.host_registry import LONGEST, check_host, open_runner, targets_of, variants_of
from tilewright.api.language_bundles import cached_bundle, is_language_source, silent
from tilewright.base.abi import MOST_WORKERS
from tilewright.base.errors import BundleCorrupt, InvalidModel, UsageError
from tilewright.bundle import Manifest, is_bundle, open_bundle
from tilewright.compiler import Options, Progress
from tilewright.language import (
    CacheSession,
    Language,
    LanguageModel,
    PromptSession,
    RecordingSession,
    Run,
)


def language_model(
    path: str | os.PathLike[str],
    host: str = "wasmtime",
    threads: int | None = None,
    context: int | None = None,
    weights: int | None = None,
    cache: str | os.PathLike[str] | None = None,
    on_progress: Progress | None = None,
    lookup: bool = False,
) -> LanguageModel:
    """Opens a GGUF file, a folder of Hugging Face's format, an exported ONNX file or its folder, a
    folder with an exported encoder and decoder or with a Whisper model, or a bundle's folder.

    The first time, a file or a model's folder is compiled.

    host:        where it runs: wasmtime, chromium, firefox and others
    threads:     by default as many as this process has cores
    context:     tokens that fit, by default 4096 if the model allows it; a bundle has its own
    weights:     bits of the weights of a model's folder: 4, 8, 16 or 32, by default as they are
    cache:       where compiled files are kept, by default the user's cache
    on_progress: told what happens, how much of it is done, and of how much
    lookup:      writes repetitive texts faster: when the last tokens came before, the token that
                 followed them is computed in the same run.  The text stays the same

    Raises UsageError, InvalidModel, UnsupportedOp, InputError, HostError and other errors of
    tilewright.base.errors.
    """
    check_host(host)
    place = Path(path)
    given = is_bundle(place) or (place.is_dir() and not is_language_source(place))
    for what, value in (("context", context), ("weights", weights)):
        if is_bundle(place) and value is not None:
            raise UsageError(
                f"a bundle has its {what} already",
                hint=f"Leave the {what} out, or build the bundle with others", bundle=place,
            )  # fmt: skip
    if not given and not is_language_source(place):
        raise InvalidModel(
            "this is not a language model's file" if place.exists() else "there is no such file",
            hint="Language models are read from GGUF files, ONNX files with a tokenizer.json, "
            "folders with a config.json, and bundles",
            path=place,
        )  # fmt: skip
    folder = place
    if not given:
        options = Options(targets=targets_of(host), variants=variants_of(host))
        kept = Path(cache) if cache else None
        folder = cached_bundle(
            place, options, context, kept, on_progress or silent, weights, lookup
        )
    try:
        return _opened(folder, host, threads, own=not given, lookup=lookup)
    except BundleCorrupt as error:
        if given:
            raise
        hint = f"Delete {folder}, which keeps the compiled file: it is compiled again"
        raise BundleCorrupt(error.message, hint=hint, **error.facts) from error


def _opened(folder: Path, host: str, threads: int | None, own: bool, lookup: bool) -> LanguageModel:
    bundle = open_bundle(folder)
    language = Language.of(bundle)
    with ExitStack() as stack:
        run = stack.enter_context(_runner(host, folder, threads, own))
        session = _session(language, run, bundle.manifest, lookup)
        return LanguageModel(language, session, host, stack.pop_all().close)


def _session(
    language: Language, run: Run, manifest: Manifest, lookup: bool
) -> CacheSession | PromptSession | RecordingSession:
    if lookup and language.kind != "decoder":
        raise language.refusal("propose tokens")
    if language.kind == "speech":
        return RecordingSession(run, manifest)
    if language.kind == "encoder-decoder":
        return PromptSession(run, manifest, language.vocabulary.facts.starts)
    return CacheSession(run, manifest, lookup=lookup)


@contextmanager
def _runner(host: str, folder: Path, threads: int | None, own: bool) -> Generator[Run]:
    """A function that runs the bundle.

    own: whether this compiler made it here: its code needs no limit of time, which costs speed
    """
    if host != "wasmtime":
        with open_runner(host, folder, threads) as run_once:
            yield lambda inputs: run_once(inputs).outputs
        return
    from tilewright.hosts.wasmtime import WasmtimeHost

    seconds = None if own else LONGEST
    found = WasmtimeHost(folder, threads=_cores() if threads is None else threads, seconds=seconds)
    yield lambda inputs: found.run(inputs).outputs


def _cores() -> int:
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(own or 1, MOST_WORKERS)
