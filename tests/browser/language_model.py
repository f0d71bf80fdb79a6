"""Tiny language models without training, for pages: their bundles, and bundles that lack something.

Input: a folder for files.  Output: bundles.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import onnx
from helpers import encoder_decoders, whispers
from helpers.folder_texts import write_text
from helpers.gguf_files import Tiny, write_tiny
from helpers.vocabularies import merges
from helpers.whispers import write_published, write_speech_text

from tilewright.api.language_bundles import compile_language, open_source
from tilewright.bundle import write
from tilewright.compiler import Options, compile_model
from tilewright.frontend.gguf import GgufModel
from tilewright.frontend.language import ROWS
from tilewright.language import gguf_text

SIZE = {"layers": 1, "width": 32, "heads": 2, "kv_heads": 1, "hidden": 32, "words": 300}
ROOM, ROOM_OF_PROMPTS = 128, 40
#: What a page must show and not do.
HOSTILE = '<img src=x onerror="globalThis.hacked={}">'


@dataclass(frozen=True)
class Made:
    """A model, its bundle, and the bundle's text files."""

    model: GgufModel
    bundle: Path
    files: dict[str, bytes]


def made(folder: Path, hostile: bool = False, textless: bool = False, untold: bool = False) -> Made:
    """hostile: each of its tokens is a piece of HTML;  textless: without the text files
    untold: without a chat template
    """
    folder.mkdir(parents=True)
    tiny = Tiny(room=ROOM, text=merges().write, type="Q4_0", **SIZE)
    model = GgufModel(write_tiny(folder / "model.gguf", tiny))
    files = {} if textless else gguf_text(model.file, model.words).files()
    if hostile:
        files = _hostile(files)
    if untold:
        facts = json.loads(files["language.json"]) | {"template": None}
        files |= {"language.json": json.dumps(facts).encode()}
    options = Options(
        buckets={ROWS: (1, 8)},
        states=model.states,
        targets=("wasm", "wgsl"),
        assets=files,
        name="tiny",
    )
    write(compile_model(model, options).contents, folder / "bundle")
    return Made(model, folder / "bundle", files)


def translator(folder: Path, caches: bool = False) -> Path:
    """The bundle of an encoder-decoder model, which has an integer type for its weights."""
    tiny = encoder_decoders.Tiny("int8", words=300, layers=1, caches=caches, bias=caches)
    source = folder / "tiny"
    source.mkdir(parents=True)
    onnx.save(encoder_decoders.encoder(tiny), source / "encoder_model.onnx")
    onnx.save(encoder_decoders.decoder(tiny), source / "decoder_model.onnx")
    if caches:
        onnx.save(encoder_decoders.merged(tiny), source / "decoder_model_merged.onnx")
    settings = {"decoder_start_token_id": 5, "n_positions": ROOM_OF_PROMPTS}
    (source / "config.json").write_text(json.dumps(settings))
    write_text(source, merges())
    options = Options(targets=("wasm", "wgsl"))
    write(compile_language(open_source(source), options).contents, folder / "bundle")
    return folder / "bundle"


def speech(folder: Path) -> Path:
    """The bundle of a Whisper model that knows two languages."""
    source = write_published(folder / "tiny", whispers.Tiny())
    write_speech_text(source)
    (source / "generation_config.json").write_text(json.dumps({"is_multilingual": True}))
    options = Options(targets=("wasm", "wgsl"))
    write(compile_language(open_source(source), options).contents, folder / "bundle")
    return folder / "bundle"


def _hostile(files: dict[str, bytes]) -> dict[str, bytes]:
    tokenizer, facts = (json.loads(files[n]) for n in ("tokenizer.json", "language.json"))
    known = {token["id"] for token in tokenizer["added_tokens"]}
    tokenizer["added_tokens"] += [
        {
            "id": n, "content": HOSTILE.format(n), "special": False, "single_word": False,
            "lstrip": False, "rstrip": False, "normalized": False,
        }
        for n in range(SIZE["words"])
        if n not in known
    ]  # fmt: skip
    facts["name"] = HOSTILE.format('"name"')
    return {
        "tokenizer.json": json.dumps(tokenizer).encode(),
        "language.json": json.dumps(facts).encode(),
    }
