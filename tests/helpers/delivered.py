"""The web part as wheels have it: engine and tuner minified.

Input: the checkout, with its node_modules.  Output: a folder for `create_app(web=…)`.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tilewright.server.app import WEB

ROOT = Path(__file__).parents[2]


def need_bundler() -> None:
    """Skips the test where `npm ci` has not run."""
    if not (ROOT / "node_modules" / "rolldown").exists():
        pytest.skip("the JavaScript tools are not installed: npm ci")


def delivered(folder: Path) -> Path:
    need_bundler()
    web = shutil.copytree(WEB, folder)
    command = ["node", ROOT / "scripts" / "minify.mjs", WEB, web]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return web
