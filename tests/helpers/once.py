"""Folders that all workers of a test run share: the first one makes a folder, the others wait.

Input: pytest's factory of temporary folders, a function that fills a folder.  Output: its path.
Nobody may change what lies there.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

import pytest


def shared_root(factory: pytest.TempPathFactory) -> Path:
    """A folder of this run: below pytest-xdist's, if there are several workers."""
    own = factory.getbasetemp()
    root = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "shared"
    root.mkdir(exist_ok=True)
    return root


def made_once(folder: Path, make: Callable[[Path], object]) -> Path:
    """The folder; `make` fills it in some other place, so that it is there whole or not at all."""
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _alone(folder.with_name(f"{folder.name}.lock")):
        if not folder.exists():
            made = Path(mkdtemp(dir=folder.parent, prefix=f"{folder.name}-"))
            make(made)
            made.rename(folder)
    return folder


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process at a time; it lets go even if it is killed."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
