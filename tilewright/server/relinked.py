"""Bundles that were linked anew, in a folder that processes share and that outlives them.

Input: a bundle, a class, schedules by kernel; the new manifest and the files that are new.  Output:
the bundle again, found by what it was made of or by the digest of its manifest, in any process.
Weights and whatever else did not change stay files of the bundle as built.

    blobs/DIGEST.EXT      files that only relinked bundles have
    origins/MANIFEST.json what the bundle with this manifest was made of (`Origin`)
    made/ORIGIN.json      the pointer of the bundle that was made of this

Everything is named by a digest, so nothing ever changes; the folder may be deleted at any time.
What is used gets the time of now, and what was used longest ago goes where there is too much.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tilewright import __version__
from tilewright.base.errors import BundleCorrupt, UsageError
from tilewright.bundle import POINTER, Bundle, FileRef, Manifest, Pointer
from tilewright.bundle.format import BLOBS, decode, digest, encode, is_blob_name
from tilewright.bundle.reader import read_blob
from tilewright.bundle.written import PART, replace
from tilewright.tuning.catalogue import Winners
from tilewright.tuning.folder import INDEX

#: Most bytes and files that are kept.
ROOM, FILES = 1 << 30, 50_000
#: Seconds after it was last looked at that a file stays, whatever room there is: a visitor who was
#: told of a bundle loads its files, and comes back with its digest.  A process looks again at what
#: it has open when half of this is over (workshop.py), so the other half is left after each use.
GRACE = 7200.0
_MADE = "made"
_FOLDERS = (_MADE, BLOBS, "origins")


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
        foreign = [name for name in (POINTER, INDEX) if (self.folder / name).exists()]
        if not (self.folder / _MADE).exists():  # it is made first
            foreign += [name for name in _FOLDERS if (self.folder / name).exists()]
        if foreign:
            raise UsageError(
                f"{self.folder} is no folder of a cache: it has {', '.join(foreign)} of somebody "
                "else, from which files would be deleted",
                hint="Give --cache a folder of its own",
            )
        if folder is None:
            weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    def made(self, base: Bundle, origin: Origin) -> Relinked | None:
        """The bundle that was made of this; None if nobody did, or if files of it are gone."""
        place = self.folder / _MADE / f"{origin.key}.json"
        if not place.is_file():
            return None
        try:
            pointer = decode(place.read_bytes(), Pointer, str(place))
            return self._whole(base, pointer, place)
        except (BundleCorrupt, FileNotFoundError):
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
            f"{_MADE}/{origin.key}.json": encode(pointer),
        }
        for folder in _FOLDERS:
            (self.folder / folder).mkdir(parents=True, exist_ok=True)
        for file, content in new.items():
            replace(self.folder / file, content)
        self._tidy()
        return Relinked(base.folder, pointer, manifest, self.folder)

    def _whole(self, base: Bundle, pointer: Pointer, place: Path) -> Relinked:
        """The bundle; all files of it are of now, so that none goes while it is in use."""
        data = read_blob(self.folder, pointer.manifest)
        manifest = decode(data, Manifest, str(self.folder / pointer.manifest.file))
        found = Relinked(base.folder, pointer, manifest, self.folder)
        named = (ref.file for ref in (pointer.manifest, *manifest.files()))
        origin = f"origins/{pointer.manifest.digest}.json"
        for path in (place, *(self.folder / file for file in (origin, *named))):
            with suppress(OSError):  # of the bundle as built, or in a folder of somebody else
                os.utime(path)
        for ref in manifest.files():
            if not any((folder / ref.file).is_file() for folder in (self.folder, base.folder)):
                raise BundleCorrupt("A file is gone", hint="It is made again", file=ref.file)
        return found

    def _tidy(self) -> None:
        """Deletes what was used longest ago beyond `ROOM` or `FILES`, and what writers left."""
        since = time.time() - GRACE
        files = sorted(self._files(), key=lambda file: file[1].st_mtime)
        size, count = sum(status.st_size for _, status in files), len(files)
        for path, status in files:
            left = path.name.startswith(PART)
            if status.st_mtime >= since or not (left or size > ROOM or count > FILES):
                continue
            with suppress(OSError):
                # another process may have come to use it meanwhile
                if path.stat().st_mtime == status.st_mtime:
                    path.unlink()
                    size, count = size - status.st_size, count - 1

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        for folder in _FOLDERS:
            with suppress(OSError), os.scandir(self.folder / folder) as entries:
                for entry in entries:
                    name = entry.name.rpartition("-")[2]
                    if not is_blob_name(f"{BLOBS}/{name}"):
                        continue  # nothing of ours
                    with suppress(OSError):
                        yield Path(entry.path), entry.stat(follow_symlinks=False)
