"""Puts the engine and the tuner into wheels as they are delivered: minified (scripts/minify.mjs).

Input: a checkout with node_modules.  Output: the wheel's web/ has the same files without comments,
which `tilewright serve` and `build --static` then give out.  Without node_modules the commented
ones stay, and that is said.  Editable installs stay as they are: developers see their own files.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

WEB = Path("tilewright", "web")


class MinifiedWeb(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        if version == "editable":
            return
        if not (root / "node_modules" / "rolldown").exists():
            self.app.display_warning(
                "The wheel gets the engine with its comments: run `npm ci` to minify it"
            )
            return
        self.into = tempfile.TemporaryDirectory()
        command = ["node", root / "scripts" / "minify.mjs", root / WEB, self.into.name]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        made = Path(self.into.name)
        build_data["force_include"] |= {
            str(path): (WEB / path.relative_to(made)).as_posix()
            for path in sorted(made.rglob("*"))
            if path.is_file()
        }

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if into := getattr(self, "into", None):
            into.cleanup()
