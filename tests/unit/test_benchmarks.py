"""Every benchmark is listed, can be started and says what its options are.  One needs no browser,
and is run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_layers import PACKAGE

from benchmarks import __main__ as runner
from benchmarks import common, records
from benchmarks.catalogue import CATALOGUE
from benchmarks.report.page import benchmark_of
from benchmarks.tuning import forecast

FOLDER = PACKAGE.parent / "benchmarks"


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_benchmark_says_what_its_options_are(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        with pytest.raises(SystemExit) as ended:
            runner.main([name, "--help"])
    except ModuleNotFoundError as error:
        if str(error.name).startswith(("benchmarks", "tilewright", "lab")):
            raise
        pytest.skip(f"{error.name} is not installed")
    told = capsys.readouterr().out
    assert ended.value.code == 0
    assert f"python -m benchmarks {name}" in told.partition("[OPTIONS]")[2]
    assert "--no-write" in told


def test_the_list_has_every_file_that_can_be_run(capsys: pytest.CaptureFixture[str]) -> None:
    runner.main(["--list"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(CATALOGUE)
    files = (path for path in FOLDER.glob("*/*.py") if "run: Run" in path.read_text())
    assert {f"{path.parent.name}.{path.stem}" for path in files} == set(CATALOGUE)


def test_the_page_of_benchmarks_has_a_row_for_each() -> None:
    rows = re.findall(r"^\| `(\w+\.\w+)[ `]", (FOLDER / "README.md").read_text(), re.MULTILINE)
    assert [name for name in rows if not name.endswith(".py")] == list(CATALOGUE)


def test_documents_name_benchmarks_that_there_are() -> None:
    root = FOLDER.parent
    for page in (*root.glob("*.md"), *(root / "docs").rglob("*.md"), *FOLDER.glob("**/README.md")):
        text = page.read_text()
        named = set(re.findall(r"python -m benchmarks (\w+\.\w+)", text))
        assert named <= set(CATALOGUE), page
        files = re.findall(r"\bbenchmarks/[\w/]+\.(?:py|mjs|json|svg)\b", text)
        assert not [name for name in files if not (root / name).exists()], page


def test_result_files_have_the_names_of_their_benchmarks() -> None:
    """`wasm.kernels.json`, and with a part `tuning.sweep.shapes.json`; pictures likewise."""
    for path in (FOLDER / "results").glob("*.[js][sv]*"):
        assert benchmark_of(path.name) in CATALOGUE or path.name.startswith("lab."), path.name


def test_stored_rows_differ_in_their_key() -> None:
    """So a new row replaces one row; and what stores rows one by one has a key."""
    for path in (FOLDER / "results").glob("*.json"):
        known = CATALOGUE.get(benchmark_of(path.stem))
        if known and known.key:
            found = json.loads(path.read_text())["rows"]
            seen = [tuple(row.get(field) for field in known.key.split()) for row in found]
            assert len(set(seen)) == len(seen), path.name
    for name, known in CATALOGUE.items():
        text = (FOLDER / f"{name.replace('.', '/')}.py").read_text()
        assert known.key or "run.keep(" not in text, name


def test_a_row_replaces_the_stored_one_with_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "RESULTS", tmp_path)
    run = common.Run("wasm.passes", commit="a")
    first = {"host": "x", "kernel": "K0", "set": "s", "ms": 1}
    run.save([first, first | {"kernel": "K1"}], facts={"more": 5})
    run.keep(first | {"ms": 2})
    common.Run("wasm.passes", writes=False).keep(first | {"ms": 3})
    assert [(r["kernel"], r["ms"]) for r in common.stored_rows("wasm.passes")] == [
        ("K1", 1),
        ("K0", 2),
    ]
    # a row of a version that did not tell the device goes with the first of its host and kernel
    old = {"host": "x", "kernel": "K"}
    stored = {"date": "", "commit": "", "machine": {"cpu": ""}, "rows": [old]}
    records.write(tmp_path / "tuning.sweep.json", stored)
    for device in ("a", "b", "a"):
        common.Run("tuning.sweep").save([old | {"device": device}])
    assert [r["device"] for r in common.stored_rows("tuning.sweep")] == ["b", "a"]
    whole = common.Run("wasm.kernels", commit="b")
    whole.save([{"ms": 1}, {"ms": 2}], part="p")
    whole.save([{"ms": 3}], part="p", facts={"commit": "c"})
    assert [(r["ms"], r["commit"]) for r in common.stored_rows("wasm.kernels.p")] == [(3, "c")]


def test_an_unknown_name_is_refused_with_one_that_is_near() -> None:
    with pytest.raises(SystemExit, match=r"wasm\.kernels is near"):
        runner.main(["wasm.kernel"])


def test_stored_records_have_a_row_a_line() -> None:
    """As the benchmarks write them, so that a change of one row is a change of one line."""
    for path in sorted((FOLDER / "results").glob("*.json")):
        found = json.loads(path.read_text())
        if isinstance(found, dict):  # the others are lists of the laboratory's
            assert path.read_text() == records.text(found), path.name


@pytest.mark.parametrize("learning", [False, True])
def test_sessions_on_a_sweep(learning: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last of twenty candidates is the fastest: nothing tells it before it is tried."""
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
