"""What a target hands to a bundle, as plain records: its files and facts.

Input: bytes and numbers of a target.  Output: a `Section`, which bundle/sections.py stores and
reads.  Nothing here knows what the files mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class File:
    """Bytes that become a file of the bundle; the extension tells its kind."""

    data: bytes
    extension: str


@dataclass(frozen=True)
class Build:
    """A variant's part of a section: linked code, and every plan as its hosts read it."""

    variant: str
    features: tuple[str, ...]
    code: File
    plans: tuple[File, ...]
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class Section:
    """A target's part of a bundle; docs/bundle.md says what the facts of each target mean.

    builds:   variants, best first
    slots:    how many different kernels the code has; memory: bytes that one worker needs in all
    programs: files that all variants share, by name
    plans:    per plan what engines must know of it
    kernels:  per kernel of the program, its slot
    """

    builds: tuple[Build, ...]
    slots: int
    memory: int
    programs: Mapping[str, File]
    plans: tuple[Mapping[str, Any], ...]
    kernels: tuple[int, ...]
    facts: Mapping[str, Any]
