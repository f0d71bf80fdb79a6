"""Starts a browser in a process of its own, which is then killed: what is left of the browser?

Input: the name of a host.  Output: an `Orphan`, whose processes and folders are counted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SCRIPT = """
import json, sys
from tilewright.hosts.browser import BrowserHost
with BrowserHost(sys.argv[1]) as host:
    print(json.dumps(host._process.pid), flush=True)
    sys.stdin.read()
"""


@dataclass(frozen=True)
class Orphan:
    """A browser whose parent was killed; `group`: of its processes;  scratch: temporary folders."""

    group: int
    scratch: Path

    def processes(self) -> list[str]:
        """Those that still run: whoever ended may still be listed."""
        said = subprocess.run(
            ["ps", "-A", "-o", "pgid=,stat=,args="], capture_output=True, text=True, check=True
        )
        rows = [line.split(maxsplit=2) for line in said.stdout.splitlines()]
        return [row[-1] for row in rows if int(row[0]) == self.group and row[1][0] != "Z"]

    def folders(self) -> list[Path]:
        return list(self.scratch.iterdir())


@contextmanager
def orphaned(host: str) -> Iterator[Orphan]:
    # Chromium makes sockets in it, whose paths must be short.
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as made:
        yield _orphaned(host, Path(made))


def _orphaned(host: str, scratch: Path) -> Orphan:
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, host],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(scratch)},
    ) as parent:
        assert parent.stdout is not None
        orphan = Orphan(json.loads(parent.stdout.readline()), scratch)
        assert orphan.processes()
        assert orphan.folders()
        parent.kill()
    return orphan
