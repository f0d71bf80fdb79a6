"""Writes a bundle into a folder, so that a reader never sees a half-written one.

Input: `Contents`: the manifest, its blobs, and the weights as a stream.  Output: the folder.  Blobs
are written first; then the pointer is replaced atomically.  Blobs of the previous bundle stay for
at least a minute.  Other files in the folder are left alone (owned_files.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from tilewright.base.errors import BundleCorrupt, BundleVersion, CompilerBug
from tilewright.bundle.format import (
    BLOBS,
    POINTER,
    FileRef,
    Manifest,
    Pointer,
    TensorEntry,
    decode,
    digest,
    encode,
    is_blob_name,
)
from tilewright.bundle.owned_files import Buffer, FolderPart, check
from tilewright.bundle.signing import Signer, next_serial

SHARD_BYTES = 4 * 1024 * 1024
SECTION = "bundle"


@dataclass(frozen=True)
class Contents:
    """A bundle before it is written.

    blobs:   path below the folder → bytes, added by `add`
    weights: yields the bytes of all weights in order, in pieces of any size; called once, so that
             large weights need not be in memory at the same time.  `manifest.weights` has only the
             number of bytes; the writer adds the shards.
    tensors: the table of tensors, by offset; the writer adds shard numbers and digests.  Empty if
             the manifest already names a table among the blobs.
    """

    manifest: Manifest
    blobs: Mapping[str, Buffer]
    weights: Callable[[], Iterable[Buffer]] = field(default=tuple)
    tensors: tuple[TensorEntry, ...] = ()


def add(blobs: dict[str, Buffer], data: Buffer, extension: str) -> FileRef:
    """Adds `data` to `blobs` under its content address and returns the reference.

    An extension that a blob's name cannot have becomes "bin".
    """
    ref = reference(data, extension)
    blobs[ref.file] = data
    return ref


def write(contents: Contents, folder: Path, signer: Signer | None = None) -> Manifest:
    """Writes the bundle and returns its complete manifest, with the weight shards.

    signer: signs the pointer

    Raises UsageError, before anything is written, if that would overwrite a foreign file.
    """
    check(folder, (POINTER, *contents.blobs))
    with FolderPart(folder, SECTION) as section:
        section.put_all(contents.blobs)
        digests = _Digests(contents.tensors)
        shards = tuple(_write_shards(contents, section, digests))
        weights = msgspec.structs.replace(contents.manifest.weights, shards=shards)
        blobs = dict(contents.blobs)
        if weights.tensors is None:
            table = add(blobs, digests.table(), "json")
            section.put(table.file, blobs[table.file])
            weights = msgspec.structs.replace(weights, tensors=table)
        manifest = msgspec.structs.replace(contents.manifest, weights=weights)
        _check_complete(manifest, blobs)

        data = encode(manifest)
        ref = reference(data, "json")
        section.put(ref.file, data)
        pointer = Pointer(format=manifest.format, tool=manifest.tool, manifest=ref)
        if signer:
            pointer = signer.pointer(pointer, manifest.name, next_serial(_before(folder)))
        section.put(POINTER, encode(pointer) + b"\n")
    return manifest


def _before(folder: Path) -> Pointer | None:
    """The pointer that will be replaced; None if there is none, or if it cannot be read."""
    try:
        return decode((folder / POINTER).read_bytes(), Pointer, POINTER)
    except (OSError, BundleCorrupt, BundleVersion):
        return None


class _Digests:
    """The digest of each tensor, computed from the weight stream."""

    def __init__(self, tensors: Sequence[TensorEntry]) -> None:
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


def _write_shards(contents: Contents, section: FolderPart, digests: _Digests) -> Iterator[FileRef]:
    total = 0
    for shard in _cut(contents.weights(), SHARD_BYTES):
        digests.feed(shard)
        ref = reference(shard, "bin")
        section.put(ref.file, shard)
        total += ref.bytes
        yield ref
    if total != contents.manifest.weights.bytes:
        raise CompilerBug(
            "The weight stream does not have the length in the manifest",
            found=total,
            expected=contents.manifest.weights.bytes,
        )


def _cut(pieces: Iterable[Buffer], size: int) -> Iterator[bytearray]:
    """The same bytes in pieces of exactly `size` bytes; the last piece may be shorter."""
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
        raise CompilerBug("The manifest lists blobs that do not exist", files=missing)


def reference(data: Buffer, extension: str) -> FileRef:
    """The reference of a blob with these bytes."""
    found = digest(data)
    size = memoryview(data).nbytes
    name = f"{BLOBS}/{found}.{extension}"
    if not is_blob_name(name):
        name = f"{BLOBS}/{found}.bin"
    return FileRef(file=name, digest=found, bytes=size)
