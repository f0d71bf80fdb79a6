"""The programs that can run the host page's code, by host name: browsers, and Node, also with Dawn.

Input: a name such as "firefox" or "dawn".  Output: a `PageProgram`: its path, its command line, and
the device on which it runs bundles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol

from tilewright.base.errors import UsageError
from tilewright.hosts.browser_dawn import require_dawn
from tilewright.hosts.browser_find import Browser, require
from tilewright.hosts.browser_node import node

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
        raise UsageError(f"Unknown browser: {name}", hint=f"Known are {', '.join(PROGRAMS)}")
    return PROGRAMS[name]()
