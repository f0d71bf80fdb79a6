"""The npm package, packed by the checkout's script once in a run.

Input: the checkout, with its node_modules.  Output: a folder with the package and its archive,
which nobody may change.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.delivered import ROOT
from helpers.once import made_once, shared_root

TSC = ROOT / "node_modules" / ".bin" / "tsc"


def npm_package(factory: pytest.TempPathFactory) -> Path:
    if shutil.which("npm") is None or not TSC.exists():
        pytest.skip("the JavaScript tools are not installed: npm ci")

    def pack(folder: Path) -> None:
        script = ROOT / "scripts" / "npm_package.py"
        command = [sys.executable, script, "--into", folder / "staged"]
        subprocess.run(command, env={**os.environ, "npm_config_offline": "true"}, check=True)

    return made_once(shared_root(factory) / "npm", pack)


def archive(package: Path) -> Path:
    (packed,) = package.glob("tilewright-web-*.tgz")
    return packed
