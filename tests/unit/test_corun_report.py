"""Tables and frontiers of co-running, from rows that are known."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.report import charts, corun
from tilewright.elastic.agents import RequestTimes
from tilewright.elastic.policy import Noticed
from tilewright.elastic.result import CriticalResult

ROW: dict[str, Any] = {
    "pair": "MDTB-A", "policy": "tilewright", "sms": 8, "seed": 0, "max_slowdown": 1.05,
    "p99": 1.04, "service_p99": 1.03, "normal_share": 0.9, "bound_kept": True, "n": 1000,
}  # fmt: skip
ROWS = [
    *({**ROW, "seed": n, "normal_share": share} for n, share in enumerate((0.8, 0.9, 0.95))),
    {**ROW, "max_slowdown": 1.4, "p99": 1.35, "normal_share": 0.97},
    {**ROW, "max_slowdown": 1.6, "p99": 1.5, "service_p99": 1.4, "normal_share": 0.95},
    {**ROW, "policy": "streams", "max_slowdown": None, "p99": 2.5, "service_p99": None},
    {**ROW, "sms": 30, "kernels": "naive"},
]


def test_a_point_is_the_median_of_its_seeds() -> None:
    first, *rest = corun.points(ROWS)
    assert (first["normal_share"], first["n"], first["runs"]) == (0.9, 3000, 3)
    assert [p["runs"] for p in rest] == [1, 1, 1, 1]
    assert next(p for p in rest if p["policy"] == "streams")["service_p99"] is None


def test_a_setting_has_a_line_with_the_least_and_the_largest_bound() -> None:
    refused = [
        {**ROW, "max_slowdown": b, "error": {"code": "admission-refused"}} for b in (1.01, 9)
    ]
    text = corun.corun({"rows": [*ROWS, *refused]})
    assert "| MDTB-A, 8 SMs | 1.01 | 1.05 | 1.03 | 0.90 | 1.6 | 1.40 | 0.95 |" in text
    _, beside, streams, said, naive = text.split("\n\n")
    assert beside.startswith("Policies that keep no bound")
    assert streams.splitlines()[-1] == "| MDTB-A, 8 SMs | 0.90 |"
    assert said.startswith("Naive kernels")
    assert naive.splitlines()[-1] == "| MDTB-A, 30 SMs | 1.05 | 1.03 | 0.90 |"


def test_a_setting_that_refuses_every_bound_is_told() -> None:
    other = {**ROW, "policy": "priority", "max_slowdown": None}
    assert corun.corun({"rows": [other]}) == ""
    text = corun.corun({"rows": [other, {**ROW, "error": {"code": "admission-refused"}}]})
    assert text.splitlines()[-1] == "| MDTB-A, 8 SMs | 1.05 | 1.03 | 0.90 |"
    assert text.startswith("| setting | refused at | priority: p99 |")


def test_numbers_of_models_at_once_are_curves_of_their_own() -> None:
    rows = [{**ROW, "normal_share": share, "together": n} for n, share in ((None, 0.5), (2, 0.7))]
    rows.append({**ROW, "normal_share": 0.9, "together": 0})
    assert {p["policy"]: p["normal_share"] for p in corun.points(corun.runs({"rows": rows}))} == {
        "tilewright": 0.5, "tilewright, 2 at once": 0.7, "tilewright, all at once": 0.9,
    }  # fmt: skip
    more = [{**ROW, "max_slowdown": bound, "together": 2} for bound in (1.2, 1.3)]
    ((_, picture),) = corun.charts({"rows": [*rows, *more]})
    assert "tilewright, 2 at once" in picture


def test_cards_are_apart_and_what_was_refused_is_no_point() -> None:
    refused = {**ROW, "gpu": "A", "max_slowdown": 1.003, "error": {"code": "admission-refused"}}
    rows = [{**ROW, "gpu": "A"}, {**ROW, "gpu": "B", "service_p99": 1.08}, refused]
    text = corun.corun({"rows": rows})
    assert "| MDTB-A, 8 SMs, A | 1.003 | 1.05 | 1.03 |" in text
    assert "| MDTB-A, 8 SMs, B |  | 1.05 | 1.08 |" in text
    assert len(corun.points(corun.runs({"rows": rows}))) == 2


def test_the_best_points() -> None:
    best = charts.best
    assert best([(1.2, 0.5), (1.1, 0.4), (1.3, 0.45), (1.1, 0.3), (2.0, 0.9)]) == [
        (1.1, 0.4), (1.2, 0.5), (2.0, 0.9),
    ]  # fmt: skip


@pytest.mark.parametrize(("over", "kept"), [(0, True), (2, True), (3, False), (200, False)])
def test_a_bound_is_kept_if_at_most_the_promised_share_exceeds_it(over: int, kept: bool) -> None:
    """By any policy: also by one that promises nothing and corrects no curves."""
    slow, quick = RequestTimes(400.0, 130.0, 100.0), RequestTimes(400.0, 120.0, 100.0)
    answered = (slow,) * over + (quick,) * (200 - over)
    found = CriticalResult("mine", 100.0, 1.25, None, answered, 0, 0)
    assert found.bound_kept == kept
    assert not found.gave_up


def test_a_bound_that_nothing_keeps_is_not_kept() -> None:
    answered = (RequestTimes(120.0, 120.0, 100.0),) * 1000
    notice = Noticed("mine", (0,), 400, 20, 1.0, 1.4, False)
    found = CriticalResult("mine", 100.0, 1.25, None, answered, 0, 0, (notice,))
    assert found.gave_up
    assert not found.bound_kept
