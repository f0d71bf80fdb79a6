"""`tilewright corun` and the pictures that it draws."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from cli_call import Called
from helpers.corun_until import all_answered, all_ran, command_until
from hypothesis import given
from hypothesis import strategies as st
from test_corun_agents import bundles as bundles

from tilewright.base.errors import CompilerBug, NotMeasured
from tilewright.cli.corun import CriticalChoice, further
from tilewright.elastic.policy import Critical
from tilewright.elastic.timeline import BlockSpan, in_lanes, svg, trace, window
from tilewright.hosts.cuda_instrumented import Instrumentation

Capture = pytest.CaptureFixture[str]
#: A bound that any busy machine keeps, and a short measurement.
QUICK = ("--max-slowdown", "1e7", "--rate", "0", "--device", "cpu", "--json",
         "--seconds", "0.2")  # fmt: skip


@pytest.fixture(autouse=True)
def _no_lease_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request may be stopped for long on a busy machine."""
    monkeypatch.setattr(Critical, "effective_lease_us", property(lambda _: 6e7))


def test_a_pair_on_the_cpu(
    bundles: tuple[Path, Path], tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    command_until(monkeypatch, all_ran)
    # as measured on a busy machine, three requests may be more than a second holds
    monkeypatch.setattr("tilewright.elastic.measure_curves._Samples.solo_us", 1000.0)
    picture, traced, curves = (tmp_path / name for name in ("a.svg", "a.json", "curves.json"))
    files = ("--timeline", picture, "--trace", traced, "--curves", curves)
    # gaps between requests, so that normal work runs on a busy machine too
    called = Called(capsys, "corun", *bundles, *QUICK, "--rate", "3", *files)
    assert called.code == 0, called.out
    found = called.json
    assert found["requests"] > 0
    assert found["solo_us"] == 1000
    assert found["over_bound"] == found["misses"] == 0
    assert found["p50"] <= found["p99"] <= found["p999"]
    assert ET.parse(picture).getroot().tag.endswith("svg")
    events = json.loads(traced.read_text())["traceEvents"]
    # whether normal work begins in that stretch of time is chance; the test of `window` chooses it
    categories = {e["cat"] for e in events if e["ph"] == "X"}
    assert {"critical"} <= categories <= {"critical", "normal"}
    # curves are read the second time, and pictures of ours are drawn over
    again = Called(capsys, "corun", *bundles, *QUICK, *files)
    assert again.code == 0
    assert again.json["solo_us"] == found["solo_us"]


@pytest.mark.parametrize(
    ("more", "code"),
    [
        (("--policy", "fifo"), 2),
        (("--device", "tpu"), 2),
        (("--max-slowdown", "1"), 2),
        (("--phases", "65"), 2),
        (("--arrival", "never", "--rate", "1"), 2),
        (("--timeline", "no/folder.svg"), 2),
        (("--rate", "1e9"), 12),
        (("--rate", "-1"), 2),
        (("--deadline", "-1"), 2),
        (("--sms", "8"), 2),
        (("--critical", "no.onnx,bound=2"), 2),
        (("--critical", "no.onnx,rate=often"), 2),
        (("--critical", "no.onnx,max_slowdown=0.5"), 2),
    ],
)
def test_what_cannot_be_is_refused(
    bundles: tuple[Path, Path], capsys: Capture, more: tuple[str, ...], code: int
) -> None:
    called = Called(capsys, "corun", *bundles, *QUICK, *more)
    assert called.code == code, called.out
    assert called.json["error"]["hint"]


@pytest.mark.seldom(4)
def test_several_critical_models(
    bundles: tuple[Path, Path], tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    command_until(monkeypatch, all_answered)
    critical, normal = bundles
    curves = tmp_path / "curves.json"
    second = f"{critical},max_slowdown=2e7,priority=1,deadline=1e12"
    options = ("--critical", second, "--curves", curves)
    called = Called(capsys, "corun", critical, normal, *QUICK, *options)
    assert called.code == 0, called.out
    found = called.json
    assert [one["max_slowdown"] for one in found["critical"]] == [1e7, 2e7]
    assert all(one["model"] == "critical" and one["requests"] for one in found["critical"])
    assert found["normal_inferences"] >= 0
    # the curves of both are kept, and serve no other number of models
    again = Called(capsys, "corun", critical, normal, *QUICK, *options)
    assert again.code == 0, again.out
    fewer = Called(capsys, "corun", critical, normal, *QUICK, "--curves", curves)
    assert fewer.code == 2
    people = [option for option in QUICK if option != "--json"]
    shown = Called(capsys, "corun", critical, normal, *people, *options).out
    assert len(next(line for line in shown.splitlines() if "max_slowdown" in line).split()) == 3


def test_what_a_further_model_does_not_say_is_as_of_the_first() -> None:
    first = CriticalChoice(Path("a.onnx"), 1.1, 5.0, 20.0)
    assert further("b.onnx", first) == replace(first, path=Path("b.onnx"))
    assert further("b.onnx,rate=3,priority=-1", first) == CriticalChoice(
        Path("b.onnx"), 1.1, 5.0, 3.0, -1
    )


def test_a_picture_of_another_program_is_kept(
    bundles: tuple[Path, Path], tmp_path: Path, capsys: Capture
) -> None:
    picture = tmp_path / "mine.svg"
    picture.write_text("<svg></svg>")
    called = Called(capsys, "corun", *bundles, *QUICK, "--timeline", picture)
    assert called.code == 2
    assert picture.read_text() == "<svg></svg>"


spans = st.lists(
    st.builds(
        lambda sm, begin, long, critical: BlockSpan(
            sm, begin, begin + long, "c" if critical else "n<&>", critical, 128
        ),
        st.integers(0, 2), st.floats(0, 100), st.floats(0, 50), st.booleans(),
    ),
    min_size=1, max_size=30,
)  # fmt: skip


@given(spans)
def test_pictures_have_all_spans_and_lanes_do_not_overlap(found: list[BlockSpan]) -> None:
    placed = in_lanes(found)
    assert len(placed) == len(found)
    ends: dict[tuple[int, int], float] = {}
    for lane, span in placed:
        assert ends.get((span.sm, lane), 0.0) <= span.begin
        ends[span.sm, lane] = span.end
    picture = ET.fromstring(svg(found, "a <title>"))
    tasks = len({span.task for span in found})
    assert len([e for e in picture if e.tag.endswith("rect")]) == 1 + tasks + len(found)
    events = json.loads(trace(found))["traceEvents"]
    assert sum(e["ph"] == "X" for e in events) == len(found)


def test_a_window_begins_with_the_first_request() -> None:
    found = [BlockSpan(0, 0, 10, "n", False), BlockSpan(0, 1000, 1010, "c", True)]
    shown = window(found, 100.0)
    assert [(s.task, s.begin) for s in shown] == [("c", 10.0)]
    # a later request that has normal work beside it shows more
    found += [BlockSpan(0, t, t + 10, "c", True) for t in (2000, 3000)]
    found += [BlockSpan(0, 3050, 3060, "n", False), BlockSpan(0, 4000, 4010, "c", True)]
    shown = window(found, 100.0)
    assert [(s.task, s.begin) for s in shown] == [("c", 10.0), ("n", 60.0)]
    with pytest.raises(NotMeasured):
        window([], 1.0)


def test_a_kernel_without_a_head_is_our_bug() -> None:
    with pytest.raises(CompilerBug):
        Instrumentation("", "int x", ";").of("void f() {}")
