"""The web part as wheels have it: engine and tuner minified.

Input: the checkout, with its node_modules.  Output: a folder for
`create_app(web=…)`, which nobody may change.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from helpers.once import made_once, shared_root
from tilewright.server.app import WEB

ROOT = Path(__file__).parents[2]


def need_bundler() -> None:
    """Skips the test where `npm ci` has not run."""
    if not (ROOT / "node_modules" / "rolldown").exists():
        pytest.skip("the JavaScript tools are not installed: npm ci")


def delivered(factory: pytest.TempPathFactory) -> Path:
    need_bundler()

    def put(root: Path) -> None:
        web = shutil.copytree(WEB, root / "web")
        command = ["node", ROOT / "scripts" / "minify.mjs", WEB, web]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    return made_once(shared_root(factory) / "delivered", put) / "web"
