"""Benchmarks of tuning without the default: what the server sends, and the tables.  No browser."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.report import headroom as report
from benchmarks.tuning import withheld as bench
from benchmarks.tuning.sessions import Trial, evaluation_of
from lab.subjects import matmul_step
from tilewright.targets.device_classes import find
from tilewright.tuning.candidates import build, space_of

DEVICE = find("wasm-x86-relaxed-48k")


def test_no_candidate_has_the_defaults_code() -> None:
    kernel = matmul_step(24, 32, 40).kernel
    space = space_of(kernel, DEVICE)
    left = bench.without_default(kernel, DEVICE)
    own = build(kernel, space.schedules[0], "wasm", DEVICE.variant).module
    assert left
    assert space.schedules[0] not in left
    assert own not in [build(kernel, s, "wasm", DEVICE.variant).module for s in left]


@pytest.mark.parametrize("start", ["poor", "median"])
def test_a_session_starts_where_it_should(start: str) -> None:
    step = matmul_step(24, 32, 40)
    left = bench.without_default(step.kernel, DEVICE)
    found = bench.Swept(step, DEVICE, left, tuple(map(float, range(len(left)))))
    model, other, same = (bench.listed(found, start, o, 7) for o in ("model", "random", "random"))
    space = bench.withheld(step.kernel, DEVICE.id, "latency", listed=model)
    assert list(space.schedules) == model
    assert space.trial == tuple(range(1, len(model)))
    assert space_of(step.kernel, DEVICE).schedules[0] not in model
    assert [s for s in left if s in model[1:]] == model[1:]
    assert other == same != model
    assert set(other) == set(model)
    if start == "median":
        assert left.index(model[0]) == len(left) // 2


def test_good_candidates_are_those_near_the_fastest_of_the_sweep() -> None:
    """The start is none of them, however fast: it is no candidate."""
    step = matmul_step(24, 32, 40)
    left = bench.without_default(step.kernel, DEVICE)[:4]
    found = bench.Swept(step, DEVICE, left, (1.0, 1.02, 1.2, 1.03))
    assert found.good(left[2]) == 3
    assert found.good(left[0]) == 2


def test_rows_tell_where_the_time_of_trials_went() -> None:
    trials = [
        Trial(0, 1, "same", 10.0, {"check": 4.0, "pairs": 6.0}),
        Trial(0, 2, "same", 30.0, {"prepare": 22.0, "check": 8.0}),
    ]
    told = evaluation_of(trials)
    assert told["evaluation_stages"] == {"check": 6.0, "pairs": 3.0, "prepare": 11.0}
    assert told["longest_stages"] == {"prepare": 22.0, "check": 8.0}
    assert set(evaluation_of([])) == set(told)
    row = rows()[0] | told | {"tried": 2}
    last = report.withheld({"rows": [row]}).splitlines()[-1]
    assert last == "| firefox | 2 | 11 / 22 | 6 / 8 | 3 / – |"


def rows() -> list[dict[str, Any]]:
    same = {
        "host": "firefox", "device": DEVICE.id, "start": "poor", "order": "model", "budget": 1.0,
        "candidates": 70, "good": 3, "start_share": 0.1, "guess_share": 0.9, "bytes": 2000,
        "evaluation_ms": 90.0, "evaluation_p95_ms": 200.0, "evaluation_most_ms": 300.0,
    }  # fmt: skip
    return [
        same | {"kernel": "K0", "rounds": 4, "reached_s": 1.5, "share": 1.0},
        same | {"kernel": "K1", "rounds": None, "reached_s": None, "share": 0.9},
        same | {"kernel": "K2", "rounds": 8, "reached_s": 2.5, "share": 0.98},
    ]


def test_sessions_that_never_arrive_are_told() -> None:
    summary = report.withheld({"rows": rows()}).splitlines()[2]
    assert "| 2 of 3 | 8 | 8 | 2.0 |" in summary
    assert "| 90 % |" in summary
    never = report.withheld({"rows": [r | {"rounds": None} for r in rows()]}).splitlines()[2]
    assert "| 0 of 3 | never |" in never
