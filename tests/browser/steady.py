"""The web files of a machine whose speed has no part in what trials find.

Input: how many times as fast as what is in use all candidates are.  Output: a folder for the
server.  The scenarios' `steady` does the same for the engine's own times.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tilewright.server.app import WEB

STEADY = Path(__file__).with_name("steady") / "trial" / "timing.js"


def steady(folder: Path, gain: float = 1) -> Path:
    web = shutil.copytree(WEB, folder / "web")
    text, line = STEADY.read_text(), "const GAIN = 1;"
    assert text.count(line) == 1
    text = text.replace(line, f"const GAIN = {gain};")
    for name in ("timing.js", "gpu_timing.js"):
        (web / "tune" / "trial" / name).write_text(text)
    return web
