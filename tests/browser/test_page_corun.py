"""The page of co-running: a curve for each policy, filters, a timeline, files, empty states."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.corun_results import RECORD, of_command

from tilewright.elastic.timeline import BlockSpan, trace

from .conftest import Visit
from .serving import serving

pytestmark = pytest.mark.by_turns

SPANS = [
    *(BlockSpan(n % 8, 10.0 * n, 10.0 * n + 25, f"normal {n % 2}", False) for n in range(90)),
    *(BlockSpan(sm, 300.0, 420.0 + sm, "critical", True) for sm in range(8)),
]


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    record, traced = tmp_path / "corun.json", tmp_path / "trace.json"
    record.write_text(json.dumps(RECORD))
    traced.write_text(trace(SPANS))
    return [record, traced]


def test_the_frontier_and_its_filters(visit: Visit, files: list[Path], tmp_path: Path) -> None:
    with serving({}, corun=files) as site:
        page = visit(f"{site.url}/corun")
        found = page.do("corun")
        assert found["state"] == "ready"
        assert found["text"] == "9 runs, 1 refused, 1 trace"
        assert found["filters"]["pair"] == ["LGSVL", "MDTB-A"]
        at_once = "tilewright, bound 1.05×: 1.060×, 90.0 % normal work"
        assert found["marks"] == {"tilewright": [at_once]}
        page.do("select", selector="#filter-pair", value='"MDTB-A"')
        found = page.do("corun")
        assert found["filters"]["sms"] == ["8", "30"]
        assert found["filters"]["kernels"] is None
        assert found["filters"]["bound"] == ["all", "1.05×", "1.4×", "1.6×"]
        assert {policy: len(marks) for policy, marks in found["marks"].items()} == {
            "tilewright": 3, "streams": 1,
        }  # fmt: skip
        assert len(found["rows"]) == 4
        ours = next(row for row in found["rows"] if row[:2] == ["tilewright", "1.05×"])
        assert ours[2:] == ["1.010×", "1.040×", "1.100×", "90.0 %", "1.50×", "3,000", "3"]
        assert found["bound"] == 0
        page.do("select", selector="#filter-bound", value="1.4")
        page.do("select", selector="#filter-measure", value="service_p99")
        found = page.do("corun")
        assert found["marks"] == {
            "tilewright": ["tilewright, bound 1.4×: 1.300×, 97.0 % normal work"],
            "streams": ["streams: 1.020×, 99.0 % normal work"],
        }
        assert found["bound"] == 1
        page.do("select", selector="#filter-bound", value="all")
        page.do("select", selector="#filter-sms", value="30")
        assert page.do("corun")["filters"]["kernels"] == ["naive", "tuned"]
        assert page.do("log")["errors"] == []
        assert site.server.violations == []


def test_the_timeline(visit: Visit, files: list[Path]) -> None:
    with serving({}, corun=files[1:]) as site:
        found = visit(f"{site.url}/corun").do("corun")
    assert (found["state"], found["rows"], found["traces"]) == ("ready", [], ["trace.json"])
    assert found["tasks"] == {"critical": 8, "normal 0": 45, "normal 1": 45}


@pytest.mark.parametrize("width", [320, 1280])
def test_wide_and_narrow(visit: Visit, files: list[Path], tmp_path: Path, width: int) -> None:
    with serving({}, corun=files) as site:
        page = visit(f"{site.url}/corun", width)
        page.do("corun")
        page.do("select", selector="#filter-pair", value='"MDTB-A"')
        assert page.do("corun")["width"] > 0.7 * width
        found = page.do("layout", screenshot=str(tmp_path / f"corun-{width}.png"))
        assert not found["overflow"], found["outside"]
        assert found["outside"] == []


def test_nothing_yet_then_files_of_this_device(visit: Visit, tmp_path: Path) -> None:
    """They are read here; the server never sees them."""
    mine, other = tmp_path / "mine.json", tmp_path / "other.json"
    mine.write_text(json.dumps(of_command()))
    other.write_text("{}")
    with serving({}) as site:
        page = visit(f"{site.url}/corun")
        found = page.do("corun")
        assert found["state"] == "empty"
        assert "tilewright corun" in found["empty"]
        assert "tilewright serve --corun" in found["empty"]
        page.do("chooseFile", path=str(mine))
        found = page.do("corun", states=["ready"])
        assert found["filters"]["pair"] == ["mine + other"]
        assert found["marks"] == {
            "tilewright": ["tilewright, bound 1.25×: 2.000×, 60.3 % normal work"]
        }
        page.do("chooseFile", path=str(other))
        problem = page.do("text", selector="#corun-problem", contains="other.json")
        assert problem == "other.json has no results of co-running"
        assert page.do("corun")["state"] == "ready"
        assert site.server.asked("mine.json") == 0


def test_a_server_in_trouble(visit: Visit, files: list[Path]) -> None:
    with serving({}, corun=files) as site, site.server.refusing("/api/corun/0"):
        found = visit(f"{site.url}/corun").do("corun")
    assert found["state"] == "error"
    assert "503" in found["text"]
