"""The digest of the compiler's source.  Compilers with equal digests make equal kernels.

Input: this package's files.  Output: text for keys of caches, spaces and stored candidates.  A
version number is not enough, because it stays the same while the source changes.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from tilewright import TOOL

ROOT = Path(__file__).parents[1]
#: The folders whose source decides which candidates a kernel has, and their code.
SOURCE_FOLDERS = ("base", "kernel", "plan", "targets")
#: A file with the digest, for copies that have only a part of the source, such as the one in a
#: page.
DIGEST_FILE = "compiler-digest.txt"


@cache
def compiler_digest(root: Path = ROOT) -> str:
    """SHA-256 of the files that generate kernels, as 16 hexadecimal digits."""
    kept = root / DIGEST_FILE
    if kept.is_file():
        return kept.read_text("ascii")
    found = hashlib.sha256()
    for path in _files(root):
        data = path.read_bytes()
        found.update(f"{path.relative_to(root).as_posix()} {len(data)}\n".encode() + data)
    return found.hexdigest()[:16]


def compiler_name() -> str:
    """Version and digest, for people and as a part of the store's keys."""
    return f"{TOOL}+{compiler_digest()}"


def _files(root: Path) -> list[Path]:
    """The modules and JSON files of these folders, sorted."""
    every = (path for folder in SOURCE_FOLDERS for path in (root / folder).rglob("*"))
    return sorted(p for p in every if p.is_file() and p.suffix in (".py", ".json"))
