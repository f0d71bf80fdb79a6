"""Bundles that were linked anew, in a folder that processes share and that outlives them.

Input: a bundle, a class, schedules by kernel; the new manifest and the files that are new.  Output:
the bundle again, found by what it was made of or by the digest of its manifest, in any process.
Weights and whatever else did not change stay files of the bundle as built.

    blobs/DIGEST.EXT      files that only relinked bundles have
    origins/MANIFEST.json what the bundle with this manifest was made of (`Origin`)
    made/ORIGIN.json      the pointer of the bundle that was made of this

Everything is named by a digest, so nothing ever changes; the folder may be deleted at any time.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tilewright import __version__
from tilewright.base.errors import BundleCorrupt
from tilewright.bundle import Bundle, FileRef, Manifest, Pointer
from tilewright.bundle.format import decode, digest, encode, is_blob_name
from tilewright.bundle.reader import read_blob
from tilewright.bundle.writer import replace
from tilewright.tuning.queue import Winners


@dataclass(frozen=True)
class Relinked(Bundle):
    """own: where the files are that the bundle before, in `folder`, has not."""

    own: Path

    def read(self, ref: FileRef) -> bytes:
        return read_blob(self.own if (self.own / ref.file).is_file() else self.folder, ref)

    @property
    def shown(self) -> bytes:
        """What its bundle.json says."""
        return encode(self.pointer) + b"\n"


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Of what a relinked bundle was made: digest of the manifest before, class, schedules."""

    base: str
    device: str
    schedules: dict[int, dict[str, Any]]
    tool: str = __version__

    @classmethod
    def of(cls, base: Bundle, device: str, winners: Winners) -> Origin:
        schedules = {spec: winners[spec].to_json() for spec in sorted(winners)}
        return cls(base=base.pointer.manifest.digest, device=device, schedules=schedules)

    @property
    def key(self) -> str:
        return digest(encode(self))


class Cache:
    """Relinked bundles in a folder; without one, in one that goes with this process."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or Path(tempfile.mkdtemp(prefix="tilewright-relinked-"))
        if folder is None:
            weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    def made(self, base: Bundle, origin: Origin) -> Relinked | None:
        """The bundle that was made of this; None if nobody did, or if files of it are gone."""
        place = self.folder / "made" / f"{origin.key}.json"
        if not place.is_file():
            return None
        try:
            return self._whole(base, decode(place.read_bytes(), Pointer, str(place)))
        except BundleCorrupt:
            return None

    def find(self, base: Bundle, manifest: str) -> Relinked | None:
        """The bundle with this manifest, if it was made of `base`."""
        place = self.folder / "origins" / f"{manifest}.json"
        if not (is_blob_name(f"blobs/{manifest}.json") and place.is_file()):
            return None
        try:
            origin = msgspec.json.decode(place.read_bytes(), type=Origin)
        except msgspec.DecodeError:
            return None
        found = self.made(base, origin) if origin.base == base.pointer.manifest.digest else None
        return found if found and found.pointer.manifest.digest == manifest else None

    def keep(
        self, base: Bundle, origin: Origin, manifest: Manifest, blobs: Mapping[str, bytes]
    ) -> Relinked:
        """Writes what is new: files first, the pointer last.  Raises OSError."""
        data = encode(manifest)
        name = f"blobs/{digest(data)}.json"
        ref = FileRef(file=name, digest=digest(data), bytes=len(data))
        pointer = Pointer(format=manifest.format, tool=manifest.tool, manifest=ref)
        new = {
            **blobs,
            name: data,
            f"origins/{ref.digest}.json": encode(origin),
            f"made/{origin.key}.json": encode(pointer),
        }
        for file, content in new.items():
            place = self.folder / file
            place.parent.mkdir(parents=True, exist_ok=True)
            replace(place, content)
        return Relinked(base.folder, pointer, manifest, self.folder)

    def _whole(self, base: Bundle, pointer: Pointer) -> Relinked:
        data = read_blob(self.folder, pointer.manifest)
        manifest = decode(data, Manifest, str(self.folder / pointer.manifest.file))
        found = Relinked(base.folder, pointer, manifest, self.folder)
        for ref in manifest.files():
            if not any((folder / ref.file).is_file() for folder in (self.folder, base.folder)):
                raise BundleCorrupt("A file is gone", hint="It is made again", file=ref.file)
        return found
