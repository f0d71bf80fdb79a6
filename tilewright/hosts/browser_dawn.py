"""Finds Dawn, Chromium's WebGPU as an npm package for Node: it runs the engine without a browser.

Input: the environment, node_modules.  Output: a `Dawn`: Node, the package, and its adapter: the
real GPU if possible, else a software driver.  Node is started only to query the adapter.

Options for Dawn (`enable-dawn-features=allow_unsafe_apis`) are checked before Node starts, because
Dawn silently ignores unknown ones.  Dawn does not list its toggles, but every toggle's name is a
string in the package's library.  So a name that is not among these strings is wrong.  A name among
them may still be another string.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

import tilewright
from tilewright.base.errors import HostError, UsageError
from tilewright.hosts import browser_discovery

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
    every = "Known keys are " + ", ".join(f"{name} ({what})" for name, what in known.items())
    return f"Did you mean {near[0]}? {every}" if near else every


def _wrong(word: str, hint: str, known: list[str], **facts: str) -> UsageError:
    what = f"no toggle {facts['toggle']!r}" if facts else "no such option"
    return UsageError(
        f"{OPTIONS} has the word {word!r}, and Dawn has {what}",
        hint=hint, word=word, known=known, **facts,
    )  # fmt: skip


SCRIPT = Path(tilewright.__file__).parent / "web" / "host" / "dawn.mjs"
PROBE_SECONDS = 60.0
INSTALL_NODE = "Install Node 20.19 or later, or set TILEWRIGHT_NODE to its path"
#: Node 20 has WebSocket behind this flag; later versions accept it, too.
_NODE_FLAGS = ("--experimental-websocket", "--no-warnings")
#: The version that is tested (package.json).
PACKAGE = "webgpu@0.6.2"


@dataclass(frozen=True)
class Dawn:
    """Node with Dawn and an adapter.

    path:        of Node;  package: folder of the npm package
    options:     options for Dawn, such as `enable-dawn-features=allow_unsafe_apis`
    environment: additional variables with which the adapter is found
    adapter:     vendor, architecture, device, description, features; `software` is a bool
    """

    path: Path
    package: Path
    options: tuple[str, ...]
    environment: Mapping[str, str]
    adapter: Mapping[str, object] = field(compare=False)
    name: str = "dawn"
    device: str | None = "webgpu"

    def command(self, profile: Path, url: str) -> list[str]:
        """The command line of a session with the page's server; it needs no profile."""
        del profile
        return _command(self.path, self.package, self.options, url)

    def version(self) -> str:
        """The version of the npm package, with the adapter."""
        about = json.loads((self.package / "package.json").read_text())
        kind = "software" if self.adapter["software"] else "GPU"
        name = self.adapter["description"] or self.adapter["device"] or self.adapter["vendor"]
        return f"{about['name']} {about['version']} ({kind}: {name})"


def require_dawn(options: tuple[str, ...] | None = None) -> Dawn:
    """Node, Dawn and an adapter.

    Raises HostError with what is missing and how to install it, and UsageError for an option that
    Dawn does not know.
    options: by default those of TILEWRIGHT_DAWN_OPTIONS
    """
    node, package = installed_node(), _package()
    words = checked(_words() if options is None else options, package)
    environment = _loader()
    for added in ({}, _software()):
        tried = {**environment, **added}
        adapter = _probe(node, package, words, tried)
        if adapter is not None:
            return Dawn(node, package, words, tried, adapter)
    raise HostError(
        "Dawn finds no WebGPU adapter",
        hint="Install the GPU's Vulkan driver, or Chromium, whose software driver is taken "
        "otherwise (Debian: apt-get install chromium), or name a driver in VK_ICD_FILENAMES",
        host="dawn",
        environment=environment,
    )


def installed_node(host: str = "dawn") -> Path:
    """The installed Node, or the one in TILEWRIGHT_NODE, for the host of this name.  Raises
    HostError if there is none."""
    named = os.environ.get("TILEWRIGHT_NODE", "node")
    path = shutil.which(named)
    if path is None:
        raise HostError(
            f"Node is not installed: {named} is not a program",
            hint=INSTALL_NODE,
            host=host,
        )
    return Path(path)


def _package() -> Path:
    named = os.environ.get("TILEWRIGHT_DAWN")
    roots = (Path.cwd(), *Path.cwd().parents, SCRIPT.parents[3])
    places = [Path(named)] if named else [root / "node_modules" / "webgpu" for root in roots]
    found = next((place for place in places if (place / "index.js").is_file()), None)
    if found is None:
        raise HostError(
            "Dawn is not installed",
            hint=f"Run npm install {PACKAGE}, here or in a folder above, or set TILEWRIGHT_DAWN to "
            "the package's folder",
            host="dawn",
            looked_for=named or "node_modules/webgpu",
        )
    return found.resolve()


def _words() -> tuple[str, ...]:
    return tuple(os.environ.get(OPTIONS, "").split())


def _loader() -> dict[str, str]:
    found = browser_discovery.vulkan_loader()
    if found is None:
        return {}
    before = os.environ.get("LD_LIBRARY_PATH")
    return {"LD_LIBRARY_PATH": ":".join(filter(None, (before, str(found.parent))))}


def _software() -> dict[str, str]:
    found = browser_discovery.vulkan_software()
    return {} if found is None else {"VK_ICD_FILENAMES": str(found)}


def _command(node: Path, package: Path, options: tuple[str, ...], address: str) -> list[str]:
    return [str(node), *_NODE_FLAGS, str(SCRIPT), str(package), " ".join(options), address]


def _probe(
    node: Path, package: Path, options: tuple[str, ...], environment: Mapping[str, str]
) -> dict[str, object] | None:
    """The adapter that Dawn finds with these variables; None without one."""
    command = _command(node, package, options, "probe")
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=True,
            timeout=PROBE_SECONDS,
        )
    except (OSError, subprocess.SubprocessError) as error:
        stderr = getattr(error, "stderr", None) or ""
        asked = [word for word in options if word.startswith(("adapter=", "backend="))]
        again = f"Use Node 20.19 or later, and install the package again: npm install {PACKAGE}"
        raise HostError(
            "Dawn could not be started" + f" with {' '.join(asked)}" * bool(asked),
            hint=f"Leave {' '.join(asked)} out of {OPTIONS}" if asked else again,
            host="dawn",
            path=str(node),
            package=str(package),
            stderr=str(stderr)[-2000:].strip() or str(error),
        ) from error
    found: dict[str, object] | None = json.loads(done.stdout.strip().splitlines()[-1])
    return found
