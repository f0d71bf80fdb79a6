"""Writes web/engine/abi.js, the JavaScript side of tilewright/base/abi.py.

Input: nothing.  Output: the file; with --check nothing is written, and the exit code is 1 if it is
out of date.  JavaScript counts in 32-bit words, so addresses and offsets are divided by four.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tilewright.base import abi

PATH = Path(__file__).parents[1] / "tilewright/web/engine/abi.js"

#: What is an address or an offset in bytes.
PLACES = (
    "PREEMPT", "ABORT", "TRAPPED", "STOP", "SPIN", "CHECK", "INDEX", "EPOCH", "DONE", "SLEEPERS",
    "WORKER_LINES", "WORKER_BYTES", "CONTROL_BYTES",
    "HEADER", "RECORD", "WIDEST", "SLOT", "ARGS", "TILES", "GRAIN", "TICKETS", "BEFORE",
)  # fmt: skip
#: What is a plain number.
NUMBERS = ("TRAP", "STALLED", "MOST_WORKERS", "CHECK_BIT")

HEAD = """\
// Written by scripts/abi.py from tilewright/base/abi.py; do not edit.
// The words of the control block and of plan images (docs/bundle-wasm.md), by 32-bit index.

"""


def text() -> str:
    words = {name.replace("_BYTES", "_WORDS"): getattr(abi, name) // 4 for name in PLACES}
    numbers = {name: getattr(abi, name) for name in NUMBERS}
    lines = (f"export const {name} = {value};" for name, value in {**words, **numbers}.items())
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit(PATH.read_text() != text())
    PATH.write_text(text())
