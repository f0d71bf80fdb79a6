"""Nothing that Tilewright did not write is overwritten or deleted: folders, by their record.

Input: bundles and pages written over each other and over files of somebody else.  Output: what is
there then.  Single files: test_cli_files.py.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bundle_factory import later, sample
from cli_call import Called
from test_cli_models import save_model

from tilewright.base.errors import UsageError
from tilewright.bundle import SHARD_BYTES, Contents, open_bundle, write
from tilewright.bundle.format import digest
from tilewright.bundle.owned_files import RECORD
from tilewright.server.static import page_files, write_pages
from tilewright.targets.device_classes import find
from tilewright.tuning.candidate_folder import write_candidates

Capture = pytest.CaptureFixture[str]
MINE = b"mine"
BIG = 2 * SHARD_BYTES
FIXED = ("bundle.json", "index.html", "sw.js", "engine/engine.js", "tuning/index.json", RECORD)


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def put(folder: Path, name: str, data: bytes = MINE) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def build(capsys: Capture, folder: Path, *more: object) -> Called:
    model = save_model(folder.parent / "model.onnx")
    asked = ("build", model, "-o", folder, "--buckets", "n=4", "--json", *more)
    return Called(capsys, *asked)


@pytest.mark.parametrize("name", FIXED)
def test_a_file_of_the_user_is_refused_before_anything_is_written(
    capsys: Capture, tmp_path: Path, name: str
) -> None:
    put(tmp_path / "site", name)
    called = build(capsys, tmp_path / "site", "--static", "--classes", "wasm")
    error = called.json["error"]
    assert (called.code, error["code"]) == (2, "usage")
    assert str(tmp_path / "site" / name) in error["message"]
    assert "another folder" in error["hint"]
    assert tree(tmp_path / "site") == {name: MINE}


def test_a_bundle_alone_minds_its_own_files_only(capsys: Capture, tmp_path: Path) -> None:
    for name in FIXED[1:-1]:
        put(tmp_path / "site", name)
    for _ in range(2):
        assert build(capsys, tmp_path / "site").code == 0
    found = tree(tmp_path / "site")
    assert {found[name] for name in FIXED[1:-1]} == {MINE}
    open_bundle(tmp_path / "site").verify()


def test_relink_minds_them_too(capsys: Capture, tmp_path: Path) -> None:
    assert build(capsys, tmp_path / "bundle").code == 0
    put(tmp_path, "winners.json", b"{}")
    put(tmp_path / "other", "bundle.json")
    asked = ("relink", tmp_path / "bundle", "--winners", tmp_path / "winners.json", "--json")
    called = Called(capsys, *asked, "--device", "wasm", "-o", tmp_path / "other")
    assert (called.code, called.json["error"]["code"]) == (2, "usage")
    assert tree(tmp_path / "other") == {"bundle.json": MINE}


@pytest.mark.parametrize("name", ["index.html", "tune/tuner.js"])
def test_what_the_user_changed_is_refused(tmp_path: Path, name: str) -> None:
    write_pages(tmp_path)
    with (tmp_path / name).open("ab") as file:
        file.write(b"\n")
    before = tree(tmp_path)
    with pytest.raises(UsageError, match=f"{name} was changed since"):
        write_pages(tmp_path)
    assert tree(tmp_path) == before


def test_a_changed_blob_is_refused_too(tmp_path: Path) -> None:
    manifest = write(sample(), tmp_path)
    for file in (manifest.section("wasm").programs["driver"].file, manifest.weights.shards[0].file):
        kept = (tmp_path / file).read_bytes()
        put(tmp_path, file)
        with pytest.raises(UsageError, match=f"{file} was changed since"):
            write(sample(), tmp_path)
        assert (tmp_path / file).read_bytes() == MINE
        put(tmp_path, file, kept)


def a_folder(folder: Path, name: str) -> None:
    (folder / name).mkdir(parents=True)


def a_link_to_nothing(folder: Path, name: str) -> None:
    (folder / name).symlink_to("gone")


def a_link_to_the_same(folder: Path, name: str) -> None:
    (folder / name).symlink_to(shutil.copy(page_files()[name], folder / "mine.html"))


@pytest.mark.parametrize("lay", [a_folder, a_link_to_nothing, a_link_to_the_same])
def test_what_is_no_file_is_refused(tmp_path: Path, lay: Callable[[Path, str], None]) -> None:
    lay(tmp_path, "index.html")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match=r"index\.html exists"):
        write_pages(tmp_path)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", ["site", "site/engine"])
def test_a_file_where_a_folder_must_be(capsys: Capture, tmp_path: Path, name: str) -> None:
    put(tmp_path, name)
    called = build(capsys, tmp_path / "site", "--static", "--classes", "wasm")
    assert called.code == 2
    assert f"{tmp_path / name} is in the way" in called.json["error"]["message"]
    assert (tmp_path / name).read_bytes() == MINE


def test_what_was_written_before_goes_and_the_rest_stays(tmp_path: Path) -> None:
    """What only looks like a file of ours, too, and one of ours that the user changed."""
    first = write(sample(BIG), tmp_path)
    kept = [put(tmp_path, f"blobs/{digest(MINE)}.bin"), put(tmp_path, f"blobs/{'0' * 64}.json")]
    changed = put(tmp_path, first.weights.shards[1].file)
    second = write(sample(1000, name="second"), tmp_path)
    old, new = ({file.file for file in m.files()} for m in (first, second))
    # a reader may have begun with the first manifest
    assert all((tmp_path / name).exists() for name in old)
    write(sample(1000, name="second"), tmp_path)
    assert all((tmp_path / name).exists() for name in old)
    later(tmp_path)
    write(sample(1000, name="second"), tmp_path)
    assert {name for name in old - new if (tmp_path / name).exists()} == {
        str(changed.relative_to(tmp_path))
    }
    assert all(path.read_bytes() == MINE for path in (*kept, changed))
    open_bundle(tmp_path).verify()


def test_a_file_that_was_there_is_never_deleted(tmp_path: Path) -> None:
    """Not even if it is one that the bundle needs: it was the user's before."""
    manifest = write(sample(), tmp_path / "other")
    file = manifest.weights.shards[0].file
    put(tmp_path / "site", file, (tmp_path / "other" / file).read_bytes())
    write(sample(), tmp_path / "site")
    write(sample(2000), tmp_path / "site")
    assert file not in {ref.file for ref in open_bundle(tmp_path / "site").manifest.files()}
    assert (tmp_path / "site" / file).exists()


def test_what_a_failed_build_left_goes_with_the_next(tmp_path: Path) -> None:
    write(sample(), tmp_path)
    before = tree(tmp_path)

    def broken() -> Iterator[bytes]:
        yield bytes(SHARD_BYTES)
        raise KeyboardInterrupt

    good = sample(BIG)
    with pytest.raises(KeyboardInterrupt):
        write(Contents(good.manifest, good.blobs, broken), tmp_path)
    assert tree(tmp_path).keys() > before.keys()
    open_bundle(tmp_path).verify()
    for _ in range(2):
        write(sample(), tmp_path)
        later(tmp_path)
    assert tree(tmp_path) == before


def test_sections_are_apart(tmp_path: Path) -> None:
    """A new bundle leaves the page, new candidates leave the bundle; equal input, equal record."""

    def all_of(folder: Path, count: int) -> dict[str, bytes]:
        for _ in range(2):
            write(sample(count), folder)
            write_pages(folder)
            later(folder)
        return tree(folder)

    first = all_of(tmp_path / "one", 1000)
    write(sample(2000), tmp_path / "one")
    assert {"index.html", "engine/engine.js"} <= tree(tmp_path / "one").keys()
    assert all_of(tmp_path / "one", 1000) == first == all_of(tmp_path / "two", 1000)


def test_candidates_are_made_anew_beside_other_files(capsys: Capture, tmp_path: Path) -> None:
    assert build(capsys, tmp_path / "site").code == 0
    bundle = open_bundle(tmp_path / "site")
    write_candidates(bundle, [find("wasm"), find("wasm-x86-relaxed")])
    mine = put(tmp_path / "site", f"tuning/blobs/{digest(MINE)}.wasm")
    many = len(tree(tmp_path / "site"))
    for _ in range(2):
        write_candidates(bundle, [find("wasm")])
        later(tmp_path / "site")
    fewer = tree(tmp_path / "site")
    assert len(fewer) < many
    assert mine.exists()
    put(tmp_path / "site", "tuning/index.json")
    with pytest.raises(UsageError, match=r"index\.json was changed"):
        write_candidates(bundle, [find("wasm")])


@pytest.mark.parametrize(
    "text",
    [
        '{"format": 2, "sections": {}}',
        '{"format": 1}',
        '{"format": 1, "sections": {"bundle": {"../mine": "DIGEST"}}}',
        '{"format": 1, "sections": {"bundle": {"FOLDER/mine": "DIGEST"}}}',
        '{"format": 1, "sections": {}, "old": {"../mine": "DIGEST"}}',
        '{"format": 1, "sections": {}, "deep": ' + "[" * 100_000,
    ],
)
def test_a_record_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    """Of a later version, or such that files elsewhere would be deleted."""
    mine = put(tmp_path, "mine")
    write(sample(), tmp_path / "bundle")
    made = text.replace("DIGEST", digest(MINE)).replace("FOLDER", str(tmp_path))
    put(tmp_path / "bundle", RECORD, made.encode())
    with pytest.raises(UsageError, match=RECORD):
        write(sample(2000), tmp_path / "bundle")
    assert mine.read_bytes() == MINE


KILLS = Path(__file__).with_name("written_kills.py")


@pytest.mark.seldom(4)
@pytest.mark.parametrize("kind", ["killed", "overlapped"])
def test_a_folder_outlives_its_writers(tmp_path: Path, kind: str) -> None:
    """Killed at each of their calls of the system, or two at once: a reader never meets half a
    bundle, and the next writer writes."""
    command = [sys.executable, KILLS, kind, tmp_path, "40"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 40


@pytest.mark.nightly
@pytest.mark.parametrize(("kind", "times"), [("killed", 1000), ("overlapped", 200)])
def test_a_folder_outlives_many_writers(tmp_path: Path, kind: str, times: int) -> None:
    command = [sys.executable, KILLS, kind, tmp_path, str(times)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= times
