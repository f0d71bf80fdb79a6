"""The server under silent, trickling and half-open connections: is it still there for others?

Input: nothing.  Output: results/serving.front.json: a row per kind of attack, and one without.  The
server is `tilewright serve` in a process of its own; attackers hold as many connections as they
can, from one network or each from its own (loopback addresses 127.x.y.1, so Linux only), and
connect again when they are ended.  Meanwhile `/healthz` is asked on a new connection each time.

    python -m benchmarks serving.front
    python -m benchmarks serving.front --connections 100 --probes 50
"""

from __future__ import annotations

import http.client
import multiprocessing
import os
import selectors
import socket
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.common import Run
from benchmarks.records import Row
from benchmarks.serving.site import START, Site, build, running
from tilewright.base.quantiles import quantile

#: Seconds between two probes, and between two looks of an attacker at a connection; it looks at
#: some of them at a time.
PROBE, TICK, PARTS = 0.1, 1.0, 20
HOST = "Host: 127.0.0.1\r\n"
#: What each kind sends first, and then every second.
KINDS: dict[str, tuple[bytes, bytes]] = {
    "silent": (b"", b""),
    "trickling": (f"GET /healthz HTTP/1.1\r\n{HOST}X-Slow: ".encode(), b"a"),
    "half-open": (
        f"GET /api/tune HTTP/1.1\r\n{HOST}Upgrade: websocket\r\nConnection: Upgrade\r\n".encode(),
        b"",
    ),
}


def resident(site: Site) -> int:
    """Bytes of a server's memory."""
    assert site.process is not None
    pages = int(Path(f"/proc/{site.process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def health(site: Site) -> float:
    """Milliseconds from connecting to the end of the answer."""
    begin = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=START)
    connection.request("GET", "/healthz")
    answer = connection.getresponse()
    answer.read()
    connection.close()
    if answer.status != 200:
        raise SystemExit(f"/healthz answered {answer.status}")
    return (time.perf_counter() - begin) * 1e3


class Attack:
    """Connections of one kind, in a process of their own."""

    def __init__(self, port: int, kind: str, networks: int, connections: int) -> None:
        self._port = port
        self._first, self._then = KINDS[kind]
        self._networks = networks
        self._connections = connections
        self._open: dict[int, socket.socket] = {}
        self._watched = selectors.DefaultSelector()
        self.begun = 0

    def run(self, full: Event, stop: Event, told: Queue[int]) -> None:
        while not stop.is_set():
            for part in range(PARTS):
                end = time.monotonic() + TICK / PARTS
                self._look(range(part, self._connections, PARTS))
                time.sleep(max(0.0, end - time.monotonic()))
            full.set()
        told.put(self.begun)

    def _look(self, numbers: range) -> None:
        self._forget_ended()
        for number in numbers:
            if number not in self._open:
                self._connect(number)
            elif self._then:
                self._send(number, self._then)

    def _connect(self, number: int) -> None:
        plain = socket.socket()
        network = number % self._networks
        plain.bind((f"127.{1 + network // 250}.{1 + network % 250}.1", 0))
        plain.settimeout(TICK)
        try:
            plain.connect(("127.0.0.1", self._port))
        except OSError:
            plain.close()
            return
        plain.setblocking(False)
        self.begun += 1
        self._open[number] = plain
        self._watched.register(plain, selectors.EVENT_READ, number)
        self._send(number, self._first)

    def _send(self, number: int, data: bytes) -> None:
        try:
            self._open[number].send(data)
        except OSError:
            self._close(number)

    def _forget_ended(self) -> None:
        # all that comes is an answer before the end, or the end
        for key, _ in self._watched.select(0):
            self._close(key.data)

    def _close(self, number: int) -> None:
        plain = self._open.pop(number)
        self._watched.unregister(plain)
        plain.close()


@contextmanager
def under_attack(port: int, kind: str, networks: int, connections: int) -> Iterator[list[int]]:
    """While the connections are held; afterwards the list has how many there were in all."""
    context = multiprocessing.get_context("spawn")
    full, stop, told = context.Event(), context.Event(), context.Queue()
    given = (port, kind, networks, connections)
    process = context.Process(target=_attack, args=(given, full, stop, told))
    process.start()
    begun: list[int] = []
    try:
        if not full.wait(START):
            raise SystemExit("The attackers did not connect in time")
        yield begun
    finally:
        stop.set()
        begun.append(told.get(timeout=START))
        process.join(START)


def _attack(given: tuple[int, str, int, int], full: Event, stop: Event, told: Queue[int]) -> None:
    Attack(*given).run(full, stop, told)


def probed(site: Site, probes: int) -> Row:
    waited, most = [], resident(site)
    for _ in range(probes):
        waited.append(health(site))
        most = max(most, resident(site))
        time.sleep(PROBE)
    waited.sort()
    return {
        "health_median_ms": round(statistics.median(waited), 2),
        "health_p95_ms": round(quantile(waited, 0.95), 2),
        "health_most_ms": round(waited[-1], 2),
        "peak_bytes": most,
    }


def measured(bundle: Path, kind: str, networks: int, connections: int, probes: int) -> Row:
    """A row: a new server, an attack, probes; memory before, at most and afterwards."""
    site = Site(bundle, log=(log := bundle.parent / "log"))
    with running([site]):
        for _ in range(20):
            health(site)
        before = resident(site)
        if kind == "none":
            found, begun = probed(site, probes), [0]
        else:
            with under_attack(site.port, kind, networks, connections) as begun:
                found = probed(site, probes)
        time.sleep(TICK)
        after = resident(site)
    return {
        "kind": kind,
        "networks": networks,
        "held": connections,
        "probes": probes,
        "connections": begun[0],
        **found,
        "before_bytes": before,
        "after_bytes": after,
        "log_bytes": log.stat().st_size,
    }


def main(
    run: Run,
    connections: Annotated[int, typer.Option(min=1, help="That attackers hold.")] = 1000,
    probes: Annotated[int, typer.Option(min=2, help="Of /healthz.")] = 200,
) -> None:
    cases = [("none", 0, 0)]
    cases += [(kind, n, connections) for n in (1, connections) for kind in KINDS]
    with tempfile.TemporaryDirectory(prefix="tilewright-") as place:
        bundle = build(Path(place) / "bundle")
        for kind, networks, held in cases:
            run.keep(measured(bundle, kind, networks, held, probes))
