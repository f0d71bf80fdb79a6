"""What the pages of results share: cells, tables, the first lines of a page, and writing them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer

from benchmarks import records
from benchmarks.report import __main__ as report
from benchmarks.report import tables
from benchmarks.report.page import Page, Section, one, over

RECORD: dict[str, Any] = {
    "date": "today", "commit": "c", "machine": {"cpu": "A CPU", "cores": 2, "system": "Linux"},
    "rows": [
        {"case": "a", "host": "x", "ms": 0.5, "share": 0.931, "busy": {"p50": 3.25}},
        {"case": "a", "host": "y", "ms": 2.0, "share": None},
        {"case": "b", "host": "y", "ms": 1234.5},
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("column", "cell"),
    [("ms", "0.5"), ("ms*1000:,.1f", "500.0"), ("share:.0%", "93 %"), ("ms:.2f×", "0.50×"),
     ("busy.p50", "3.25"), ("busy.p99", "–"), ("none.at.all", "–"), (lambda r: r["case"], "a")],
)  # fmt: skip
def test_cells(column: tables.Column, cell: str) -> None:
    assert tables.shown(RECORD["rows"][0], column) == cell


def test_a_number_has_no_exponent() -> None:
    assert [tables.told(v, ".3g") for v in (0.0081, 9.84, 65000.0)] == ["0.0081", "9.84", "65,000"]


def test_columns_that_say_nothing_are_left_out_and_numbers_stand_right() -> None:
    columns: tables.Columns = {"case": "case", "ms": "ms:.1f", "%": "share:.0%", "none": "none"}
    made = tables.listed(RECORD["rows"], columns, ["mean", "2.0", "", ""])
    head, rule, first, second, *_, mean = made.splitlines()
    assert head == "| case | ms | % |"
    assert rule == "| --- | ---: | ---: |"
    assert (first, second) == ("| a | 0.5 | 93 % |", "| a | 2.0 | – |")
    assert mean == "| mean | 2.0 |  |"


def test_few_rows_of_many_columns_are_turned() -> None:
    columns: tables.Columns = {f"c{n}": "ms:.1f" for n in range(9)}
    made = tables.listed(RECORD["rows"][:2], {"case": "host", **columns, "none": "none"})
    head, rule, *lines = made.splitlines()
    assert (head, rule) == ("| case | x | y |", "| --- | ---: | ---: |")
    assert lines == [f"| c{n} | 0.5 | 2.0 |" for n in range(9)]


def test_lines_of_a_key_crossed_with_another() -> None:
    made = tables.crossed(RECORD["rows"], "case", "host", "ms:.1f").splitlines()
    assert made[0] == "| case | x | y |"
    assert made[2:] == ["| a | 0.5 | 2.0 |", "| b | – | 1234.5 |"]


def test_rows_and_values_are_chosen_by_what_they_hold() -> None:
    assert records.values(RECORD, "ms", case="a") == [0.5, 2.0]
    assert records.values(RECORD, "share") == [0.931]
    assert records.values(RECORD, "ms", host=("y", "z")) == [2.0, 1234.5]
    assert list(records.by(RECORD["rows"], "case")) == [("a",), ("b",)]


def test_a_page_leads_with_the_answer() -> None:
    def answers(found: records.Records) -> list[Any]:
        record = found["r"]
        return [over("ms", records.values(record, "ms", case="a"), record, ".1f"),
                one("share", "93 %", 60, 0.029, record)]  # fmt: skip

    picture = ("p.svg", "<svg><title>The picture</title></svg>")
    sections = (
        Section("r", "Cases", "What was measured.", {"case": "case"}, lambda r: [picture]),
        Section("", "All", "Of all.", lambda found: ", ".join(found)),
    )
    page = Page("p", "Title", lambda found: "The answer.", answers, sections)
    lines = page.text({"r": RECORD}).splitlines()
    assert lines[:3] == ["# Title", "", "The answer."]
    assert lines[6:8] == [
        "| ms | 1.0 | 2 | 0.5 to 2.0 | A CPU, 2 cores |",
        "| share | 93 % | 60 | 2.9 % between quartiles | A CPU, 2 cores |",
    ]
    made = "Made by `python -m benchmarks r`."
    assert f"today, commit c, A CPU, 2 cores, Linux. {made}" in lines
    assert lines[-5:-1] == ["## All", "", "Of all.", ""]
    assert lines[-1] == "r"
    assert "![The picture](p.svg)" in lines
    assert list(page.pictures({"r": RECORD})) == [picture]


def test_pages_that_nothing_makes_any_more_are_told_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("old.md", "old.svg", "rows.json"):
        (tmp_path / name).write_text("old")
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    monkeypatch.setattr(report, "files", lambda: [(tmp_path / "new.md", "new")])
    with pytest.raises(typer.Exit) as ended:
        report.main(check=True)
    assert ended.value.exit_code == 1
    told = capsys.readouterr().err
    assert all(f"{name} is out of date" in told for name in ("new.md", "old.md", "old.svg"))
    assert {p.name for p in tmp_path.iterdir()} == {"old.md", "old.svg", "rows.json"}
    report.main()
    assert {p.name for p in tmp_path.iterdir()} == {"new.md", "rows.json"}
