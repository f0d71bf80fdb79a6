"""Benchmarks of sessions of the tuner, and their tables: made-up events and times, no browser."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import optimum
from benchmarks.report import tuning as report
from benchmarks.tuning import latency, next_device, server_part
from benchmarks.tuning.sessions import (
    BUILT,
    STARTS,
    Session,
    TunedKernel,
    kernel_bundle,
    summary_of,
)
from lab.subjects import matmul_step
from tilewright.bundle import open_bundle
from tilewright.targets.simd.strategies import schedule_from_json
from tilewright.targets.wasm import VARIANTS
from tilewright.tuning.candidates import space_of
from tilewright.tuning.catalogue import kernels_of


def test_shares_by_round() -> None:
    shares = [(0, 0.1), (3, 0.5), (7, 0.98), (9, 0.96), (12, 0.99), (40, 1.0)]
    assert optimum.reached(shares) == 12
    assert optimum.reached(shares[:2]) is None
    assert optimum.reached([(0, 0.99), (5, 1.0)]) == 0
    assert optimum.share_after(shares, 32) == 0.99
    assert optimum.share_after(shares, 2) == 0.1


def trial(verdict: str, milliseconds: float = 1.0) -> dict[str, Any]:
    """An event of the tuner."""
    return {
        "type": "trial", "spec": 0, "candidate": 1, "verdict": verdict, "stages": {},
        "milliseconds": milliseconds, "ratio": None,
    }  # fmt: skip


def test_a_session_keeps_what_was_in_use() -> None:
    session = Session()
    for event in (
        {"type": "start", "class": "c"},
        trial("slower"),
        trial("faster"),
        {"type": "swap", "spec": 0, "candidate": 5},
        trial("same"),
        {"type": "rollback", "spec": 0, "candidate": 6},
        {"type": "swap", "spec": 0, "candidate": 7},
    ):
        session.take(event)
    assert session.device == "c"
    assert [(use.trials, use.candidate) for use in session.uses] == [(2, 5), (3, 7)]
    swapped = session.last_swap
    assert swapped == session.uses[-1].at
    assert session.current == {0: 7}
    session.take({"type": "rollback", "spec": 0, "candidate": 7})
    assert session.uses[-1].candidate == BUILT
    assert session.last_swap == swapped
    assert not session.current
    assert [trial.verdict for trial in session.trials] == ["slower", "faster", "same"]


@pytest.mark.parametrize("start", ["poor", "good"])
def test_one_kernel_bundles_start_as_told(start: str, tmp_path: Path) -> None:
    step = matmul_step(24, 16, 24)
    path = kernel_bundle(step, start, tmp_path / start)
    bundle = open_bundle(path)
    (kernel,) = kernels_of(bundle)
    (listed,) = json.loads(bundle.read(bundle.manifest.section("wasm").kernels))
    for name, build in listed["builds"].items():
        machine = VARIANTS[name].machine
        assert schedule_from_json(build["schedule"]) == STARTS[start](kernel, machine)


def test_the_server_part_is_counted_per_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    step = matmul_step(24, 16, 24)
    monkeypatch.setattr(server_part, "SUBJECTS", {"K": lambda: step})
    row = server_part.measure("K")
    assert row["candidates"] == len(space_of(step.kernel, server_part.device_here()).schedules)
    assert 0 < row["median_bytes"] <= row["most_bytes"]


def test_first_inferences_are_medians_and_fastest() -> None:
    row = next_device.firsts([9.0, 30.0, 10.0], [5.0, 4.0, 9.0], [2.0, 6.0, 6.0], [4.0, 3.0, 6.0])
    assert row == {
        "built_first_ms": 10.0, "first_ms": 5.0, "optimum_first_ms": 5.0, "first_share": 1.0,
        "first_noise": 1.5, "fastest_noise": 0.667,
        "built_fastest_ms": 9.0, "fastest_ms": 4.0, "optimum_fastest_ms": 2.0,
        "fastest_share": 0.5,
    }  # fmt: skip


# ---- inferences beside a tuner -------------------------------------------------------------------


def test_the_interval_of_a_ratio() -> None:
    """It holds the true ratio, and is wider where turns differ."""
    random = np.random.default_rng(3)

    def turns(shift: float) -> list[Any]:
        places = 10 + shift * random.standard_normal(6)
        return [(random.normal(p, 0.3, 80), 1.2 * random.normal(p, 0.3, 80)) for p in places]

    low, high = latency.interval(turns(0.0), 300)
    assert low < 1.2 < high
    assert high - low < 0.1
    wide = latency.interval(turns(1.0), 300)
    assert wide[1] - wide[0] > high - low
    same = [([2.0] * 9, [3.0] * 9)] * 2
    assert latency.interval(same, 20) == (1.5, 1.5)


def test_inferences_are_what_the_page_waits_at_random_moments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, waits = [0.0], []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        clock[0] += seconds

    def run(_inputs: Any) -> Any:
        clock[0] += 0.01
        return SimpleNamespace(milliseconds=4.0, total_milliseconds=10.0)

    fake = SimpleNamespace(monotonic=lambda: clock[0], sleep=sleep)
    monkeypatch.setattr(latency, "time", fake)
    found = latency.inferences(SimpleNamespace(run=run), {}, 20.0, 0.1, 5)
    assert set(found) == {10.0}
    assert 150 < len(found) < 250
    random = Random(5)
    assert waits == pytest.approx([0.1 * random.uniform(0.5, 1.5) - 0.01 for _ in waits])
    waits.clear()
    latency.inferences(SimpleNamespace(run=run), {}, 1.0, 0.0, 5)
    assert set(waits) == {0.0}


def test_every_other_turn_begins_beside_the_tuner(monkeypatch: pytest.MonkeyPatch) -> None:
    order = []

    def half(*args: Any) -> list[float]:
        session = args[-1]
        order.append(session is None)
        if session:
            session.take({"type": "start", "class": "c"})
            session.take(trial("same", 500.0))
        return [10.0 if session is None else 11.0] * 5

    monkeypatch.setattr(latency, "half", half)
    row = latency.measure("x", Path(), "m", 12.0, 0.1)
    assert order == [True, False, False, True] * (latency.TURNS // 2)
    assert (row["ratio"], row["ratio_low"], row["ratio_high"]) == (1.1, 1.1, 1.1)
    assert (row["alone_median_ms"], row["tuning_ms"], row["median_ratio"]) == (10.0, 11.0, 1.1)
    assert (row["device"], row["trials"], row["tuning_s"]) == ("c", latency.TURNS, 3.0)


# ---- tables --------------------------------------------------------------------------------------


def test_without_an_exchange_a_model_has_no_speed_to_tell() -> None:
    """Both sides were the same model."""
    row = {"subject": "m", "start": "good", "swaps": 0, "gain": 1.027}
    assert "1.027" not in report.listing({"speed": "gain"}, {"rows": [row]})
    assert "1.027" in report.listing({"speed": "gain"}, {"rows": [row | {"swaps": 1}]})


def test_what_a_session_told_is_kept() -> None:
    kernel = {"kind": "contract", "shape": "8x8x8", "current": {"candidate": 3}}
    summary = {"class": "c", "kernels": [kernel]}
    measured = {"ratio": 1.23456, "low": 1.2, "high": 1.3, "pairs": 16}
    found = summary_of(summary | {"gain": {"verdict": "faster", "text": "…"} | measured})
    assert (found.device, found.kernels) == ("c", [TunedKernel("contract", "8x8x8", 3)])
    row = found.gain.row()
    assert (row["told"], row["told_ratio"], row["told_n"]) == ("faster", 1.235, 16)
    row = summary_of(summary | {"gain": {"verdict": "none", "text": "…"}}).gain.row()
    assert row.pop("told") == "none"
    assert set(row.values()) == {None}
