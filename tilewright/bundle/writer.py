"""Writes a bundle into a folder, so that a reader never sees a half-written one.

Input: `Contents`: the manifest, its blobs, and the weights as a stream.  Output: the folder.  The
blobs come first, then the pointer is swapped in one step, then the blobs of the bundle before are
deleted.  Other files in the folder are left alone (written.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

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
from tilewright.bundle.written import Buffer, Section, check

SHARD_BYTES = 4 * 1024 * 1024
SECTION = "bundle"


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
    """Writes the bundle and returns its manifest, complete with the weight shards.

    Raises `UsageError` before anything is written if a file of somebody else is in the way.
    """
    check(folder, (POINTER, *contents.blobs))
    with Section(folder, SECTION) as section:
        for name, data in contents.blobs.items():
            section.put(name, data)
        shards = tuple(_write_shards(contents, section))
        weights = msgspec.structs.replace(contents.manifest.weights, shards=shards)
        manifest = msgspec.structs.replace(contents.manifest, weights=weights)
        _check_complete(manifest, contents.blobs)

        data = encode(manifest)
        ref = reference(data, "json")
        section.put(ref.file, data)
        pointer = Pointer(format=manifest.format, tool=manifest.tool, manifest=ref)
        section.put(POINTER, encode(pointer) + b"\n")
    return manifest


def _write_shards(contents: Contents, section: Section) -> Iterator[FileRef]:
    total = 0
    for shard in _cut(contents.weights(), SHARD_BYTES):
        ref = reference(shard, "bin")
        section.put(ref.file, shard)
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
