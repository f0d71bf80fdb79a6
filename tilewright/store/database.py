"""Connections and transactions: one interface to SQLite and PostgreSQL, with typed errors.

Input: a URL.  Output: `Database.read()` and `.write()`, each one transaction, which commits or
rolls back; every error of the driver is raised as a `StoreError`.  All waits are bounded.  The only
table that it knows is that of the revision.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from tilewright.base.errors import (
    StoreCorrupt,
    StoreDown,
    StoreError,
    StoreFull,
    StoreLocked,
    StoreReadOnly,
    UsageError,
)

#: Timeouts: of a writer for the lock, of a connection (new; free), of a statement.
LOCK_SECONDS = 10
CONNECT_SECONDS = 5
POOL_SECONDS = 30
STATEMENT_SECONDS = 60
#: Seconds between two tries to get a lock for which SQLite does not wait itself.
LOCK_PAUSE = 0.01

URLS = "sqlite:///FILE (four slashes for an absolute path) or postgresql+psycopg://USER@HOST/NAME"
WRITES = "tilewright_writes"
#: Alembic's table, by which a database of Tilewright is recognised.
REVISION_TABLE = "alembic_version"

Failure = tuple[type[StoreError], str, str]

DOWN: Failure = (
    StoreDown,
    "The database cannot be reached",
    "Start it and try again; sending an unconfirmed report again does no harm",
)
UNREADABLE: Failure = (
    StoreDown,
    "The database may not be read",
    "Give this user the right to read it and to write to it",
)
LOCKED: Failure = (
    StoreLocked,
    "The database is locked by another program",
    "Try again; if it stays locked, end the program that holds it open",
)
READ_ONLY: Failure = (
    StoreReadOnly,
    "The database is read-only",
    "Give this user the right to write to it and to its folder, or use another one",
)
FULL: Failure = (
    StoreFull,
    "No space is left for the database",
    "Free some space; `tilewright db gc` removes old reports",
)
CORRUPT: Failure = (
    StoreCorrupt,
    "The database is damaged, or not one of Tilewright's",
    "Restore it, or start a new one: `tilewright db import` takes an export",
)

#: Primary result codes of SQLite (sqlite.org/rescode.html).
SQLITE: dict[int, Failure] = {
    sqlite3.SQLITE_BUSY: LOCKED,
    sqlite3.SQLITE_LOCKED: LOCKED,
    sqlite3.SQLITE_READONLY: READ_ONLY,
    sqlite3.SQLITE_PERM: READ_ONLY,
    sqlite3.SQLITE_FULL: FULL,
    sqlite3.SQLITE_IOERR: DOWN,
    sqlite3.SQLITE_CANTOPEN: DOWN,
    sqlite3.SQLITE_CORRUPT: CORRUPT,
    sqlite3.SQLITE_NOTADB: CORRUPT,
}
#: Errors of making the database's folder, by errno.
FOLDER: dict[int | None, Failure] = {
    errno.EACCES: READ_ONLY,
    errno.EPERM: READ_ONLY,
    errno.EROFS: READ_ONLY,
    errno.ENOSPC: FULL,
}
#: Prefixes of PostgreSQL's error codes ("PostgreSQL Error Codes", appendix A of its manual).
POSTGRES: dict[str, Failure] = {
    "25006": READ_ONLY,
    "42501": READ_ONLY,
    "53100": FULL,
    "53200": FULL,
    "40": LOCKED,
    "55P03": LOCKED,
    "57014": LOCKED,
    "08": DOWN,
    "53300": DOWN,
    "57P": DOWN,
    "3D000": DOWN,
    "28": DOWN,
    "XX": CORRUPT,
    "58": DOWN,
}


class Database:
    """An engine and its transactions.

    create: False: a missing SQLite file is an error (StoreDown)
    Raises UsageError for a URL that cannot be used; every method raises StoreError.
    """

    def __init__(self, url: str, create: bool = True) -> None:
        self.url = _parse(url)
        #: The URL without the password, for messages.
        self.shown = self.url.render_as_string(hide_password=True)
        self.sqlite = self.url.get_backend_name() == "sqlite"
        with self._typed():
            self._engine = _sqlite(self.url, create) if self.sqlite else _postgres(self.url)

    @contextmanager
    def read(self) -> Generator[sa.Connection]:
        """A transaction that sees one state of the database."""
        with self._typed(), self._engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def write(self) -> Generator[sa.Connection]:
        """A transaction that may write; afterwards all of it is on disk, or nothing.

        On SQLite it takes the write lock at once: one that reads first and then upgrades its lock
        fails if another writer was faster.
        """
        with self._typed(), self._engine.connect() as plain:
            connection = plain.execution_options(**{WRITES: True})
            with connection.begin():
                yield connection

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def _typed(self) -> Generator[None]:
        try:
            yield
        except PoolTimeout as error:
            raise self._error(LOCKED, error) from error
        except DBAPIError as error:
            raise self._error(_failure(error), error.orig) from error
        except sqlite3.Error as error:
            raise self._error(_sqlite_failure(error), error) from error

    def _error(self, failure: Failure, reason: object) -> StoreError:
        path = self.url.database or ""
        if failure is DOWN and self.sqlite:
            if os.access(path, os.F_OK) and not os.access(path, os.R_OK):
                failure = UNREADABLE
            elif _in_read_only_folder(path):
                failure = READ_ONLY
        kind, message, hint = failure
        text = " ".join(str(reason).split())
        return kind(message, hint=hint, database=self.shown, reason=text)


def _parse(url: str) -> URL:
    try:
        found = make_url(url)
        known = found.get_backend_name() in ("sqlite", "postgresql")
    except (ArgumentError, ValueError):
        known = False
    if not known:
        raise UsageError(f"Not the URL of a database: {url}", hint=f"Write {URLS}")
    # Plain `postgresql://` means the driver that we have.
    return found.set(drivername="postgresql+psycopg") if found.drivername == "postgresql" else found


def _sqlite(url: URL, create: bool) -> sa.Engine:
    path = url.database
    if not path or path == ":memory:":
        raise UsageError("A store cannot be in memory", hint=f"Write {URLS}")
    if not path.startswith("file:"):
        if not create and not Path(path).exists():
            raise StoreDown("There is no such database", hint=f"Write {URLS}", database=path)
        _make_folder(Path(path).parent)
    engine = sa.create_engine(
        url, connect_args={"timeout": LOCK_SECONDS}, pool_timeout=POOL_SECONDS
    )

    @sa.event.listens_for(engine, "do_connect")
    def _connect(
        _dialect: object,
        record: sa.pool.ConnectionPoolEntry,
        given: list[object],
        named: dict[str, object],
    ) -> None:
        # In WAL mode even a reader writes files beside the database.  If the folder is read-only
        # and these files do not exist, no other process writes either, so the file is opened as
        # immutable.
        alone = Path(path).is_file() and not Path(f"{path}-wal").exists()
        if alone and _in_read_only_folder(path):
            given[0] = f"file:{quote(path)}?immutable=1"
            named["uri"] = True
            record.info["immutable"] = True

    @sa.event.listens_for(engine, "checkin")
    def _check_in(connection: object, record: sa.pool.ConnectionPoolEntry) -> None:
        # an immutable connection is not reused: another process may begin to write
        if connection is not None and record.info.get("immutable"):
            record.invalidate()

    @sa.event.listens_for(engine, "connect")
    def _set_up(connection: sqlite3.Connection, _record: object) -> None:
        # The driver must not begin transactions on its own; `_begin` does.
        connection.isolation_level = None
        for setting in ("foreign_keys=ON", "synchronous=FULL"):
            connection.execute(f"PRAGMA {setting}")
        try:
            # WAL lets readers and one writer work at once.  The setting stays in the file, so it
            # is not made in databases of other programs.
            if _is_ours_or_empty(connection):
                _use_wal(connection)
        except sqlite3.OperationalError as error:
            if _sqlite_failure(error) is not READ_ONLY:
                raise

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        writes = connection.get_execution_options().get(WRITES)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        kind, message, hint = FOLDER.get(error.errno, DOWN)
        raise kind(message, hint=hint, folder=folder, reason=error.strerror) from error


def _in_read_only_folder(path: str) -> bool:
    """Whether the database's folder is read-only, so that no file can be made beside it."""
    folder = Path(path).parent
    return folder.is_dir() and not os.access(folder, os.W_OK)


def _is_ours_or_empty(connection: sqlite3.Connection) -> bool:
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    return not names or REVISION_TABLE in names


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switches the file's journal to WAL.

    SQLite reads first and then asks for the write lock, without waiting for `timeout`.  If two
    programs opened a new file together, one would be refused, so this function tries again.
    """
    end = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if _sqlite_failure(error) is not LOCKED or time.monotonic() > end:
                raise
        time.sleep(LOCK_PAUSE)


def _postgres(url: URL) -> sa.Engine:
    settings = {
        "lock_timeout": LOCK_SECONDS,
        "statement_timeout": STATEMENT_SECONDS,
        "idle_in_transaction_session_timeout": STATEMENT_SECONDS,
    }
    try:
        return sa.create_engine(
            url,
            connect_args={
                "connect_timeout": CONNECT_SECONDS,
                # Notices in bounded time that a server vanished.
                "keepalives_idle": 10,
                "keepalives_interval": 5,
                "keepalives_count": 3,
                "tcp_user_timeout": STATEMENT_SECONDS * 1000,
                "options": " ".join(f"-c {k}={v}s" for k, v in settings.items()),
            },
            pool_pre_ping=True,
            pool_size=8,
            max_overflow=8,
        )
    except (ImportError, NoSuchModuleError) as error:
        raise UsageError(
            "PostgreSQL needs a driver that is not installed",
            hint="Run pip install 'tilewright[postgres]', and write postgresql+psycopg://…",
            reason=error,
        ) from error


def _failure(error: DBAPIError) -> Failure:
    cause = error.orig
    if isinstance(cause, sqlite3.Error):
        return _sqlite_failure(cause)
    code = getattr(cause, "sqlstate", None) or ""
    for prefix, failure in POSTGRES.items():
        if code.startswith(prefix):
            return failure
    if not code:  # no answer came: the connection broke, or was never made
        return DOWN
    return (StoreError, "The database refused", "Read the reason; this should not happen")


def _sqlite_failure(error: sqlite3.Error) -> Failure:
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return (StoreError, "The database refused", "Read the reason; this should not happen")
    # A read-only file in WAL mode may not even be opened.
    return SQLITE.get(
        code & 0xFF, (StoreError, "The database refused", "Read the reason; it may be a bug")
    )
