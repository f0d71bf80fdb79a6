"""The folder of relinked bundles: bounded, the least recently used go, nothing that is in use."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tuning_site import bundle

from tilewright.base.errors import UsageError
from tilewright.bundle import Bundle, open_bundle
from tilewright.bundle.owned_files import PART
from tilewright.cli.compile_workers import makers
from tilewright.server import relink_cache
from tilewright.server.relink_cache import GRACE, Cache, Origin, Relinked
from tilewright.targets.device_classes import CLASSES
from tilewright.tuning.candidate_folder import FOLDER, write_candidates
from tilewright.tuning.candidates import space_of
from tilewright.tuning.catalogue import kernels_of

DEVICE = "wasm-x86-relaxed-32k"


@pytest.fixture(scope="module")
def base() -> Bundle:
    return open_bundle(bundle())


Make = Callable[..., tuple[Origin, Relinked]]


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


@pytest.fixture
def make(base: Bundle, cache: Cache) -> Make:
    """Keeps the bundle with this candidate of a kernel."""

    def kept(candidate: int, spec: int = 0) -> tuple[Origin, Relinked]:
        winners = {spec: space_of(kernels_of(base)[spec], CLASSES[DEVICE]).schedules[candidate]}
        origin = Origin.of(base, DEVICE, winners)
        return origin, cache.keep(base, origin, *makers(0).relinked(base, DEVICE, winners))

    return kept


def age(cache: Cache, hours: float) -> None:
    """All that is there was used so long ago, in addition to what it was."""
    for path in files(cache):
        then = path.stat().st_mtime - 3600 * hours
        os.utime(path, (then, then))


def files(cache: Cache) -> list[Path]:
    return [path for path in cache.folder.rglob("*") if path.is_file()]


def size(cache: Cache) -> int:
    return sum(path.stat().st_size for path in files(cache))


def test_the_least_recently_used_go_first(
    base: Bundle, cache: Cache, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, one = make(1)
    room = 3 * size(cache)
    age(cache, 4)
    second, _ = make(2)
    age(cache, 4)
    assert cache.find(base, one.pointer.manifest.digest)  # it is used: now it is newer than 2
    age(cache, 4)
    monkeypatch.setattr(relink_cache, "ROOM", room)
    third, _ = make(3)
    fourth, _ = make(4)
    assert size(cache) <= room
    assert cache.made(base, second) is None
    for origin in (third, fourth):
        found = cache.made(base, origin)
        assert found is not None
        found.verify()
    make(2)  # and it can be made again
    assert cache.made(base, second)
    assert cache.made(base, first) is None


def test_files_are_bounded_in_number_too(
    base: Bundle, cache: Cache, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = make(1)
    age(cache, 4)
    monkeypatch.setattr(relink_cache, "FILES", len(files(cache)) + 1)
    second, _ = make(2)
    assert len(files(cache)) <= relink_cache.FILES
    assert cache.made(base, first) is None
    assert cache.made(base, second)


@pytest.mark.parametrize("used", ["made", "found", "named"])
def test_what_was_just_told_stays_however_little_room_there_is(
    used: str, base: Bundle, cache: Cache, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relink_cache, "ROOM", 0)
    origin, kept = make(1)
    if used != "made":
        age(cache, 2 * GRACE / 3600)
    if used == "found":
        assert cache.made(base, origin)
    if used == "named":
        assert cache.find(base, kept.pointer.manifest.digest)
    make(2)
    found = cache.made(base, origin)
    assert found is not None
    found.verify()


def test_what_bundles_share_stays_with_the_one_that_is_used(
    base: Bundle, cache: Cache, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, one = make(1)
    age(cache, 4)
    origin, two = make(2)
    age(cache, 4)
    shared = {file for file in named(one) & named(two) if (cache.folder / file).is_file()}
    assert shared
    assert cache.made(base, origin)
    monkeypatch.setattr(relink_cache, "ROOM", 0)
    _, other = make(1, 1)
    assert not shared & named(other), "it would write them anew"
    assert cache.made(base, first) is None
    found = cache.made(base, origin)
    assert found is not None
    found.verify()


def named(bundle: Bundle) -> set[str]:
    return {ref.file for ref in bundle.manifest.files()}


def test_what_writers_left_behind_goes_and_what_is_not_ours_stays(cache: Cache, make: Make) -> None:
    make(1)
    blobs = cache.folder / "blobs"
    name = next(blobs.iterdir()).name
    left, other, young = (blobs / n for n in (f"{PART}0a-{name}", "notes.txt", f"{PART}0b-{name}"))
    for path in (left, other, young):
        path.write_text("x")
    then = time.time() - 2 * GRACE
    for path in (left, other):
        os.utime(path, (then, then))
    make(2)
    assert not left.exists()
    assert other.exists()
    assert young.exists()  # somebody writes it


def test_the_folder_of_a_bundle_is_no_place_for_it(tmp_path: Path) -> None:
    """Nor is that of its candidates: their files would be taken for old ones."""
    copy = tmp_path / "bundle"
    shutil.copytree(bundle(), copy)
    write_candidates(open_bundle(copy), [])
    before = sorted(copy.rglob("*"))
    for folder in (copy, copy / FOLDER):
        with pytest.raises(UsageError, match="not a cache folder"):
            Cache(folder)
    assert sorted(copy.rglob("*")) == before


def test_a_folder_of_blobs_of_somebody_else_is_no_place_for_it(tmp_path: Path) -> None:
    """Other programs name files by their digests too."""
    (tmp_path / "blobs").mkdir()
    with pytest.raises(UsageError, match="it has blobs, and"):
        Cache(tmp_path)


def test_a_folder_that_may_not_be_written_can_be_read(
    base: Bundle, cache: Cache, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin, _ = make(1)

    def denied(*_given: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "utime", denied)
    assert cache.made(base, origin)
