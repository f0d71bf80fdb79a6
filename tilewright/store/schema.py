"""The tables of the store, and the schema revision of this program.

Input: nothing.  Output: SQLAlchemy tables, the same on SQLite and PostgreSQL.  migrations/ creates
them (a test compares the two).
"""

from __future__ import annotations

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
    Column("day", Integer, nullable=False),  # of the last report
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
