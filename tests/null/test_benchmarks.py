"""Every benchmark can be started: what it imports from others is there.  One needs no browser, and
is run."""

from __future__ import annotations

import json
from importlib import import_module
from types import SimpleNamespace

import pytest
from test_layers import PACKAGE

FOLDER = PACKAGE.parent / "benchmarks"


@pytest.mark.usefixtures("benchmarks")
@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.py")))
def test_a_benchmark_can_be_imported(name: str) -> None:
    try:
        import_module(name)
    except ModuleNotFoundError as error:
        if (FOLDER / f"{error.name}.py").exists() or str(error.name).startswith("tilewright"):
            raise
        pytest.skip(f"{error.name} is not installed")


@pytest.mark.usefixtures("benchmarks")
def test_stored_records_have_a_row_a_line() -> None:
    """As the benchmarks write them, so that a change of one row is a change of one line."""
    records = import_module("benchmarks.records")
    for path in sorted((FOLDER / "results").glob("*.json")):
        found = json.loads(path.read_text())
        if isinstance(found, dict):  # the others are lists of the laboratory's
            assert path.read_text() == records.text(found), path.name


@pytest.mark.usefixtures("benchmarks")
@pytest.mark.parametrize("learning", [False, True])
def test_sessions_on_a_sweep(learning: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last of twenty candidates is the fastest: nothing tells it before it is tried."""
    forecast = import_module("forecast")
    monkeypatch.setattr(forecast, "LOOKS", (2, 20))
    count = 21
    space = SimpleNamespace(
        marks=["lite"] * count,
        order=tuple(range(1, count)),
        schedules=[f"map x0={n}" for n in range(count)],
    )
    rows = [{"time_share": 0.8, "times": [4] * (count - 1) + [1]}]
    row = forecast.row_of(forecast.Swept("host", "model", "device", rows, [space]), learning)
    assert row["share"] == [0.4, 1]
    assert row["poor"] == [[0.25], [1]]
