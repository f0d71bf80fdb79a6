"""Python's side of page.mjs: one Node process that holds one browser for the whole session.

Input: names of scenarios with parameters.  Output: the JSON that they print.  Every call ends: the
scenarios have time limits of their own.
"""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from tilewright.hosts.browser_discovery import Browser

#: Opens a page, of a width if one is given.
Visit = Callable[..., "Page"]

SCRIPT = Path(__file__).with_name("page.mjs")
EXIT_SECONDS = 300.0
WIDE = 1280


class Driver:
    """A browser under puppeteer; every page has a profile of its own."""

    def __init__(self, browser: Browser) -> None:
        self._numbers = itertools.count(1)
        self._node = subprocess.Popen(
            ["node", str(SCRIPT), browser.name, str(browser.path), *browser.flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Driver:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        # Node ends its browser when there is nothing more to read.
        assert self._node.stdin is not None
        self._node.stdin.close()
        try:
            self._node.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._node.kill()

    def call(self, scenario: str, **params: Any) -> Any:
        assert self._node.stdin is not None
        assert self._node.stdout is not None
        self._node.stdin.write(json.dumps({"scenario": scenario, "params": params}) + "\n")
        self._node.stdin.flush()
        line = self._node.stdout.readline()
        assert line, f"page.mjs ended with exit code {self._node.wait(EXIT_SECONDS)}"
        answer = json.loads(line)
        assert "error" not in answer, f"{scenario}: {answer['error']}"
        return answer["result"]

    def open(self, url: str, width: int = WIDE) -> Page:
        page = Page(self, next(self._numbers))
        page.do("open", url=url, width=width)
        return page


@contextmanager
def closing(driver: Driver) -> Iterator[Visit]:
    """Opens pages and closes them at the end."""
    with ExitStack() as stack:

        def opened(url: str, width: int = WIDE) -> Page:
            page = driver.open(url, width)
            stack.callback(page.do, "close")
            return page

        yield opened


@dataclass(frozen=True)
class Page:
    """One tab."""

    driver: Driver
    key: int

    def do(self, scenario: str, **params: Any) -> Any:
        return self.driver.call(scenario, key=self.key, **params)

    def wait(self, *states: str) -> dict[str, Any]:
        """What the demo page's status panel says, once it is in one of these states."""
        status: dict[str, Any] = self.do("status", states=states)
        return status

    def ask(self, query: str) -> list[dict[str, Any]]:
        """The ranking of a query: text and score."""
        ranking: list[dict[str, Any]] = self.do("ask", query=query)
        return ranking
