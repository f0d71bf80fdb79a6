"""Fixed seeds for fuzz tests, so that a failure names the case that repeats it.

Input: how many cases a test has.  Output: values for `pytest.mark.parametrize`, of which some are
marked `nightly`.  TILEWRIGHT_FUZZ=20 runs twenty times as many; the first ones stay the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest


def seeds(count: int, nightly: int = 0) -> list[Any]:
    """Seeds for every run, and so many more for nightly ones."""
    times = int(os.environ.get("TILEWRIGHT_FUZZ", "1"))
    first, more = count * times, nightly * times
    return [*range(first), *(_nightly(seed) for seed in range(first, first + more))]


def shared_out(cases: Iterable[Any], share: int) -> list[Any]:
    """A sweep: the first of every `share` cases for every run, the others for nightly ones."""
    return [case if at % share == 0 else _nightly(case) for at, case in enumerate(cases)]


def _nightly(value: Any) -> Any:
    return pytest.param(value, marks=pytest.mark.nightly)
