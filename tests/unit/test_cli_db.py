"""`tilewright db`: each command on a file and on PostgreSQL, and what goes wrong."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from cli_call import Called
from helpers.reports import report

from tilewright.cli.serve import open_store
from tilewright.store import KernelStore
from tilewright.store.schema import HEAD


def filled(url: str) -> None:
    with KernelStore.open(url) as store:
        for i in range(16):
            store.submit(report({3: 1.5, 4: 1.4}), f"{i}")


def test_upgrade_and_stats(capsys: pytest.CaptureFixture[str], url: str) -> None:
    called = Called(capsys, "db", "upgrade", "--store", url, "--json")
    assert called.json["before"] is None
    assert Called(capsys, "db", "upgrade", "--store", url, "--json").json["before"] == HEAD
    filled(url)
    called = Called(capsys, "db", "stats", "--store", url, "--json")
    assert (called.code, called.json["reports"], called.json["defaults"]) == (0, 16, 1)
    assert "16" in Called(capsys, "db", "stats", "--store", url).out


def test_export_and_import(capsys: pytest.CaptureFixture[str], url: str, tmp_path: Path) -> None:
    filled(url)
    file, other = tmp_path / "export.json", tmp_path / "other.db"
    called = Called(capsys, "db", "export", file, "--store", url, "--json")
    assert (called.code, called.json["reports"]) == (0, 16)
    assert called.json["bytes"] == file.stat().st_size
    for new in (16, 0):
        called = Called(capsys, "db", "import", file, "--store", other, "--json")
        assert (called.code, called.json["new_reports"]) == (0, new)
    again = tmp_path / "again.json"
    assert Called(capsys, "db", "export", again, "--store", other).code == 0
    assert again.read_bytes() == file.read_bytes()
    assert [p.name for p in tmp_path.glob("*.part")] == []


def test_export_to_a_pipe(capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    from tilewright.cli import main

    filled(f"sqlite:///{tmp_path / 'store.db'}")
    with pytest.raises(SystemExit) as ended:
        main(["db", "export", "-", "--store", str(tmp_path / "store.db")])
    assert ended.value.code == 0
    assert len(json.loads(capfdbinary.readouterr().out)["results"]) == 16 * 5


def test_gc(capsys: pytest.CaptureFixture[str], url: str) -> None:
    with KernelStore.open(url, clock=lambda: 86_400.0 * 1000) as store:
        store.submit(report({3: 1.5}), "s")
    given = ("db", "gc", "--days", "1", "--store", url, "--json")
    called = Called(capsys, *given)
    assert (called.code, called.json["error"]["code"]) == (10, "store-clock")
    assert called.json["error"]["facts"]["would_delete"] == 1
    called = Called(capsys, *given, "--force")
    assert called.json == {"sources_forgotten": 0, "reports_forgotten": 1, "keys_forgotten": 1}


def test_the_environment_names_the_store(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path / "store.db"))
    assert Called(capsys, "db", "upgrade").code == 0
    assert (tmp_path / "store.db").exists()


@pytest.mark.parametrize("command", [("stats",), ("gc",), ("export", "x.json")])
def test_a_missing_database_is_not_made(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: tuple[str, ...]
) -> None:
    called = Called(capsys, "db", *command, "--store", tmp_path / "none.db", "--json")
    assert (called.code, called.json["error"]["code"]) == (10, "store-down")
    assert list(tmp_path.iterdir()) == []


def test_what_goes_wrong(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def code(*arguments: object) -> tuple[int | str | None, str]:
        called = Called(capsys, "db", *arguments, "--json")
        return called.code, called.json["error"]["code"]

    assert code() == (2, "usage")
    assert code("stats", "--store", "mysql://x/y") == (2, "usage")
    assert code("import", tmp_path / "none.json", "--store", tmp_path / "a.db") == (2, "usage")
    (tmp_path / "bad.json").write_text("{}")
    assert code("import", tmp_path / "bad.json", "--store", tmp_path / "a.db") == (
        5,
        "invalid-report",
    )
    sqlite3.connect(tmp_path / "empty.db").close()
    (tmp_path / "empty.db").touch()
    assert code("stats", "--store", tmp_path / "empty.db") == (10, "store-version")
    (tmp_path / "text.db").write_text("no database " * 100)
    assert code("stats", "--store", tmp_path / "text.db") == (10, "store-corrupt")


def test_a_database_of_somebody_else_stays_as_it_is(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "mine.db"
    with sqlite3.connect(file) as mine:
        mine.execute("CREATE TABLE notes (text)")
    mine.close()
    before = file.read_bytes()
    for command in ("upgrade", "stats", "gc"):
        called = Called(capsys, "db", command, "--store", file, "--json")
        assert (called.code, called.json["error"]["code"]) == (10, "store-corrupt")
    assert file.read_bytes() == before


def test_serve_and_tune_take_a_file_as_db_does(tmp_path: Path) -> None:
    file = tmp_path / "votes.db"
    for place in (str(file), f"sqlite:///{file}"):
        opener = open_store(place)
        assert opener is not None
        with opener() as store:
            assert store.database.shown == f"sqlite:///{file}"
    assert open_store("") is None
