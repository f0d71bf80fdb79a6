"""The bundle: what is written is read back, equal input gives equal bytes, damage is found."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest
from bundle_factory import later, sample, weights

from tilewright.base.errors import BundleCorrupt, BundleVersion, CompilerBug
from tilewright.bundle import (
    FORMAT,
    SHARD_BYTES,
    Contents,
    FileRef,
    Manifest,
    add,
    is_bundle,
    open_bundle,
    write,
)
from tilewright.bundle.format import digest, encode
from tilewright.bundle.owned_files import PART, RECORD

BIG = 2 * SHARD_BYTES + 5


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()
    }


def test_round_trip(tmp_path: Path) -> None:
    contents = sample(BIG)
    written = write(contents, tmp_path)
    bundle = open_bundle(tmp_path)
    assert bundle.manifest == written
    assert [s.bytes for s in written.weights.shards] == [SHARD_BYTES, SHARD_BYTES, 5]
    assert b"".join(bundle.weights()) == b"".join(weights(BIG))
    whole = b"".join(weights(BIG))
    for tensor in bundle.tensors():
        data = whole[tensor.offset : tensor.offset + tensor.bytes]
        assert tensor.digest == digest(data)
        assert tensor.shard == tensor.offset // SHARD_BYTES
    for file, data in contents.blobs.items():
        (ref,) = [r for r in bundle.manifest.files() if r.file == file]
        assert bundle.read(ref) == data
    assert open_bundle(tmp_path / "bundle.json").manifest == written
    assert bundle.bytes == sum(
        p.stat().st_size
        for p in tmp_path.rglob("*")
        if p.is_file() and p.name not in ("bundle.json", RECORD)
    )


def test_json_follows_the_document(tmp_path: Path) -> None:
    manifest = write(sample(), tmp_path)
    pointer = json.loads((tmp_path / "bundle.json").read_bytes())
    assert list(pointer) == ["format", "tool", "manifest"]
    assert set(pointer["manifest"]) == {"file", "digest", "bytes"}
    plain = json.loads((tmp_path / pointer["manifest"]["file"]).read_bytes())
    first, last = "format tool name dims extents inputs outputs states", "plans targets assets"
    assert " ".join(plain) == f"{first} weights kernels {last}"
    assert plain["dims"] == {"n": [16, 32]}
    assert plain["inputs"] == [{"name": "x", "dtype": "f32", "shape": [1, "n"]}]
    section = manifest.section("wasm")
    build = plain["targets"]["wasm"]["builds"][0]
    assert build["features"] == ["relaxed_simd"]
    assert build["plans"][0]["file"] == section.builds[0].plans[0].file
    assert plain["plans"][0]["file"]["file"] == manifest.plans[0].file.file
    for path in (tmp_path / "blobs").iterdir():
        assert path.name.partition(".")[0] == digest(path.read_bytes())


def test_deterministic(tmp_path: Path) -> None:
    write(sample(BIG), tmp_path / "a")
    write(sample(BIG), tmp_path / "b")
    assert tree(tmp_path / "a") == tree(tmp_path / "b")


def test_odd_extensions_become_bin() -> None:
    blobs: dict[str, bytes | bytearray | memoryview] = {}
    names = [add(blobs, b"x", e).file.rpartition(".")[2] for e in ("json", "json~", "", "a/b")]
    assert names == ["json", "bin", "bin", "bin"]


def kinds(manifest: Manifest) -> dict[str, FileRef]:
    section = manifest.section("wasm")
    tensors = manifest.weights.tensors
    assert tensors is not None
    return {
        "driver": section.programs["driver"],
        "code": section.builds[0].code,
        "kernels": manifest.kernels,
        "slots": section.kernels,
        "plan": manifest.plans[0].file,
        "tensors": tensors,
        "image": section.builds[0].plans[0],
        "shard": manifest.weights.shards[-1],
        "asset": manifest.assets[0],
    }


@pytest.mark.parametrize(
    "kind", ["driver", "code", "kernels", "slots", "plan", "tensors", "image", "shard", "asset"]
)
@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_damaged_file(tmp_path: Path, kind: str, damage: str) -> None:
    ref = kinds(write(sample(BIG), tmp_path))[kind]
    path = tmp_path / ref.file
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    if damage == "remove":
        path.unlink()
    else:
        path.write_bytes(data if damage == "flip" else data[:-1])

    bundle = open_bundle(tmp_path)
    for other in bundle.manifest.files():
        if other.file != ref.file:
            bundle.read(other)
    with pytest.raises(BundleCorrupt, match=ref.file) as caught:
        bundle.read(ref)
    if damage != "remove":
        assert caught.value.facts["expected"] == ref.digest
        assert caught.value.facts["found"] == digest(path.read_bytes())
    with pytest.raises(BundleCorrupt, match=ref.file):
        bundle.verify()


@pytest.mark.parametrize("what", ["pipe", "device", "long"])
def test_a_file_that_has_no_end_is_not_read(tmp_path: Path, what: str) -> None:
    ref = kinds(write(sample(BIG), tmp_path))["shard"]
    path = tmp_path / ref.file
    if what == "long":
        with path.open("ab") as file:
            file.truncate(1 << 40)
    else:
        path.unlink()
        if what == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to("/dev/zero")
    with pytest.raises(BundleCorrupt, match=ref.file):
        open_bundle(tmp_path).verify()


@pytest.mark.parametrize(
    "damage", [b"", b"\xff\xfe", b"[]", b"{}", b'{"format": true}', b" " * (1 << 16) + b"{}"]
)
def test_damaged_pointer(tmp_path: Path, damage: bytes) -> None:
    write(sample(), tmp_path)
    (tmp_path / "bundle.json").write_bytes(damage)
    with pytest.raises(BundleCorrupt, match=r"bundle\.json"):
        open_bundle(tmp_path)


def test_flipped_byte_in_manifest(tmp_path: Path) -> None:
    write(sample(), tmp_path)
    pointer = json.loads((tmp_path / "bundle.json").read_bytes())
    path = tmp_path / pointer["manifest"]["file"]
    path.write_bytes(path.read_bytes().replace(b'"slots":1', b'"slots":2'))
    with pytest.raises(BundleCorrupt, match=path.name):
        open_bundle(tmp_path)


def test_manifest_with_a_missing_key(tmp_path: Path) -> None:
    write(sample(), tmp_path)
    data = json.dumps({"format": FORMAT, "tool": "t"}).encode()
    name = f"blobs/{digest(data)}.json"
    (tmp_path / name).write_bytes(data)
    ref = {"file": name, "digest": digest(data), "bytes": len(data)}
    (tmp_path / "bundle.json").write_bytes(
        json.dumps({"format": FORMAT, "tool": "t", "manifest": ref}).encode()
    )
    with pytest.raises(BundleCorrupt, match="name"):
        open_bundle(tmp_path)


@pytest.mark.parametrize(("version", "side"), [(FORMAT - 1, "older"), (FORMAT + 1, "newer")])
def test_other_format_version(tmp_path: Path, version: int, side: str) -> None:
    """Another version may have any other shape: it is told by `format` alone."""
    (tmp_path / "bundle.json").write_bytes(json.dumps({"format": version, "x": 1}).encode())
    with pytest.raises(BundleVersion, match=side) as caught:
        open_bundle(tmp_path)
    assert caught.value.facts["found"] == version
    assert caught.value.facts["expected"] == FORMAT
    assert caught.value.hint


def test_no_bundle(tmp_path: Path) -> None:
    assert not is_bundle(tmp_path)
    with pytest.raises(BundleCorrupt, match="not a bundle"):
        open_bundle(tmp_path)
    with pytest.raises(BundleCorrupt, match="does not exist"):
        open_bundle(tmp_path / "nowhere")
    assert not is_bundle(tmp_path / ("long" * 999))
    with pytest.raises(BundleCorrupt, match="does not exist"):
        open_bundle(tmp_path / ("long" * 999))
    (tmp_path / "model.onnx").write_bytes(b"x")
    with pytest.raises(BundleCorrupt, match="not a bundle"):
        open_bundle(tmp_path / "model.onnx")
    write(sample(), tmp_path)
    assert is_bundle(tmp_path)


def test_reference_out_of_the_folder(tmp_path: Path) -> None:
    secret = b'{"format": 1}'
    (tmp_path / "secret.json").write_bytes(secret)
    write(sample(), tmp_path / "bundle")
    bundle = open_bundle(tmp_path / "bundle")
    for file in ("../secret.json", f"blobs/{digest(secret)}/../../../secret.json"):
        with pytest.raises(BundleCorrupt, match="not a blob"):
            bundle.read(FileRef(file=file, digest=digest(secret), bytes=len(secret)))


def test_rebuild_over_an_old_bundle(tmp_path: Path) -> None:
    write(sample(BIG), tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "blobs" / "notes.txt").write_text("mine too")
    for _ in range(2):
        write(sample(1000, name="second"), tmp_path)
        later(tmp_path)
    write(sample(1000, name="second"), tmp_path / "fresh")
    fresh = tree(tmp_path / "fresh")
    found = {k: v for k, v in tree(tmp_path).items() if not k.startswith("fresh")}
    assert found.pop("notes.txt") == b"mine"
    assert found.pop("blobs/notes.txt") == b"mine too"
    assert found == fresh


def test_what_a_writer_that_died_left_goes(tmp_path: Path) -> None:
    manifest = write(sample(), tmp_path)
    before = tree(tmp_path)
    half = f"{PART}{'0a' * 8}-"
    left = [f"{half}bundle.json", *(f"blobs/{half}{f.file[6:]}" for f in manifest.files())]
    for name in left:
        (tmp_path / name).write_text("half")
    (tmp_path / f"{PART}notes.txt").write_text("mine")
    write(sample(), tmp_path)
    found = tree(tmp_path)
    assert found.pop(f"{PART}notes.txt") == b"mine"
    assert found == before


def test_failed_rebuild_keeps_the_old_bundle(tmp_path: Path) -> None:
    before = write(sample(BIG), tmp_path)

    def broken() -> list[bytes]:
        raise OSError("disk gone")

    good = sample(1000, name="second")
    with pytest.raises(OSError, match="disk gone"):
        write(Contents(good.manifest, good.blobs, broken, good.tensors), tmp_path)
    bundle = open_bundle(tmp_path)
    assert bundle.manifest == before
    bundle.verify()
    assert not list((tmp_path / "blobs").glob(".part-*"))


def test_writer_checks_its_input(tmp_path: Path) -> None:
    good = sample(1000)
    with pytest.raises(CompilerBug, match="length"):
        write(Contents(good.manifest, good.blobs, lambda: weights(999)), tmp_path)
    with pytest.raises(CompilerBug, match="blobs"):
        write(Contents(good.manifest, {}, good.weights), tmp_path)


def test_an_unknown_key_is_ignored() -> None:
    """Fields may be added within a format version."""
    plain = json.loads(encode(sample().manifest))
    plain["later"] = 1
    assert msgspec.json.decode(json.dumps(plain).encode(), type=Manifest) == sample().manifest
