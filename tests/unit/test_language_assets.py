"""Damaged text assets of bundles: an answer or a typed error, never a traceback."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from helpers.gguf_files import Tiny, write_tiny
from helpers.vocabularies import merges, pieces

from tilewright.base.errors import BundleCorrupt, InputError, InvalidModel, TilewrightError
from tilewright.bundle import (
    FORMAT,
    Asset,
    Bundle,
    Manifest,
    Pointer,
    StateEntry,
    TensorInfo,
    Weights,
    add,
)
from tilewright.bundle.format import FileRef
from tilewright.frontend.gguf import GgufModel
from tilewright.language import CacheSession, Language, TextAssets, gguf_text, text_assets

EMPTY = FileRef(file="", digest="", bytes=0)
HELLO = [{"role": "user", "content": "Hi"}]


def manifest_of(**more: Any) -> Manifest:
    usual: dict[str, Any] = {
        "tool": "", "name": "", "dims": {"n": (1, 8)}, "outputs": (), "kernels": EMPTY,
        "inputs": tuple(
            TensorInfo(name=n, dtype="i64", shape=()) for n in ("input_ids", "seqlens_k")
        ),
        "states": (StateEntry(name="k", dtype="f32", shape=(1, 1, 32, 2)),),
        "weights": Weights(bytes=0), "plans": (), "targets": {},
    }  # fmt: skip
    return Manifest(**(usual | more))


def bundle_of(folder: Path, files: dict[str, bytes], **more: Any) -> Bundle:
    """A bundle that has these assets, and nothing that runs."""
    blobs: dict[str, Any] = {}
    assets = tuple(
        Asset(name=n, type="", **msgspec.structs.asdict(add(blobs, data, "json")))
        for n, data in files.items()
    )
    for name, data in blobs.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    pointer = Pointer(format=FORMAT, tool="", manifest=EMPTY)
    return Bundle(folder, pointer, manifest_of(assets=assets, **more))


WORDS = 400


def text_of(folder: Path, write: Any) -> TextAssets:
    tiny = Tiny(words=WORDS, text=write, layers=1, width=32, heads=2, kv_heads=1, hidden=32)
    return gguf_text(GgufModel(write_tiny(folder / "a.gguf", tiny)).file, WORDS)


@pytest.mark.parametrize("number", range(40))
def test_damaged_text_assets(number: int, tmp_path: Path) -> None:
    """Whatever a bundle's files say, there is an answer or a typed error."""
    rng = Random(f"text assets {number}")
    text = text_of(tmp_path, (pieces() if number % 2 else merges()).write)
    for _ in range(10):
        name = rng.choice(("tokenizer.json", "language.json"))
        files = text.files() | {name: damaged(text.files()[name], rng)}
        try:
            language = Language(text_assets(bundle_of(tmp_path, files)), WORDS)
            ids = language.vocabulary.encode("the cat é<|im_end|>")
            assert isinstance(language.vocabulary.decode([*ids, 0, WORDS - 1]), str)
            assert language.prompt(HELLO) is not None
        except TilewrightError:
            pass


def damaged(data: bytes, rng: Random) -> bytes:
    """A value of the JSON becomes another one, or a byte does."""
    if rng.random() < 0.3:
        at = rng.randrange(len(data))
        return data[:at] + bytes([rng.randrange(256)]) + data[at + rng.randrange(3) :]
    whole = json.loads(data)
    parent, key = whole, rng.choice(list(whole))
    while isinstance(parent[key], (dict, list)) and parent[key] and rng.random() < 0.8:
        parent = parent[key]
        key = rng.choice(list(parent)) if isinstance(parent, dict) else rng.randrange(len(parent))
    parent[key] = rng.choice(
        [None, -1, 2**70, 1e300, "", "é", "<s>", [], {}, [None], True, "{% if"]
    )
    return json.dumps(whole).encode()


def test_a_bundle_that_is_no_language_model(tmp_path: Path) -> None:
    text = text_of(tmp_path, pieces().write).files()
    with pytest.raises(InputError, match=r"no language\.json"):
        text_assets(bundle_of(tmp_path, {"tokenizer.json": b""}))
    for shape in ((), ("n",), (1, 1, "n")):
        logits = TensorInfo(name="logits", dtype="f32", shape=shape)
        with pytest.raises(TilewrightError, match="the model 0"):
            Language.of(bundle_of(tmp_path, text, outputs=(logits,)))
    for more in ({"inputs": ()}, {"states": ()}, {"dims": {}},
                 {"states": (StateEntry(name="k", dtype="f32", shape=(2,)),)}):  # fmt: skip
        with pytest.raises(InputError, match="not a language model"):
            CacheSession(dict, manifest_of(**more))
    bundle = bundle_of(tmp_path, text)
    for blob in (tmp_path / "blobs").iterdir():
        blob.write_bytes(b"")
    with pytest.raises(BundleCorrupt):
        text_assets(bundle)


@pytest.mark.parametrize("change", [{"rate": 0}, {"rate": -1}, {"start": "x"}, {"never": 3}])
def test_facts_of_speech_that_are_none(change: dict[str, Any], tmp_path: Path) -> None:
    speech = {"rate": 16000, "start": 1, "plain": 2}
    for given, is_read in ((speech, True), (speech | change, False)):
        facts = {"name": "x", "pieces": "bytes", "speech": given}
        files = {"tokenizer.json": b"{}", "language.json": json.dumps(facts).encode()}
        bundle = bundle_of(tmp_path, files)
        if is_read:
            assert text_assets(bundle).facts.speech is not None
            continue
        with pytest.raises(InvalidModel, match=r"language\.json"):
            text_assets(bundle)
