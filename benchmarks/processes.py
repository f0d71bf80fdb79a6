"""What the system knows of browsers: processor time and memory of their processes (Linux).

Input: the process group that a browser was started as, or this process, which started it.  Output:
numbers; of a group None on a system without /proc.
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


def started_browsers() -> list[Path]:
    """The folders of processes that descend from this one, in sessions of their own."""
    parents, sessions = dict[int, int](), dict[int, int]()
    for fields, folder in _processes():
        pid = int(folder.name)
        parents[pid], sessions[pid] = int(fields[1]), int(fields[3])
    mine, own = {os.getpid()}, os.getsid(0)
    while more := {pid for pid, parent in parents.items() if parent in mine} - mine:
        mine |= more
    return [PROC / str(pid) for pid in mine if sessions.get(pid, own) != own]


def shared_bytes(folder: Path) -> int:
    """A process's memory, shared pages by their share (PSS)."""
    with contextlib.suppress(OSError):
        for line in (folder / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def _members(group: int) -> Iterator[tuple[list[str], Path]]:
    return ((fields, folder) for fields, folder in _processes() if int(fields[2]) == group)


def _processes() -> Iterator[tuple[list[str], Path]]:
    """Of each process the fields of proc(5) stat behind its name, and its folder."""
    for folder in PROC.iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                # the name in brackets may have blanks
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                yield fields, folder


def _status(folder: Path, key: str) -> int:
    for line in (folder / "status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    return 0
