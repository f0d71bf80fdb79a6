"""The tables of the store, the schema revision of this program, and upgrades of databases to it.

Input: a `Database`.  Output: SQLAlchemy tables, the same on SQLite and PostgreSQL; the database's
revision, and after `upgrade` the newest schema.  Several processes may upgrade at once: the first
does the work, the others find it done.  migrations/ creates the tables (a test compares the two).
"""

from __future__ import annotations

import threading
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    UniqueConstraint,
    false,
    text,
)

from tilewright.base.errors import StoreCorrupt, StoreVersion
from tilewright.store.database import REVISION_TABLE, Database

#: Revisions in order; the last one is what this program reads and writes.
REVISIONS = ("0001", "0002")
HEAD = REVISIONS[-1]

metadata = MetaData()

#: Numbers of reports.  SQLite increments only a plain INTEGER itself, which has 64 bits there.
Number = BigInteger().with_variant(Integer, "sqlite")

#: One row per key, with the outcome of its last vote.  A report locks its key's row, so that
#: votes on one key happen one after the other.
keys = Table(
    "keys",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("kernel", String(200), nullable=False),
    Column("kind", String(200), nullable=False),
    Column("shape", String(200), nullable=False),
    Column("device", String(200), nullable=False),
    Column("space", String(200), nullable=False),
    Column("compiler", String(200), nullable=False),
    Column("browser", String(200), nullable=False),
    Column("day", Integer, nullable=False),  # day of the last report
    Column("fresh", Integer, nullable=False),  # voices since the last vote
    Column("voices", Integer, nullable=False),  # counted in the last vote
    Column("default_candidate", Integer),
    Column("default_since", Number),
    Column("shadow_candidate", Integer),
    Column("shadow_since", Number),
    Column("previous_candidate", Integer),
    # the fields of votes.Tally, best first
    Column("ranked", JSON, nullable=False),
    UniqueConstraint("kernel", "device", "space", "compiler", "browser", name="keys_unique"),
)

#: One row per accepted report.  `source` is set to NULL after a day or two; `counts` is false if
#: its source failed a gold question that day, `proven` true if it answered one right.
reports = Table(
    "reports",
    metadata,
    Column("id", Number, primary_key=True),
    Column("nonce", String(64), nullable=False),
    Column("key_id", Integer, ForeignKey("keys.id", ondelete="CASCADE"), nullable=False),
    Column("day", Integer, nullable=False),
    Column("source", String(200)),
    Column("counts", Boolean, nullable=False),
    Column("top", JSON, nullable=False),  # [[candidate, ratio], ...], best first
    # the same of candidates that the server asked for
    Column("answers", JSON, nullable=False, server_default="[]"),
    Column("proven", Boolean, nullable=False, server_default=false()),
    UniqueConstraint("nonce", name="reports_nonce"),
    # A source has one voice per key and day; forgotten sources (NULL) do not collide.
    UniqueConstraint("key_id", "day", "source", name="reports_voice"),
    Index("reports_day_source", "day", "source"),
    sqlite_autoincrement=True,
)

#: Alembic's own table.
VERSION = text("SELECT version_num FROM alembic_version")


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
            hint=f"Run tilewright db upgrade --store {database.shown}",
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
