"""Runs damaged cases through web/ in Node (fuzz/*.mjs), and ends what does not end.

Input: the kind of cases (`bundle`, `line`, `record`), cases as JSON data.  Output: per case, what
each use of it came to: `right`, the code of a typed error, `untyped …`, `hung` or `died`.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import subprocess
import threading
from base64 import b64encode
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers.hostile import module

HERE = Path(__file__).parent / "fuzz"
#: Mebibytes of objects: more than any case needs.
HEAP = 512
#: Seconds without a word after which a use hangs; code of a damaged bundle may, and gets less.
PATIENCE, CODE = 300.0, 1.0
#: Uses that run code of the bundle.
RUNS = ("run", "again", "time", "profile", "specs", "swap")

Found = dict[str, Any]


class _Process:
    """Node with a reader, so that silence can be told from work."""

    def __init__(self, kind: str) -> None:
        node = shutil.which("node")
        if node is None:
            pytest.skip("Node is not installed")
        self._running = subprocess.Popen(
            [node, f"--max-old-space-size={HEAP}", str(HERE / "main.mjs"), kind],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=os.environ | {"KERNEL": b64encode(module()).decode()},
        )  # fmt: skip
        self._lines: queue.Queue[str] = queue.Queue()
        self._errors: list[str] = []
        for work in (self._read, self._listen):
            threading.Thread(target=work, daemon=True).start()

    def _read(self) -> None:
        assert self._running.stdout is not None
        for line in self._running.stdout:
            self._lines.put(line)
        self._lines.put("")

    def _listen(self) -> None:
        assert self._running.stderr is not None
        self._errors.extend(self._running.stderr)

    def take(self, case: Any, mayrun: bool) -> tuple[Found, bool]:
        """The outcomes, and whether the process is still there."""
        assert self._running.stdin is not None
        try:
            self._running.stdin.write(json.dumps(case) + "\n")
            self._running.stdin.flush()
        except BrokenPipeError:
            pass
        use = ""
        while True:
            patience = CODE if mayrun and use in RUNS else PATIENCE
            try:
                line = self._lines.get(timeout=patience)
            except queue.Empty:
                self.end()
                return {use: "ended" if mayrun and use in RUNS else "hung"}, False
            if not line:
                self.end()
                return {use: f"died {''.join(self._errors[-20:])}"}, False
            if line.startswith("="):
                found: Found = json.loads(line[1:])
                return found, True
            use = json.loads(line[1:])

    def end(self) -> None:
        self._running.kill()
        self._running.wait()


def outcomes(kind: str, cases: Sequence[tuple[Any, bool]]) -> Iterator[Found]:
    """What becomes of each case; with each, whether damaged code may run for ever in it."""
    process: _Process | None = None
    try:
        for case, mayrun in cases:
            process = process or _Process(kind)
            found, alive = process.take(case, mayrun)
            if not alive:
                process = None
            yield found
    finally:
        if process is not None:
            process.end()
