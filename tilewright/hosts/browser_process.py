"""A browser process: started on a URL with a temporary profile, ended with all its children.

Input: a `PageProgram` and a URL.  Output: a context with a `BrowserProcess`: exit code and the end
of stderr.  Pages and the protocol are handled elsewhere.  `browser_supervisor.py` holds the
browser, so that it ends with this process, however this process ends.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tilewright.base.errors import HostError, required
from tilewright.hosts import browser_supervisor
from tilewright.hosts.browser_programs import PageProgram

TAIL_BYTES = 2000
_ENVIRONMENT = {"MOZ_CRASHREPORTER_DISABLE": "1", "MOZ_DISABLE_AUTO_SAFE_MODE": "1"}


@dataclass
class BrowserProcess:
    """A running browser.

    told: the lines of its keeper
    """

    browser: PageProgram
    pid: int
    log: Path
    told: IO[bytes]
    _code: int | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def exit_code(self) -> int | None:
        """The exit code; None while it runs."""
        return self.wait(0)

    def wait(self, seconds: float) -> int | None:
        """The exit code; None if it still runs after that time."""
        with self._lock, selectors.DefaultSelector() as selector:
            # When the context ends, the pipe to the keeper is closed.
            if self._code is None:
                selector.register(self.told, selectors.EVENT_READ)
                if selector.select(seconds):
                    self._code = int(self.told.readline() or -signal.SIGKILL)
            return self._code

    def tail(self) -> str:
        """The end of its stderr."""
        with contextlib.suppress(OSError), self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - TAIL_BYTES))
            return file.read().decode(errors="replace").strip()
        return ""


@contextlib.contextmanager
def started(browser: PageProgram, url: str) -> Generator[BrowserProcess]:
    """Starts the browser; the end of the context removes processes and profile.  Raises
    HostError."""
    with contextlib.ExitStack() as stack:
        made = tempfile.TemporaryDirectory(prefix="tilewright-browser-", ignore_cleanup_errors=True)
        folder = Path(stack.enter_context(made))
        log = folder / "stderr.txt"
        # The keeper's context waits for it to remove the folder.
        keeper = stack.enter_context(_keeper(browser, folder, url, log))
        line = required(keeper.stdin, "the keeper has no input")
        told = required(keeper.stdout, "the keeper has no output")
        said = told.readline().decode().strip()
        if not said.isdigit():
            raise HostError(
                f"Could not start {browser.name}: {said}",
                hint="Run `tilewright doctor`",
                host=browser.name,
                path=str(browser.path),
            )
        process = BrowserProcess(browser, int(said), log, told)
        try:
            yield process
        finally:
            line.close()
            process.wait(2 * browser_supervisor.END_SECONDS)


def _keeper(browser: PageProgram, folder: Path, url: str, log: Path) -> subprocess.Popen[bytes]:
    command = browser.command(folder / "profile", url)
    with log.open("wb") as errors:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", browser_supervisor.__file__, str(folder), *command],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, **_ENVIRONMENT, **browser.environment},
            # Ctrl-C is for this process alone.
            start_new_session=True,
        )
