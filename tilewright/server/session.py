"""One tuning session: the client's hello, the candidates it gets, the reports it sends.

Input: an accepted WebSocket, and what all sessions share.  Output: messages of
docs/tuning-protocol.md, until the client leaves or is refused.  No state outlives the connection:
a client that reconnects, to this server or another, sends everything needed in its hello.
"""

from __future__ import annotations

import asyncio
import logging
import statistics
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from tilewright.base.compiler_digest import compiler_name
from tilewright.base.errors import TilewrightError
from tilewright.server.client import Client, CrowdResults
from tilewright.server.rate_limits import TokenBucket
from tilewright.server.session_resources import SessionResources
from tilewright.tuning import catalogue
from tilewright.tuning.candidate_order import Tunable, asks_gold, compose, takes_part
from tilewright.tuning.candidates import Space
from tilewright.tuning.catalogue import OpenedBundle
from tilewright.tuning.messages import (
    MOST_CREDIT,
    PROTOCOL,
    Ack,
    Bye,
    Done,
    Error,
    FromClient,
    FromServer,
    Hello,
    Malformed,
    OtherVersion,
    Refusal,
    Report,
    Result,
    TooMany,
    TooSlow,
    Unknown,
    Want,
    Welcome,
    decode_from_client,
    encode,
)

log = logging.getLogger(__name__)

#: Close code of a session that ended normally.
NORMAL = 1000
#: Close code after an error of our own: 4000 + HTTP status.
OWN_ERROR = 4500
#: Timeout in seconds of the final message to a client that may be gone.
LAST_WORDS = 2.0


@dataclass(frozen=True)
class SessionLimits:
    """What a client may do, in seconds, messages per second, and numbers.

    sessions: open at once in this process;  each: open at once per network and site
    hello:    seconds until the first message;  idle: between messages;  send: to send a frame
    messages: per second and session; twice as many in a burst
    waiting:  reports of a session that wait for the store
    leaving:  seconds to store waiting reports after bye
    """

    sessions: int = 2000
    each: int = 64
    hello: float = 15.0
    idle: float = 600.0
    send: float = 30.0
    messages: float = 200.0
    waiting: int = 32
    leaving: float = 5.0


@dataclass
class Counts:
    """Counts of this process, for GET /api/stats.  rounds: in milliseconds."""

    sessions: int = 0
    opened: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    verdicts: Counter[str] = field(default_factory=Counter)
    reports: Counter[str] = field(default_factory=Counter)
    rounds: list[float] = field(default_factory=list)
    sent: int = 0

    def round(self, milliseconds: float) -> None:
        """Records the time to choose, make and send a candidate; the last 4,096 are kept."""
        if len(self.rounds) < 4096:
            self.rounds.append(milliseconds)
        else:
            self.rounds[self.sent % 4096] = milliseconds
        self.sent += 1


class _Gone(Exception):
    """The client closed the connection, or it broke."""


class Session:
    """The server's side of a tuning session, which lasts as long as the connection."""

    def __init__(
        self,
        socket: WebSocket,
        resources: SessionResources,
        results: CrowdResults,
        counts: Counts,
        limits: SessionLimits,
        source: Callable[[], str],
    ) -> None:
        self._socket = socket
        self._resources = resources
        self._results = results
        self._counts = counts
        self._limits = limits
        self._source = source
        self._sending = asyncio.Lock()
        self._credit = 0
        self._credited = asyncio.Event()
        self._bucket = TokenBucket(limits.messages, 2 * limits.messages)
        self._reports: asyncio.Queue[Report] = asyncio.Queue(limits.waiting)
        self._leaving = False

    async def run(self) -> None:
        """Serves until the client is done, gone or refused; then closes the socket."""
        try:
            await self._serve()
            await self._close(NORMAL)
        except _Gone:
            return
        except Refusal as refusal:
            self._counts.refused[refusal.code] += 1
            await self.refuse(refusal)
        except Exception:
            log.exception("A tuning session failed")
            self._counts.refused["error"] += 1
            failed = TilewrightError("The server failed", hint="Connect again")
            await self._last(failed, OWN_ERROR)

    async def refuse(self, refusal: Refusal) -> None:
        """Sends the error and closes the socket."""
        await self._last(refusal, refusal.close)

    async def _last(self, error: TilewrightError, code: int) -> None:
        told = Error(**error.to_json())  # type: ignore[arg-type]
        try:
            await asyncio.wait_for(self._send(told), LAST_WORDS)
        except (Refusal, _Gone, TimeoutError):
            log.debug("The client was gone before this error was sent: %s", error)
        await self._close(code)

    async def _close(self, code: int) -> None:
        try:
            await asyncio.wait_for(self._socket.close(code), LAST_WORDS)
        except (WebSocketDisconnect, RuntimeError, OSError, TimeoutError):
            log.debug("The socket was closed already")

    # ---- the session -----------------------------------------------------------------------------

    async def _serve(self) -> None:
        hello = await self._receive(self._limits.hello)
        if not isinstance(hello, Hello):
            raise Malformed("The first message must be hello", hint=SEE)
        _check(hello)
        self._client = client = await self._admit(hello)
        offers = tuple(client.offers.values())
        await self._send(Welcome(compiler=compiler_name(), kernels=offers))
        for spec in hello.specs:
            if spec not in client.spaces:
                await self._done(spec, ())
        await self._together(self._read(), self._feed(), self._report())

    async def _admit(self, hello: Hello) -> Client:
        """The client of this hello.  Raises a `Refusal`."""
        opened = await self._resources.open(hello.bundle, hello.digest)
        device = catalogue.device_class(hello.device)
        if not (device.tunable and opened.runs(device, hello.variant)):
            raise Unknown(
                "There is no code for this variant of the bundle on this class",
                hint=SEE, variant=hello.variant, device=device.id,
            )  # fmt: skip
        if any(spec >= len(opened.kernels) for spec in hello.specs):
            raise Unknown("The bundle has no such kernel", hint=SEE, kernels=len(opened.kernels))
        spaces = await self._spaces(hello, opened, device.id)
        shares = hello.shares and [
            s for s, n in zip(hello.shares, hello.specs, strict=True) if n in spaces
        ]
        hello = msgspec.structs.replace(hello, specs=tuple(spaces), shares=tuple(shares))
        client = Client(hello, opened, self._source, int(self._source()[:12], 16), spaces)
        crowd = dict(zip(spaces, await self._results.crowd(client), strict=True))
        # a question costs the device time, so it is asked only if the device's votes can count; a
        # page that only checks a relinked bundle gets no candidate to answer with
        asks = self._results.open and client.votes and not hello.check
        offers = {}
        for spec, space in spaces.items():
            own = opened.default(spec, hello.variant, space, hello.features)
            asked = crowd[spec].asks(own, takes_part(spec, client.seed)) if asks else None
            if asked is not None and not space.runs(asked, hello.features):
                asked = None
            if asked is None and asks and asks_gold(spec, client.seed):
                asked = space.gold
            offers[spec] = catalogue.offer(spec, space, own, asked=asked)
        return replace(client, offers=offers, crowd=crowd)

    async def _spaces(self, hello: Hello, opened: OpenedBundle, device: str) -> dict[int, Space]:
        """The space of each kernel; kernels whose space cannot be made are left out."""
        found = await asyncio.gather(
            *(self._resources.space(opened, s, device, hello.objective) for s in hello.specs),
            return_exceptions=True,
        )
        spaces = {}
        for spec, space in zip(hello.specs, found, strict=True):
            if isinstance(space, Exception):
                log.warning("Kernel %d of %s is not tuned: %r", spec, hello.bundle, space)
            elif isinstance(space, BaseException):
                raise space
            else:
                spaces[spec] = space
        return spaces

    async def _together(self, read: Awaitable[None], *others: Awaitable[None]) -> None:
        """Runs all until the reader ends or one fails; then cancels the rest."""
        tasks = [asyncio.ensure_future(work) for work in (read, *others)]
        tasks[0].add_done_callback(lambda _: [task.cancel() for task in tasks[1:]])
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for task in tasks:
                task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        for error in ended:
            if isinstance(error, Exception):
                raise error

    async def _read(self) -> None:
        while True:
            message = await self._receive(self._limits.idle)
            if not self._bucket.take():
                raise TooMany("Too many messages", hint=SEE, limit=self._limits.messages)
            match message:
                case Want():
                    self._credit = min(self._credit + message.count, MOST_CREDIT)
                    self._credited.set()
                case Result():
                    self._take(message)
                case Report():
                    await self._keep(message)
                case Bye():
                    await self._settle()
                    return
                case Hello():
                    raise Malformed("Only the first message may be hello", hint=SEE)

    def _take(self, result: Result) -> None:
        space = self._client.spaces.get(result.spec)
        if space is None or space.schedule(result.candidate) is None:
            raise Unknown(
                "There is no such candidate", hint=SEE, spec=result.spec, candidate=result.candidate
            )
        self._counts.verdicts[result.verdict] += 1

    # ---- reports ---------------------------------------------------------------------------------

    async def _keep(self, report: Report) -> None:
        """Queues a report for the store, which may be slow; refuses it if the queue is full."""
        try:
            self._reports.put_nowait(report)
        except asyncio.QueueFull:
            await self._answer(Ack(nonce=report.nonce, accepted=False, reason="later"))

    async def _report(self) -> None:
        while True:
            report = await self._reports.get()
            ack = await self._results.submit(report, self._client)
            try:
                await self._answer(ack)
            except _Gone:
                # after bye a client need not wait for its acks
                if not self._leaving:
                    raise
            self._reports.task_done()

    async def _settle(self) -> None:
        """After bye: waits for the store, up to `leaving` seconds, to take what was reported."""
        self._leaving = True
        try:
            await asyncio.wait_for(self._reports.join(), self._limits.leaving)
        except TimeoutError:
            log.warning("%d reports were not stored in time", self._reports.qsize() + 1)

    async def _answer(self, ack: Ack) -> None:
        self._counts.reports[ack.reason or "counted"] += 1
        await self._send(ack)

    # ---- candidates ------------------------------------------------------------------------------

    async def _feed(self) -> None:
        """Sends candidates in order, as long as the client has credit."""
        spent: dict[int, list[float]] = {spec: [] for spec in self._client.spaces}
        for pick in compose(self._subjects(), self._client.seed, self._client.hello.skip):
            if pick.candidate is None:
                await self._done(pick.spec, spent.pop(pick.spec))
                continue
            while not self._credit:
                self._credited.clear()
                await self._credited.wait()
            begin = time.perf_counter()
            if await self._push(pick.spec, pick.candidate):
                milliseconds = (time.perf_counter() - begin) * 1e3
                self._counts.round(milliseconds)
                spent[pick.spec].append(milliseconds)

    async def _push(self, spec: int, candidate: int) -> bool:
        """Makes and sends a candidate; False if it cannot be made."""
        client, variant = self._client, self._client.hello.variant
        space = client.spaces[spec]
        built = await self._resources.candidate(client.opened, spec, space, candidate, variant)
        if built is None:
            return False
        self._credit -= 1
        header = catalogue.message(
            client.opened, spec, space, candidate, built, self._resources.signer
        )
        await self._send(header, built.module)
        return True

    async def _done(self, spec: int, spent: Sequence[float]) -> None:
        middle = statistics.median(spent) if spent else 0.0
        await self._send(Done(spec=spec, sent=len(spent), milliseconds=round(middle, 3)))

    def _subjects(self) -> list[Tunable]:
        client, hello = self._client, self._client.hello
        shares = hello.shares or tuple(1 / (n + 1) for n in range(len(hello.specs)))
        return [
            Tunable(
                spec=spec,
                share=share,
                lite=client.spaces[spec].marks.count("lite"),
                order=(0, *client.spaces[spec].trial_on(hello.features)),
                default=client.offers[spec].default,
                known=client.crowd[spec].known,
                settled=client.crowd[spec].default is not None,
                tried=frozenset(hello.tried.get(spec, ())),
                gold=gold.b if (gold := client.offers[spec].gold) else None,
                only_own=hello.check,
            )
            for spec, share in zip(hello.specs, shares, strict=True)
        ]

    # ---- the socket ------------------------------------------------------------------------------

    async def _receive(self, seconds: float) -> FromClient:
        try:
            event = await asyncio.wait_for(self._socket.receive(), seconds)
        except TimeoutError as error:
            raise TooSlow("No message came in time", hint=SEE, seconds=seconds) from error
        if event["type"] == "websocket.disconnect":
            raise _Gone
        frame = event.get("bytes")
        if frame is None:
            raise Malformed("Frames are binary", hint=SEE)
        return decode_from_client(frame)

    async def _send(self, message: FromServer, payload: bytes = b"") -> None:
        try:
            async with self._sending:
                frame = encode(message, payload)
                await asyncio.wait_for(self._socket.send_bytes(frame), self._limits.send)
        except TimeoutError as error:
            raise TooSlow("A frame was not sent in time", seconds=self._limits.send) from error
        except (WebSocketDisconnect, RuntimeError, OSError) as error:
            raise _Gone from error


SEE = "See docs/tuning-protocol.md"


def _check(hello: Hello) -> None:
    """Raises a `Refusal` for a hello that has the right types but wrong values."""
    if hello.protocol != PROTOCOL:
        raise OtherVersion(
            "The client speaks another protocol",
            hint="Load the page again", found=hello.protocol, expected=PROTOCOL,
        )  # fmt: skip
    if len(set(hello.specs)) != len(hello.specs):
        raise Malformed("A kernel is named twice", hint=SEE)
    if hello.shares and len(hello.shares) != len(hello.specs):
        raise Malformed("Give a share for each kernel, or no shares", hint=SEE)
