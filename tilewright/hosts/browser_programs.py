"""The programs that can run the host page's code, by host name: browsers, and Node, also with Dawn.

Input: a name such as "firefox" or "dawn".  Output: a `PageProgram`: its path, its command line, and
the device on which it runs bundles.  Node runs web/host/nodejs.mjs, which gives the engine the
functions that a page has.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Protocol

import tilewright
from tilewright.base.errors import HostError, unknown_name
from tilewright.hosts.browser_dawn import INSTALL_NODE, installed_node, require_dawn
from tilewright.hosts.browser_discovery import Browser, require

SCRIPT = Path(tilewright.__file__).parent / "web" / "host" / "nodejs.mjs"
SECONDS = 30.0
#: Flags, each with the major version of Node from which it is passed, if that Node knows it. Node
#: 20 has WebSocket and relaxed SIMD behind flags.  Without Turboshaft, products take Node 20 and 22
#: two to three times as long: their compiler moves the loads of all unrolled steps to the front.
#: In Node 20 that flag is experimental, so it is not passed.
FLAGS = {
    "--experimental-websocket": 20,
    "--experimental-wasm-relaxed-simd": 20,
    "--no-warnings": 20,
    "--turboshaft-wasm": 22,
}


@dataclass(frozen=True)
class NodeProgram:
    """Node, started with the flags that it knows."""

    path: Path
    flags: tuple[str, ...]
    name: str = "node"
    device: str | None = "wasm"
    environment: Mapping[str, str] = field(default_factory=dict)

    def command(self, profile: Path, url: str) -> list[str]:
        """The command line of a session with the page's server; it needs no profile."""
        del profile
        return [str(self.path), *self.flags, str(SCRIPT), url]

    def version(self) -> str:
        return "Node " + _said(self.path, "-p", "`${process.version} (V8 ${process.versions.v8})`")


@cache
def node() -> NodeProgram:
    """The installed Node.  Raises HostError if there is none."""
    path = installed_node("node")
    major = int(_said(path, "-p", "parseInt(process.versions.node)") or 0)
    known = (f for f, first in FLAGS.items() if major >= first and _said(path, f, "-p", "1") == "1")
    return NodeProgram(path, tuple(known))


def _said(path: Path, *arguments: str) -> str:
    """Its output; "" if it rejects the arguments.  Raises HostError if the program is not Node."""
    try:
        done = subprocess.run(
            [path, *arguments], capture_output=True, text=True, check=False, timeout=SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HostError(
            f"{path} does not run: {error}",
            hint=INSTALL_NODE,
            host="node",
        ) from error
    return done.stdout.strip()


#: Makes Chromium use its own software driver for WebGPU, without a GPU.
_SOFTWARE = ("--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader")


class PageProgram(Protocol):
    """A program that opens a session with the page's server (docs/host-protocol.md).

    device:      what it runs bundles on; None: the engine's own choice
    environment: additional variables of its process
    """

    @property
    def name(self) -> str: ...
    @property
    def path(self) -> Path: ...
    @property
    def device(self) -> str | None: ...
    @property
    def environment(self) -> Mapping[str, str]: ...

    def command(self, profile: Path, url: str) -> list[str]: ...

    def version(self) -> str: ...


#: The section of a bundle that a host executes, if it is not the engine's usual one.
SECTIONS: Mapping[str, str] = {"chromium-webgpu": "wgsl", "dawn": "wgsl"}


def _chromium_webgpu() -> Browser:
    browser = require("chromium")
    return replace(browser, name="chromium-webgpu", flags=_SOFTWARE, device="webgpu")


PROGRAMS: Mapping[str, Callable[[], PageProgram]] = {
    "chromium": partial(require, "chromium"),
    "firefox": partial(require, "firefox"),
    "chromium-webgpu": _chromium_webgpu,
    "node": node,
    "dawn": require_dawn,
}


def program(name: str) -> PageProgram:
    """The installed program.  Raises UsageError for an unknown name, HostError if it is missing."""
    if name not in PROGRAMS:
        raise unknown_name("browser", name, PROGRAMS)
    return PROGRAMS[name]()
