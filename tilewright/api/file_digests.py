"""Keeps digests of models' files, so that a file is read again only if it has changed.

Input: a file, and a folder that keeps the digests.  Output: `FileDigest`.  A file counts as
unchanged if its path, size and times are those of the kept digest.
"""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from tilewright.frontend import load
from tilewright.frontend.exports import ENDING
from tilewright.frontend.read import data_files

#: Nanoseconds for which a file that has just been written is not remembered: it may be written once
#: more in the same tick of the file system's clock.
FRESH = 2_000_000_000


class FileDigest(msgspec.Struct, frozen=True):
    """What was found in a file when its size was `size` and its times were `times`.

    digest: of its bytes;  beside: names of the files that have the rest of an ONNX model
    """

    path: str
    size: int
    times: tuple[int, int]
    digest: str
    beside: tuple[str, ...] = ()


def file_digests(path: Path, memory: Path) -> Iterator[str]:
    """Digests of a model's file and of the files that it refers to.

    memory: a folder that keeps digests

    Raises InvalidModel.
    """
    found = _digest(path, memory)
    yield found.digest
    for name in found.beside:
        yield _digest(path.parent / name, memory).digest


def _digest(path: Path, memory: Path) -> FileDigest:
    whole = str(path.resolve())
    kept = memory / f"{hashlib.sha256(whole.encode()).hexdigest()[:32]}.json"
    status = path.stat()
    size, times = status.st_size, (status.st_mtime_ns, status.st_ctime_ns)
    with suppress(OSError, msgspec.MsgspecError):
        found = msgspec.json.decode(kept.read_bytes(), type=FileDigest)
        if (found.path, found.size, found.times) == (whole, size, times):
            return found
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    made = FileDigest(whole, size, times, digest, _beside(path))
    if time.time_ns() - max(times) > FRESH:
        _keep(kept, msgspec.json.encode(made))
    return made


def _beside(path: Path) -> tuple[str, ...]:
    if path.suffix != ENDING:
        return ()
    folder = path.parent.resolve()
    return tuple(str(file.relative_to(folder)) for file in data_files(load(path)))


def _keep(path: Path, contents: bytes) -> None:
    """Writes a file that no process sees half written; what cannot be kept is found again."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(contents)
        Path(file.name).replace(path)
