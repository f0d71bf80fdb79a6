"""What a session says it gained, in real browsers, where times are made up.

Which figures come of which times: tests/unit/test_tune_gain.py.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from .bundles import Library
from .conftest import Visit
from .driver import Page
from .serving import Site, serving
from .steady import steady
from .test_swap import kernels

pytestmark = pytest.mark.by_turns

INPUTS = {"x": [(n * 7 % 13) / 8 - 0.5 for n in range(96 * 256)]}
NONE = {"verdict": "none", "text": "no kernel changed, so no gain"}


def session(page: Page, site: Site, sent: list[dict[str, Any]], **given: Any) -> dict[str, Any]:
    ask = {"url": site.bundle("poor"), "kernels": sent, "inputs": INPUTS}
    found: dict[str, Any] = page.do("tuneForGain", **ask, **given)
    return found


def check(gain: dict[str, Any]) -> None:
    assert gain["verdict"] == "faster"
    assert gain["ratio"] == pytest.approx(2)
    assert gain["low"] <= gain["ratio"] <= gain["high"]
    assert gain["own"] / gain["tuned"] == pytest.approx(gain["ratio"])
    assert (gain["kernels"], gain["plan"], gain["bucket"]) == (1, 0, {})
    assert gain["text"].startswith(f"{gain['ratio']:.2f}× as fast as with the bundle's own kernels")


def test_a_session_that_exchanges_nothing_gains_nothing(visit: Visit, library: Library) -> None:
    """Though its first runs are slow, and look slower still."""
    with serving({"poor": library.path("poor")}) as site:
        page = visit(site.blank)
        sent = [kernels(page, site, library, "poor").wrong("value", 0)]
        found = session(page, site, sent, slow=20)
    assert [e["verdict"] for e in found["events"] if e["type"] == "trial"] == ["wrong"]
    assert found["gain"] == NONE
    assert found["swaps"] == 0
    assert found["asked"] == NONE  # on request neither
    assert len(found["looks"]) == found["looked"]  # nor does that run anything


def test_a_poor_default_that_was_replaced(visit: Visit, library: Library, tmp_path: Path) -> None:
    """Both sides take turns, and what was found is in use afterwards; later it can be asked for."""
    with serving({"poor": library.path("poor")}, web=steady(tmp_path, gain=2)) as site:
        page = visit(site.blank)
        best = kernels(page, site, library, "poor").others(0, 1)
        found = session(page, site, best)
        later = session(page, site, best)
    assert [e["verdict"] for e in found["events"] if e["type"] == "trial"] == ["faster"]
    check(found["gain"])
    check(found["asked"])
    pairs = found["gain"]["pairs"]
    last = found["looks"][found["looked"] - 2 * pairs : found["looked"]]
    turns = list(zip(last[::2], last[1::2], strict=True))
    assert {frozenset(pair) for pair in turns} == {frozenset({"own", "tuned"})}
    assert all(a != b for a, b in pairwise(turns))
    assert found["inUse"] == later["inUse"] == "tuned"
    # the next session exchanges nothing more
    assert [e for e in later["events"] if e["type"] == "trial"] == []
    assert later["gain"] == NONE
    check(later["asked"])
