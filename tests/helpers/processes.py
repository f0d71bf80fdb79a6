"""`tilewright serve` as a process, for tests that end it and start it again.

Input: a bundle, served as `m`; a port, 0 for any; a store, if any.  Output: the process and its
address, once it answers.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SERVER = """
import sys
from tilewright.cli import main
options = ["--json", "--compile-workers", sys.argv[4], "--store", sys.argv[3]]
main(["serve", "m=" + sys.argv[1], "--port", sys.argv[2], *options])
"""


def serve(
    bundle: Path, port: int = 0, store: str = "", workers: int = 0
) -> tuple[subprocess.Popen[str], str]:
    """Without workers it starts in half the time."""
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(bundle), str(port), store, str(workers)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())["url"]


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])
