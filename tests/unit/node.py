"""Runs a script that imports files of web/tune in Node, where they need no browser."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from helpers.hostile import module

import tilewright

TUNE = (Path(tilewright.__file__).parent / "web" / "tune").as_uri()
PATIENCE = 300.0


def run(script: str, **values: Any) -> Any:
    """What the script prints as JSON; `TUNE` in it is the folder's URL, `KERNEL` the bytes
    of a kernel that does nothing, other names are JSON."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node is not installed")
    script = script.replace("TUNE", TUNE).replace("KERNEL", str(list(module())))
    for name, value in values.items():
        script = script.replace(f"<{name}>", json.dumps(value))
    done = subprocess.run(
        [node, "--input-type=module", "-"],
        input=script, capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
