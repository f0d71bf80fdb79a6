"""Options of all tests, how they share a machine, and no deadlines: slow is not wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

settings.register_profile(
    "patient", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("patient")


@pytest.fixture(scope="session", autouse=True)
def _nobodys_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Neither the person's database nor what their servers keep takes part."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("TILEWRIGHT_STORE", "TILEWRIGHT_SOURCE_KEY"):
            patch.delenv(name, raising=False)
        patch.setenv("TILEWRIGHT_CACHE", str(tmp_path_factory.mktemp("cache") / "relinked"))
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bless", action="store_true", help="write golden files anew, then fail")


class Shared(LoadFileScheduling):
    """`pytest -n`: a file's tests stay in one worker, and so do all tests of pages.

    Those are the longest part: they start first, the files after them in their order.
    """

    def _split_scope(self, nodeid: str) -> str:
        pages = "tests/browser/"
        return pages if nodeid.startswith(pages) else super()._split_scope(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Shared:
    config.option.loadscopereorder = False  # else files with many tests would come first
    return Shared(config, log)
