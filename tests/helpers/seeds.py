"""Fixed seeds for fuzz tests, so that a failure names the case that repeats it.

Input: how many cases a test runs by default.  Output: seeds for `pytest.mark.parametrize`.
TILEWRIGHT_FUZZ=20 runs twenty times as many; the first ones stay the same.
"""

from __future__ import annotations

import os
from collections.abc import Sequence


def seeds(count: int) -> Sequence[int]:
    return range(count * int(os.environ.get("TILEWRIGHT_FUZZ", "1")))
