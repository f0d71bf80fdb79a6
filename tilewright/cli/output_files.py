"""Writes the files that a command is asked for: completely or not at all, and over no foreign file.

Input: a path, a test for files of Tilewright, whether --force was given.  Output: the file, or a
`UsageError` before the work starts. bundle/owned_files.py does the same for folders.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from tilewright import TOOL
from tilewright.base.errors import UsageError
from tilewright.bundle.format import MALFORMED
from tilewright.bundle.owned_files import replacing


@dataclass(frozen=True)
class Output:
    """A file to write.

    ours:  tells whether Tilewright wrote the existing file, which may then be replaced
    force: replace an existing file of another program, too
    """

    path: Path
    ours: Callable[[Path], bool]
    force: bool = False

    def check(self) -> None:
        """Raises `UsageError` if writing would fail or lose a foreign file.  Call it before the
        work."""
        path = self.path
        if path.is_dir():
            raise UsageError(f"{path} is a folder", hint="Name a file in it")
        if not path.parent.is_dir():
            raise UsageError(
                f"There is no folder {path.parent}", hint="Make it, or correct the path"
            )
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise UsageError(f"{path} may not be written", hint="Check its permissions")
        # A device or a pipe keeps nothing, and an empty file has nothing to lose.
        holds = path.is_file() and path.stat().st_size > 0
        if holds and not self.force and not self.ours(path):
            raise UsageError(
                f"{path} exists, and this command did not write it",
                hint="Name another file, or overwrite it with --force",
            )

    @contextmanager
    def open(self) -> Generator[BinaryIO]:
        """The open file.  It is checked again, since the work may have taken long."""
        self.check()
        if self.path.exists() and not self.path.is_file():
            with self.path.open("wb") as file:
                yield file
            return
        with replacing(self.path.resolve()) as file:  # replaces the target of a link, not the link
            yield file

    def write(self, data: bytes) -> None:
        """Writes the whole content of the file."""
        with self.open() as file:
            file.write(data)

    def write_json(self, data: dict[str, object]) -> None:
        """The document, marked so that `is_json_of_ours` knows it."""
        text = msgspec.json.format(msgspec.json.encode({"tool": TOOL} | data), indent=1)
        self.write(text + b"\n")


def is_json_of_ours(path: Path) -> bool:
    """Whether `write_json` of any version wrote it."""
    try:
        tool = msgspec.json.decode(path.read_bytes(), type=_Marked).tool
    except MALFORMED:
        return False
    return tool.split(" ")[0] == TOOL.split(" ")[0]


class _Marked(msgspec.Struct):
    tool: str
