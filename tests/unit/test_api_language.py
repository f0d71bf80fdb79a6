"""`tilewright.language_model`, on a tiny model without training."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from helpers.gguf_files import Tiny, write_tiny
from helpers.vocabularies import merges

import tilewright as tw
from tilewright.base.errors import BundleCorrupt, InputError, InvalidModel, UsageError
from tilewright.bundle import is_bundle
from tilewright.language import LanguageModel

SMALL = {"layers": 1, "width": 32, "heads": 2, "kv_heads": 1, "hidden": 32, "words": 300}
HELLO = [{"role": "user", "content": "the cat"}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("language")
    write_tiny(made / "model.gguf", Tiny(room=128, text=merges().write, type="Q4_0", **SMALL))
    return made


@pytest.fixture
def lm(folder: Path) -> Iterator[LanguageModel]:
    with tw.language_model(folder / "model.gguf", threads=1, cache=folder / "cache") as lm:
        yield lm


def test_importing_is_light() -> None:
    """Neither the compiler nor NumPy: these come with what needs them."""
    code = "import sys, tilewright; print('numpy' in sys.modules, dir(tilewright))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.startswith("False")
    assert "'language_model'" in found.stdout


def test_no_other_names() -> None:
    with pytest.raises(AttributeError, match="'generate'"):
        tw.generate  # type: ignore[attr-defined]  # noqa: B018


def test_a_chat(lm: LanguageModel) -> None:
    answer = lm.chat(HELLO, most=6, temperature=1, seed=3)
    pieces = list(answer)
    assert "".join(pieces) == answer.text
    assert answer.ended in ("most", "end")
    assert 1 <= len(answer.ids) <= 6
    again = lm.chat(HELLO, most=6, temperature=1, seed=3)
    assert ("".join(again), again.ids) == (answer.text, answer.ids)
    assert again.reused > 0


def test_threads_give_the_same(folder: Path, lm: LanguageModel) -> None:
    with tw.language_model(str(folder / "model.gguf"), threads=2, cache=folder / "cache") as other:
        assert "".join(other.complete("a", 5)) == "".join(lm.complete("a", 5))


def test_in_a_running_loop(lm: LanguageModel) -> None:
    async def both() -> tuple[list[str], list[str]]:
        return list(lm.complete("a", 4)), [piece async for piece in lm.complete("a", 4)]

    plain, waited = asyncio.run(both())
    assert plain == waited


def test_a_bundle_and_progress(folder: Path, tmp_path: Path) -> None:
    told: list[str] = []
    lm = tw.language_model(
        folder / "model.gguf", threads=1, context=32, cache=tmp_path,
        on_progress=lambda what, _done, _total: told.append(what),
    )  # fmt: skip
    (bundle,) = (path for path in tmp_path.iterdir() if is_bundle(path))
    assert (lm.context, told[0], told[-1]) == (32, "reading the file", "writing weights")
    from_bundle = tw.language_model(bundle, threads=1)
    assert list(from_bundle.complete("a", 4)) == list(lm.complete("a", 4))
    assert f"{lm.name} on wasmtime, 32 tokens" in repr(lm)


def test_what_cannot_be_opened(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    for path, error in (("nowhere", InvalidModel), ("text", InvalidModel), (".", BundleCorrupt)):
        with pytest.raises(error):
            tw.language_model(tmp_path / path, cache=tmp_path)
    with pytest.raises(UsageError, match="abacus"):
        tw.language_model(folder / "model.gguf", host="abacus")
    with pytest.raises(UsageError, match="trained for 128"):
        tw.language_model(folder / "model.gguf", context=129, cache=tmp_path)
    for options in ({"context": 0}, {"threads": 0}):
        with pytest.raises(UsageError):
            tw.language_model(folder / "model.gguf", cache=folder / "cache", **options)
    with pytest.raises(InputError, match="no message"):
        tw.language_model(folder / "model.gguf", cache=folder / "cache").chat([])


def test_a_damaged_bundle_in_the_cache_is_named(folder: Path, tmp_path: Path) -> None:
    open_ = partial(tw.language_model, folder / "model.gguf", threads=1, cache=tmp_path)
    open_().close()
    (bundle,) = filter(is_bundle, tmp_path.iterdir())
    for blob in (bundle / "blobs").glob("*.json"):
        blob.write_bytes(b"{}")
    with pytest.raises(BundleCorrupt, match=f"Delete {bundle}"):
        open_()
    shutil.rmtree(bundle)
    open_().close()
