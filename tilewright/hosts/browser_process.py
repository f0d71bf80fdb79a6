"""A browser process: started on a URL with a temporary profile, ended with all its children.

Input: a `PageProgram` and a URL.  Output: a context with a `BrowserProcess`: exit code and the end
of stderr.  It knows nothing of pages or of the protocol.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from tilewright.base.errors import HostError
from tilewright.hosts.browser_programs import PageProgram

TAIL_BYTES = 2000
END_SECONDS = 3.0
_ENVIRONMENT = {"MOZ_CRASHREPORTER_DISABLE": "1", "MOZ_DISABLE_AUTO_SAFE_MODE": "1"}


@dataclass(frozen=True)
class BrowserProcess:
    """A running browser."""

    browser: PageProgram
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self.process.poll()

    def wait(self, seconds: float) -> int | None:
        """The exit code; None if it still runs after that time."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.process.wait(seconds)
        return None

    def tail(self) -> str:
        """The end of what it wrote to stderr."""
        with contextlib.suppress(OSError), self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - TAIL_BYTES))
            return file.read().decode(errors="replace").strip()
        return ""


@contextlib.contextmanager
def started(browser: PageProgram, url: str) -> Generator[BrowserProcess]:
    """Starts the browser; the context's end removes processes and profile.  Raises HostError."""
    folder = Path(tempfile.mkdtemp(prefix="tilewright-browser-"))
    try:
        log = folder / "stderr.txt"
        process = _start(browser.command(folder / "profile", url), log, browser)
        try:
            yield BrowserProcess(browser, process, log)
        finally:
            _end(process)
    finally:
        _remove(folder)


def _start(command: list[str], log: Path, browser: PageProgram) -> subprocess.Popen[bytes]:
    with log.open("wb") as errors:
        try:
            # A new session makes it a process group, which can be ended as a whole.
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env={**os.environ, **_ENVIRONMENT, **browser.environment},
                start_new_session=True,
            )
        except OSError as error:
            raise HostError(
                f"Could not start {browser.name}: {error.strerror}",
                hint="Run `tilewright doctor`",
                host=browser.name,
                path=str(browser.path),
            ) from error


def _end(process: subprocess.Popen[bytes]) -> None:
    _signal_group(process, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(END_SECONDS)
    # Children that outlive their parent are still in the group.
    _signal_group(process, signal.SIGKILL)
    process.wait()


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _remove(folder: Path) -> None:
    """Retries for `END_SECONDS`: a killed browser may still write for a moment."""
    deadline = time.monotonic() + END_SECONDS
    while folder.exists() and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():
            time.sleep(0.05)
