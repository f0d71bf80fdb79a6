"""What the system knows of a browser: processor time and memory of all its processes (Linux).

Input: the process group that the browser was started as.  Output: numbers, or None on a system
without /proc.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

PROC = Path("/proc")
#: Chromium's and Firefox's processes that run pages.
_PAGES = ("--type=renderer", "-contentproc")


def cpu_seconds(group: int) -> float | None:
    """Processor time that the whole group has used."""
    if not PROC.is_dir():
        return None
    ticks = 0
    for fields, _ in _members(group):
        # proc(5): utime and stime, counted from the field after the name
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def page_peak_bytes(group: int) -> int | None:
    """The largest resident size that a page's process of the group ever had."""
    if not PROC.is_dir():
        return None
    peaks = [0]
    for _, folder in _members(group):
        with contextlib.suppress(OSError):
            command = (folder / "cmdline").read_bytes().decode(errors="replace")
            if any(mark in command for mark in _PAGES):
                peaks.append(_status(folder, "VmHWM"))
    return max(peaks)


def _members(group: int) -> Iterator[tuple[list[str], Path]]:
    """The fields of proc(5) stat behind the process's name, and its folder."""
    for folder in PROC.iterdir():
        if not folder.name.isdigit():
            continue
        with contextlib.suppress(OSError, IndexError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[2]) == group:
                yield fields, folder


def _status(folder: Path, key: str) -> int:
    for line in (folder / "status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    return 0
