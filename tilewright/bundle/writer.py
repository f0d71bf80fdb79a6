"""Writes a bundle into a folder, so that a reader never sees a half-written one.

Input: `Contents`: the manifest, its blobs, and the weights as a stream.  Output: the folder.  The
blobs come first, then the pointer is swapped in one step, then blobs that nothing names any more
are deleted.  Other files in the folder are left alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
    Tensor,
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
    tensors: the table of what lies in them, by offset; the writer adds shard numbers and digests.
             Without it the manifest names a table that is one of the blobs.
    """

    manifest: Manifest
    blobs: Mapping[str, Buffer]
    weights: Callable[[], Iterable[Buffer]] = field(default=tuple)
    tensors: tuple[Tensor, ...] = ()


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
    digests = _Digests(contents.tensors)
    shards = tuple(_write_shards(contents, folder, digests))
    weights = msgspec.structs.replace(contents.manifest.weights, shards=shards)
    blobs = dict(contents.blobs)
    if weights.tensors is None:
        table = add(blobs, digests.table(), "json")
        replace(folder / table.file, blobs[table.file])
        weights = msgspec.structs.replace(weights, tensors=table)
    manifest = msgspec.structs.replace(contents.manifest, weights=weights)
    _check_complete(manifest, blobs)

    data = encode(manifest)
    ref = reference(data, "json")
    replace(folder / ref.file, data)
    pointer = Pointer(format=manifest.format, tool=manifest.tool, manifest=ref)
    replace(folder / POINTER, encode(pointer) + b"\n")
    sweep(folder, POINTER, {ref.file, *(f.file for f in manifest.files())})
    return manifest


class _Digests:
    """The digest of each tensor, from the bytes of all as they pass."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._tensors = tensors
        self._hashes = [hashlib.sha256() for _ in tensors]
        self._open = 0
        self._at = 0

    def feed(self, data: Buffer) -> None:
        view, start = memoryview(data), self._at
        self._at += len(view)
        for number in range(self._open, len(self._tensors)):
            tensor = self._tensors[number]
            if tensor.offset >= self._at:
                break
            end = tensor.offset + tensor.bytes
            self._hashes[number].update(view[max(0, tensor.offset - start) : end - start])
            self._open = number + (end <= self._at)

    def table(self) -> bytes:
        """The finished table of tensors."""
        return encode(
            [
                msgspec.structs.replace(t, shard=t.offset // SHARD_BYTES, digest=h.hexdigest())
                for t, h in zip(self._tensors, self._hashes, strict=True)
            ]
        )


def _write_shards(contents: Contents, folder: Path, digests: _Digests) -> Iterator[FileRef]:
    total = 0
    for shard in _cut(contents.weights(), SHARD_BYTES):
        digests.feed(shard)
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
