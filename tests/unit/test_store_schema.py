"""The store's tables, on SQLite and PostgreSQL alike: migrations, newer ones, those of others."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from helpers.reports import report

from tilewright.base.errors import StoreVersion, UsageError
from tilewright.store import KernelStore
from tilewright.store.database import Database
from tilewright.store.schema import HEAD, MIGRATIONS, REVISIONS, metadata, upgrade


def test_migrations_make_what_the_tables_say(url: str) -> None:
    database = Database(url)
    assert upgrade(database) == (None, HEAD)
    assert upgrade(database) == (HEAD, HEAD)
    with database.read() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    database.close()


def test_old_reports_have_no_answers(url: str) -> None:
    """A database of the first revision is brought up to date with what is in it."""
    with KernelStore.open(url) as store:
        store.submit(report({3: 1.5}), "s")
        with store.database.write() as connection:
            for column in ("answers", "proven"):
                connection.execute(sa.text(f"ALTER TABLE reports DROP COLUMN {column}"))
            connection.execute(sa.text("UPDATE alembic_version SET version_num = '0001'"))
    with pytest.raises(StoreVersion, match="old schema"):
        KernelStore.open(url)
    database = Database(url)
    assert upgrade(database) == ("0001", HEAD)
    database.close()
    with KernelStore.open(url) as store:
        (row,) = store.rows()
        assert (row["top"], row["answers"], row["proven"]) == ([[3, 1.5]], [], False)


def test_revisions_are_those_of_the_migrations() -> None:
    script = ScriptDirectory(str(MIGRATIONS))
    assert [r.revision for r in reversed(list(script.walk_revisions()))] == list(REVISIONS)


@pytest.mark.parametrize(("revision", "said"), [("9999", "newer"), ("0000", "newer")])
def test_a_newer_schema_is_left_alone(url: str, revision: str, said: str) -> None:
    KernelStore.open(url).close()
    database = Database(url)
    with database.write() as connection:
        connection.execute(sa.text(f"UPDATE alembic_version SET version_num = '{revision}'"))
    for act in (lambda: KernelStore.open(url), lambda: upgrade(database)):
        with pytest.raises(StoreVersion, match=said) as raised:
            act()
        assert "Upgrade" in raised.value.hint
    database.close()


def test_other_peoples_tables_are_left_alone(url: str) -> None:
    database = Database(url)
    with database.write() as connection:
        connection.execute(sa.text("CREATE TABLE theirs (x INTEGER)"))
    with pytest.raises(Exception, match="tables of another program"):
        KernelStore.open(url)
    database.close()


@pytest.mark.parametrize("bad", ["", "nonsense", "mysql://x/y", "sqlite://", "sqlite:///:memory:"])
def test_addresses_that_are_none(bad: str) -> None:
    with pytest.raises(UsageError):
        KernelStore.open(bad)
