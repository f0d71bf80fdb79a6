"""Many writers of one store at once, on SQLite and PostgreSQL alike: threads and processes."""

from __future__ import annotations

import multiprocessing
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from helpers.reports import key, report
from test_store import GOOD, counted

from tilewright.base.errors import StoreLocked
from tilewright.store import KernelStore, Receipt, StoredReport, database
from tilewright.store.schema import reports

KEYS = [key(f"{i:064x}") for i in range(3)]


def batch(worker: int, size: int) -> list[tuple[StoredReport, str]]:
    """Reports of which all workers send the first half, each with its own second half."""
    found = []
    for i in range(size):
        mine = worker if i >= size // 2 else 99
        sent = report(GOOD, KEYS[i % 3], nonce=f"nonce-{mine:02d}-{i:04d}")
        found.append((sent, f"source {mine} {i}"))
    return found


def send(url: str, worker: int, size: int) -> list[Receipt]:
    with KernelStore.open(url) as store:
        return [store.submit(sent, source) for sent, source in batch(worker, size)]


def exact(store: KernelStore, workers: int, size: int) -> None:
    expected = {r.nonce for w in range(workers) for r, _ in batch(w, size)}
    with store.database.read() as connection:
        nonces = list(connection.execute(sa.select(reports.c.nonce)).scalars())
    assert sorted(nonces) == sorted(expected)
    assert counted(store) == (len(expected), len(expected))
    assert [store.standing(k).default for k in KEYS] == [3, 3, 3]


def test_threads_lose_and_double_nothing(url: str) -> None:
    with KernelStore.open(url) as store, ThreadPoolExecutor(6) as pool:

        def work(worker: int) -> list[Receipt]:
            return [store.submit(sent, source) for sent, source in batch(worker, 24)]

        for receipts in pool.map(work, range(6)):
            assert receipts == [Receipt(True)] * 24
        exact(store, 6, 24)


@pytest.mark.seldom(4)
def test_processes_lose_and_double_nothing(url: str) -> None:
    context: Any = multiprocessing.get_context("spawn")
    with context.Pool(3) as pool:
        # They also race for making the tables.
        for receipts in pool.starmap(send, [(url, worker, 30) for worker in range(3)]):
            assert receipts == [Receipt(True)] * 30
    with KernelStore.open(url) as store:
        exact(store, 3, 30)


@contextmanager
def writing(file: Path) -> Iterator[sqlite3.Connection]:
    """Another program that holds the write lock of a new file."""
    with closing(sqlite3.connect(file, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield other


def test_who_opens_a_new_file_waits_for_whom_else_opens_it(tmp_path: Path) -> None:
    with writing(tmp_path / "new.db") as other:
        later = threading.Timer(0.3, other.rollback)
        later.start()
        KernelStore.open(f"sqlite:///{tmp_path}/new.db").close()
        later.join()


def test_but_not_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "LOCK_SECONDS", 0.2)
    with writing(tmp_path / "new.db"), pytest.raises(StoreLocked):
        KernelStore.open(f"sqlite:///{tmp_path}/new.db")


KILLED = """
import sys
sys.path.insert(0, "tests"); sys.path.insert(0, "tests/unit")
import test_store_writers
from tilewright.base.errors import StoreLocked
from tilewright.store import KernelStore
store = KernelStore.open(sys.argv[1])
for sent, source in test_store_writers.batch(0, 400):
    store.submit(sent, source)
    print(sent.nonce, flush=True)
"""


def test_a_killed_writer_loses_and_doubles_nothing(url: str) -> None:
    KernelStore.open(url).close()
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, url], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    confirmed = [process.stdout.readline().strip() for _ in range(25)]
    process.kill()
    confirmed += process.stdout.read().split()
    process.communicate()
    with KernelStore.open(url) as store:
        with store.database.read() as connection:
            stored = list(connection.execute(sa.select(reports.c.nonce)).scalars())
        assert set(confirmed) <= set(stored)
        assert len(stored) - len(confirmed) <= 1  # the last one: committed, but not yet said
        for sent, source in batch(0, 400)[:40]:
            assert store.submit(sent, source) == Receipt(True)
        assert store.stats().reports == max(40, len(stored))


def test_threads_make_their_databases_at_once(tmp_path: Path) -> None:
    """Each has its own tables in its own file."""
    with ThreadPoolExecutor(4) as pool:
        urls = [f"sqlite:///{tmp_path / f'{number}.db'}" for number in range(12)]
        for store in pool.map(KernelStore.open, urls):
            with store:
                assert store.submit(report(GOOD), "s").accepted
