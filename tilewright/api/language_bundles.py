"""The bundle of a language model, from the model's file.

Input: a GGUF file, an exported ONNX file, or a folder, also one with an exported encoder and
decoder or with a Whisper model.  Output: what compile_model makes of it, with the text assets of
language/assets.py, so that the file is not needed afterwards.  Bundles that are made on the way to
an answer are kept in a cache.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.api.file_digests import file_digests
from tilewright.api.user_cache import user_cache
from tilewright.base.compiler_digest import compiler_name
from tilewright.base.errors import UsageError
from tilewright.bundle import is_bundle, write
from tilewright.compiler import Compiled, Options, Progress, compile_model
from tilewright.frontend import Model, load
from tilewright.frontend.exports import (
    PROMPT_ROWS,
    CachedEncoderDecoder,
    EncoderDecoderExport,
    ExportedModel,
    PromptedExport,
    encoder_decoder_files,
    is_export_path,
    is_merged,
    onnx_file,
    text_folder,
    trained_tokens,
)
from tilewright.frontend.folder import FolderModel, is_folder
from tilewright.frontend.gguf import GgufModel, is_gguf, read_gguf
from tilewright.frontend.language import CHECKED, LAST, ROWS, Decoder
from tilewright.frontend.speech import CT2_FILE, SAMPLES, Whisper, WhisperFolder, is_whisper_folder
from tilewright.plan import Growth

if TYPE_CHECKING:
    from tilewright.language import TextAssets

#: Tokens that the caches hold, if the model was trained for as many.
CONTEXT = 4096
#: The folder of a cache with the digests of files.
DIGESTS = "digests"
#: New tokens of a run: one, and parts of prompts.
SIZES = (1, 8, 64)
#: Of these, the ones with logits for each token, in bundles for a look-up.
CHECKED_SIZES = (1, 2)
#: Tokens of prompts and of answers of an encoder-decoder model, if it was trained for as many.
PROMPTS, ANSWERS = (32, 128, 512), (8, 16, 64, 256)
#: Tokens by which the memory of caches grows.
BLOCK = 256
#: Bits of the numbers in caches that a user can choose.
CACHES = (16, 32)


def silent(_what: str, _done: int, _total: int) -> None:
    """Nobody wants to know."""


@dataclass(frozen=True)
class LanguageSource:
    """model: its graphs;  text: its vocabulary and template"""

    model: Decoder | ExportedModel | PromptedExport | Whisper
    text: TextAssets


def is_language_source(path: Path) -> bool:
    """Whether the path is a language model's file or folder, not a bundle.  An .onnx file may also
    be another model: `is_export` tells."""
    if path.is_file():
        return is_gguf(path) or is_export_path(path)
    return (is_folder(path) or is_export_path(path)) and not is_bundle(path)


def open_source(
    path: Path,
    context: int | None = None,
    loose: str = "",
    weights: int | None = None,
    progress: Progress = silent,
) -> LanguageSource:
    """Raises InvalidModel, UnsupportedOp, UnsupportedDType, UsageError.

    context: tokens that the caches hold, by default `CONTEXT` if the model was trained for as many
    loose:   what products may round their other operand to, as of `ops.Weight`
    weights: bits of a folder's weights, by default those of its files
    """
    files = encoder_decoder_files(path)
    if files is not None:
        return _open_encoder_decoder(files, context, weights)
    if is_export_path(path):
        file = onnx_file(path)
        return open_export(load(file), file, context, weights)
    _check_context(context)
    # which needs packages that other models do without
    from tilewright.language import Language, RoundedWeights, folder_text, gguf_text, speech_text

    model: Decoder | Whisper
    if is_whisper_folder(path):
        _check_no_context(context, path)
        model = WhisperFolder(path, loose, weights)
        text = speech_text(model.folder, model.words)
    elif path.is_dir():
        model = FolderModel(path, context or 0, loose, CONTEXT, weights)
        text = folder_text(model.folder, model.words)
    else:
        _check_weights(weights, path)
        model = GgufModel(read_gguf(path), context or 0, loose, most=CONTEXT)
        text = gguf_text(model.file, model.words)
    Language(text, model.words)  # what cannot be read fails before weights are
    if weights and isinstance(model, FolderModel | WhisperFolder):
        error = model.weight_error(partial(progress, "rounding weights"))
        text = text.rounded(RoundedWeights(weights, error))
    return LanguageSource(model, text)


def open_export(
    model: Model, file: Path, context: int | None = None, weights: int | None = None
) -> LanguageSource:
    """The model of an .onnx file, with the text of the files beside it.  Errors and arguments are
    those of `open_source`."""
    _check_context(context)
    _check_weights(weights, file)
    from tilewright.language import Language, folder_text

    folder = text_folder(file)
    trained = trained_tokens(folder.config)
    made = ExportedModel(
        replace(model, name=folder.name), context or 0, CONTEXT, *([trained] if trained else [])
    )
    text = folder_text(folder, made.words)
    Language(text, made.words)
    return LanguageSource(made, text)


def _open_encoder_decoder(
    files: tuple[Path, ...], context: int | None, weights: int | None
) -> LanguageSource:
    encoder, first, *rest = files
    second = rest[0] if rest else None
    _check_context(context)
    _check_weights(weights, encoder)
    from tilewright.language import Language, encoder_decoder_text

    folder = text_folder(encoder)
    trained = trained_tokens(folder.config)
    if context is not None and trained and context > trained:
        raise UsageError(
            f"the model was trained for {trained} tokens, not for {context}",
            hint="Ask for a smaller context", trained=trained, context=context,
        )  # fmt: skip
    room = trained or context or max(PROMPTS)
    prompt, decoder = context or min(room, max(PROMPTS)), load(first)
    model: PromptedExport
    if second or is_merged(decoder):
        most = min(room, max(PROMPTS))
        model = CachedEncoderDecoder(encoder, decoder, second, prompt, most, folder.name)
    else:
        most = min(room, max(ANSWERS))
        model = EncoderDecoderExport(encoder, decoder, prompt, most, min(ANSWERS), folder.name)
    text = encoder_decoder_text(folder, model.words)
    Language(text, model.words)
    return LanguageSource(model, text)


def _check_context(context: int | None) -> None:
    if context is not None and context < 1:
        raise UsageError(f"a context cannot hold {context} tokens", hint="Ask for one or more")


def _check_no_context(context: int | None, path: Path) -> None:
    """Raises UsageError for an option that only models of text have."""
    if context is not None:
        raise UsageError(
            "--context is for models of text", hint="A speech model has its own", model=path
        )


def _check_weights(weights: int | None, file: Path) -> None:
    """Raises UsageError for an option that only folders of safetensors files have."""
    if weights is not None:
        raise UsageError(
            "--weights is for folders with safetensors files",
            hint="Get a file of the model with weights of fewer bits", model=file,
        )  # fmt: skip


def compile_language(
    source: LanguageSource,
    options: Options,
    progress: Progress | None = None,
    caches: int = 16,
    lookup: bool = False,
) -> Compiled:
    """The bundle.  Without buckets and states in the options it gets the usual ones.

    caches: bits of the numbers in caches on WebAssembly, and on CUDA with `Options.halves`, one of
            `CACHES`
    lookup: whether it gets plans that check proposed tokens

    Raises UsageError.
    """
    if caches not in CACHES:
        raise UsageError(
            f"caches cannot have {caches} bits",
            hint=f"Choose one of {', '.join(map(str, CACHES))}",
        )
    model = source.model
    sizes = _checked_sizes(model) if lookup else _sizes(model)
    # scales of integers follow from states: rounded ones would change what a file computes
    compact = caches == 16 and not isinstance(model, PromptedExport)
    whole = replace(
        options,
        name=options.name or model.name,
        buckets=options.buckets or sizes,
        states=options.states or model.states,
        compact_states=compact,
        growth=Growth(LAST, ROWS, BLOCK) if isinstance(model, Decoder | ExportedModel) else None,
        assets={**source.text.files(), **options.assets},
    )
    return compile_model(model, whole, progress)


def _sizes(
    model: Decoder | ExportedModel | PromptedExport | Whisper,
) -> dict[str, tuple[int, ...]]:
    """The usual sizes of plans."""
    if isinstance(model, Whisper):
        return {SAMPLES: (0, model.window), ROWS: (1,)}
    if isinstance(model, PromptedExport):
        prompts = (n for n in PROMPTS if n < model.prompt)
        answers = (*(n for n in ANSWERS if n < model.room), model.room)
        rows = (1,) if isinstance(model, CachedEncoderDecoder) else answers
        return {PROMPT_ROWS: (0, *prompts, model.prompt), ROWS: rows}
    return {ROWS: tuple(n for n in SIZES if n <= model.most_rows)}


def _checked_sizes(
    model: Decoder | ExportedModel | PromptedExport | Whisper,
) -> dict[str, tuple[int, ...]]:
    """The usual sizes, and those that check proposed tokens.  Raises UsageError."""
    if not isinstance(model, Decoder):
        raise UsageError(
            "only models from GGUF files and safetensors folders can check proposed tokens",
            hint="Leave --lookup out", model=model.name,
        )  # fmt: skip
    rows = tuple(n for n in sorted({*SIZES, *CHECKED_SIZES}) if n <= model.most_rows)
    return {ROWS: rows, CHECKED: tuple(n for n in CHECKED_SIZES if n in rows)}


def cached_bundle(
    path: Path,
    options: Options,
    context: int | None,
    cache: Path | None,
    progress: Progress,
    weights: int | None = None,
    lookup: bool = False,
) -> Path:
    """The folder of the model's bundle, found by the contents of its files or made.

    cache:  where bundles are kept, by default the user's cache
    lookup: as of `compile_language`
    """
    progress("reading the file", 0, 1)
    place = cache or user_cache() / "language"
    how = (
        compiler_name(),
        context,
        weights,
        options.targets,
        options.variants,
        *(["lookup"] if lookup else []),
    )
    contents = _contents(path, place / DIGESTS)
    folder = place / hashlib.sha256(repr((contents, *how)).encode()).hexdigest()[:32]
    if is_bundle(folder):
        return folder
    source = open_source(path, context, weights=weights, progress=progress)
    compiled = compile_language(source, options, progress, lookup=lookup)
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


def _contents(path: Path, memory: Path) -> list[tuple[str, str]]:
    """Digests of the files that a model is read from, by name."""
    exported = _onnx_files(path)
    if path.is_file() and not exported:
        return [("", digest) for digest in file_digests(path, memory)]
    folder = text_folder(exported[0]).path if exported else path
    found = [("", digest) for file in exported for digest in file_digests(file, memory)]
    kinds = (".json", ".jinja", *([] if found else [".safetensors"]))
    names = () if found else (CT2_FILE,)
    files = sorted(
        p for p in folder.iterdir() if (p.suffix in kinds or p.name in names) and p.is_file()
    )
    found += [(p.name, digest) for p in files for digest in file_digests(p, memory)]
    # the model's name is that of its folder
    return [(folder.resolve().name, ""), *found]


def _onnx_files(path: Path) -> tuple[Path, ...]:
    """The .onnx files that a model is read from."""
    both = encoder_decoder_files(path)
    if both is not None:
        return both
    return (onnx_file(path),) if is_export_path(path) else ()
