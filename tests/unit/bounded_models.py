"""Runs the crafted models of hostile_models.py, each in a process of its own with little memory.

Input: a step, "compile" or "check", and names of models.  Output: on standard output a line of
JSON per model: its name, what came out (a code of an error, "accepted" or the text of an untyped
error), megabytes, and whether the process died.  test_import_limits.py starts it.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
from pathlib import Path

from hostile_models import HOSTILE

from tilewright.base.errors import TilewrightError
from tilewright.compiler import compile_model
from tilewright.frontend import check

#: Seconds of processor time and bytes of address space that no model comes near to.
PATIENCE, SPACE = 120, 4 << 30


def outcome(name: str, step: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = HOSTILE[name](Path(folder))
        try:
            if step == "check":
                return "accepted" if check(path).ok else "reported"
            compile_model(path)
        except TilewrightError as error:
            return error.code
        except BaseException as error:
            return f"untyped: {type(error).__name__}: {error}"[:300]
        return "accepted"


def attempt(name: str, step: str) -> dict[str, object]:
    """The outcome in a child process."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_AS, (SPACE, SPACE))
        resource.setrlimit(resource.RLIMIT_CPU, (PATIENCE, PATIENCE))
        os.write(writer, outcome(name, step).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        found = file.read().decode()
    _, status, usage = os.wait4(child, 0)
    megabytes = usage.ru_maxrss // 1024
    return {
        "name": name,
        "step": step,
        "outcome": found,
        "megabytes": megabytes,
        "died": status != 0,
    }


if __name__ == "__main__":
    step, *chosen = sys.argv[1:]
    for hostile in chosen:
        print(json.dumps(attempt(hostile, step)), flush=True)
