"""A page that was given a bad default finds out in its first idle moments, without tuning."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.crowd import agreed

from lab.subjects import compile_matmul
from tilewright.bundle import open_bundle, write
from tilewright.cli.compile_workers import makers
from tilewright.compiler import Options
from tilewright.server import Tuning
from tilewright.server import tuned as module
from tilewright.store import KernelStore
from tilewright.targets.device_classes import find
from tilewright.tuning.candidates import Space, space_of
from tilewright.tuning.catalogue import kernels_of

from .conftest import Visit
from .serving import serving
from .steady import steady

pytestmark = pytest.mark.by_turns

ROWS, DEPTH, COLUMNS = 192, 256, 256
DEVICE = "wasm-x86-relaxed-48k"
INPUTS = {"x": [(n * 7 % 13) / 4 - 1 for n in range(ROWS * DEPTH)]}


def slowest(space: Space) -> int:
    """The candidate with the smallest tile in registers: several times as slow as the compiler's
    choice."""

    def tile(number: int) -> int:
        schedule = space.schedules[number].to_json()
        return int(schedule["x0"]) * int(schedule["y0"])

    return min(range(1, len(space.schedules)), key=tile)


def given_bad(visit: Visit, browser: str, folder: Path, monkeypatch: Any, **options: Any) -> Any:
    """What a page finds whose bundle is linked with a slow default; and the store's reports."""
    monkeypatch.setattr(module, "TIMEOUT", 600.0)
    write(compile_matmul(ROWS, DEPTH, COLUMNS, Options(variants=("x86",))).contents, folder / "m")
    bundle = open_bundle(folder / "m")
    bad = slowest(space_of(kernels_of(bundle)[0], find(DEVICE)))
    url = agreed(folder, bundle, DEVICE, {0: bad}, (browser,))
    tuning = Tuning(makers(0), partial(KernelStore.open, url))
    with serving({"m": bundle.folder}, tuning=tuning, web=steady(folder, gain=2)) as site:
        page = visit(site.blank)
        tuned = f"{site.url}/tuned/{DEVICE}/{browser}/m/"
        plain = page.do("engine", url=site.bundle("m"), inputs=INPUTS)
        if plain["info"]["variant"]["name"] != "x86":
            pytest.skip("the class is one of x86 with relaxed SIMD")
        found = page.do("checkCrowd", url=tuned, inputs=INPUTS, options=options)
        assert page.do("log")["errors"] == []
    with KernelStore.open(url) as store:
        rows = store.rows()
    return found, rows[16:], bad


def test_a_slow_default_goes_without_tuning(
    visit: Visit, browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, rows, bad = given_bad(visit, browser.name, tmp_path, monkeypatch, report=True)
    trials = [event for event in found["events"] if event["type"] == "trial"]
    assert [(t["candidate"], t["verdict"]) for t in trials] == [(0, "faster")]
    (swap,) = (event for event in found["events"] if event["type"] == "swap")
    assert swap["ratio"] > 1
    for before, after in zip(found["before"], found["after"], strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-3)
    # once for each build
    assert found["again"] is None
    assert "latency" not in {event["type"] for event in found["events"]}
    ((candidate, ratio),) = rows[0]["answers"]
    assert candidate == bad
    assert ratio < 1
