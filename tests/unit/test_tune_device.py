"""Which L1 cache walks of growing working sets show (web/tune/device/device_class.js)."""

from __future__ import annotations

import pytest
from node import run

SCRIPT = """
import { cacheOf } from 'TUNE/device/device_class.js';
console.log(JSON.stringify(<walks>.map(cacheOf)));
"""

#: KiB that are right, and times of walks through 16, 28, 40, 56, 112 and 400 KiB: cycles of a load
#: where nothing else runs, as the caches of these processors have them.
WALKS: dict[str, tuple[int, list[float]]] = {
    "32K, L2 of 256K": (32, [5, 5, 13, 13, 13, 32]),
    "32K, L2 of 128K": (32, [3, 3, 11, 11, 11, 60]),
    "32K, L2 of 512K": (32, [4, 4, 12, 12, 12, 12]),
    "48K": (48, [5, 5, 5, 15, 15, 15]),
    "48K, others on the core": (48, [5, 5.6, 8.3, 14, 15, 18]),
    "64K, L2 of 256K": (64, [4, 4, 4, 4, 11, 28]),
    "128K": (128, [3, 3, 3, 3, 3, 17]),
    "no cache to be seen": (0, [5, 5, 5, 5, 5, 5]),
    "a clock that stands still": (0, [0, 0, 0, 0, 0, 0]),
    "it fits again beyond": (0, [5, 14, 5, 14, 14, 14]),
}


@pytest.mark.parametrize("device", WALKS)
def test_the_cache_is_where_loads_become_slow(device: str) -> None:
    right, walk = WALKS[device]
    assert run(SCRIPT, walks=[walk]) == [right]
