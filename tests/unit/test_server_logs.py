"""The server's log stays small: repeated lines are left out, and counted."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from tilewright.server.run import RepeatFilter, deduplicated_log


def record(line: int, number: int) -> logging.LogRecord:
    """As one line of code makes it."""
    return logging.LogRecord("x", logging.WARNING, "x.py", line, "bad %d", (number,), None)


def test_repeated_lines_are_left_out() -> None:
    sparing = RepeatFilter(rate=0, burst=3)
    kept = [number for number in range(1000) if sparing.filter(record(1, number))]
    assert kept == [0, 1, 2]
    assert sparing.filter(record(2, 0)), "another kind has its own number"


def test_lines_that_were_left_out_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    sparing = RepeatFilter(rate=1, burst=1)
    told = []
    for number in range(9):
        now = 1.0 if number >= 7 else 0.0
        each = record(1, number)
        if sparing.filter(each):
            told.append(each.getMessage())
    assert told == ["bad 0", "bad 7 (6 lines like this were left out)"]


def test_answers_that_the_end_of_the_server_cuts_off_are_no_errors() -> None:
    cut, broken = record(1, 0), record(1, 1)
    cut.exc_info = (asyncio.CancelledError, asyncio.CancelledError("the end"), None)
    broken.exc_info = (ValueError, ValueError("a bug"), None)
    assert [RepeatFilter().filter(each) for each in (cut, broken)] == [False, True]


def test_a_log_of_the_programs_own_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    own = [logging.NullHandler()]
    monkeypatch.setattr(root, "handlers", own)
    with deduplicated_log():
        assert root.handlers == own
    monkeypatch.setattr(root, "handlers", [])
    with deduplicated_log():
        (handler,) = root.handlers
        assert [type(f) for f in handler.filters] == [RepeatFilter]
    assert root.handlers == []
