"""Options that all tests share, and no deadlines: a machine with much to do makes nothing wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

#: Pages that are watched, and kernels that are timed, want the machine for themselves.
ALONE = Path(__file__).with_name("browser")

settings.register_profile(
    "patient", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("patient")


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
