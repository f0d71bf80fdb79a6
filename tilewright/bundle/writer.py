"""Writes a bundle into a folder, so that a reader never sees a half-written one.

Input: `Contents`: the manifest, its blobs, and the weights as a stream.  Output: the folder.  The
blobs come first, then the pointer is swapped in one step, then blobs that nothing names any more
are deleted.  Other files in the folder are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex

import msgspec

from tilewright.base.errors import CompilerBug
from tilewright.bundle.format import (
    BLOBS,
    POINTER,
    FileRef,
    Manifest,
    Pointer,
    digest,
    encode,
    is_blob_name,
)

SHARD_BYTES = 4 * 1024 * 1024
Buffer = bytes | bytearray | memoryview
PART = ".part-"


@dataclass(frozen=True)
class Contents:
    """A bundle before it is written.

    blobs:   path below the folder → bytes, as `add` puts them
    weights: gives the weight region from its first to its last byte, in pieces of any size; it is
             called once while writing, so large weights need not be in memory at the same time.
             `manifest.weights` carries only the number of bytes; the writer adds the shards.
    """

    manifest: Manifest
    blobs: Mapping[str, Buffer]
    weights: Callable[[], Iterable[Buffer]] = field(default=tuple)


def add(blobs: dict[str, Buffer], data: Buffer, extension: str) -> FileRef:
    """Puts `data` under its content address into `blobs` and returns the reference.

    An extension that a blob's name cannot have becomes "bin".
    """
    ref = reference(data, extension)
    blobs[ref.file] = data
    return ref


def write(contents: Contents, folder: Path) -> Manifest:
    """Writes the bundle and returns its manifest, complete with the weight shards."""
    (folder / BLOBS).mkdir(parents=True, exist_ok=True)
    for name, data in contents.blobs.items():
        replace(folder / name, data)
    shards = tuple(_write_shards(contents, folder))
    weights = msgspec.structs.replace(contents.manifest.weights, shards=shards)
    manifest = msgspec.structs.replace(contents.manifest, weights=weights)
    _check_complete(manifest, contents.blobs)

    data = encode(manifest)
    ref = reference(data, "json")
    replace(folder / ref.file, data)
    pointer = Pointer(format=manifest.format, tool=manifest.tool, manifest=ref)
    replace(folder / POINTER, encode(pointer) + b"\n")
    sweep(folder, POINTER, {ref.file, *(f.file for f in manifest.files())})
    return manifest


def _write_shards(contents: Contents, folder: Path) -> Iterator[FileRef]:
    total = 0
    for shard in _cut(contents.weights(), SHARD_BYTES):
        ref = reference(shard, "bin")
        replace(folder / ref.file, shard)
        total += ref.bytes
        yield ref
    if total != contents.manifest.weights.bytes:
        raise CompilerBug(
            "The weight stream has another length than the manifest says",
            found=total,
            expected=contents.manifest.weights.bytes,
        )


def _cut(pieces: Iterable[Buffer], size: int) -> Iterator[bytearray]:
    """The same bytes in pieces of exactly `size`, the last one shorter."""
    shard = bytearray()
    for piece in pieces:
        view = memoryview(piece).cast("B")
        while len(view):
            part = view[: size - len(shard)]
            shard += part
            view = view[len(part) :]
            if len(shard) == size:
                yield shard
                shard = bytearray()
    if shard:
        yield shard


def _check_complete(manifest: Manifest, blobs: Mapping[str, Buffer]) -> None:
    shards = {ref.file for ref in manifest.weights.shards}
    missing = [ref.file for ref in manifest.files() if ref.file not in blobs.keys() | shards]
    if missing:
        raise CompilerBug("The manifest names blobs that are not there", files=missing)


def reference(data: Buffer, extension: str) -> FileRef:
    """How a bundle names these bytes."""
    found = digest(data)
    size = memoryview(data).nbytes
    name = f"{BLOBS}/{found}.{extension}"
    if not is_blob_name(name):
        name = f"{BLOBS}/{found}.bin"
    return FileRef(file=name, digest=found, bytes=size)


def replace(path: Path, data: Buffer) -> None:
    """Writes beside the place and renames, so that the name never holds half a file.

    Under a name of its own: others may write the same file at the same time.
    """
    part = path.with_name(f"{PART}{token_hex(8)}-{path.name}")
    try:
        part.write_bytes(data)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def sweep(folder: Path, pointer: str, named: set[str]) -> None:
    """Deletes the blobs that nothing names any more, and what writers that died left of these or
    of the pointer; other files are left alone."""
    for path in folder.glob(f"{PART}*-{pointer}"):
        path.unlink(missing_ok=True)
    for path in (folder / BLOBS).iterdir():
        left = path.name.startswith(PART)
        file = f"{BLOBS}/{path.name.rpartition('-')[2] if left else path.name}"
        if is_blob_name(file) and (left or file not in named):
            path.unlink()
