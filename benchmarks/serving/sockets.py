"""The tuning socket under load: 1,000 devices on one server; two servers that are killed.

Input: nothing.  Output: results/serving.sockets.json.  A server process (`tilewright serve`),
clients in this one (visitors.py).  The first part measures, with SQLite; in the second, two servers
share a PostgreSQL, each is killed by SIGKILL again and again, and the store's rows are counted at
the end.

    python -m benchmarks serving.sockets
    python -m benchmarks serving.sockets --clients 50 --rounds 5
"""

from __future__ import annotations

import asyncio
import random
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import sqlalchemy as sa
import typer

from benchmarks.common import Run
from benchmarks.records import Row
from benchmarks.serving.site import VARIANTS, Site, build, running
from benchmarks.serving.visitors import Task, Visit, crowd
from tests.helpers.postgres import Cluster, programs
from tilewright.base.quantiles import quantile
from tilewright.bundle import open_bundle
from tilewright.store import KernelStore
from tilewright.store.schema import reports


def task_for(folder: Path, kernels: int, rounds: int, think: float) -> Task:
    bundle = open_bundle(folder)
    flops = {step.spec: step.flops for plan in bundle.manifest.plans for step in plan.steps}
    # the hottest have large spaces: no device may run out of candidates
    specs = sorted(flops, key=lambda spec: -flops[spec])[:kernels]
    return Task("m", bundle.pointer.manifest.digest, VARIANTS[0], tuple(specs), rounds, think)


def nonces(url: str) -> list[str]:
    """Of every report in the store."""
    with KernelStore.open(url) as store, store.database.read() as connection:
        return [str(row.nonce) for row in connection.execute(sa.select(reports.c.nonce))]


def row(what: str, visits: Sequence[Visit], stored: Sequence[str], seconds: float) -> Row:
    """Figures of one part; `lost`: acknowledged reports that the store lacks."""
    waited = sorted(w for visit in visits for w in visit.waited)
    acked = {nonce for visit in visits for nonce in visit.acked}
    refused = [reason for visit in visits for reason in visit.refused]
    if refused:
        raise SystemExit(f"{what}: {len(refused)} reports were refused: {sorted(set(refused))}")
    return {
        "what": what,
        "clients": len(visits),
        "seconds": round(seconds, 1),
        "connections": sum(visit.connections for visit in visits),
        "kernels": len(waited),
        "client_median_ms": round(statistics.median(waited), 2),
        "client_p95_ms": round(quantile(waited, 0.95), 2),
        "reports": sum(len(visit.reports) for visit in visits),
        "acked": len(acked),
        "stored": len(stored),
        "lost": len(acked - set(stored)),
        "twice": len(stored) - len(set(stored)),
    }


def many(folder: Path, store: str, task: Task, clients: int, workers: int = 1) -> Row:
    """All devices on one process."""
    site = Site(folder, store, workers)
    with running([site]):
        begin = time.perf_counter()
        visits = asyncio.run(crowd([site.url], task, clients))
        seconds = time.perf_counter() - begin
        stats = site.stats()
    found = row("one process", visits, nonces(store), seconds)
    rounds = {f"server_{name}": value for name, value in stats["rounds"].items()}
    return found | rounds | {"made": stats["candidates"]["made"], "kills": 0}


async def _under_fire(
    sites: Sequence[Site], task: Task, clients: int, kills: int, pause: float
) -> tuple[list[Visit], int]:
    """The devices' work while servers are killed and restarted in turn."""
    work = asyncio.ensure_future(crowd([site.url for site in sites], task, clients))
    for kill in range(kills):
        await asyncio.wait([work], timeout=random.uniform(0.5, 1.5) * pause)
        if work.done():
            return work.result(), kill
        site = sites[kill % len(sites)]
        await asyncio.to_thread(site.end, signal.SIGKILL)
        await asyncio.to_thread(site.start)
    return await work, kills


def killed(
    folder: Path, store: str, task: Task, clients: int, kills: int = 6, pause: float = 4.0,
    workers: int = 1,
) -> Row:  # fmt: skip
    """The devices on two processes that share a store; both are killed repeatedly."""
    sites = [Site(folder, store, workers), Site(folder, store, workers)]
    with running(sites):
        begin = time.perf_counter()
        visits, died = asyncio.run(_under_fire(sites, task, clients, kills, pause))
        seconds = time.perf_counter() - begin
    return row("two processes", visits, nonces(store), seconds) | {"kills": died}


def main(
    run: Run,
    clients: Annotated[int, typer.Option(min=1, help="Devices.")] = 1000,
    kernels: Annotated[int, typer.Option(min=1, help="That each device tunes.")] = 3,
    rounds: Annotated[int, typer.Option(min=1, help="Candidates for each device.")] = 5,
    think: Annotated[float, typer.Option(help="Seconds that a trial takes.")] = 2.0,
    postgres: Annotated[
        str, typer.Option(metavar="URL", help="An empty database; by default a new server's.")
    ] = "",
    servers: Annotated[Literal["one", "two"] | None, typer.Option(help="Only this part.")] = None,
) -> None:
    with tempfile.TemporaryDirectory(prefix="tilewright-") as place:
        folder = build(Path(place) / "bundle")
        task = task_for(folder, kernels, rounds, think)
        rows = []
        if servers != "two":
            rows.append(many(folder, f"sqlite:///{place}/store.db", task, clients))
        if servers != "one":
            with database(postgres) as url:
                rows.append(killed(folder, url, task, clients))
    for found in rows:
        run.keep(found | {"rounds": rounds, "think": think})
        if found["lost"] or found["twice"] or found["stored"] != found["reports"]:
            raise SystemExit("Reports were lost or counted twice")


@contextmanager
def database(url: str) -> Iterator[str]:
    """An empty database: the given one, or one on a new server."""
    if url:
        yield url
        return
    found = programs()
    if found is None:
        raise SystemExit("PostgreSQL is not installed: give --postgres URL")
    with Cluster(found) as cluster:
        yield cluster.database()
