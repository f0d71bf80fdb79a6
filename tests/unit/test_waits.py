"""No test goes by real time (docs/testing.md): who adds a wait of a fixed time says why here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

#: A wait of a fixed time, or a limit that is written as a number; 600 seconds and more only end
#: what hangs.  Scripts of Node that are written in Python go by the clock of clock.py.
PYTHON = re.compile(
    r"\b(?:time|asyncio)\.sleep\((?!0\)|[6-9]\d\d\)|\d{4,}\))"
    r"|\btimeout=(?![6-9]\d\d\b|\d{4,}\b)\d"
    r"|\.(?:wait|join|communicate)\((?:timeout=)?(?![6-9]\d\d\)|\d{4,}\))\d"
    r"|(?:monotonic|perf_counter|time)\(\) \+ \d"
)
SCRIPT = re.compile(r"setTimeout\(|setInterval\(")

#: By file: how many, and what they are.
ALLOWED = {
    "helpers/waiting.py": (2, "looks again; time for what must not happen"),
    "helpers/postgres.py": (1, "looks again"),
    "browser/serving.py": (1, "looks again"),
    "unit/fake_browser.py": (2, "looks again; another process's pace, which nothing depends on"),
    "unit/test_chat_completions.py": (2, "look again"),
    "unit/test_corun_gates.py": (1, "a stream that is late, for hosts that wait for minutes"),
    "unit/test_cuda_elastic.py": (1, "somewhere in a run on a GPU"),
    "unit/test_driver_threads.py": (1, "looks again"),
    "unit/test_server_browser_host.py": (1, "of a clock of the test's own"),
    "unit/test_server_front.py": (2, "look again"),
    "unit/test_server_nginx.py": (1, "looks again"),
    "unit/test_transform_gpu.py": (1, "somewhere in a run on a GPU"),
    "unit/test_tune_workers.py": (1, "looks again"),
    "browser/dawn_buffers.mjs": (1, "time for what must not happen"),
    "browser/disturbed.mjs": (2, "a page's pace; ends a session that lost a candidate"),
    "browser/engines.mjs": (3, "an abort in a load that takes far longer; look again"),
    "browser/page.mjs": (1, "the limit of all"),
    "browser/recorded/exchange/gain.js": (1, "the pace of a session"),
    "browser/recorded/sources/socket.js": (1, "the pace of a session"),
    "browser/runs.mjs": (2, "a timer that short runs must let come; looks again"),
    "browser/spy.mjs": (2, "looks again; time for what must not happen"),
    "browser/swapping.mjs": (2, "some moment of a swap, each as good as another"),
    "browser/tuning.mjs": (1, "interruptions, of whatever they meet"),
}


def waits(path: Path) -> int:
    kind = PYTHON if path.suffix == ".py" else SCRIPT
    return len(kind.findall(path.read_text()))


def test_no_test_waits_for_a_time() -> None:
    found = {
        path.relative_to(TESTS).as_posix(): count
        for end in ("py", "mjs", "js")
        for path in TESTS.rglob(f"*.{end}")
        if path != Path(__file__) and (count := waits(path))
    }
    assert found == {name: count for name, (count, _) in ALLOWED.items()}


def test_scripts_in_tests_go_by_a_clock_of_their_own() -> None:
    for path in TESTS.rglob("*.py"):
        text = path.read_text()
        if path != Path(__file__) and re.search(r"setTimeout\(|await sleep\(", text):
            assert re.search(r"CLOCK|tuned_page|globalThis\.setTimeout = ", text), path


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("time.sleep(0.5)", 1),
        ("await asyncio.sleep(wait)", 1),
        ("event.wait(5)", 1),
        ("run(command, timeout=60)", 1),
        ("end = time.monotonic() + 30", 1),
        ("time.sleep(3600); event.wait(600); run(timeout=PATIENCE)", 0),
        ("end = time.monotonic() + PATIENCE; await asyncio.sleep(0)", 0),
    ],
)
def test_what_counts(text: str, found: int) -> None:
    assert len(PYTHON.findall(text)) == found
