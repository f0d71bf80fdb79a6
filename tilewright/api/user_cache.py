"""The folder where this user's programs keep what they can make again.

Input: the environment.  Output: a path, which may not exist yet.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def user_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData/Local")) / "tilewright"
    if sys.platform == "darwin":
        return Path.home() / "Library/Caches/tilewright"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tilewright"
