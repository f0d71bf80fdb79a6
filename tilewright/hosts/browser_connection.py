"""The Python end of the host protocol (docs/host-protocol.md): requests over a page's WebSocket.

Input: the WebSocket of a page, requests from any thread.  Output: the page's results, or its errors
as classes of base/errors.py.  This module starts no browser and opens no bundle.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from starlette.websockets import WebSocket, WebSocketDisconnect

from tilewright.base.dtypes import BY_NUMPY, DECLARED
from tilewright.base.errors import HostError, TilewrightError, required
from tilewright.base.numpy_scalars import Array

PROTOCOL = 1
LOOK_SECONDS = 0.1
RESTART = "Start the host again"

Result = TypeVar("Result")
Json = dict[str, Any]
Progress = Callable[[Json], None]
_ERRORS = {kind.code: kind for kind in TilewrightError.__subclasses__()}


@dataclass(frozen=True)
class Reply:
    """A result and its binary frames; `aborted`: Ctrl-C was pressed before it was complete."""

    result: Json
    frames: list[bytes]
    aborted: bool = False


@dataclass
class _Pending:
    future: Future[Reply]
    on_progress: Progress | None
    heard: float = field(default_factory=time.monotonic)


class Link:
    """One connection to one page.

    `socket` is the server's endpoint; other threads call `wait_for_page` and `request`.
    check: called while waiting; raises if the browser has ended
    """

    def __init__(self, check: Callable[[], None]) -> None:
        self.token = secrets.token_urlsafe(16)
        self._check = check
        self._hello: Future[Json] = Future()
        self._pending: dict[int, _Pending] = {}
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._socket: WebSocket | None = None
        self._sending = asyncio.Lock()
        self._closed = False

    async def socket(self, socket: WebSocket) -> None:
        """The endpoint: serves one page, with the right token, until it disconnects."""
        token = socket.query_params.get("token", "").encode()
        if not secrets.compare_digest(token, self.token.encode()) or self._socket is not None:
            await socket.close(1008)
            return
        await socket.accept()
        self._socket, self._loop = socket, asyncio.get_running_loop()
        try:
            while (message := await _receive(socket)) is not None:
                self._handle(message)
        finally:
            self._end(_gone())

    def wait_for_page(self, timeout: float) -> Json:
        """The page's hello.  Raises HostError after `timeout` seconds, or if versions differ."""
        started = time.monotonic()
        hello = self._wait(self._hello, timeout, lambda: started, "start its page")
        if hello.get("protocol") != PROTOCOL:
            raise HostError(
                f"The page speaks protocol {hello.get('protocol')}, this program {PROTOCOL}",
                hint="Reinstall Tilewright: its web files are from another version",
            )
        return hello

    def request(
        self,
        method: str,
        params: Json,
        frames: tuple[memoryview, ...] = (),
        *,
        timeout: float,
        on_progress: Progress | None = None,
        grace: float = 0,
    ) -> Reply:
        """Sends one request.  Raises the page's error, or HostError.

        timeout: seconds without a message after which it fails; progress restarts them
        grace:   seconds that the page has after Ctrl-C to answer with a partial result
        """
        # before anything is sent: a page that got the request must be told of Ctrl-C
        with _ctrl_c(held=grace > 0) as presses:
            pending = _Pending(Future(), on_progress)
            number = next(self._numbers)
            with self._lock:
                loop = self._loop
                if self._closed or loop is None:
                    raise HostError("The page has disconnected", hint=RESTART)
                self._pending[number] = pending
            text = json.dumps({"id": number, "method": method, "params": params})
            sent = asyncio.run_coroutine_threadsafe(self._send(text, frames), loop)

            def answer(future: Future[Result], what: str) -> Result:
                return self._wait(future, timeout, lambda: pending.heard, what, presses)

            try:
                answer(sent, f"take the request `{method}`")
                reply = answer(pending.future, f"answer `{method}`")
                return replace(reply, aborted=presses() > 0)
            except KeyboardInterrupt:
                if not grace:
                    raise
                return self._aborted(number, loop, pending, grace, presses)
            finally:
                sent.cancel()
                with self._lock:
                    self._pending.pop(number, None)

    def _aborted(
        self,
        number: int,
        loop: asyncio.AbstractEventLoop,
        pending: _Pending,
        grace: float,
        presses: Callable[[], int],
    ) -> Reply:
        """Tells the page to end that request.  Raises KeyboardInterrupt if it does not answer."""
        ask = {"id": next(self._numbers), "method": "abort", "params": {"request": number}}
        asyncio.run_coroutine_threadsafe(self._send(json.dumps(ask), ()), loop)
        started = time.monotonic()
        try:
            reply = self._wait(pending.future, grace, lambda: started, "end", lambda: presses() - 1)
            return replace(reply, aborted=True)
        except TilewrightError as error:
            raise KeyboardInterrupt from error

    def _wait(
        self,
        future: Future[Result],
        timeout: float,
        heard: Callable[[], float],
        what: str,
        presses: Callable[[], int] = lambda: 0,
    ) -> Result:
        while not wait([future], LOOK_SECONDS).done:
            if presses() > 0:
                raise KeyboardInterrupt
            self._check()
            if time.monotonic() - heard() > timeout:
                raise HostError(
                    f"The page did not {what} within {timeout:g} s",
                    hint="A software adapter may take minutes: try a real GPU, a smaller input, or "
                    "another host",
                )
        return future.result()

    async def _send(self, text: str, frames: tuple[memoryview, ...]) -> None:
        socket = required(self._socket, "no page has ever connected")
        try:
            async with self._sending:
                await socket.send_text(text)
                for frame in frames:
                    await socket.send_bytes(bytes(frame))
        except (RuntimeError, WebSocketDisconnect) as error:
            raise _gone() from error

    def _handle(self, message: Reply) -> None:
        plain = message.result
        if "hello" in plain:
            self._hello.set_result(plain["hello"])
            return
        progress = plain.get("progress")
        with self._lock:
            pending = self._pending.get((progress or plain).get("id", -1))
        if pending is None or pending.future.done():
            return
        pending.heard = time.monotonic()
        if progress is not None:
            _report(pending, progress)
        elif "error" in plain:
            pending.future.set_exception(page_error(plain["error"]))
        else:
            pending.future.set_result(Reply(plain["result"], message.frames))

    def _end(self, error: HostError) -> None:
        with self._lock:
            self._closed = True
            waiting = [p.future for p in self._pending.values()]
        if not self._hello.done():
            self._hello.set_exception(error)
        for future in waiting:
            if not future.done():
                future.set_exception(error)


@contextmanager
def _ctrl_c(*, held: bool) -> Iterator[Callable[[], int]]:
    """Yields a function that counts how often Ctrl-C was pressed; if `held`, that is all it does.

    Python may drop a KeyboardInterrupt, for example in a callback; then the page would not be told.
    """
    usual = signal.default_int_handler
    main = threading.current_thread() is threading.main_thread()
    if not (held and main and signal.getsignal(signal.SIGINT) is usual):
        yield lambda: 0
        return
    presses: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _frame: presses.append(number))
    try:
        yield lambda: len(presses)
    finally:
        signal.signal(signal.SIGINT, usual)


def _report(pending: _Pending, progress: Json) -> None:
    """Calls the caller's progress function; its exception ends the request, not the connection."""
    try:
        if pending.on_progress:
            pending.on_progress(progress)
    except Exception as error:
        pending.future.set_exception(error)


def _gone() -> HostError:
    return HostError("The page closed its connection", hint=RESTART)


async def _receive(socket: WebSocket) -> Reply | None:
    """A message with the binary frames that it describes; None when the page is gone."""
    text = await _frame(socket, "text")
    if text is None:
        return None
    plain = json.loads(text)
    result = plain.get("result") or {}
    single = (result[name] for name in ("asset", "state") if name in result)
    described = [*result.get("outputs", ()), *single]
    frames = []
    for _ in described:
        frame = await _frame(socket, "bytes")
        if frame is None:
            return None
        frames.append(frame)
    return Reply(plain, frames)


async def _frame(socket: WebSocket, kind: str) -> Any:
    message = await socket.receive()
    if message["type"] == "websocket.disconnect" or message.get(kind) is None:
        return None
    return message[kind]


def page_error(plain: Json) -> TilewrightError:
    """The page's error as an exception; a code without a class in Python becomes a HostError."""
    code = str(plain.get("code", "error"))
    facts = {k: v for k, v in (plain.get("facts") or {}).items() if k not in ("message", "hint")}
    if code not in _ERRORS:
        facts["engine_code"] = code
    kind = _ERRORS.get(code, HostError)
    return kind(str(plain.get("message", "")), hint=str(plain.get("hint", "")), **facts)


def describe(name: str, array: Array) -> tuple[Json, memoryview]:
    """The description of a tensor of a bundle, and its bytes, row-major and little-endian."""
    dtype = BY_NUMPY[array.dtype.name]
    shape = list(array.shape)
    flat = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).reshape(-1)
    data = memoryview(flat.view(np.uint8).data)
    return {"name": name, "dtype": dtype.name, "shape": shape, "bytes": data.nbytes}, data


def tensors(described: list[Json], frames: list[bytes]) -> dict[str, Array]:
    """The arrays of a result, by name."""
    return {
        str(d["name"]): np.frombuffer(frame, dtype=DECLARED[d["dtype"]].numpy)
        .reshape(d["shape"])
        .copy()
        for d, frame in zip(described, frames, strict=True)
    }
