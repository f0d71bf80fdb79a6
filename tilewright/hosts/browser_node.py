"""Node as a host of bundles on WebAssembly, in place of a browser.

Input: the installed Node, or the one in TILEWRIGHT_NODE.  Output: a `PageProgram`, which runs
web/host/nodejs.mjs: it gives the engine the functions that a page has.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import tilewright
from tilewright.base.errors import HostError
from tilewright.hosts.browser_dawn import INSTALL_NODE, installed_node

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
