"""What a session with another objective than latency adopts, in real browsers.

Input: the server's candidates, on a machine where all kernels are equally fast (steady/).  Output:
who needs less is adopted where that is asked for, and nobody where it is not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tilewright.bundle import open_bundle
from tilewright.cli.compile_workers import makers
from tilewright.server import Tuning
from tilewright.targets.device_classes import CLASSES
from tilewright.tuning.candidates import space_of
from tilewright.tuning.catalogue import kernels_of

from .bundles import Library
from .conftest import Visit
from .driver import Page
from .serving import Site, serving
from .steady import steady
from .test_tuning import close

pytestmark = pytest.mark.by_turns

SIZE = 96 * 512
INPUTS = {
    name: [(n * step % 13) / 8 - 0.5 for n in range(SIZE)] for name, step in (("a", 7), ("b", 5))
}


def session(page: Page, site: Site, objective: str) -> dict[str, Any]:
    options = {"rounds": 3, "objective": objective}
    found: dict[str, Any] = page.do(
        "tuneOnline", url=site.bundle("staged"), inputs=INPUTS, options=options, steady=True
    )
    assert "error" not in found, found
    assert close(found)
    return found


def test_who_needs_less_and_is_as_fast_is_adopted(
    visit: Visit, library: Library, tmp_path: Path
) -> None:
    """By `scratch` the least of all, told as what it is; by `latency`, before and after, nobody."""
    tuning, web = Tuning(makers=makers(0)), steady(tmp_path)
    with serving({"staged": library.path("staged")}, tuning=tuning, web=web) as site:
        page = visit(site.blank)
        before, scratch, after = (session(page, site, o) for o in ("latency", "scratch", "latency"))
    (kernel,) = kernels_of(open_bundle(library.path("staged")))
    space = space_of(kernel, CLASSES[scratch["summary"]["class"]], "scratch")
    least = min(needs.scratch for needs in space.needs)
    assert least < space.needs[0].scratch
    trials = [e for e in scratch["events"] if e["type"] == "trial"]
    swaps = [e["candidate"] for e in scratch["events"] if e["type"] == "swap"]
    # the least comes first: who needs more is not looked at then, who needs as much is no faster
    assert swaps == [trials[0]["candidate"]] == [space.trial[0]]
    assert {space.needs[e["candidate"]].scratch for e in trials} == {least}
    assert {e["verdict"] for e in trials} == {"same"}
    for found in (before, after):
        types = [e["type"] for e in found["events"]]
        assert types.count("trial") == 3
        assert "swap" not in types
    ends = [found["summary"]["kernels"][0] for found in (before, scratch, after)]
    assert [kernel["current"]["candidate"] for kernel in ends] == [0, *swaps, *swaps]
    assert ends[1]["gain"] == pytest.approx(1, abs=0.01)
