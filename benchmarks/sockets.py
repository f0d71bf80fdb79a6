"""The tuning socket under load: 1,000 devices on one server; two servers that are killed.

Input: nothing.  Output: results/sockets.json.  A server process (`tilewright serve`), clients in
this one (visitors.py).  The first part measures, with SQLite; in the second, two servers share a
PostgreSQL, each is killed by SIGKILL again and again, and the store's rows are counted at the end.

    uv run python -m benchmarks.sockets
    uv run python -m benchmarks.sockets --clients 50 --rounds 5
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from benchmarks import common
from benchmarks.visitors import Task, Visit, crowd
from tilewright.base.quantiles import quantile
from tilewright.bundle import open_bundle, write
from tilewright.compiler import Options, compile_model
from tilewright.store import KernelStore
from tilewright.store.schema import reports

ROOT = Path(__file__).parents[1]
MODEL = ROOT / "tests" / "models" / "bert-tiny-eager-torchscript.onnx"
VARIANT = "x86"
#: Compile workers of a server.
WORKERS = 1
#: Seconds until a server listens.
START = 60


@dataclass
class Site:
    """A `tilewright serve` in a process of its own, always on the same port."""

    bundle: Path
    store: str
    port: int = 0
    process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        code = "from tilewright.cli import main; main()"
        options = ["--store", self.store, "--source-key", "benchmark"]
        options += ["--trusted-proxy", "127.0.0.1"]
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, "serve", f"m={self.bundle}", "--port", str(self.port),
             "--compile-workers", str(WORKERS), "--json", *options],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        url = json.loads(self.process.stdout.readline())["url"]
        self.port = int(url.rpartition(":")[2])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stats(self) -> Any:
        with urllib.request.urlopen(self.url + "/api/stats", timeout=START) as answer:
            return json.loads(answer.read())

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.communicate(timeout=START)
            self.process = None


@contextmanager
def running(sites: Sequence[Site]) -> Iterator[None]:
    try:
        for site in sites:
            site.start()
        yield
    finally:
        for site in sites:
            site.end(signal.SIGKILL)


def build(folder: Path, model: Path = MODEL) -> Path:
    options = Options(buckets={"n": (16,)}, variants=(VARIANT,))
    write(compile_model(model, options).contents, folder)
    return folder


def task_for(folder: Path, kernels: int, rounds: int, think: float) -> Task:
    bundle = open_bundle(folder)
    flops = {step.spec: step.flops for plan in bundle.manifest.plans for step in plan.steps}
    # the hottest have large spaces: no device may run out of candidates
    specs = sorted(flops, key=lambda spec: -flops[spec])[:kernels]
    return Task("m", bundle.pointer.manifest.digest, VARIANT, tuple(specs), rounds, think)


def nonces(url: str) -> list[str]:
    """Of every report in the store."""
    with KernelStore.open(url) as store, store.database.read() as connection:
        return [str(row.nonce) for row in connection.execute(sa.select(reports.c.nonce))]


Row = dict[str, Any]


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


def many(folder: Path, store: str, task: Task, clients: int) -> Row:
    """All devices on one process."""
    site = Site(folder, store)
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
    folder: Path, store: str, task: Task, clients: int, kills: int = 6, pause: float = 4.0
) -> Row:
    """The devices on two processes that share a store; both are killed repeatedly."""
    sites = [Site(folder, store), Site(folder, store)]
    with running(sites):
        begin = time.perf_counter()
        visits, died = asyncio.run(_under_fire(sites, task, clients, kills, pause))
        seconds = time.perf_counter() - begin
    return row("two processes", visits, nonces(store), seconds) | {"kills": died}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--kernels", type=int, default=3, help="that each client tunes")
    parser.add_argument("--rounds", type=int, default=5, help="candidates for each client")
    parser.add_argument("--think", type=float, default=2.0, help="seconds that a trial takes")
    parser.add_argument(
        "--postgres", default="", help="URL of an empty database, or a new server's"
    )
    parser.add_argument("--part", choices=["one", "two"], help="only this one")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tilewright-") as place:
        folder = build(Path(place) / "bundle")
        task = task_for(folder, args.kernels, args.rounds, args.think)
        rows = []
        if args.part != "two":
            rows.append(many(folder, f"sqlite:///{place}/store.db", task, args.clients))
        if args.part != "one":
            with postgres(args.postgres) as url:
                rows.append(killed(folder, url, task, args.clients))
    for found in rows:
        print(json.dumps(found, indent=1))
        if found["lost"] or found["twice"] or found["stored"] != found["reports"]:
            raise SystemExit("Reports were lost or counted twice")
        common.merge("sockets", [found | {"rounds": args.rounds, "think": args.think}], ["what"])


@contextmanager
def postgres(url: str) -> Iterator[str]:
    """An empty database: the given one, or one on a new server."""
    if url:
        yield url
        return
    sys.path.insert(0, str(ROOT / "tests"))
    from helpers.postgres import Cluster, programs

    found = programs()
    if found is None:
        raise SystemExit("PostgreSQL is not installed: give --postgres URL")
    with Cluster(found) as cluster:
        yield cluster.database()


if __name__ == "__main__":
    main()
