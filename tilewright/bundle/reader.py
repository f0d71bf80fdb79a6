"""Opens a bundle and reads its files, each checked against its digest.

Input: a folder (or its bundle.json).  Output: `Bundle` with the manifest and verified bytes.  It
reads a blob only on demand and repairs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from stat import S_ISREG

from tilewright.base.dtypes import DTYPES
from tilewright.base.errors import BundleCorrupt
from tilewright.bundle.format import (
    POINTER,
    REBUILD,
    FileRef,
    Manifest,
    Pointer,
    TensorEntry,
    decode,
    digest,
    is_blob_name,
    parse,
)

#: The most bytes of bundle.json, which only names the manifest.
MOST_POINTER = 1 << 16


@dataclass(frozen=True)
class Bundle:
    """An open bundle.  Blobs are read on demand."""

    folder: Path
    pointer: Pointer
    manifest: Manifest

    def read(self, ref: FileRef) -> bytes:
        """The bytes of a file, checked against size and digest.  Raises BundleCorrupt."""
        return read_blob(self.folder, ref)

    def weights(self) -> Iterator[bytes]:
        """The weight region, shard by shard."""
        for ref in self.manifest.weights.shards:
            yield self.read(ref)

    def tensors(self) -> list[TensorEntry]:
        """The table of stored constants, by id."""
        ref = self.manifest.weights.tensors
        if ref is None:
            return []
        table: list[TensorEntry] = parse(self.read(ref), list[TensorEntry], "the table of tensors")
        _check_table(table, self.manifest)
        return table

    @property
    def bytes(self) -> int:
        """Total size in bytes of the files that a host may load."""
        files = (self.pointer.manifest, *self.manifest.files())
        return sum(ref.bytes for ref in files)

    def verify(self) -> None:
        """Reads every file once.  Raises BundleCorrupt at the first damaged one."""
        for ref in self.manifest.files():
            self.read(ref)


def is_bundle(path: Path) -> bool:
    """Whether the path looks like a bundle and not like a model."""
    return path.name == POINTER or _holds((path / POINTER).is_file)


def open_bundle(path: Path) -> Bundle:
    """Opens the bundle in a folder; `path` may also be its bundle.json.

    Raises BundleCorrupt, BundleVersion.
    """
    folder = path.parent if path.name == POINTER else path
    place = folder / POINTER
    if not _holds(place.is_file):
        raise BundleCorrupt(
            f"{path} is not a bundle" if _holds(path.exists) else f"{path} does not exist",
            hint=f"A bundle is a folder with a {POINTER}; `tilewright build` makes one",
            path=str(path),
        )
    pointer = decode(_read(place, MOST_POINTER), Pointer, str(place))
    ref = pointer.manifest
    manifest = decode(read_blob(folder, ref), Manifest, str(folder / ref.file))
    _check_manifest(manifest)
    return Bundle(folder, pointer, manifest)


def _holds(check: Callable[[], bool]) -> bool:
    """The result of the check; False if the path is too long or its folder is not readable."""
    try:
        return check()
    except OSError:
        return False


def read_blob(folder: Path, ref: FileRef) -> bytes:
    """The bytes of a bundle's file, checked against size and digest.  Raises BundleCorrupt."""
    _check_name(folder, ref)
    path = folder / ref.file
    data = _read(path, ref.bytes)
    found = digest(data)
    if found != ref.digest or len(data) != ref.bytes:
        raise BundleCorrupt(
            f"The bundle file {ref.file} is damaged",
            hint=REBUILD,
            path=str(path),
            expected=ref.digest,
            found=found,
            expected_bytes=ref.bytes,
            found_bytes=len(data),
        )
    return data


def _read(path: Path, most: int) -> bytes:
    """The bytes of a regular file of at most `most` bytes.  Raises BundleCorrupt."""
    try:
        kind = path.stat()
        # Reading a pipe could block, and reading a device could go on for ever.
        if not S_ISREG(kind.st_mode) or kind.st_size > most:
            raise BundleCorrupt(
                f"The bundle file {path.name} is damaged",
                hint=REBUILD,
                path=str(path),
                most_bytes=most,
                found_bytes=kind.st_size,
            )
        return path.read_bytes()
    except FileNotFoundError as error:
        raise BundleCorrupt(
            f"The bundle lacks the file {path.name}", hint=REBUILD, path=str(path)
        ) from error
    except OSError as error:
        raise BundleCorrupt(
            f"The bundle file {path.name} cannot be read: {error.strerror}",
            hint="Check the file's permissions",
            path=str(path),
        ) from error


def _check_manifest(manifest: Manifest) -> None:
    """Raises BundleCorrupt if its parts disagree on dimensions, inputs or outputs."""
    dims = manifest.dims.keys()
    tensors = (*manifest.inputs, *manifest.outputs)
    named = {n for t in tensors for n in t.shape if isinstance(n, str)} | {*manifest.extents}
    ranks = [len(t.shape) for t in tensors]
    shapes = [s for plan in manifest.plans for s in (*plan.inputs, *plan.outputs)]
    whole = (
        named <= dims
        and all(manifest.dims.values())
        and all(plan.dims.keys() == dims for plan in manifest.plans)
        and all([*map(len, (*p.inputs, *p.outputs))] == ranks for p in manifest.plans)
        and all(len(plan.inputs) == len(manifest.inputs) for plan in manifest.plans)
        and all(n >= 0 for shape in shapes for n in shape)
    )
    if not whole:
        raise BundleCorrupt(
            "the manifest's plans, dimensions and tensors do not match", hint=REBUILD
        )


#: Bytes of one number in the shards, by its stored type.
_STORED = {"f16": 2, "bf16": 2, "i8": 1, "u8": 1}


def _check_table(table: list[TensorEntry], manifest: Manifest) -> None:
    """Raises BundleCorrupt if sizes, offsets or scales disagree with each other or with the
    shards."""
    total = sum(ref.bytes for ref in manifest.weights.shards)
    for number, t in enumerate(table):
        each = _STORED[t.stored] if t.stored else DTYPES[t.dtype].size
        parts = [p for p in (t.scale, t.zero) if p is not None]
        whole = (
            all(n >= 0 for n in t.shape)
            and t.bytes == prod(t.shape) * each
            and 0 <= t.offset <= total - t.bytes
            and all(0 <= p < number for p in parts)
        )
        if not whole:
            raise BundleCorrupt(
                f"tensor {number} of the table does not fit the bundle",
                hint=REBUILD,
                tensor=number,
                shape=t.shape[:8],
            )


def _check_name(folder: Path, ref: FileRef) -> None:
    """Raises BundleCorrupt for a path that is not a blob's: it could point outside the folder."""
    if not is_blob_name(ref.file, ref.digest):
        raise BundleCorrupt(
            f"The bundle lists a file that is not a blob: {ref.file}",
            hint=REBUILD,
            path=str(folder),
            file=ref.file,
        )
