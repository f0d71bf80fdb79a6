"""Vulkan for WebGPU hosts on systems without it: Chromium includes a loader and a driver.

Input: the installed Chromium.  Output: paths of its Vulkan loader, and of the description of
SwiftShader, a driver that computes on the CPU.  Nothing is loaded here.
"""

from __future__ import annotations

from collections.abc import Iterator
from ctypes.util import find_library
from pathlib import Path

from tilewright.hosts.browser_find import find


def loader() -> Path | None:
    """The path of Chromium's loader; None if the system has a loader, or if there is no
    Chromium."""
    return None if find_library("vulkan") else _beside_chromium("libvulkan.so.1")


def software() -> Path | None:
    """The path of the software driver, for VK_ICD_FILENAMES or VK_ADD_DRIVER_FILES."""
    return _beside_chromium("vk_swiftshader_icd.json")


def _beside_chromium(file: str) -> Path | None:
    return next((f / file for f in _folders() if (f / file).is_file()), None)


def _folders() -> Iterator[Path]:
    browser = find("chromium")
    if browser is not None:
        yield browser.path.resolve().parent
        # Debian's program is a script that starts the one in this folder.
        yield Path("/usr/lib") / browser.path.name
