"""A cache of relinked bundles, in a folder that processes share.

Input: a bundle, a class, schedules by kernel; the new manifest and the new files.  Output: the
relinked bundle, found by its origin or by the digest of its manifest, in any process.  Weights and
other unchanged files stay in the folder of the bundle as built.

    blobs/DIGEST.EXT      files that only relinked bundles have
    origins/MANIFEST.json the origin of the bundle with this manifest (`Origin`)
    made/ORIGIN.json      the pointer of the bundle with this origin

Every file is named by a digest and never changes; the folder may be deleted at any time.  Each use
sets a file's mtime; the least recently used files are deleted beyond `ROOM` and `FILES`.
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

import msgspec

from tilewright.base.compiler_digest import compiler_digest
from tilewright.base.errors import BundleCorrupt, UsageError
from tilewright.bundle import POINTER, Bundle, FileRef, Manifest, Pointer
from tilewright.bundle.format import BLOBS, MALFORMED, decode, digest, encode, is_blob_name
from tilewright.bundle.owned_files import PART, replace
from tilewright.bundle.reader import read_blob
from tilewright.tuning.candidate_folder import INDEX
from tilewright.tuning.catalogue import Winners

#: Limits: bytes and number of files.
ROOM, FILES = 1 << 30, 50_000
#: Seconds that a file stays after its last use, even beyond the limits: a visitor that got a
#: pointer still loads its files and tunes with that digest.  A process marks its open bundles as
#: used again after half of this time (session_resources.py), so each use leaves at least the other
#: half.
GRACE = 7200.0
_MADE = "made"
_FOLDERS = (_MADE, BLOBS, "origins")


@dataclass(frozen=True)
class Relinked(Bundle):
    """A relinked bundle.  own: folder of the files that only it has; the others are in `folder`"""

    own: Path

    def read(self, ref: FileRef) -> bytes:
        return read_blob(self.own if (self.own / ref.file).is_file() else self.folder, ref)

    @property
    def shown(self) -> bytes:
        """The contents of its bundle.json."""
        return encode(self.pointer) + b"\n"


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """What a relinked bundle was made from.

    base: digest of the original manifest;  device: id of the class
    schedules: as JSON, by number of the kernel;  tool: digest of the compiler's source
    """

    base: str
    device: str
    schedules: dict[int, dict[str, object]]
    tool: str = msgspec.field(default_factory=compiler_digest)

    @classmethod
    def of(cls, base: Bundle, device: str, winners: Winners) -> Origin:
        schedules = {spec: winners[spec].to_json() for spec in sorted(winners)}
        return cls(base=base.pointer.manifest.digest, device=device, schedules=schedules)

    @property
    def key(self) -> str:
        return digest(encode(self))


class Cache:
    """Relinked bundles in a folder; None: a temporary one, deleted when this process ends.

    Raises UsageError for a folder with files of others.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or Path(tempfile.mkdtemp(prefix="tilewright-relinked-"))
        foreign = [name for name in (POINTER, INDEX) if (self.folder / name).exists()]
        if not (self.folder / _MADE).exists():  # the first folder that `keep` creates
            foreign += [name for name in _FOLDERS if (self.folder / name).exists()]
        if foreign:
            raise UsageError(
                f"{self.folder} is not a cache folder: it has {', '.join(foreign)}, and a cache "
                "deletes files",
                hint="Give --cache a folder of its own",
            )
        if folder is None:
            weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    def made(self, base: Bundle, origin: Origin) -> Relinked | None:
        """The bundle with this origin; None if there is none, or if files of it are missing."""
        place = self.folder / _MADE / f"{origin.key}.json"
        if not place.is_file():
            return None
        try:
            pointer = decode(place.read_bytes(), Pointer, str(place))
            return self._whole(base, pointer, place)
        except (BundleCorrupt, FileNotFoundError):
            return None

    def find(self, base: Bundle, manifest: str) -> Relinked | None:
        """The bundle whose manifest has this digest, if it was made from `base`."""
        place = self.folder / "origins" / f"{manifest}.json"
        if not (is_blob_name(f"blobs/{manifest}.json") and place.is_file()):
            return None
        try:
            origin = msgspec.json.decode(place.read_bytes(), type=Origin)
        except MALFORMED:
            return None
        found = self.made(base, origin) if origin.base == base.pointer.manifest.digest else None
        return found if found and found.pointer.manifest.digest == manifest else None

    def keep(
        self, base: Bundle, origin: Origin, manifest: Manifest, blobs: Mapping[str, bytes]
    ) -> Relinked:
        """Writes the new files, the pointer last.  Raises OSError."""
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
        """The bundle, after setting the mtime of all its files: none may go while it is in use.

        Raises BundleCorrupt if a file is missing.
        """
        data = read_blob(self.folder, pointer.manifest)
        manifest = decode(data, Manifest, str(self.folder / pointer.manifest.file))
        found = Relinked(base.folder, pointer, manifest, self.folder)
        named = (ref.file for ref in (pointer.manifest, *manifest.files()))
        origin = f"origins/{pointer.manifest.digest}.json"
        for path in (place, *(self.folder / file for file in (origin, *named))):
            with suppress(OSError):  # a file of the bundle as built, or of another user
                os.utime(path)
        for ref in manifest.files():
            if not any((folder / ref.file).is_file() for folder in (self.folder, base.folder)):
                raise BundleCorrupt("A file is missing", hint="It is made again", file=ref.file)
        return found

    def _tidy(self) -> None:
        """Deletes the least recently used beyond `ROOM` or `FILES`, and parts that writers left."""
        since = time.time() - GRACE
        files = sorted(self._files(), key=lambda file: file[1].st_mtime)
        size, count = sum(status.st_size for _, status in files), len(files)
        for path, status in files:
            left = path.name.startswith(PART)
            if status.st_mtime >= since or not (left or size > ROOM or count > FILES):
                continue
            with suppress(OSError):
                # another process may have used it since the scan
                if path.stat().st_mtime == status.st_mtime:
                    path.unlink()
                    size, count = size - status.st_size, count - 1

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        for folder in _FOLDERS:
            with suppress(OSError), os.scandir(self.folder / folder) as entries:
                for entry in entries:
                    name = entry.name.rpartition("-")[2]
                    if not is_blob_name(f"{BLOBS}/{name}"):
                        continue  # not a file of a cache
                    with suppress(OSError):
                        yield Path(entry.path), entry.stat(follow_symlinks=False)
