"""Tables and frontiers of co-running, from rows that are known."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest

from tilewright.elastic.agents import Answered
from tilewright.elastic.policy import Noticed
from tilewright.elastic.result import CriticalResult

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
ROW: dict[str, Any] = {
    "pair": "MDTB-A", "policy": "bounded", "sms": 8, "seed": 0, "max_slowdown": 1.05, "p50": 1.01,
    "p99": 1.04, "p999": 1.1, "misses": 0.0, "normal_share": 0.9, "total_over_sequential": 1.5,
    "occupancy": 0.4, "n": 1000,
}  # fmt: skip
ROWS = [
    *({**ROW, "seed": n, "normal_share": share} for n, share in enumerate((0.8, 0.9, 0.95))),
    {**ROW, "max_slowdown": 1.4, "p99": 1.35, "normal_share": 0.97},
    {**ROW, "max_slowdown": 1.6, "p99": 1.5, "normal_share": 0.95},
    {**ROW, "policy": "streams", "max_slowdown": None, "p99": 2.5, "occupancy": None},
    {**ROW, "sms": 30, "kernels": "naive"},
]


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    return importlib.import_module


def test_a_point_is_the_median_of_its_seeds(benchmark: Any) -> None:
    report: ModuleType = benchmark("report_corun")
    first, *rest = report.points(ROWS)
    assert (first["normal_share"], first["n"], first["runs"]) == (0.9, 3000, 3)
    assert [p["runs"] for p in rest] == [1, 1, 1, 1]
    assert next(p for p in rest if p["policy"] == "streams")["occupancy"] is None


def test_what_a_bound_allows(benchmark: Any) -> None:
    report: ModuleType = benchmark("report_corun")
    ours = [p for p in report.points(ROWS) if p["policy"] == "bounded" and p["sms"] == 8]
    assert [report.within(ours, bound) for bound in (1.0, 1.05, 1.35, 2)] == [None, 0.9, 0.97, 0.97]


def test_tables_have_every_point_and_setting(benchmark: Any) -> None:
    text = benchmark("report_corun").corun({"rows": ROWS})
    assert "| bounded | MDTB-A, 8 SMs | 0.9 | 0.9 | 0.9 | 0.97 | 0.97 |" in text
    assert "| streams | MDTB-A, 8 SMs | – | – | – | – | – |" in text
    assert "| bounded | MDTB-A, 30 SMs, naive kernels | 0.9 |" in text
    assert len([line for line in text.splitlines() if line.startswith("| ")]) == 2 * 2 + 3 + 5


def test_numbers_of_models_at_once_are_curves_of_their_own(benchmark: Any) -> None:
    report: ModuleType = benchmark("report_corun")
    rows = [{**ROW, "normal_share": share, "together": n} for n, share in ((None, 0.5), (2, 0.7))]
    rows.append({**ROW, "normal_share": 0.9, "together": 0})
    assert {p["policy"]: p["normal_share"] for p in report.points(report.runs({"rows": rows}))} == {
        "bounded": 0.5, "bounded, 2 at once": 0.7, "bounded, all at once": 0.9,
    }  # fmt: skip
    ((_, picture),) = report.charts({"rows": rows})
    assert "bounded, 2 at once" in picture


def test_cards_are_apart_and_what_was_refused_is_no_point(benchmark: Any) -> None:
    report: ModuleType = benchmark("report_corun")
    refused = {**ROW, "gpu": "A", "max_slowdown": 1.003, "error": {"code": "admission-refused"}}
    rows = [{**ROW, "gpu": "A", "p99": 1.02}, {**ROW, "gpu": "B", "p99": 1.08}, refused]
    text = report.corun({"rows": rows})
    assert "| bounded | MDTB-A, 8 SMs, A | 0.9 |" in text
    assert "| bounded | MDTB-A, 8 SMs, B | – |" in text
    assert "1.003" not in text
    assert len(dict(report.charts({"rows": rows}))) == 2


def test_the_best_points(benchmark: Any) -> None:
    best = benchmark("charts").best
    assert best([(1.2, 0.5), (1.1, 0.4), (1.3, 0.45), (1.1, 0.3), (2.0, 0.9)]) == [
        (1.1, 0.4), (1.2, 0.5), (2.0, 0.9),
    ]  # fmt: skip


def test_a_picture_for_each_setting(benchmark: Any) -> None:
    pictures = dict(benchmark("report_corun").charts({"rows": ROWS}))
    assert pictures.keys() == {
        "corun-mdtb-a-8-sms.svg", "corun-mdtb-a-30-sms-naive-kernels.svg",
    }  # fmt: skip
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


def test_causes_of_exceeded_bounds_stand_apart(benchmark: Any) -> None:
    kept = {
        "workload": "w", "variant": "v", "max_slowdown": 1.3, "least": 1.04, "refused": False,
        "n": 900, "over": 0.002, "waited": 0.17, "waited_alone": 0.16, "p99": 1.04,
        "normal_share": 0.9, "later": 0.001, "ended": 2,
    }  # fmt: skip
    refused = {k: kept[k] for k in ("workload", "variant", "max_slowdown")}
    rows = [kept, refused | {"least": 1.7, "refused": True}]
    text = benchmark("report_corun").bound({"rows": rows})
    assert "| w | v | 1.3 | 1.04 | 0.002 | 0.17 | 0.16 | 1.04 | 0.9 | 0.001 | 2 | 900 |" in text
    assert "| w | v | 1.3 | 1.7 | refused |" in text


def test_how_soon_there_is_room(benchmark: Any) -> None:
    report = benchmark("report_corun")
    times = {"p50": 4.0, "p99": 9.0}
    rows = [
        {"what": "alone", "case": "K0", "ratio": 1.02},
        {"what": "room", "case": "GEMM", "blocks": 1, "idle_us": times, "busy_us": times,
         "more_us": {"p50": 1.5, "p99": 3.0}, "n": 300},
    ]  # fmt: skip
    text = report.elastic({"rows": rows})
    assert "| K0 | 1.02 |" in text
    assert "| GEMM | 1 | 4.0 | 9.0 | 4.0 | 9.0 | 1.5 | 3.0 | 300 |" in text
    ((name, svg),) = report.latencies({"rows": rows})
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
