"""OpenAI's endpoints for language models: `/v1/chat/completions` and `/v1/models`.

Input: models by name, which are passed in; requests.  Output: answers, whole or as events.  A model
answers one request at a time, the others wait.  A client that leaves ends its answer, and so does
the end of the server.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import reduce
from typing import Protocol, Unpack

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tilewright.base.errors import ContextFull, InputError, MemoryLimit, TilewrightError, UsageError
from tilewright.server.chat_format import (
    DONE,
    FINISHED,
    MOST_BODY,
    ChatAnswerFormat,
    ChatError,
    ChatRequest,
    TokenChoice,
    ToldToken,
    Usage,
    chat_request,
    event,
)

#: Requests that wait for one model.
MOST_WAITING = 32
COMPLETIONS, MODELS = "/v1/chat/completions", "/v1/models"
#: The name, in the state of the app's lifespan, of an `asyncio.Event`: the server is ending.
ENDING = "ending"

#: Fields of a request by the options that they become, where the names differ.
OPTIONS = {"schema": "response_format"}

log = logging.getLogger(__name__)


class ChatAnswer(Protocol):
    """An answer that is made while it is read; see `Completion` in tilewright/language."""

    @property
    def prompt(self) -> Sequence[int]: ...
    @property
    def ids(self) -> Sequence[int]: ...
    @property
    def text(self) -> str: ...
    @property
    def reused(self) -> int: ...
    @property
    def ended(self) -> str | None: ...
    @property
    def logprobs(self) -> Sequence[ToldToken]: ...

    def stop(self) -> None: ...

    def __aiter__(self) -> AsyncIterator[str]: ...


class ChatModel(Protocol):
    """A model that is open; see `LanguageModel` in tilewright/language."""

    @property
    def context(self) -> int: ...

    def chat(
        self, messages: Sequence[Mapping[str, str]], most: int, stop: Sequence[str],
        logprobs: int | None, schema: Mapping[str, object] | None, **choice: Unpack[TokenChoice],
    ) -> ChatAnswer: ...  # fmt: skip


@dataclass
class _Queue:
    """Who answers next, in the order of requests."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[None]:
        """Raises ChatError if too many wait."""
        if self.waiting >= MOST_WAITING:
            raise ChatError(
                "The model has too many requests: try again later",
                None,
                "rate_limit_exceeded",
                429,
                "requests",
            )
        self.waiting += 1
        try:
            await self.lock.acquire()
        finally:
            self.waiting -= 1
        try:
            yield
        finally:
            self.lock.release()


class ChatCompletions:
    """The endpoints."""

    def __init__(self, models: Mapping[str, ChatModel]) -> None:
        self._models = models
        self._queues = {name: _Queue() for name in models}
        self._started = int(time.time())

    def waiting(self, name: str) -> int:
        """How many requests wait for a model."""
        return self._queues[name].waiting

    def routes(self) -> list[Route]:
        return [
            Route(COMPLETIONS, self._create, methods=["POST"]),
            Route(MODELS, self._list, methods=["GET"]),
            Route(MODELS + "/{name:path}", self._one, methods=["GET"]),
            Route("/v1/{path:path}", _unknown, methods=["GET", "POST", "PUT", "PATCH", "DELETE"]),
        ]

    def _list(self, _request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._told(name) for name in self._models]})

    def _one(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self._models:
            return _refusal(_no_model(name))
        return JSONResponse(self._told(name))

    def _told(self, name: str) -> dict[str, object]:
        return {
            "id": name, "object": "model", "created": self._started, "owned_by": "tilewright",
        }  # fmt: skip

    async def _create(self, request: Request) -> Response:
        try:
            found = chat_request(await _body(request))
            if found.model not in self._models:
                raise _no_model(found.model)
        except ChatError as refused:
            return _refusal(refused)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody reads it
        return _Answering(self._models[found.model], self._queues[found.model], found)


class _Answering(Response):
    """Waits for the model, answers, and stops when the client leaves."""

    def __init__(self, model: ChatModel, queue: _Queue, request: ChatRequest) -> None:
        super().__init__()
        self._model, self._queue, self._request = model, queue, request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        ending = scope.get("state", {}).get(ENDING) or asyncio.Event()
        await _while_there(receive, self._answer(ending, scope, receive, send))

    async def _answer(
        self, ending: asyncio.Event, scope: Scope, receive: Receive, send: Send
    ) -> None:
        try:
            async with self._queue.turn():
                if ending.is_set():
                    raise ChatError("The server is ending", status=503, kind="server_error")
                first = await asyncio.to_thread(self._begun, 0)
                if self._request.is_stream:
                    await self._stream(ending, first, send)
                    return
                response: Response = JSONResponse(await self._whole(ending, first))
        except ChatError as refused:
            response = _refusal(refused)
        except TilewrightError as error:
            response = _refusal(_failed(error))
        await response(scope, receive, send)

    def _begun(self, index: int) -> ChatAnswer:
        """The answer of this number; each is drawn with a seed of its own.

        Raises ChatError for a prompt that does not fit.
        """
        of, most = self._request, self._model.context
        if len(of.messages) > most:
            raise _too_long(f"{len(of.messages)} messages", most)
        choice = of.choice | {"seed": of.choice["seed"] + index}
        try:
            answer = self._model.chat(
                of.messages,
                min(of.most or most, most),
                of.stop,
                logprobs=of.logprobs,
                schema=of.schema,
                **choice,
            )
        except (InputError, UsageError) as error:
            option = str(error.facts.get("option", "messages"))
            param = OPTIONS.get(option, option)
            raise ChatError(f"{error.message}. {error.hint}", param) from error
        if len(answer.prompt) > most:
            raise _too_long(f"{len(answer.prompt)} tokens", most)
        return answer

    async def _answers(self, first: ChatAnswer) -> AsyncIterator[tuple[int, ChatAnswer]]:
        """One after the other, each begun when the one before has ended."""
        for index in range(self._request.count):
            yield index, await asyncio.to_thread(self._begun, index) if index else first

    async def _whole(self, ending: asyncio.Event, first: ChatAnswer) -> dict[str, object]:
        form, choices, usages = ChatAnswerFormat(self._request.model), [], []
        async for index, answer in self._answers(first):
            async with _stopped_by(ending, answer):
                async for _ in _pieces(answer):
                    pass
            told = self._told(answer)
            choices.append(form.choice(index, answer.text, _finished(answer), told))
            usages.append(_usage(answer))
        return form.whole(choices, reduce(Usage.plus, usages))

    async def _stream(self, ending: asyncio.Event, first: ChatAnswer, send: Send) -> None:
        form, usages = ChatAnswerFormat(self._request.model, self._request.with_usage), []

        async def put(data: bytes, more: bool = True) -> None:
            await send({"type": "http.response.body", "body": data, "more_body": more})

        await send({"type": "http.response.start", "status": 200, "headers": EVENTS})
        try:
            async for index, answer in self._answers(first):
                await put(event(form.part(index, {"role": "assistant", "content": ""})))
                async with _stopped_by(ending, answer):
                    told = 0
                    async for piece in _pieces(answer):
                        tokens = self._told(answer, told)
                        told = len(answer.logprobs)
                        await put(event(form.part(index, {"content": piece}, None, tokens)))
                rest = self._told(answer, told) or None
                await put(event(form.part(index, {}, _finished(answer), rest)))
                usages.append(_usage(answer))
        except (ChatError, TilewrightError) as error:  # too late for another status
            refused = error if isinstance(error, ChatError) else _failed(error)
            await put(event(refused.body), more=False)
            return
        if form.with_usage:
            await put(event(form.last(reduce(Usage.plus, usages))))
        await put(DONE, more=False)

    def _told(self, answer: ChatAnswer, begin: int = 0) -> Sequence[ToldToken] | None:
        """How likely the answer's tokens were, from one of them on; None if nobody asked."""
        if self._request.logprobs is None:
            return None
        ended = answer.ended == "end"
        return answer.logprobs[begin : len(answer.logprobs) - ended]


#: Headers of an answer in events; the last one is for proxies that would collect them.
EVENTS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


async def _pieces(answer: ChatAnswer) -> AsyncIterator[str]:
    """The text; it ends if no token fits any more."""
    try:
        async for piece in answer:
            yield piece
    except (ContextFull, MemoryLimit):
        if not answer.ids:
            raise


def _finished(answer: ChatAnswer) -> str:
    return FINISHED.get(answer.ended or "", "stop")


def _usage(answer: ChatAnswer) -> Usage:
    return Usage(len(answer.prompt), len(answer.ids), answer.reused)


async def _body(request: Request) -> bytes:
    """Raises ChatError, ClientDisconnect.

    Pages of other sites may send other types of bodies without being asked first.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ChatError("The body must be application/json", status=415)
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MOST_BODY:
            raise ChatError(f"The body has more than {MOST_BODY} bytes", status=413)
        parts.append(part)
    return b"".join(parts)


@asynccontextmanager
async def _stopped_by(ending: asyncio.Event, answer: ChatAnswer) -> AsyncGenerator[None]:
    """Stops the answer when the server ends, and in any case at the end of the block."""

    async def stop() -> None:
        await ending.wait()
        answer.stop()

    watch = asyncio.create_task(stop())
    try:
        yield
    finally:
        watch.cancel()
        answer.stop()


async def _while_there(receive: Receive, work: Coroutine[object, object, None]) -> None:
    """Does the work, but not after the client left."""

    async def left() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    task, gone = asyncio.create_task(work), asyncio.create_task(left())
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        if not task.done():
            task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def _too_long(what: str, most: int) -> ChatError:
    return ChatError(
        f"The request has {what}, and the context holds {most} tokens", "messages",
        "context_length_exceeded",
    )  # fmt: skip


def _no_model(name: str) -> ChatError:
    return ChatError(f"There is no model {name[:80]!r}", "model", "model_not_found", 404)


def _unknown(request: Request) -> Response:
    """Of other paths and methods."""
    known = {COMPLETIONS: "POST", MODELS: "GET"}.get(request.url.path)
    if known is None:
        return _refusal(ChatError(f"There is no {request.url.path[:80]!r} here", status=404))
    refused = _refusal(ChatError(f"Use the method {known}", status=405))
    refused.headers["allow"] = known
    return refused


def _failed(error: TilewrightError) -> ChatError:
    """Without what may name paths, which belong in the log only."""
    log.error("An answer failed: %s", error)
    return ChatError(
        f"The model failed ({error.code}): see the server's log",
        None,
        error.code,
        500,
        "server_error",
    )


def _refusal(refused: ChatError) -> Response:
    headers = {"retry-after": "5"} if refused.status == 429 else {}
    return JSONResponse(refused.body, status_code=refused.status, headers=headers)
