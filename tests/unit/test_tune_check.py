"""The check of what a crowd chose (web/tune/check.js), with an engine that is made up.

In real browsers: tests/browser/test_crowd.py.
"""

from __future__ import annotations

from typing import Any

import pytest
from node import run
from tuned_page import PAGE

RELINKED = "https://a.example/tuned/wasm-x86/firefox/m/"
CHECK = """
const { check } = await import('TUNE/check.js');
const checked = (options) => check(engine, { source, onEvent: (event) => events.push(event), report: true, ...options });
"""  # noqa: E501


def page(script: str, **given: Any) -> Any:
    usual = {"candidates": [0, 3, 4], "default": 5, "url": RELINKED}
    return run(PAGE + CHECK + script, given=usual | given)


def test_a_slow_default_goes_and_nothing_else_is_tried() -> None:
    found = page("await checked(); await out({ told: source.log.told });")
    assert (found["inUse"], found["winner"]) == (0, 0)
    assert found["verdicts"] == ["faster"]
    assert "swap" in found["events"]
    (hello,) = found["hellos"]
    assert (hello["check"], hello["device"]) == (True, "wasm-x86")
    assert "end" in found["events"]
    assert "latency" not in found["events"]
    # the compiler's own is half as fast again: the server takes it as a refutation
    (report,) = found["told"]
    assert report["top"] == [{"candidate": 0, "ratio": 1.5}]


def test_without_leave_nothing_is_reported() -> None:
    found = page("await checked({ report: false }); await out();")
    assert (found["verdicts"], found["reports"]) == (["faster"], [])


def test_a_wrong_default_goes_and_that_is_reported() -> None:
    script = "await checked(); await out({ told: source.log.told });"
    found = page(script, refuted="its tile 3 is wrong")
    assert found["log"] == [[0]]
    (report,) = found["told"]
    assert report["top"] == [{"candidate": 0, "ratio": 20}]


def test_a_build_is_checked_once() -> None:
    script = """
    await checked();
    const second = await checked();
    engine.info.digest = 'another';
    await checked();
    await out({ second });
    """
    found = page(script, outcome={"verdict": "slower", "ratio": 0.5, "module": None})
    assert (found["second"], len(found["hellos"])) == (None, 2)
    assert found["verdicts"] == ["slower"] * 2
    assert found["inUse"] == 0


def test_a_cancelled_check_is_made_again() -> None:
    script = """
    const stop = new AbortController();
    acts.attempt = () => stop.abort();
    await checked({ signal: stop.signal });
    acts.attempt = undefined;
    await checked();
    await out();
    """
    found = page(script)
    assert len(found["hellos"]) == 2
    assert found["verdicts"] == ["faster"]


def test_a_bundle_as_built_is_not_checked() -> None:
    script = "const nothing = await checked(); await out({ nothing });"
    found = page(script, url="https://a.example/bundles/m/bundle.json")
    assert (found["nothing"], found["hellos"]) == (None, [])


def test_the_page_runs_first() -> None:
    script = """
    const begun = checked();
    await sleep(20);
    const before = source.log.hellos.length;
    engine.onjob(1);
    engine.onjob(1, 0, 5);
    engine.onjob(0);
    await begun;
    await out({ before });
    """
    assert page(script)["before"] == 0


@pytest.mark.parametrize(
    ("outcome", "ratio"),
    [
        ({"verdict": "slower", "ratio": 0.5, "module": None}, 2),
        ({"verdict": "wrong", "ratio": None, "module": None}, 20),
    ],
)
def test_a_question_of_the_crowd_is_answered(outcome: Any, ratio: float) -> None:
    """Also by who found the candidate slow, or wrong; who tried it before votes without."""
    script = """
    await session({ report: true });
    const [first] = source.log.told;
    source.log.told = [];
    await session({ report: true });
    await out({ first, later: source.log.told });
    """
    given = {"candidates": [3], "default": 0, "gold": {"a": 0, "b": 3}, "outcome": outcome}
    found = page(script, **given)
    assert found["first"]["gold"] == {"a": 0, "b": 3, "ratio": ratio}
    assert found["later"] == []
