"""Pages that tests open: each starts with an empty profile, although their browser stays open."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.bundle import POINTER

from .bundles import Library
from .conftest import Visit
from .driver import Driver
from .serving import serving

pytestmark = pytest.mark.by_turns

NOTHING: dict[str, Any] = {
    "folders": [],
    "caches": [],
    "databases": [],
    "values": [0, 0],
    "cookies": "",
    "workers": 0,
    "cached": False,
}


def test_a_page_finds_nothing_of_pages_before(driver: Driver, library: Library) -> None:
    """At the same address, and although what is kept by it could be read a moment before."""
    with serving({"linear": library.path("linear")}) as site:
        cached = site.bundle("linear") + POINTER
        for _ in range(2):
            page = driver.open(site.blank)
            assert page.do("left", cached=cached) == NOTHING
            page.do("leave", cached=cached)
            found = page.do("left", cached=cached)
            assert all(found[what] != nothing for what, nothing in NOTHING.items()), found
            page.do("close")


def test_pages_side_by_side_share_nothing(visit: Visit, library: Library) -> None:
    with serving({"linear": library.path("linear")}) as site:
        cached = site.bundle("linear") + POINTER
        first, second = visit(site.blank), visit(site.blank)
        first.do("leave", cached=cached)
        assert second.do("left", cached=cached) == NOTHING
