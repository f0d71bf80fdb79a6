"""Databases for the tests of the store: each test runs on a SQLite file and on PostgreSQL.

And a server that tunes without a store, for the tests of its socket.
What only some machines have is imported by the fixtures that need it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import postgres

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def cluster() -> Iterator[postgres.Cluster]:
    """A PostgreSQL of our own, for all tests that want one."""
    with postgres.Cluster(postgres.needed()) as running:
        yield running


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.db'}"
    cluster: postgres.Cluster = request.getfixturevalue("cluster")
    return cluster.database()


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """URL of a server with the bundle `m`."""
    from tuning_site import app

    from tilewright.server import BackgroundServer

    with BackgroundServer(app()) as server:
        yield server.url
