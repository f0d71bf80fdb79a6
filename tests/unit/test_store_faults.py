"""The store when its database fails: typed errors with a way out, and nothing lost or doubled."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from helpers.postgres import Cluster, programs
from helpers.reports import AGREED, key, report
from helpers.waiting import PATIENCE, until

from tilewright.base.errors import (
    StoreCorrupt,
    StoreDown,
    StoreError,
    StoreFull,
    StoreLocked,
    StoreReadOnly,
    StoreVersion,
    UsageError,
)
from tilewright.store import KernelStore, Receipt, StoredReport, database
from tilewright.store.schema import keys, reports

pytestmark = pytest.mark.by_turns

GOOD = {3: 1.5, 4: 1.4}


def nonces(store: KernelStore) -> list[str]:
    with store.database.read() as connection:
        return sorted(connection.execute(sa.select(reports.c.nonce)).scalars())


def says_the_way_out(error: StoreError) -> None:
    assert error.hint
    assert error.facts
    assert error.code.startswith("store-")
    assert error.to_json()["hint"] == error.hint


# ---- SQLite --------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with sixteen reports, closed."""
    file = tmp_path / "store.db"
    with KernelStore.open(f"sqlite:///{file}") as store:
        for i in range(16):
            store.submit(report(GOOD), f"{i}")
    return file


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with 400 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=400k", "tilewright", str(folder)]
    mounted = os.geteuid() == 0 and subprocess.run(command, capture_output=True).returncode == 0
    if not mounted:
        pytest.skip("a file system for the test can only be mounted by root")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_read_only_file_can_be_read(path: Path) -> None:
    with KernelStore.open(f"sqlite:///file:{path}?mode=ro&uri=true") as store:
        assert store.standing(key()).default == 3
        for act in (lambda: store.submit(report(GOOD), "s"), store.gc):
            with pytest.raises(StoreReadOnly) as raised:
                act()
            says_the_way_out(raised.value)
        assert len(nonces(store)) == AGREED


@pytest.fixture
def no_writing(path: Path) -> Iterator[Path]:
    """The store of `path` on a file system that nobody may write to."""
    folder = path.parent
    mount = ["mount", "--bind", str(folder), str(folder)]
    mounted = os.geteuid() == 0 and subprocess.run(mount, capture_output=True).returncode == 0
    if not mounted:
        pytest.skip("a read-only file system can only be mounted by root")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_read_only_file_system_can_be_read(no_writing: Path) -> None:
    """No file can be made beside the database, as WAL does even to read."""
    with KernelStore.open(f"sqlite:///{no_writing}") as store:
        assert store.standing(key()).default == 3
        for act in (lambda: store.submit(report(GOOD), "s"), store.gc):
            with pytest.raises(StoreReadOnly) as raised:
                act()
            says_the_way_out(raised.value)
        assert len(nonces(store)) == AGREED
    with pytest.raises(StoreReadOnly) as raised:
        KernelStore.open(f"sqlite:///{no_writing.parent}/new.db")
    says_the_way_out(raised.value)
    with pytest.raises(StoreReadOnly) as raised:
        KernelStore.open(f"sqlite:///{no_writing.parent}/new/store.db")
    says_the_way_out(raised.value)


#: Also for root, who may read everything.
UNPRIVILEGED = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search")


@pytest.mark.parametrize("folder", [0o755, 0o555], ids=["in a folder", "in a read-only one"])
def test_a_file_that_may_not_be_read_is_not_said_to_be_read_only(path: Path, folder: int) -> None:
    path.chmod(0o000)
    path.parent.chmod(folder)
    main = "from tilewright.cli import main; main()"
    command = [sys.executable, "-c", main, "db", "stats", "--store", str(path)]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root reads every file, and no setpriv is there to forbid it")
        command = [*UNPRIVILEGED, *command]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    path.parent.chmod(0o755)
    assert done.returncode == StoreError.exit_code
    assert "may not be read" in done.stderr
    assert "read-only" not in done.stderr


def test_reading_sees_what_others_write_meanwhile(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that takes the file for immutable is not kept."""
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda *_: False)
        with KernelStore.open(f"sqlite:///{path}") as reader:
            assert len(nonces(reader)) == AGREED
            with KernelStore.open(f"sqlite:///{path}") as other:
                assert len(nonces(other)) == AGREED
            with contextlib.closing(sqlite3.connect(path)) as writer:
                writer.execute("DELETE FROM reports WHERE id = (SELECT min(id) FROM reports)")
                writer.commit()
                assert len(nonces(reader)) == AGREED - 1
            assert len(nonces(reader)) == AGREED - 1


def test_a_file_system_that_becomes_read_only(small_disk: Path) -> None:
    url = f"sqlite:///{small_disk / 'store.db'}"
    with KernelStore.open(url) as store:
        store.submit(report(GOOD), "s")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    sent = report(GOOD)
    with pytest.raises(StoreError) as raised, KernelStore.open(url) as store:
        store.submit(sent, "t")
    says_the_way_out(raised.value)
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    with KernelStore.open(url) as store:
        assert store.submit(sent, "t") == Receipt(True)
        assert len(nonces(store)) == 2


def fill(store: KernelStore) -> list[str]:
    """Reports on new kernels until nothing fits any more."""
    accepted: list[str] = []
    for i in range(100_000):
        sent = report(GOOD, key(f"{i:064x}"))
        try:
            assert store.submit(sent, f"s{i}") == Receipt(True)
        except StoreFull as error:
            says_the_way_out(error)
            return accepted
        accepted.append(sent.nonce)
    raise AssertionError("There was room for everything")


def test_a_full_disk(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(100_000))
    with KernelStore.open(f"sqlite:///{small_disk / 'store.db'}") as store:
        accepted = fill(store)
        assert nonces(store) == sorted(accepted)
        ballast.unlink()
        sent = report(GOOD)
        assert store.submit(sent, "s") == Receipt(True)
        assert nonces(store) == sorted([*accepted, sent.nonce])


def test_a_full_database(path: Path) -> None:
    """The same where nothing can be mounted: SQLite itself sets the limit."""
    with KernelStore.open(f"sqlite:///{path}") as store:
        with store.database.read() as connection:
            pages = connection.execute(sa.text("PRAGMA page_count")).scalar_one()
            connection.execute(sa.text(f"PRAGMA max_page_count = {pages + 8}"))
        before = nonces(store)
        accepted = fill(store)
        assert nonces(store) == sorted([*before, *accepted])


def test_a_locked_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "LOCK_SECONDS", 0.2)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    with KernelStore.open(f"sqlite:///{path}") as store:
        assert store.standing(key()).default == 3  # readers do not wait
        sent = report(GOOD)
        with pytest.raises(StoreLocked) as raised:
            store.submit(sent, "s")
        says_the_way_out(raised.value)
        holder.execute("ROLLBACK")
        assert store.submit(sent, "s") == Receipt(True)
        assert len(nonces(store)) == 17
    holder.close()


def test_a_writer_waits_for_another_one(path: Path) -> None:
    holder = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    holder.execute("BEGIN EXCLUSIVE")
    timer = threading.Timer(0.3, lambda: holder.execute("ROLLBACK"))
    with KernelStore.open(f"sqlite:///{path}") as store:
        timer.start()
        assert store.submit(report(GOOD), "s") == Receipt(True)
    timer.join()
    holder.close()


@pytest.mark.parametrize("damage", ["text", "cut", "noise"])
def test_a_damaged_file(path: Path, damage: str) -> None:
    whole = path.read_bytes()
    broken = {
        "text": b"this is a letter, not a database\n" * 100,
        "cut": whole[: len(whole) // 3],
        "noise": whole[:4096] + b"\xa5" * (len(whole) - 4096),
    }[damage]
    path.write_bytes(broken)
    with pytest.raises(StoreCorrupt) as raised, KernelStore.open(f"sqlite:///{path}") as store:
        store.submit(report(GOOD), "s")
    says_the_way_out(raised.value)
    assert path.read_bytes()[:100] == broken[:100]


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(StoreDown) as raised:
        KernelStore.open(f"sqlite:///{tmp_path}")
    says_the_way_out(raised.value)


def test_an_old_schema_names_the_command(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it will be after the next migration."""
    from tilewright.store import schema

    monkeypatch.setattr(schema, "REVISIONS", (*schema.REVISIONS, "9999"))
    monkeypatch.setattr(schema, "HEAD", "9999")
    with pytest.raises(StoreVersion, match="db upgrade") as raised:
        KernelStore.open(f"sqlite:///{path}")
    says_the_way_out(raised.value)


# ---- PostgreSQL ----------------------------------------------------------------------------------


@pytest.fixture
def mortal() -> Iterator[Cluster]:
    """A PostgreSQL that the test may kill."""
    folder = programs()
    if folder is None:
        pytest.skip("PostgreSQL is not installed")
    with Cluster(folder) as running:
        yield running


def test_no_server(tmp_path: Path) -> None:
    for url in (
        f"postgresql+psycopg://tilewright@/none?host={tmp_path}",
        "postgresql+psycopg://tilewright:secret@127.0.0.1:1/none",
    ):
        with pytest.raises(StoreDown) as raised:
            KernelStore.open(url)
        says_the_way_out(raised.value)
        assert "secret" not in str(raised.value)


def test_no_database(cluster: Cluster) -> None:
    url = cluster.database()
    with pytest.raises(StoreDown, match="does not exist"):
        KernelStore.open(url.replace("@/t", "@/missing"))


def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
    with pytest.raises(UsageError, match=r"tilewright\[postgres\]"):
        KernelStore.open("postgresql://x@localhost/y")


def test_a_read_only_server(cluster: Cluster) -> None:
    url = cluster.database()
    with KernelStore.open(url) as store:
        store.submit(report(GOOD), "s")
        with store.database.write() as connection:
            connection.execute(
                sa.text("ALTER ROLE tilewright SET default_transaction_read_only = on")
            )
    try:
        with KernelStore.open(url) as store:
            assert store.standing(key()).voices == 1
            with pytest.raises(StoreReadOnly) as raised:
                store.submit(report(GOOD), "t")
            says_the_way_out(raised.value)
    finally:
        with contextlib.closing(database.Database(url)) as plain, plain.write() as connection:
            connection.execute(sa.text("SET TRANSACTION READ WRITE"))
            connection.execute(sa.text("ALTER ROLE tilewright RESET default_transaction_read_only"))


def test_a_locked_row(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "LOCK_SECONDS", 1)
    with KernelStore.open(cluster.database()) as store:
        store.submit(report(GOOD), "s")
        sent = report(GOOD)
        with store.database.write() as connection:
            connection.execute(sa.select(keys).with_for_update())
            with pytest.raises(StoreLocked) as raised:
                store.submit(sent, "t")
            says_the_way_out(raised.value)
        assert store.submit(sent, "t") == Receipt(True)
        assert len(nonces(store)) == 2


def test_postgres_killed_in_mid_transaction(mortal: Cluster) -> None:
    """kill -9 while writers write; they send again what was not confirmed until it is."""
    url = mortal.database()
    sent = [report(GOOD, key(f"{i % 3:064x}")) for i in range(240)]
    failures: list[StoreError] = []

    def resend(store: KernelStore, what: StoredReport, source: str) -> None:
        def confirmed() -> bool:
            try:
                assert store.submit(what, source) == Receipt(True)
            except StoreError as error:
                failures.append(error)
                return False
            return True

        until(confirmed)

    with KernelStore.open(url) as store:

        def work(first: int) -> None:
            for i in range(first, len(sent), 4):
                resend(store, sent[i], f"s{i}")

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        with contextlib.suppress(StoreDown), store.database.write() as held:
            held.execute(sa.text("SELECT 1 FROM keys FOR UPDATE"))  # a transaction that dies open
            for thread in threads:
                thread.start()
            until(lambda: store.stats().reports >= 40)
            mortal.kill()
            mortal.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert nonces(store) == sorted(r.nonce for r in sent)
        assert failures
        assert {type(f) for f in failures} <= {StoreDown}
        assert [store.standing(key(f"{i:064x}")).default for i in range(3)] == [3, 3, 3]


def test_a_server_that_went_away_comes_back(mortal: Cluster) -> None:
    with KernelStore.open(mortal.database()) as store:
        store.submit(report(GOOD), "s")
        mortal.kill()
        for act in (lambda: store.standing(key()), lambda: store.submit(report(GOOD), "t")):
            with pytest.raises(StoreDown) as raised:
                act()
            says_the_way_out(raised.value)
        mortal.start()
        assert store.standing(key()).voices == 1
        assert store.submit(report(GOOD), "t") == Receipt(True)
