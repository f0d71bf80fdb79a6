"""Options of all tests, how they share a machine, and no deadlines: slow is not wrong."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

import pytest
from helpers import turns
from helpers.once import shared_root
from helpers.waiting import PATIENCE
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from tilewright.compiler import paused
from tilewright.frontend.shape_inference import PROGRAM, ShapeInference
from tilewright.hosts.browser import BrowserHost

settings.register_profile(
    "patient", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("patient")

#: Folders with tests that drive browsers, and those browsers, as parameters name them.
PAGES = ("tests/browser", "tests/conformance")
BROWSERS = ("chromium-webgpu", "chromium", "firefox", "dawn")


@pytest.fixture(scope="session", autouse=True)
def _nobodys_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Neither the person's database nor what their servers keep takes part; stores wait for
    databases, servers for stores and the compiler, and hosts for pages as long as tests do; kernels
    for the CPU are compiled once for all processes."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("TILEWRIGHT_STORE", "TILEWRIGHT_SOURCE_KEY"):
            patch.delenv(name, raising=False)
        patch.setenv("TILEWRIGHT_CACHE", str(tmp_path_factory.mktemp("cache") / "relinked"))
        patch.setenv("TILEWRIGHT_COMPILED", str(shared_root(tmp_path_factory) / "compiled"))
        for name in (
            "server.async_store.TURN",
            "server.async_store.TIMEOUT",
            "hosts.browser.START_SECONDS",
            "hosts.browser_discovery.VERSION_SECONDS",
            "hosts.browser_dawn.PROBE_SECONDS",
            "hosts.browser_programs.SECONDS",
            "hosts.browser.ABORT_SECONDS",
            "server.session_resources.MAKING",
        ):
            patch.setattr(f"tilewright.{name}", PATIENCE)
        for name in ("LOCK", "CONNECT", "POOL", "STATEMENT"):
            patch.setattr(f"tilewright.store.database.{name}_SECONDS", int(PATIENCE))
        patch.setitem(BrowserHost.__init__.__kwdefaults__, "timeout", PATIENCE)
        patch.setattr(ShapeInference.__init__, "__defaults__", (PROGRAM, PATIENCE))
        yield


#: What this process left out as nightly: by folder, and why.
LEFT = pytest.StashKey[dict[str, dict[str, int]]]()


def pytest_deselected(items: list[pytest.Item]) -> None:
    """By -m alone: with other choices most of these are not what was asked for."""
    config = items[0].config
    if config.option.markexpr and not config.option.keyword:
        config.stash[LEFT] = turns.left_out(items)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """All workers leave the same, and tell it."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left"] = session.config.stash.get(LEFT, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[LEFT] = getattr(node, "workeroutput", {}).get("left", {})


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    """Last, what this run did not take."""
    yield
    if left := terminalreporter.config.stash.get(LEFT, {}):
        terminalreporter.section("left to other turns and to the night")
        for line in turns.told(left):
            terminalreporter.line(line)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bless", action="store_true", help="write golden files anew, then fail")


def pytest_configure() -> None:
    """Workers inherit the turn, so that all collect the same."""
    os.environ.setdefault(turns.VARIABLE, str(turns.TURN))


def pytest_report_header() -> str:
    return f"cases by turns: {turns.VARIABLE}={os.environ[turns.VARIABLE]} takes the same ones"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is collected stays: the collector of cycles need not look at it, now or later."""
    with paused():
        found = yield
    gc.freeze()
    return found


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    turns.choose(items, int(os.environ[turns.VARIABLE]))


class Shared(LoadFileScheduling):
    """`pytest -n`: one worker takes a file's tests, or a folder's that drive one browser.

    So browsers start rarely.  These are the longest parts and start first, the files after them in
    their order.  Parts of a sweep, with ids `part0`, `part1`, …, go by themselves.
    """

    def _split_scope(self, nodeid: str) -> str:
        file, _, test = nodeid.partition("::")
        parameters = f"-{test.partition('[')[2].rstrip(']')}-"
        folder = str(PurePosixPath(file).parent)
        browser = next((name for name in BROWSERS if f"-{name}-" in parameters), None)
        if browser and folder in PAGES:
            return f"{folder} {browser}"
        return nodeid if "-part" in parameters else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Shared:
    config.option.loadscopereorder = False  # else files with many tests would come first
    return Shared(config, log)
