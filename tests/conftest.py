"""Options of all tests, how they share a machine, and no deadlines: slow is not wrong."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

settings.register_profile(
    "patient", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("patient")

#: Folders with tests that drive browsers, and those browsers, as parameters name them.
PAGES = ("tests/browser", "tests/conformance")
BROWSERS = ("chromium-webgpu", "chromium", "firefox", "dawn")
#: Two hosts of the same WebGPU, the faster first: scripts/test gives Dawn a fast adapter if it can.
#: With Chromium's adapter Dawn is slower, since it keeps no pipelines.
WEBGPU = ("dawn", "chromium-webgpu")[:: 1 if "TILEWRIGHT_NODE" in os.environ else -1]
#: Pairs that take the same code, and of how many cases the second takes one.
BY_TURNS = ((("chromium", "firefox"), 2), (WEBGPU, 5))
#: Tests of which some rest on times that a machine measures or keeps.  Where others use the machine
#: as well, one in ten thousand of them fails: each of these may fail once, and the run names it.
TIMED = ("tests/browser/", "tests/null/test_cli_", "tests/null/test_server_")


@pytest.fixture(scope="session", autouse=True)
def _nobodys_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Neither the person's database nor what their servers keep takes part."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("TILEWRIGHT_STORE", "TILEWRIGHT_SOURCE_KEY"):
            patch.delenv(name, raising=False)
        patch.setenv("TILEWRIGHT_CACHE", str(tmp_path_factory.mktemp("cache") / "relinked"))
        yield


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How tests failed that ran once more."""
    for report in terminalreporter.getreports("rerun"):
        terminalreporter.section(f"failed at first: {report.nodeid}")
        terminalreporter.line(report.longreprtext)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bless", action="store_true", help="write golden files anew, then fail")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of the cases marked `by_turns` in a file, each is by day for one host of a pair."""
    for item in items:
        if item.nodeid.startswith(TIMED):
            item.add_marker(pytest.mark.flaky(reruns=1))
    for pair, turns in BY_TURNS:
        cases: dict[str, dict[str, dict[str, pytest.Item]]] = {}
        for item in items:
            host = _one_of(pair, item)
            if host and item.get_closest_marker("by_turns"):
                file, _, case = item.nodeid.partition("::")
                same = case.replace(f"-{host}", "").replace(f"{host}-", "").replace(host, "")
                cases.setdefault(file, {}).setdefault(same, {})[host] = item
        for of_file in cases.values():
            both = (case for case in of_file.values() if len(case) == len(pair))
            for number, case in enumerate(both):
                rests = pair[0] if number % turns == 1 else pair[1]
                case[rests].add_marker(pytest.mark.nightly)


def _one_of(pair: tuple[str, str], item: pytest.Item) -> str | None:
    """Which host of the pair a case drives, unless its test wants each."""
    if item.get_closest_marker("each_browser") or not hasattr(item, "callspec"):
        return None
    # Other parameters may be arrays, which have no single answer to ==.
    named = {value for value in item.callspec.params.values() if isinstance(value, str)}
    return next((host for host in pair if host in named), None)


class Shared(LoadFileScheduling):
    """`pytest -n`: one worker takes a file's tests, or half a folder's that drive one browser.

    So browsers start rarely.  These are the longest parts and start first, the files after them in
    their order.  Parts of a sweep, with ids `part0`, `part1`, …, go by themselves.
    """

    def _split_scope(self, nodeid: str) -> str:
        file, _, test = nodeid.partition("::")
        parameters = f"-{test.partition('[')[2].rstrip(']')}-"
        folder = str(PurePosixPath(file).parent)
        browser = next((name for name in BROWSERS if f"-{name}-" in parameters), None)
        if browser and folder in PAGES:
            return f"{folder} {browser} {crc32(file.encode()) % 2}"
        return nodeid if "-part" in parameters else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Shared:
    config.option.loadscopereorder = False  # else files with many tests would come first
    return Shared(config, log)
