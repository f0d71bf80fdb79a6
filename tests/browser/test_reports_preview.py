"""`tilewright reports preview` shows what the page's own tuner sends to a real server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tilewright.cli.reports import preview
from tilewright.cli.tune import tune
from tilewright.hosts.browser_discovery import Browser
from tilewright.server import session
from tilewright.tuning.messages import FIELDS, KEPT, SHARED, FromClient, decode_from_client

from .bundles import Library

#: Seconds.  The bundle's only kernel has few candidates, so a session ends far earlier; they are
#: enough that even a busy machine measures one.
AMPLE = 60


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> list[FromClient]:
    """The messages that the server takes."""
    found: list[FromClient] = []

    def decoded(frame: bytes) -> FromClient:
        found.append(decode_from_client(frame))
        return found[-1]

    monkeypatch.setattr(session, "decode_from_client", decoded)
    return found


def records(messages: list[Any]) -> list[FromClient]:
    """As the server reads them; each has all fields of the tables and no other."""
    for message in messages:
        assert set(message) == {"type", *FIELDS[message["type"]]}
    return [msgspec.convert(message, FromClient) for message in messages]


@pytest.mark.by_turns
def test_what_it_shows_is_what_the_server_received(
    browser: Browser, library: Library, received: list[FromClient]
) -> None:
    found: Any = preview(library.path("linear"), browser.name, AMPLE).data
    messages = found["messages"]
    assert records(messages) == received
    assert {message["type"] for message in messages} == set(FIELDS)
    assert messages[0]["browser"] == browser.name
    assert messages[0]["device"] == found["class"]
    (report,) = (message for message in messages if message["type"] == "report")
    (row,) = found["stored"]
    assert set(row) == set(KEPT)
    assert row["nonce"] == report["nonce"]
    assert row["top"] == [[vote["candidate"], vote["ratio"]] for vote in report["top"]]


@pytest.mark.by_turns
def test_a_page_that_shares_nothing_sends_the_rest(
    browser: Browser, library: Library, received: list[FromClient], tmp_path: Path
) -> None:
    """`tune --report FILE` writes what was sent, too."""
    file = tmp_path / "run.json"
    tune(library.path("linear"), browser.name, AMPLE, report=file)
    written = json.loads(file.read_text())
    assert written["rounds"] > 0
    assert records(written["sent"]) == received
    assert {message["type"] for message in written["sent"]} == set(FIELDS) - set(SHARED)
