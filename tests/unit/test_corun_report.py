"""Tables and frontiers of co-running, from rows that are known."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks.report import bounds, charts, corun, cuda
from benchmarks.report.bounds import OURS
from tilewright.elastic.agents import Answered
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
    assert "| MDTB-A, 8 SMs | 1.01 | 1.05 | 1.03 | 0.90 | 1.6 | 1.40 | 0.95 | 0.90 |" in text
    _, said, naive = text.split("\n\n")
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


def test_a_picture_for_each_setting_with_several_bounds() -> None:
    pictures = dict(corun.charts({"rows": ROWS}))
    assert pictures.keys() == {"corun-mdtb-a-8-sms.svg"}
    svg = "{http://www.w3.org/2000/svg}"
    root = ElementTree.fromstring(pictures["corun-mdtb-a-8-sms.svg"])
    assert sum(c.find(f"{svg}title") is not None for c in root.iter(f"{svg}circle")) == 4
    # inside, and further right where the critical model is slower
    at = {
        (c.find(f"{svg}title").text or "").split(": ")[1].split(",")[0]: float(c.get("cx") or 0)  # type: ignore[union-attr]
        for c in root.iter(f"{svg}circle")
        if c.find(f"{svg}title") is not None
    }
    assert list(at) == sorted(at, key=lambda k: at[k])
    assert all(60 <= x <= 640 for x in at.values())


def test_causes_of_exceeded_bounds_stand_apart() -> None:
    kept = {
        "workload": "w", "variant": OURS, "max_slowdown": 1.3, "least": 1.04, "refused": False,
        "n": 900, "over": 0.002, "waited": 0.17, "waited_alone": 0.16, "p99": 1.04,
        "normal_share": 0.9, "later": 0.001, "ended": 2,
    }  # fmt: skip
    refused = {k: kept[k] for k in ("workload", "variant", "max_slowdown")}
    rows = [kept, refused | {"least": 1.7, "refused": True}, {**kept, "variant": "another"}]
    text = bounds.bound({"rows": rows})
    assert f"| {OURS} | 2 | 1 | 0.2 % | 0.1 % | 1.04 | 2 | 900 |" in text
    assert "| w | 1.3 | 1.04 | 0.2 % | 17.0 % | 16.0 % | 1.04 | 0.90 | 900 |" in text
    assert "| w | 1.3 | 1.70 | refused |" in text


def test_how_soon_there_is_room() -> None:
    times = {"p50": 4.0, "p99": 9.0}
    rows = [
        {"what": "alone", "case": "K0", "ratio": 1.02, "spread": 0.01, "n": 25},
        {"what": "room", "case": "GEMM", "blocks": 1, "idle_us": times, "busy_us": times,
         "more_us": {"p50": 1.5, "p99": 3.0}, "n": 300},
    ]  # fmt: skip
    text = cuda.elastic({"rows": rows})
    assert "| K0 | 1.02 | 1.0 % | 25 |" in text
    assert "| GEMM | 1 | 4.0 | 9.0 | 4.0 | 9.0 | 1.5 | 3.0 | 300 |" in text
    ((name, svg),) = cuda.latencies({"rows": rows})
    assert name == "elastic-room.svg"
    assert "GEMM" in "".join(ElementTree.fromstring(svg).itertext())


@pytest.mark.parametrize(("over", "kept"), [(0, True), (2, True), (3, False), (200, False)])
def test_a_bound_is_kept_if_at_most_the_promised_share_exceeds_it(over: int, kept: bool) -> None:
    """By any policy: also by one that promises nothing and corrects no curves."""
    slow, quick = Answered(400.0, 130.0, 100.0), Answered(400.0, 120.0, 100.0)
    answered = (slow,) * over + (quick,) * (200 - over)
    found = CriticalResult("mine", 100.0, 1.25, None, answered, 0, 0)
    assert found.bound_kept == kept
    assert not found.gave_up


def test_a_bound_that_nothing_keeps_is_not_kept() -> None:
    answered = (Answered(120.0, 120.0, 100.0),) * 1000
    notice = Noticed("mine", (0,), 400, 20, 1.0, 1.4, False)
    found = CriticalResult("mine", 100.0, 1.25, None, answered, 0, 0, (notice,))
    assert found.gave_up
    assert not found.bound_kept
