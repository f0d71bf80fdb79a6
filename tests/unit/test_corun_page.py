"""Results of co-running on their way to the page: the server's files, and what the page reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_call import Called
from helpers.corun_results import RECORD, ROW, ROWS, of_command
from node import run
from starlette.testclient import TestClient

from tilewright.base.errors import UsageError
from tilewright.elastic.timeline import BlockSpan, trace
from tilewright.server import create_app

READ = """
const { best, pointsOf, read } = await import('TUNE/../page/corun_results.js');
const outcome = (text) => {
  try {
    const { runs, refused, spans } = read('a.json', text);
    const points = pointsOf(runs);
    const line = best(points, 'p99').map(({ p99, normal_share }) => [p99, normal_share]);
    return { runs: runs.length, refused, spans, points, line };
  } catch (error) {
    return error.message;
  }
};
console.log(JSON.stringify(<texts>.map(outcome)));
"""


def read(*texts: str) -> list[Any]:
    found: list[Any] = run(READ, texts=texts)
    return found


def test_points_are_medians_of_the_same_setting_and_bound() -> None:
    (found,) = read(json.dumps(RECORD))
    assert (found["runs"], found["refused"], found["spans"]) == (9, 1, [])
    first, *rest = found["points"]
    assert (first["normal_share"], first["n"], first["runs"]) == (0.9, 3000, 3)
    assert [point["runs"] for point in rest] == [1] * 6
    (line,) = read(json.dumps({"rows": [r for r in ROWS if r["pair"] == "MDTB-A" and r["sms"] == 8
                                        and r["policy"] == "tilewright"]}))  # fmt: skip
    # the bound of 1.6 is slower than that of 1.4 and leaves less
    assert line["line"] == [[1.04, 0.9], [1.35, 0.97]]


def test_runs_of_the_command_one_on_each_line() -> None:
    refused = {"error": {"code": "admission-refused", "message": "no", "hint": "", "facts": {}}}
    lines = "\n".join(map(json.dumps, [of_command(), refused, of_command(slowdown=1.1)])) + "\n"
    (found,) = read(lines)
    assert (found["runs"], found["refused"]) == (2, 1)
    (point,) = found["points"]
    # the bound counts from the begin; the page's other figures have waiting in them
    assert (point["p99"], point["service_p99"]) == (2.0, pytest.approx(1.15))
    assert point["normal_share"] == pytest.approx(0.6 / (1 - 50 * 1e-4), abs=1e-3)
    assert (point["pair"], point["sms"], point["n"]) == ("mine + other", 16, 100)


def test_several_critical_models_are_a_run_of_each() -> None:
    (found,) = read(json.dumps(of_command(models=("first", "second"))))
    assert [point["pair"] for point in found["points"]] == [
        "mine + other: first.onnx", "mine + other: second.onnx",
    ]  # fmt: skip
    one, other = ({**point, "pair": ""} for point in found["points"])
    assert (one["n"], one["service_p99"], one["max_slowdown"]) == (50, 1.2, 1.25)
    assert {**one, "model": ""} == {**other, "model": ""}


def test_older_output_without_a_pair_has_the_files_name() -> None:
    run_ = of_command()
    del run_["pair"], run_["sms"]
    (found,) = read(json.dumps(run_))
    assert (found["points"][0]["pair"], found["points"][0]["sms"]) == ("a.json", None)


def test_a_trace() -> None:
    spans = [BlockSpan(0, 0.0, 10.0, "normal 0", False), BlockSpan(1, 4.0, 5.5, "critical", True)]
    (found,) = read(trace(spans))
    assert found["spans"] == [
        {"sm": 0, "lane": 0, "begin": 0, "long": 10, "task": "normal 0", "critical": False},
        {"sm": 1, "lane": 0, "begin": 4, "long": 1.5, "task": "critical", "critical": True},
    ]


def test_other_files_are_refused_by_name() -> None:
    no_share = {key: value for key, value in ROW.items() if key != "normal_share"}
    texts = ["no json", "{}", "null", "3", json.dumps({"rows": [no_share]}), '{"rows": [null]}']
    found = read(*texts)
    assert found[0].startswith("a.json is not JSON")
    assert found[1:] == ["a.json has no results of co-running"] * 5


def test_the_server_lists_and_sends_them(tmp_path: Path) -> None:
    first, second = tmp_path / "corun.json", tmp_path / "runs.json"
    first.write_text(json.dumps(RECORD))
    second.write_text(json.dumps(of_command()) + "\n" + json.dumps(of_command()) + "\n")
    client = TestClient(create_app({}, corun=[first, second]), base_url="http://localhost")
    listed = client.get("/api/corun").json()
    assert listed == [
        {"name": "corun.json", "url": "/api/corun/0"}, {"name": "runs.json", "url": "/api/corun/1"},
    ]  # fmt: skip
    assert client.get("/api/corun/0").json() == RECORD
    assert client.get("/api/corun/1").text == second.read_text()
    # a benchmark goes on writing
    second.write_text(json.dumps(of_command(slowdown=1.3)))
    assert client.get("/api/corun/1").text == second.read_text()
    second.unlink()
    assert client.get("/api/corun/1").status_code == client.get("/api/corun/2").status_code == 404
    assert client.get("/corun").status_code == 200


def test_without_results_the_list_is_empty() -> None:
    client = TestClient(create_app({}), base_url="http://localhost")
    assert client.get("/api/corun").json() == []


@pytest.mark.parametrize("text", ["", "no json", "{}", "[]", "3", '{"rows": []}\n{"a": 1}\n'])
def test_a_file_that_has_none_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"other\.json"):
        create_app({}, corun=[path])
    called = Called(capsys, "serve", "--corun", path, "--json")
    assert (called.code, called.json["error"]["facts"]) == (2, {"path": str(path)})


def test_a_file_that_is_nested_too_deep_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    path.write_text("[" * 100_000)
    with pytest.raises(UsageError, match="cannot be read"):
        create_app({}, corun=[path])


def test_a_file_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        create_app({}, corun=[tmp_path / "none.json"])
