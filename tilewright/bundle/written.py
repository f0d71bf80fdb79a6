"""Writes files into a folder without overwriting or deleting foreign ones.

Input: a folder, and the new files of a section of it (bundle, page, …).  Output: those files,
without the section's old ones, and a record with the SHA-256 of each.  Files that are not in the
record, or changed since, are foreign: `UsageError` before one is lost.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from secrets import token_hex
from types import TracebackType
from typing import BinaryIO, Literal

import msgspec

from tilewright.base.errors import UsageError
from tilewright.bundle.format import digest, encode, named_digest

Buffer = bytes | bytearray | memoryview
#: By section, its files: path below the folder → digest.
Sections = dict[str, dict[str, str]]
RECORD = "written-by-tilewright.json"
PART = ".part-"
_LEFT = re.compile(re.escape(PART) + "[0-9a-f]{16}-(.+)")
_HINT = "Move it away, or choose another folder"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    format: Literal[1] = 1
    sections: Sections


class FolderPart:
    """`with FolderPart(folder, "bundle") as section:` writes a section of the folder anew.

    At the end the section's old files are deleted, except changed ones and those put again.  After
    an error all stay, and the record has what was written so far.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._now: dict[str, str] = {}

    def __enter__(self) -> FolderPart:
        self._sections = _read(self._folder)
        self._known = _known(self._sections)
        return self

    def put(self, name: str, data: Buffer) -> None:
        """Writes a file; a blob that exists already is kept.  Raises UsageError as `check`."""
        if name in self._now:
            return
        _refuse(self._folder, name, self._known)
        place, known = self._folder / name, name in self._known
        if not (named_digest(name) and place.exists()):
            place.parent.mkdir(parents=True, exist_ok=True)
            replace(place, data)
            known = True
        if known:
            self._now[name] = digest(data)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        before = self._sections.get(self._name, {})
        if kind is not None:
            with suppress(OSError):
                self._save(before | self._now)
            return
        for name in before.keys() - self._now.keys():
            place = self._folder / name
            if _is_file(place) and digest(place.read_bytes()) == before[name]:
                place.unlink()
        for place in self._left():
            place.unlink(missing_ok=True)
        self._save(self._now)

    def _left(self) -> Iterator[Path]:
        """Partial files of these names, from writers that died."""
        for folder in {PurePosixPath(name).parent for name in self._now}:
            for path in (self._folder / folder).glob(f"{PART}*"):
                found = _LEFT.fullmatch(path.name)
                name = str(folder / found[1]) if found else ""
                if name in self._now or named_digest(name):
                    yield path

    def _save(self, files: dict[str, str]) -> None:
        sections = self._sections | {self._name: dict(sorted(files.items()))}
        record = Record(sections={name: sections[name] for name in sorted(sections)})
        replace(self._folder / RECORD, msgspec.json.format(encode(record), indent=1) + b"\n")


def check(folder: Path, names: Iterable[str]) -> None:
    """Raises UsageError if writing any of these files would overwrite a foreign one."""
    known = _known(_read(folder))
    for name in names:
        _refuse(folder, name, known)


def _read(folder: Path) -> Sections:
    place = folder / RECORD
    if not os.path.lexists(place):
        return {}
    try:
        sections = msgspec.json.decode(place.read_bytes(), type=Record).sections
        if outside := [name for name in _known(sections) if not _is_below(name)]:
            raise ValueError(f"{outside[0]} is not below the folder")
    except (msgspec.DecodeError, OSError, ValueError) as error:
        raise UsageError(
            f"{place} is not a record of the files that Tilewright wrote: {error}", hint=_HINT
        ) from error
    return sections


def _is_below(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts


def _known(sections: Sections) -> dict[str, str]:
    return {name: found for files in sections.values() for name, found in files.items()}


def _refuse(folder: Path, name: str, known: Mapping[str, str]) -> None:
    """Raises UsageError unless the path is free, or has an unchanged file of Tilewright."""
    place, wanted = folder / name, known.get(name) or named_digest(name)
    for above in PurePosixPath(name).parents:
        if os.path.lexists(folder / above) and not (folder / above).is_dir():
            raise UsageError(f"{folder / above} is in the way: it is not a folder", hint=_HINT)
    if not os.path.lexists(place):
        return
    if wanted is None or not _is_file(place):
        raise UsageError(f"{place} exists, and no record says that Tilewright wrote it", hint=_HINT)
    if digest(place.read_bytes()) != wanted:
        raise UsageError(f"{place} was changed since Tilewright wrote it", hint=_HINT)


def _is_file(place: Path) -> bool:
    return place.is_file() and not place.is_symlink()


def replace(path: Path, data: Buffer) -> None:
    """Replaces a file atomically: writes beside it and renames."""
    with replacing(path) as file:
        file.write(data)


@contextmanager
def replacing(path: Path) -> Generator[BinaryIO]:
    """The same for a file that is written in pieces.

    The partial file has a random name: other processes may write the same file at the same time.
    """
    part = path.with_name(f"{PART}{token_hex(8)}-{path.name}")
    try:
        with part.open("xb") as file:
            yield file
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
