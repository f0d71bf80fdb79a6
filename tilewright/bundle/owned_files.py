"""Writes files into a folder without overwriting or deleting foreign ones.

Input: a folder, and the new files of a section of it (bundle, page, …).  Output: those files,
without the section's old ones, and a record with the SHA-256 of each.  The record names a file
before it is written, so a writer that is killed leaves nothing that the next one refuses.  Files
that are not in the record, or that changed since, are foreign.  `UsageError` is raised before a
foreign file is overwritten or deleted.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path, PurePosixPath
from secrets import token_hex
from types import TracebackType
from typing import BinaryIO, Literal, TypeVar

import msgspec

from tilewright.base.errors import UsageError
from tilewright.bundle.format import MALFORMED, digest, encode, named_digest

if sys.platform != "win32":
    import fcntl

Buffer = bytes | bytearray | memoryview
#: For each section its files: path below the folder → digest.
Sections = dict[str, dict[str, str]]
RECORD = "written-by-tilewright.json"
PART = ".part-"
_LEFT = re.compile(re.escape(PART) + "[0-9a-f]{16}-(.+)")
#: Seconds for which a reader that has the old manifest may still load its files.
STAYS_S = 60.0
T = TypeVar("T")
_HINT = "Move it away, or choose another folder"


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of the record file.

    sections: the files of each section
    writing: files that a writer is about to write, so that they are known if it is killed; each
             with the digests that it may have meanwhile
    old: blobs that no manifest names any more; a reader of the previous manifest may still load
         them
    """

    format: Literal[1]
    sections: Sections
    writing: dict[str, list[str]] = {}
    old: dict[str, str] = {}


class FolderPart:
    """`with FolderPart(folder, "bundle") as section:` writes a section of the folder anew.

    At the end the section's old files are deleted, except those that were changed or written again.
    Old blobs stay for at least `STAYS_S`; the next writer after that deletes them.  After an error
    all files stay, and the record lists the files written so far.  Writers of one folder wait for
    each other.  If a writer is killed, the record lists its files.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._now: dict[str, str] = {}

    def __enter__(self) -> FolderPart:
        self._folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as entering:
            entering.enter_context(_held(self._folder))
            self._record = _read(self._folder)
            self._aged = _age(self._folder / RECORD) >= STAYS_S
            self._holding = entering.pop_all()
        return self

    def put(self, name: str, data: Buffer) -> None:
        """Writes a file; a blob that exists already is kept.  Raises UsageError as `check`."""
        self.put_all({name: data})

    def put_all(self, files: Mapping[str, Buffer]) -> None:
        """Writes several files.  The record names all of them before the first is written."""
        named = {name: digest(data) for name, data in files.items() if name not in self._now}
        known = _known(self._record)
        for name in named:
            _refuse(self._folder, name, known)
        # A blob that exists and is in no record was not written by us, so it is never deleted.
        ours = {
            name: found
            for name, found in named.items()
            if name in known or not (self._folder / name).exists()
        }
        writing = self._record.writing
        claimed = {n: sorted({*writing.get(n, ()), found}) for n, found in ours.items()}
        if not claimed.items() <= writing.items():
            self._save(msgspec.structs.replace(self._record, writing=writing | claimed))
        for name in named:
            place = self._folder / name
            if not (named_digest(name) and place.exists()):
                place.parent.mkdir(parents=True, exist_ok=True)
                replace(place, files[name])
        self._now |= ours

    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        with self._holding:
            if kind is None:
                self._finish()
                return
            with suppress(OSError):
                files = self._record.sections.get(self._name, {}) | self._now
                self._save(self._with(files))

    def _finish(self) -> None:
        others = {n: f for n, f in self._record.sections.items() if n != self._name}
        named = {name for files in (self._now, *others.values()) for name in files}
        before = self._record.sections.get(self._name, {})
        gone = {*self._record.old, *before, *self._record.writing} - named
        stays = {
            name: found
            for name in gone
            if (found := named_digest(name)) and not (self._aged and name in self._record.old)
        }
        known = _known(self._record)
        for name in gone - stays.keys():
            place = self._folder / name
            if _is_file(place) and digest(place.read_bytes()) in known[name]:
                place.unlink()
        for place in self._left():
            place.unlink(missing_ok=True)
        # Files that a killed writer of another section began stay for that section's next writer.
        writing = {
            name: found
            for name, found in self._record.writing.items()
            if any(name in files for files in others.values())
        }
        old = {name: found for name, found in stays.items() if (self._folder / name).exists()}
        self._save(msgspec.structs.replace(self._with(self._now), writing=writing, old=old))

    def _with(self, files: dict[str, str]) -> Record:
        """The record with other files in this section."""
        return msgspec.structs.replace(
            self._record, sections=self._record.sections | {self._name: files}
        )

    def _save(self, record: Record) -> None:
        self._record = record
        sections = {name: _in_order(files) for name, files in _in_order(record.sections).items()}
        told = Record(
            format=1,
            sections=sections,
            writing=_in_order(record.writing),
            old=_in_order(record.old),
        )
        replace(self._folder / RECORD, msgspec.json.format(encode(told), indent=1) + b"\n")

    def _left(self) -> Iterator[Path]:
        """Paths of partial files that killed writers left."""
        for folder in {PurePosixPath(name).parent for name in self._now}:
            for path in (self._folder / folder).glob(f"{PART}*"):
                found = _LEFT.fullmatch(path.name)
                name = str(folder / found[1]) if found else ""
                if name in self._now or named_digest(name):
                    yield path


def check(folder: Path, names: Iterable[str]) -> None:
    """Raises UsageError if writing any of these files would overwrite a foreign one."""
    with _held(folder):
        known = _known(_read(folder))
        for name in names:
            _refuse(folder, name, known)


def _read(folder: Path) -> Record:
    place = folder / RECORD
    if not os.path.lexists(place):
        return Record(format=1, sections={})
    try:
        record = msgspec.json.decode(place.read_bytes(), type=Record)
        if outside := [name for name in _known(record) if not _is_below(name)]:
            raise ValueError(f"{outside[0]} is not below the folder")
    except (*MALFORMED, OSError) as error:
        raise UsageError(
            f"{place} is not a record of the files that Tilewright wrote: {error}", hint=_HINT
        ) from error
    return record


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Locks a folder against other writers, if the system can.

    The system releases the lock if the process is killed.
    """
    with ExitStack() as held:
        with suppress(OSError):  # there is no folder yet, or its file system has no locks
            place = os.open(folder, os.O_RDONLY)
            held.callback(os.close, place)
            if sys.platform != "win32":
                fcntl.flock(place, fcntl.LOCK_EX)
        yield


def _age(place: Path) -> float:
    """Seconds since a file was written; 0 if there is no file, or if the clock went back."""
    try:
        return max(0.0, time.time() - place.stat().st_mtime)
    except OSError:
        return 0.0


def _in_order(named: Mapping[str, T]) -> dict[str, T]:
    return {name: named[name] for name in sorted(named)}


def _is_below(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts


def _known(record: Record) -> dict[str, set[str]]:
    """The digests that each file may have.  A file that is being replaced may have its old or its
    new one."""
    known: dict[str, set[str]] = {}
    for files in (*record.sections.values(), record.old):
        for name, found in files.items():
            known.setdefault(name, set()).add(found)
    for name, any_of in record.writing.items():
        known.setdefault(name, set()).update(any_of)
    return known


def _refuse(folder: Path, name: str, known: Mapping[str, set[str]]) -> None:
    """Raises UsageError if the path has a file that Tilewright did not write, or one that
    changed."""
    place, own = folder / name, named_digest(name)
    wanted = {own} if own else known.get(name)
    for above in PurePosixPath(name).parents:
        if os.path.lexists(folder / above) and not (folder / above).is_dir():
            raise UsageError(f"{folder / above} is in the way: it is not a folder", hint=_HINT)
    if not os.path.lexists(place):
        return
    if wanted is None or not _is_file(place):
        raise UsageError(f"{place} exists, and no record says that Tilewright wrote it", hint=_HINT)
    if digest(place.read_bytes()) not in wanted:
        raise UsageError(f"{place} was changed since Tilewright wrote it", hint=_HINT)


def _is_file(place: Path) -> bool:
    return place.is_file() and not place.is_symlink()


def replace(path: Path, data: Buffer) -> None:
    """Replaces a file atomically: writes beside it and renames."""
    with replacing(path) as file:
        file.write(data)


@contextmanager
def replacing(path: Path) -> Generator[BinaryIO]:
    """As `replace`, for a file that is written in pieces.

    The partial file has a random name: other processes may write the same file at the same time.
    """
    part = path.with_name(f"{PART}{token_hex(8)}-{path.name}")
    try:
        with part.open("xb") as file:
            yield file
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
