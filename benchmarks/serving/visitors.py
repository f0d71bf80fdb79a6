"""Many simulated devices on the tuning socket: they run no candidates and report made-up results.

Input: sites (one or more servers of one store), a bundle, numbers of devices and rounds.  Output: a
`Visit` per device: how long it waited for each candidate, and which reports were acknowledged.  A
device whose connection breaks goes to the next site and sends unacknowledged reports again.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from tilewright.tuning.messages import (
    MOST_FROM_SERVER,
    PROTOCOL,
    Ack,
    Bye,
    Error,
    FromServer,
    GoldAnswer,
    Hello,
    KernelMessage,
    Offer,
    Report,
    Result,
    Vote,
    Want,
    Welcome,
    decode_from_server,
    encode,
)

#: Timeouts in seconds: of an answer, and of all of a device's work.
PATIENCE, TOGETHER = 60.0, 300.0
#: Errors after which a later attempt may succeed.
LATER = ("later", "rate")
#: Of this many candidates of each kernel, a device tried half on an earlier visit.
BEFORE = 20
DEVICES = ("wasm-x86-relaxed-32k", "wasm-x86-relaxed-48k", "wasm-x86-relaxed")


@dataclass(frozen=True)
class Task:
    """What each device does: `rounds` candidates, `think` seconds for each, a report per kernel."""

    bundle: str
    digest: str
    variant: str
    specs: tuple[int, ...]
    rounds: int
    think: float


@dataclass
class Visit:
    """What one device saw.  waited: milliseconds for each candidate."""

    number: int
    waited: list[float] = field(default_factory=list)
    connections: int = 0
    arrived: bool = False
    reports: dict[str, Report] = field(default_factory=dict)
    acked: set[str] = field(default_factory=set)
    refused: list[str] = field(default_factory=list)
    tried: dict[int, list[int]] = field(default_factory=dict)

    @classmethod
    def new(cls, number: int, task: Task) -> Visit:
        """A returning device.  Devices have tried different candidates and get different ones."""
        tried = {spec: random.sample(range(1, BEFORE), BEFORE // 2) for spec in task.specs}
        return cls(number, tried=tried)


async def crowd(sites: Sequence[str], task: Task, count: int) -> list[Visit]:
    """Runs all devices at once; none begins before all are connected."""
    gate = asyncio.Barrier(count)
    door = asyncio.Semaphore(64)
    async with asyncio.timeout(TOGETHER):
        return await asyncio.gather(*(_visit(sites, task, n, gate, door) for n in range(count)))


async def _visit(
    sites: Sequence[str], task: Task, number: int, gate: asyncio.Barrier, door: asyncio.Semaphore
) -> Visit:
    visit = Visit.new(number, task)
    while True:
        site = sites[(number + visit.connections) % len(sites)]
        visit.connections += 1
        try:
            async with door:
                socket = await connect(
                    site.replace("http", "ws", 1) + "/api/tune",
                    # as from a trusted proxy, so that each device has its own network
                    additional_headers={"X-Forwarded-For": f"10.{number >> 8}.{number & 255}.1"},
                    compression=None,
                    max_size=MOST_FROM_SERVER,
                    open_timeout=PATIENCE,
                    ping_interval=None,
                )
            try:
                await _session(socket, task, visit, gate)
                return visit
            finally:
                await socket.close()
        except (ConnectionClosed, InvalidHandshake, OSError, TimeoutError):
            await asyncio.sleep(random.uniform(0.05, 0.5))


async def _session(
    socket: ClientConnection, task: Task, visit: Visit, gate: asyncio.Barrier
) -> None:
    """Continues where the last session ended."""
    hello = Hello(
        protocol=PROTOCOL, bundle=task.bundle, digest=task.digest,
        device=DEVICES[visit.number % len(DEVICES)], browser="other", variant=task.variant,
        specs=task.specs, tried={spec: tuple(found) for spec, found in visit.tried.items()},
    )  # fmt: skip
    await socket.send(encode(hello))
    welcome = await _next(socket, visit, Welcome)
    assert isinstance(welcome, Welcome)
    if not visit.arrived:
        visit.arrived = True
        await gate.wait()
    for nonce, report in visit.reports.items():
        if nonce not in visit.acked:
            await socket.send(encode(report))
    for _ in range(task.rounds - len(visit.waited)):
        await _round(socket, task, visit)
        due = len(visit.waited) * len(task.specs) // task.rounds
        for offer in welcome.kernels[len(visit.reports) : due]:
            report = _report(offer)
            visit.reports[report.nonce] = report
            await socket.send(encode(report))
    for offer in welcome.kernels[len(visit.reports) :]:
        report = _report(offer)
        visit.reports[report.nonce] = report
        await socket.send(encode(report))
    while visit.acked < visit.reports.keys():
        await _next(socket, visit, Ack)
    await socket.send(encode(Bye()))
    await socket.wait_closed()


async def _round(socket: ClientConnection, task: Task, visit: Visit) -> None:
    """One candidate; the time of a trial is random, so that devices do not run in step."""
    begin = time.perf_counter()
    await socket.send(encode(Want(count=1)))
    kernel = await _next(socket, visit, KernelMessage)
    assert isinstance(kernel, KernelMessage)
    visit.waited.append((time.perf_counter() - begin) * 1e3)
    visit.tried.setdefault(kernel.spec, []).append(kernel.candidate)
    await asyncio.sleep(task.think * random.uniform(0.5, 1.5))
    result = Result(spec=kernel.spec, candidate=kernel.candidate, verdict="slower")
    await socket.send(encode(result))


def _report(offer: Offer) -> Report:
    gold = GoldAnswer(a=offer.gold.a, b=offer.gold.b, ratio=3.0) if offer.gold else None
    top = (Vote(candidate=offer.count - 1, ratio=1.2),)
    return Report(
        nonce=secrets.token_hex(16), spec=offer.spec, checksum=offer.checksum, top=top, gold=gold
    )


async def _next(socket: ClientConnection, visit: Visit, kind: type[FromServer]) -> FromServer:
    """The next message of this kind; notes the messages before it."""
    while True:
        frame = await asyncio.wait_for(socket.recv(), PATIENCE)
        assert isinstance(frame, bytes)
        message, _ = decode_from_server(frame)
        if isinstance(message, Error):
            raise RuntimeError(f"{message.code}: {message.message} {message.facts}")
        if isinstance(message, Ack):
            if message.reason in LATER:
                await asyncio.sleep(random.uniform(1, 3))
                await socket.send(encode(visit.reports[message.nonce]))
                continue
            visit.acked.add(message.nonce)
            if not message.accepted:
                visit.refused.append(message.reason)
        if isinstance(message, kind):
            return message
