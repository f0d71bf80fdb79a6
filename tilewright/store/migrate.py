"""The schema revision of a database, and upgrades to the current one.

Input: a `Database`.  Output: its revision; after `upgrade` it has the newest schema.  Several
processes may upgrade at once: the first does the work, the others find it done.
"""

from __future__ import annotations

import threading
from pathlib import Path

import sqlalchemy as sa

from tilewright.base.errors import StoreCorrupt, StoreVersion
from tilewright.store.database import REVISION_TABLE, Database
from tilewright.store.schema import HEAD, REVISIONS, VERSION

MIGRATIONS = Path(__file__).parent / "migrations"
#: An arbitrary number, the same in all processes.
ADVISORY_LOCK = 0x7113
#: Alembic keeps its state in module variables, so it is not safe in several threads.
ONE_AT_A_TIME = threading.Lock()


def revision(connection: sa.Connection) -> str | None:
    """The revision of the database; None if it is empty.

    Raises StoreCorrupt if it has tables, but not of Tilewright.
    """
    names = sa.inspect(connection).get_table_names()
    if not names:
        return None
    if REVISION_TABLE not in names:
        raise StoreCorrupt(
            "The database has tables of another program",
            hint="Give Tilewright a database of its own",
            tables=names[:5],
        )
    return connection.execute(VERSION).scalar()


def check(connection: sa.Connection, database: Database) -> None:
    """Raises StoreVersion unless the schema is the one of this program."""
    found = revision(connection)
    if found == HEAD:
        return
    if found is None or found in REVISIONS:
        raise StoreVersion(
            "The database has an old schema",
            hint=f"tilewright db upgrade --store {database.shown}",
            found=found or "none",
            needed=HEAD,
        )
    raise StoreVersion(
        "The database was made by a newer Tilewright",
        hint="Upgrade this one: pip install --upgrade tilewright",
        database=database.shown,
        found=found,
        needed=HEAD,
    )


def upgrade(database: Database) -> tuple[str | None, str]:
    """Brings the schema up to date, in one transaction; returns the revision before and after.

    Raises StoreCorrupt, or StoreVersion for a schema of a newer Tilewright.
    """
    from alembic import command
    from alembic.config import Config

    with ONE_AT_A_TIME, database.write() as connection:
        if not database.sqlite:
            connection.execute(sa.text(f"SELECT pg_advisory_xact_lock({ADVISORY_LOCK})"))
        before = revision(connection)
        if before not in (None, *REVISIONS):
            check(connection, database)
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
    return before, HEAD
