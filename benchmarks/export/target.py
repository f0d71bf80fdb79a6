"""Where a script of this folder may write: nowhere that a file lies already, unless told so.

Input: a path, whether --force was given.  Output: the path, or the end of the program.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def add_force(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--force", action="store_true", help="write over files that are there")


def free(path: Path, force: bool) -> Path:
    if path.exists() and not force:
        raise SystemExit(f"{path} is there already: move it away, or say --force to lose it")
    return path
