"""Checks the options for Dawn in Node before it starts, because Dawn silently ignores unknown ones.

Input: options such as `enable-dawn-features=allow_unsafe_apis`, the npm package's folder.  Output:
the same options, or a UsageError that names the wrong one and the known ones.

Dawn does not list its toggles, but every toggle's name is a string in the package's library.  So a
name that is not among these strings is wrong.  A name among them may still be another string.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

from tilewright.base.errors import UsageError

OPTIONS = "TILEWRIGHT_DAWN_OPTIONS"
BACKENDS = ("null", "webgpu", "d3d11", "d3d12", "metal", "vulkan", "opengl", "opengles")
#: Keys whose values are lists of toggles.
TOGGLES = ("enable-dawn-features", "disable-dawn-features")
#: All keys, with the meaning of their values.  `_probe` reports an adapter that does not exist.
KEYS: Mapping[str, str] = {
    **dict.fromkeys(TOGGLES, "names of toggles, with commas between them"),
    "backend": f"one of {', '.join(BACKENDS)}",
    "adapter": "a part of an adapter's name, without spaces",
    "verbose": "1: says which adapter it takes",
    "dlldir": "a folder, on Windows",
}
#: The documentation of the toggles.
LISTED = "https://dawn.googlesource.com/dawn/+/refs/heads/main/src/dawn/native/Toggles.cpp"
_NAME = rb"(?<=\0)[a-z][a-z0-9]*(?:_[a-z0-9]+)+(?=\0)"


def checked(words: Sequence[str], package: Path) -> tuple[str, ...]:
    """The options, if Dawn knows them."""
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not value or key not in KEYS:
            raise _wrong(word, f"Write KEY=VALUE; {_close(key, KEYS)}", list(KEYS))
        if key == "backend" and value not in BACKENDS:
            raise _wrong(word, f"A backend is {KEYS[key]}", list(BACKENDS))
        if key == "verbose" and value not in ("0", "1"):
            raise _wrong(word, "Write verbose=1", ["0", "1"])
        if key in TOGGLES:
            _check_toggles(word, value.split(","), package)
    return tuple(words)


def _check_toggles(word: str, names: Sequence[str], package: Path) -> None:
    """Raises UsageError for an unknown toggle.  All libraries of the package are searched: most
    packages have several, for different platforms."""
    libraries = [path.read_bytes() for path in sorted(package.glob("dist/*/dawn.node"))]
    for name in names:
        there = not libraries or any(b"\0%s\0" % name.encode() in data for data in libraries)
        if not name or not there:
            known = {found.decode() for data in libraries for found in re.findall(_NAME, data)}
            near = get_close_matches(name.lower(), known, 3)
            hint = f"Did you mean {' or '.join(near)}? " if near else ""
            raise _wrong(word, f"{hint}{LISTED} lists Dawn's toggles", near, toggle=name)


def _close(key: str, known: Mapping[str, str]) -> str:
    near = get_close_matches(key, known, 1)
    every = "known keys are " + ", ".join(f"{name} ({what})" for name, what in known.items())
    return f"did you mean {near[0]}? {every}" if near else every


def _wrong(word: str, hint: str, known: list[str], **facts: str) -> UsageError:
    what = f"no toggle {facts['toggle']!r}" if facts else "no such option"
    return UsageError(
        f"{OPTIONS} has the word {word!r}, and Dawn has {what}",
        hint=hint, word=word, known=known, **facts,
    )  # fmt: skip
