"""A target's part of a bundle, as plain records: files and facts.

Input: bytes and numbers of a target.  Output: a `Section`, which bundle/section_files.py stores and
reads.  Only the target knows what they mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class File:
    """Bytes that become a file of the bundle.  extension: ending of its name, without the dot"""

    data: bytes
    extension: str


@dataclass(frozen=True)
class Build:
    """A variant's part of a section: linked code, and every plan as encoded for its hosts.

    features: names of features that a host must have
    facts:    other properties by which a host chooses between variants
    """

    variant: str
    features: tuple[str, ...]
    code: File
    plans: tuple[File, ...]
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class Section:
    """A target's part of a bundle; docs/bundle.md says what the facts of each target mean.

    builds:   variants, best first
    slots:    number of different kernels in the code
    memory:   total bytes that a host with one worker needs
    programs: files that all variants share, by name
    plans:    per plan, facts for engines
    kernels:  per kernel of the program, its slot
    """

    builds: tuple[Build, ...]
    slots: int
    memory: int
    programs: Mapping[str, File]
    plans: tuple[Mapping[str, Any], ...]
    kernels: tuple[int, ...]
    facts: Mapping[str, Any]
