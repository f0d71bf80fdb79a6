"""Checks output paths: the scripts of this folder overwrite files only with --force.

Input: a path, whether --force was given.  Output: the path; exits if the file exists.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def add_force(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--force", action="store_true", help="overwrite existing files")


def free(path: Path, force: bool) -> Path:
    if path.exists() and not force:
        raise SystemExit(f"{path} is there already: move it away, or say --force to lose it")
    return path
