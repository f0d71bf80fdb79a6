"""Compile workers that give up soon what hangs, and nothing else, however busy the machine is.

Input: which calls hang.  Output: workers as the server has them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.server.workers import Workers

LONG, SHORT = 300.0, 1.0


class Hasty(Workers):
    """hangs: says it of a function and what it is called with."""

    def __init__(self, *given: Any, hangs: Callable[..., bool]) -> None:
        super().__init__(*given)
        self._hangs = hangs

    async def _call(self, worker: Any, function: Any, *given: Any) -> Any:
        self._seconds = SHORT if self._hangs(function, *given) else LONG
        return await super()._call(worker, function, *given)
