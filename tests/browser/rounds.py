"""Sessions of `tilewright tune` that end after rounds, however long these take."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.hosts.browser import BrowserModel

tune = BrowserModel.tune


def only_rounds(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Instead of the seconds that the command was given."""

    def by_rounds(self: BrowserModel, options: Any, on_event: Any) -> Any:
        return tune(self, options | {"seconds": 1e6, "rounds": most}, on_event)

    monkeypatch.setattr(BrowserModel, "tune", by_rounds)
