"""Findings decide: intervals, documents, and what is refused.

Nothing is timed: rounds come from made-up clocks.
"""

from __future__ import annotations

import json
from itertools import accumulate
from math import comb
from pathlib import Path

import pytest
from cli_call import LabCalled
from primitives_factory import FASTER, SLOWER, UNSURE, device

from lab.primitives import command, findings
from lab.primitives.findings import Finding, Findings
from lab.primitives.table import FINDINGS, MATMUL, MEASURED, NAMED, fixed_by
from tilewright.base.errors import UsageError
from tilewright.targets import wasm
from tilewright.targets.wasm.choices import CHOICES, DECIDED


@pytest.mark.parametrize(
    ("found", "verdict", "tuned", "by"),
    [
        ([FASTER, FASTER], "consistent", True, "01"),
        ([SLOWER, SLOWER], "consistent", False, "01"),
        ([FASTER, UNSURE], "unconfirmed", None, "0"),
        ([FASTER], "unconfirmed", None, "0"),
        ([UNSURE, SLOWER, SLOWER], "consistent", False, "12"),
        ([FASTER, SLOWER], "device-dependent", None, "01"),
        ([FASTER, SLOWER, UNSURE], "device-dependent", None, "01"),
        ([UNSURE, UNSURE], "no effect", None, ""),
        ([Finding(1.005, 1.004, 1.006, 9)], "no effect", None, ""),
        ([], "no effect", None, ""),
    ],
)
def test_decide(found: list[Finding], verdict: str, tuned: bool | None, by: str) -> None:
    devices = [device("firefox", str(n), unroll=f) for n, f in enumerate(found)]
    decision = findings.decide("unroll", devices)
    assert (decision.verdict, decision.tuned) == (verdict, tuned)
    assert decision.by == tuple(("firefox", n) for n in by)


def test_only_browsers_decide() -> None:
    """wasmtime confirms nothing, contradicts nothing, and is still in the file."""
    one, two = device("chromium", unroll=FASTER), device("firefox", unroll=FASTER)
    for other in (FASTER, SLOWER):
        engine = device("wasmtime", unroll=other)
        assert findings.decide("unroll", [one, engine]).verdict == "unconfirmed"
        assert findings.decide("unroll", [one, two, engine]).verdict == "consistent"
        assert findings.decide("unroll", [engine]) == findings.Decision("no effect", None)
        assert findings.merged([Findings((8, 8, 8), (engine,))]).devices == (engine,)


@pytest.mark.parametrize("n", range(1, 41))
def test_interval_holds_the_median(n: int) -> None:
    """The interval's order statistics miss the median with 5 % at most, by the binomial itself."""
    found = findings.median_interval([float(i) for i in range(n, 0, -1)])
    at = round(found.low) - 1
    assert (found.high, found.ratio, found.n) == (n - at, (n + 1) / 2, n)
    below = [0, *accumulate(comb(n, i) / 2**n for i in range(n + 1))]
    assert n < 6 or 2 * below[at + 1] <= 0.05
    assert 2 * below[at + 2] > 0.05, "no narrower interval would do"


def test_documents_survive_files_and_join(tmp_path: Path) -> None:
    first = Findings((8, 8, 8), (device("x", unroll=FASTER), device("y", unroll=UNSURE)))
    (tmp_path / "a.json").write_bytes(findings.encoded(first))
    assert findings.read(tmp_path / "a.json") == first
    newer = Findings((8, 8, 8), (device("y", unroll=SLOWER), device("y", "b", unroll=SLOWER)))
    joined = findings.merged([first, newer])
    assert [d.key for d in joined.devices] == [("x", "a"), ("y", "a"), ("y", "b")]
    assert findings.decisions(joined.devices)["unroll"].verdict == "device-dependent"
    assert joined.devices[1].rho == (0,)
    with pytest.raises(UsageError, match="different products"):
        findings.merged([first, Findings((4, 4, 4), ())])


GOOD = json.dumps(findings.to_json(Findings((8, 8, 8), (device("x", unroll=FASTER),))))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        GOOD[:-1],
        GOOD.replace('"format": 2', '"format": 1'),
        GOOD.replace('"browser": true', '"browser": 1'),
        GOOD.replace('"browser": true, ', ""),
        GOOD.replace("1.4", "1.7"),
        GOOD.replace("1.6", "Infinity"),
        GOOD.replace("1.6", "NaN"),
        GOOD.replace('"host": "x", ', ""),
        GOOD.replace("[8, 8, 8]", "[8, 8]"),
    ],
)
def test_files_of_others_are_refused(text: str, tmp_path: Path) -> None:
    assert text != GOOD
    path = tmp_path / "found.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="no findings") as raised:
        findings.read(path)
    assert raised.value.facts["path"] == str(path)


# ---- the command ---------------------------------------------------------------------------------


def test_findings_of_others_are_joined(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours, theirs = tmp_path / "ours.json", tmp_path / "theirs.json"
    ours.write_bytes(findings.encoded(Findings(MATMUL, (device("x", unroll=FASTER),))))
    theirs.write_bytes(findings.encoded(Findings(MATMUL, (device("y", unroll=SLOWER),))))
    called = LabCalled(capsys, "primitives", "--add", theirs, "-o", ours, "--json")
    assert called.code == 0
    assert called.json["decisions"]["unroll"]["verdict"] == "device-dependent"
    assert [d.host for d in findings.read(ours).devices] == ["x", "y"]
    assert "device-dependent" in LabCalled(capsys, "primitives", "--add", ours).out


@pytest.mark.parametrize("host", ["reference", "netscape"])
def test_hosts_that_cannot_time_are_refused(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    called = LabCalled(capsys, "primitives", "--host", host, "--json")
    assert called.code != 0
    assert called.json["error"]["hint"]


def test_rounds_swap_sides_and_end_early_where_settings_lie_far_apart() -> None:
    asked: list[bool] = []

    def run(tuned: bool) -> float:
        asked.append(tuned)
        return 1.0 if tuned else 2.0

    found = command.comparison(run)
    assert found == Finding(2.0, 2.0, 2.0, command.FEW_ROUNDS)
    assert asked[:4] == [False, True, True, False]
    assert command.comparison(lambda tuned: 1.0).n == command.ROUNDS
    with pytest.raises(UsageError, match="clock"):
        command.comparison(lambda tuned: 0.0)


@pytest.mark.parametrize(
    ("times", "passes"),
    [([9.0] * 99, 6), ([9.0] * 5 + [5.0] + [4.9] * 99, 7), ([2.0**-n for n in range(99)], 16)],
)
def test_warm_up_ends_when_nothing_becomes_faster(times: list[float], passes: int) -> None:
    left = iter(times)
    command.warm_up([lambda: next(left)])
    assert len(list(left)) == len(times) - passes


def test_a_way_per_kind_of_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal passes, features and columns share a bundle; equal schedules a plan."""
    monkeypatch.setattr(command, "MATMUL", (16, 16, 16))
    paths, places = command.bundles(tmp_path)
    assert len(paths) == 3 + len(wasm.PASSES)
    assert set(places) == {(p.name, tuned) for p in MEASURED for tuned in (False, True)}
    assert places["unroll", True] == places["fma", True] != places["unroll", False]
    assert places["unroll", False].bundle == places["fma", True].bundle
    assert places["fma", False].bundle != places["fma", True].bundle


@pytest.mark.parametrize("output", ["missing/found.json", "."])
def test_a_bad_output_is_found_before_anything_is_measured(
    output: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(*_: object) -> None:
        raise AssertionError("it was measured")

    monkeypatch.setattr(command, "measure", measure)
    called = LabCalled(capsys, "primitives", "--host", "wasmtime", "-o", output, "--json")
    assert (called.code, called.json["error"]["code"]) == (2, "usage")
    assert called.json["error"]["hint"] in ("Make it, or correct the path", "Name a file in it")


# ---- the data ------------------------------------------------------------------------------------


def test_the_data_file_is_as_measured() -> None:
    """Decisions follow from the devices, names are those of the table."""
    data = json.loads(FINDINGS.read_text())
    document = findings.read(FINDINGS)
    assert data == json.loads(json.dumps(findings.to_json(document)))
    assert document.matmul == MATMUL
    assert set(data["decisions"]) == ({p.name for p in MEASURED} if document.devices else set())


def test_the_product_has_what_was_found() -> None:
    assert fixed_by(findings.decisions(findings.read(FINDINGS).devices)) == DECIDED
    # `choices` goes through them in this order
    assert [name for name in CHOICES if name in DECIDED] == list(DECIDED)


def test_only_choices_are_fixed() -> None:
    assert {NAMED[name].kind for name in CHOICES} == {"switch", "range"}
    assert set(CHOICES) == {
        p.name for p in MEASURED if p.has is not None and p.kind in ("switch", "range")
    }


@pytest.mark.parametrize("verdict", ["device-dependent", "unconfirmed", "no effect"])
def test_what_is_not_sure_everywhere_is_left_to_devices(verdict: findings.Verdict) -> None:
    found = fixed_by({"reorder": findings.Decision(verdict, None)})
    assert found == ({} if verdict == "no effect" else {"reorder": None})
