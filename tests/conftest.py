"""Options that all tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

#: Pages that are watched, and kernels that are timed, want the machine for themselves.
ALONE = Path(__file__).with_name("browser")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bless", action="store_true", help="write golden files anew, then fail")
    parser.addoption(
        "--part",
        choices=["shared", "alone"],
        help="only the tests that may share the machine, or only those that run alone on it",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    part = config.getoption("part")
    if part is None:
        return
    chosen = [item for item in items if (ALONE in item.path.parents) == (part == "alone")]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
    items[:] = chosen
