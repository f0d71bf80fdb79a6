"""The web files of a machine whose speed has no part in what trials find.

Input: how many times as fast as what is in use all candidates are, the digest of one that is a
hundred times as slow, and which limits stay (patient.py).  Output: a folder for the server.  The
scenarios' `steady` does the same for the engine's own times.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from .patient import patient
from .replacing import replace_once

STEADY = Path(__file__).with_name("steady") / "trial" / "timing.js"


def steady(folder: Path, gain: float = 1, slow: str = "", but: tuple[str, ...] = ()) -> Path:
    web = patient(folder, but=but)
    for name in ("timing.js", "gpu_timing.js"):
        timing = Path(shutil.copy(STEADY, web / "tune" / "trial" / name))
        replace_once(timing, "const GAIN = 1;", f"const GAIN = {gain};")
        replace_once(timing, "const SLOW = '';", f"const SLOW = '{slow}';")
    return web
