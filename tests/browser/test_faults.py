"""Bundles that are damaged, of another version, missing or too large: refused with a typed error.

After each refusal the same page loads a good bundle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.base.errors import BundleCorrupt, BundleVersion, MemoryLimit, TilewrightError
from tilewright.bundle import FORMAT, POINTER, Manifest, open_bundle

from . import bundles
from .bundles import Library, edit_manifest, edit_pointer, flip
from .conftest import Lab, Load, Visit
from .serving import serving

pytestmark = pytest.mark.by_turns

Refuse = Callable[..., TilewrightError]
Part = Callable[[Manifest], str]

PARTS: dict[str, Part] = {
    "first shard": lambda m: m.weights.shards[0].file,
    "last shard": lambda m: m.weights.shards[-1].file,
    "driver": lambda m: m.section("wasm").programs["driver"].file,
    "plan image": lambda m: m.section("wasm").builds[0].plans[0].file,
}


@pytest.fixture
def spoilt(library: Library, tmp_path: Path) -> Path:
    return library.copied("shards", tmp_path / "spoilt")


@pytest.fixture
def refuse(lab: Lab, load: Load) -> Iterator[Refuse]:
    def refused(bundle: Path, kind: type[TilewrightError], **options: Any) -> TilewrightError:
        lab.forget()
        with pytest.raises(kind) as caught:
            load(bundle, **options)
        assert caught.type is kind
        assert caught.value.hint
        return caught.value

    yield refused
    y = load("linear").run({"x": np.ones((4, 24), np.float32)}).outputs["y"]
    assert y.shape == (4, 40)


@pytest.mark.parametrize("part", PARTS)
def test_flipped_bit(refuse: Refuse, spoilt: Path, part: str) -> None:
    file = PARTS[part](open_bundle(spoilt).manifest)
    flip(spoilt / file)
    error = refuse(spoilt, BundleCorrupt)
    assert error.facts["file"] == file
    assert error.facts["expected"] == Path(file).stem != error.facts["found"]


@pytest.mark.parametrize("at", [0, 8, None, -1])
def test_flipped_bit_in_code(refuse: Refuse, spoilt: Path, at: int | None) -> None:
    """Whether the module still compiles or not, its digest decides."""
    code = [b.code.file for b in open_bundle(spoilt).manifest.section("wasm").builds]
    for file in code:
        flip(spoilt / file, at)
    assert refuse(spoilt, BundleCorrupt).facts["file"] in code


def test_flipped_bit_in_the_manifest(refuse: Refuse, spoilt: Path) -> None:
    file = open_bundle(spoilt).pointer.manifest.file
    flip(spoilt / file)
    assert refuse(spoilt, BundleCorrupt).facts["file"] == file


def test_flipped_bit_in_the_pointer(refuse: Refuse, spoilt: Path) -> None:
    text = (spoilt / POINTER).read_bytes()
    digest = text.index(b'"digest"') + 12
    for at, kind in ((0, BundleCorrupt), (digest, BundleCorrupt), (10, BundleVersion)):
        (spoilt / POINTER).write_bytes(text)
        flip(spoilt / POINTER, at)
        refuse(spoilt, kind)


@pytest.mark.parametrize("change", [-1, 1])
@pytest.mark.parametrize("place", ["pointer", "manifest"])
def test_other_version(refuse: Refuse, spoilt: Path, place: str, change: int) -> None:
    if place == "pointer":
        edit_pointer(spoilt, format=FORMAT + change)
    else:
        edit_manifest(spoilt, lambda m: m.update(format=FORMAT + change))
    error = refuse(spoilt, BundleVersion)
    assert error.facts["found"] == FORMAT + change
    assert error.facts["expected"] == FORMAT
    assert ("Build" if change < 0 else "Update the engine") in error.hint


@pytest.mark.parametrize("part", ["first shard", "driver", "plan image"])
def test_missing_file(refuse: Refuse, spoilt: Path, part: str) -> None:
    file = PARTS[part](open_bundle(spoilt).manifest)
    (spoilt / file).unlink()
    error = refuse(spoilt, BundleCorrupt)
    assert error.facts["file"] == file
    assert error.facts["status"] == 404


@pytest.mark.parametrize("part", [0, 1])
@pytest.mark.parametrize("more", [-1, 1, 1 << 20])
def test_shard_of_another_length(refuse: Refuse, spoilt: Path, part: int, more: int) -> None:
    """Too much is refused as well, and what lies behind in memory is never touched."""
    file = bundles.shards(spoilt)[part]
    data = (spoilt / file).read_bytes()
    (spoilt / file).write_bytes(data + bytes(more) if more > 0 else data[:more])
    error = refuse(spoilt, BundleCorrupt)
    assert error.facts["expected"] == len(data)
    if more < 0:
        assert error.facts["found"] == len(data) + more
    else:
        assert error.facts["found"] > len(data)


@pytest.mark.parametrize("text", ["<!doctype html><title>404</title>", "", "[]", "null", '"x"'])
def test_pointer_that_is_something_else(refuse: Refuse, spoilt: Path, text: str) -> None:
    """Many servers answer a wrong address with a page and status 200."""
    (spoilt / POINTER).write_text(text)
    assert refuse(spoilt, BundleCorrupt).facts["path"] == POINTER


@pytest.mark.parametrize("key", ["targets", "plans", "kernels", "weights"])
def test_manifest_that_lacks_a_key(refuse: Refuse, spoilt: Path, key: str) -> None:
    edit_manifest(spoilt, lambda m: m.pop(key))
    assert refuse(spoilt, BundleCorrupt).facts["key"] == key


def test_no_bundle_at_the_address(visit: Visit, library: Library) -> None:
    with serving({"linear": library.path("linear")}) as site:
        page = visit(site.blank)
        error = page.do("engine", url=site.bundle("nothing"), inputs={})["error"]
    assert error["code"] == "network"
    assert error["facts"] == {"file": site.bundle("nothing") + POINTER, "status": 404}


def grown(manifest: dict[str, Any]) -> None:
    """WebAssembly's part of it says that it needs 5 GiB."""
    section = manifest["targets"]["wasm"]
    section.update(memory=5 << 30)
    section["facts"]["memory"].update(bytes=5 << 30)


@pytest.mark.parametrize("limit", [None, 1_000_000])
def test_larger_than_memory(lab: Lab, refuse: Refuse, spoilt: Path, limit: int | None) -> None:
    """Refused with the estimate, and before anything large is downloaded."""
    if limit is None:
        edit_manifest(spoilt, grown)
    needed = open_bundle(spoilt).manifest.section("wasm").memory
    files = bundles.shards(spoilt)
    before = lab.server.asked(*files)
    error = refuse(spoilt, MemoryLimit, memory_limit=limit, threads=1)
    assert error.facts == {"estimate": needed, "limit": limit or 1 << 32}
    assert lab.server.asked(*files) == before
    assert f"{needed / 2**20:.1f} MiB" in error.message
