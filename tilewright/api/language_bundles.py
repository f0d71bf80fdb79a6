"""The bundle of a language model, from the model's file.

Input: a GGUF file.  Output: what compile_model makes of it, with the text assets of
language/assets.py, so that the file is not needed afterwards.  Bundles that are made on the way to
an answer are kept in a cache.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.api.user_cache import user_cache
from tilewright.base.compiler_digest import compiler_name
from tilewright.bundle import is_bundle, write
from tilewright.compiler import Compiled, Options, Progress, compile_model
from tilewright.frontend.gguf import GgufModel, is_gguf, read_gguf
from tilewright.frontend.language import ROWS, Decoder

if TYPE_CHECKING:
    from tilewright.language import TextAssets

#: Tokens that the caches hold, if the model was trained for as many.
CONTEXT = 4096
#: New tokens of a run: one, and parts of prompts.
SIZES = (1, 8, 64)


@dataclass(frozen=True)
class LanguageSource:
    """model: its graphs;  text: its vocabulary and template"""

    model: Decoder
    text: TextAssets


def is_language_source(path: Path) -> bool:
    """Whether the path is a language model's file and not another model's."""
    return path.is_file() and is_gguf(path)


def open_source(path: Path, context: int | None = None, loose: str = "") -> LanguageSource:
    """Raises InvalidModel, UnsupportedOp, UnsupportedDType, UsageError.

    context: tokens that the caches hold, by default `CONTEXT` if the model was trained for as many
    loose:   what products may round their other operand to, as of `ops.Weight`
    """
    # which needs packages that other models do without
    from tilewright.language import Language, gguf_text

    model = GgufModel(read_gguf(path), context or 0, loose, most=CONTEXT)
    text = gguf_text(model.file, model.words)
    Language(text, model.words)  # what cannot be read fails before the model is compiled
    return LanguageSource(model, text)


def compile_language(
    source: LanguageSource, options: Options, progress: Progress | None = None
) -> Compiled:
    """The bundle.  Without buckets and states in the options it gets the usual ones."""
    model = source.model
    whole = replace(
        options,
        name=options.name or model.name,
        buckets=options.buckets or {ROWS: tuple(n for n in SIZES if n <= model.room)},
        states=options.states or model.states,
        assets={**source.text.files(), **options.assets},
    )
    return compile_model(model, whole, progress)


def cached_bundle(
    path: Path, options: Options, context: int | None, cache: Path | None, progress: Progress
) -> Path:
    """The folder of the file's bundle, found by the file's contents or made.

    cache: where bundles are kept, by default the user's cache
    """
    progress("reading the file", 0, 1)
    how = (compiler_name(), context, options.targets, options.variants)
    with path.open("rb") as file:
        contents = hashlib.file_digest(file, "sha256").hexdigest()
    digest = hashlib.sha256(repr((contents, *how)).encode()).hexdigest()[:32]
    folder = (cache or user_cache() / "language") / digest
    if is_bundle(folder):
        return folder
    compiled = compile_language(open_source(path, context), options, progress)
    progress("writing weights", 0, 1)
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix="building-", dir=folder.parent))
    try:
        write(compiled.contents, made)
        with suppress(OSError):  # another process may have been first
            made.rename(folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return folder
