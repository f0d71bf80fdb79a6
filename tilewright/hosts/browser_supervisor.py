"""Keeps one browser: ends it and removes its folder once the process that started it is gone.

Input: a folder and a command line; standard input is a pipe whose other end only that process
holds.  Output: lines on standard output: the browser's process id, later its exit code; or why it
does not start.  The pipe closes however that process ends, also by SIGKILL.  `browser_process.py`
runs this file as a separate program; it needs only the standard library.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

END_SECONDS = 3.0


def main(folder: Path, command: list[str]) -> None:
    try:
        # A new session makes it a process group, which can be ended as a whole.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        _tell(error.strerror)
    else:
        _tell(process.pid)
        telling = threading.Thread(target=lambda: _tell(process.wait()))
        telling.start()
        sys.stdin.buffer.read()
        _end(process)
        telling.join()
    # Chromium creates its socket elsewhere, where paths are short, with a link in the profile.
    for link in folder.glob("*/SingletonSocket"):
        _remove(link.readlink().parent)
    _remove(folder)


def _tell(said: object) -> None:
    with contextlib.suppress(BrokenPipeError):  # the process is gone
        os.write(sys.stdout.fileno(), f"{said}\n".encode())


def _end(process: subprocess.Popen[bytes]) -> None:
    _signal_group(process, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(END_SECONDS)
    # Children that outlive their parent are still in the group.
    _signal_group(process, signal.SIGKILL)


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _remove(folder: Path) -> None:
    """Removes the folder.  Retries for `END_SECONDS`: a killed browser may still write for a
    moment."""
    deadline = time.monotonic() + END_SECONDS
    while folder.exists() and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():
            time.sleep(0.05)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
