"""`tilewright reports preview`: exactly what is sent, and nothing that no message has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cli_call import Called
from tuning_site import bundle

from tilewright.tuning.messages import Hello, Report, Result, decode_from_client, encode
from tilewright.tuning.preview import FIELDS

KINDS = {"hello": Hello, "result": Result, "report": Report}


@pytest.mark.parametrize("name", KINDS)
def test_every_field_is_explained_and_none_is_made_up(name: str) -> None:
    assert tuple(FIELDS[name]) == KINDS[name].__struct_fields__


Capsys = pytest.CaptureFixture[str]


def shown(capsys: Capsys, *arguments: object) -> Any:
    called = Called(capsys, "reports", "preview", *arguments, "--json")
    assert called.code == 0, called.err
    return called.json


def test_what_it_shows_is_what_the_server_takes(capsys: Capsys) -> None:
    for data in (shown(capsys), shown(capsys, "--bundle", bundle())):
        kinds = [message["type"] for message in data["messages"]]
        assert kinds == ["hello", "result", "report"]
        for message in data["messages"]:
            kind = KINDS[message["type"]]
            record = msgspec.convert(message, kind)
            assert decode_from_client(encode(record)) == record
        assert data["invented"] == ["ratio"]


def test_the_reports_of_a_real_run(tmp_path: Path, capsys: Capsys) -> None:
    def kernel(spec: int, candidate: int, gain: float) -> dict[str, Any]:
        current = {"candidate": candidate, "schedule": "x0=6", "milliseconds": 1.0}
        return {"spec": spec, "kind": "contract", "current": current, "gain": gain, "tried": 9}

    run = {"kernels": [kernel(2, 5, 1.3), kernel(0, 0, 1.0)], "rounds": 20}
    for text in (run, {"summary": run}):
        (tmp_path / "run.json").write_text(json.dumps(text))
        given = ("--bundle", bundle(), "--summary", tmp_path / "run.json")
        data = shown(capsys, *given, "--device", "wasm-x86-relaxed-48k")
        one, two = [m for m in data["messages"] if m["type"] == "report"]
        assert (one["spec"], one["top"]) == (2, [{"candidate": 5, "ratio": 1.3}])
        assert (two["spec"], two["top"]) == (0, [])
        assert data["invented"] == []
        assert {entry["device"] for entry in data["stored"]} == {"wasm-x86-relaxed-48k"}


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"kernels": [{"spec": 99}]}'])
def test_a_summary_that_is_none(tmp_path: Path, text: str, capsys: Capsys) -> None:
    (tmp_path / "run.json").write_text(text)
    given = ("--bundle", bundle(), "--summary", tmp_path / "run.json")
    called = Called(capsys, "reports", "preview", *given, "--json")
    assert called.code == 5
    assert called.json["error"]["code"] == "input"


def test_people_can_read_it(capsys: Capsys) -> None:
    called = Called(capsys, "reports", "preview")
    assert called.code == 0
    for words in ("nonce", "128 random bits", "Never sent", "user agent"):
        assert words in called.out
