"""The wire format of OpenAI's chat completions: what a request asks, and what is answered.

Input: the body of a request.  Output: `ChatRequest`, or `ChatError` with the status and the form
that clients of OpenAI expect; the JSON of whole answers and of their parts.  Nothing is computed
here.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, TypedDict

import msgspec

#: Bytes of a request, and stop texts in it.
MOST_BODY, MOST_STOPS = 1 << 22, 4
#: Answers to a request, and likeliest tokens that one tells beside each of its own.
MOST_ANSWERS, MOST_LOGPROBS = 128, 20
#: The roles of messages, by what the chat template calls them.
ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}

#: The field that one of msgspec's messages ends with, up to elements, which it does not number.
_PLACE = re.compile(r"`\$\.([^`\[]+)[^`]*`$")


_UNKNOWN = re.compile(r"unknown field `([^`]+)`")


class ChatError(Exception):
    """An answer that is an error.  kind, param, code: as of OpenAI's errors"""

    def __init__(
        self, message: str, param: str | None = None, code: str | None = None, status: int = 400,
        kind: str = "invalid_request_error",
    ) -> None:  # fmt: skip
        self.status = status
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": code}}
        super().__init__(message)


class _Part(msgspec.Struct):
    type: str
    text: str | None = None


class _Message(msgspec.Struct, forbid_unknown_fields=True):
    role: str
    content: str | list[_Part] | None = None

    annotations: object = None
    audio: object = None
    function_call: object = None
    name: object = None
    refusal: object = None
    tool_call_id: object = None
    tool_calls: object = None


class _NamedSchema(msgspec.Struct, forbid_unknown_fields=True):
    """What is asked of a schema is always strict."""

    schema: dict[str, object]
    name: object = None
    description: object = None
    strict: object = None


class _ResponseFormat(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: _NamedSchema | None = None


class _StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    include_usage: bool = False
    include_obfuscation: bool = False


class _Request(msgspec.Struct, forbid_unknown_fields=True):
    """All fields of the format.  The last ones are for OpenAI's own service and change no text."""

    model: str
    messages: list[_Message]
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    logit_bias: dict[int, float] | None = None
    n: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    response_format: _ResponseFormat | None = None

    audio: object = None
    function_call: object = None
    functions: object = None
    modalities: object = None
    moderation: object = None
    parallel_tool_calls: object = None
    prediction: object = None
    reasoning_effort: object = None
    tool_choice: object = None
    tools: object = None
    verbosity: object = None
    web_search_options: object = None

    metadata: object = None
    prompt_cache_key: object = None
    prompt_cache_options: object = None
    prompt_cache_retention: object = None
    safety_identifier: object = None
    service_tier: object = None
    store: object = None
    user: object = None


#: Fields that are not supported, by the values that ask for nothing; null is one of every field.
NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "audio": (),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "modalities": (["text"],),
    "moderation": (),
    "parallel_tool_calls": (True, False),
    "prediction": (),
    "reasoning_effort": ("none",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "verbosity": ("medium",),
    "web_search_options": (),
}


class TokenChoice(TypedDict):
    """How tokens are chosen, in the words of `Sampling` in tilewright/language."""

    temperature: float
    top_p: float
    seed: int
    frequency_penalty: float
    presence_penalty: float
    logit_bias: Mapping[int, float]


@dataclass(frozen=True)
class ChatRequest:
    """A request.  most: of new tokens, None: as many as fit;  count: of answers
    logprobs: whether answers tell how likely their tokens were, and how many others they name
    schema: what answers fit, None: anything
    """

    model: str
    messages: Sequence[Mapping[str, str]]
    most: int | None
    stop: Sequence[str]
    count: int
    logprobs: int | None
    schema: Mapping[str, object] | None
    choice: TokenChoice
    is_stream: bool
    with_usage: bool


def chat_request(body: bytes) -> ChatRequest:
    """The request in a body.  Raises ChatError."""
    try:
        found = msgspec.json.decode(body, type=_Request)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as cause:
        place, unknown = _PLACE.search(str(cause)), _UNKNOWN.search(str(cause))
        parts = [found[1] for found in (place, unknown) if found]
        raise ChatError(
            f"The request cannot be read: {cause}"[:300],
            ".".join(parts) or None,
            "unknown_field" if unknown else None,
        ) from cause
    for name, neutral in NEUTRAL.items():
        value = getattr(found, name)
        if value is not None and value not in neutral:
            raise _unsupported(name)
    for name in ("max_tokens", "max_completion_tokens"):
        _check((getattr(found, name) or 1) >= 1 and getattr(found, name) != 0, name, "1 or more")
    stop = [found.stop] if isinstance(found.stop, str) else found.stop or []
    _check(len(stop) <= MOST_STOPS and all(stop), "stop", f"at most {MOST_STOPS} texts")
    _check(bool(found.messages), "messages", "one or more")
    _check(found.stream_options is None or bool(found.stream), "stream_options", "with stream")
    _check(found.n is None or 1 <= found.n <= MOST_ANSWERS, "n", f"from 1 to {MOST_ANSWERS}")
    top = found.top_logprobs
    _check(top is None or 0 <= top <= MOST_LOGPROBS, "top_logprobs", f"from 0 to {MOST_LOGPROBS}")
    _check(not top or bool(found.logprobs), "top_logprobs", "with logprobs")
    if found.stream_options is not None and found.stream_options.include_obfuscation:
        raise _unsupported("stream_options.include_obfuscation")
    limits = (found.max_completion_tokens, found.max_tokens)
    return ChatRequest(
        model=found.model,
        messages=[_message(number, each) for number, each in enumerate(found.messages)],
        most=next((limit for limit in limits if limit is not None), None),
        stop=stop,
        count=1 if found.n is None else found.n,
        logprobs=(found.top_logprobs or 0) if found.logprobs else None,
        schema=_schema(found.response_format),
        choice=_choice(found),
        is_stream=bool(found.stream),
        with_usage=found.stream_options is not None and found.stream_options.include_usage,
    )


def _schema(found: _ResponseFormat | None) -> Mapping[str, object] | None:
    if found is None or found.type == "text":
        return None
    if found.type == "json_object":
        return {"type": "object"}
    _check(found.json_schema is not None, "response_format.json_schema", "a schema")
    return found.json_schema.schema if found.json_schema else None


def _unsupported(name: str) -> ChatError:
    return ChatError(f"{name} is not supported: leave it out", name, "unsupported_parameter")


def _choice(found: _Request) -> TokenChoice:
    _check(found.temperature is None or 0 <= found.temperature <= 2, "temperature", "from 0 to 2")
    _check(found.top_p is None or 0 < found.top_p <= 1, "top_p", "above 0 and at most 1")
    for name in ("frequency_penalty", "presence_penalty"):
        _check(-2 <= (getattr(found, name) or 0) <= 2, name, "from -2 to 2")
    bias = found.logit_bias or {}
    _check(all(-100 <= value <= 100 for value in bias.values()), "logit_bias", "from -100 to 100")
    return TokenChoice(
        temperature=1.0 if found.temperature is None else found.temperature,
        top_p=1.0 if found.top_p is None else found.top_p,
        seed=secrets.randbits(32) if found.seed is None else found.seed,
        frequency_penalty=found.frequency_penalty or 0.0,
        presence_penalty=found.presence_penalty or 0.0,
        logit_bias=bias,
    )


def _check(holds: bool, name: str, expected: str) -> None:
    if not holds:
        raise ChatError(f"{name} must be {expected}", name)


def _message(number: int, found: _Message) -> Mapping[str, str]:
    at = f"messages[{number}]"
    if found.name is not None:
        raise _unsupported(f"{at}.name")
    calls = found.tool_calls or found.tool_call_id or found.function_call or found.audio
    if found.role not in ROLES or calls or found.content is None:
        raise ChatError(
            f"{at} is not a text of {', '.join(ROLES)}: tools and other contents are not supported",
            at, "unsupported_message",
        )  # fmt: skip
    if isinstance(found.content, str):
        return {"role": ROLES[found.role], "content": found.content}
    for part in found.content:
        if part.type != "text" or part.text is None:
            raise ChatError(
                f"{at} has a part of the type {part.type[:40]!r}: only text is supported",
                f"{at}.content",
                "unsupported_content",
            )
    return {"role": ROLES[found.role], "content": "".join(p.text or "" for p in found.content)}


#: Why an answer ended, as OpenAI has it, by our words.
FINISHED = {
    "end": "stop",
    "stop": "stop",
    "most": "length",
    "context": "length",
    "memory": "length",
}


@dataclass(frozen=True)
class Usage:
    """Tokens.  cached: of the prompt, those that need no computing"""

    prompt: int
    answer: int
    cached: int

    def plus(self, other: Usage) -> Usage:
        """With another answer to the same prompt."""
        return replace(self, answer=self.answer + other.answer)

    def to_json(self) -> dict[str, object]:
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.answer,
            "total_tokens": self.prompt + self.answer,
            "prompt_tokens_details": {"cached_tokens": self.cached},
        }


class ToldToken(Protocol):
    """A token and how likely it was; see `TokenLogprob` in tilewright/language."""

    @property
    def name(self) -> str: ...
    @property
    def piece(self) -> bytes: ...
    @property
    def logprob(self) -> float: ...
    @property
    def top(self) -> Sequence[ToldToken]: ...


def _logprobs(tokens: Sequence[ToldToken] | None) -> dict[str, object] | None:
    """None if nobody asked for them."""
    if tokens is None:
        return None
    told = [_logprob(t) | {"top_logprobs": [_logprob(other) for other in t.top]} for t in tokens]
    return {"content": told, "refusal": None}


def _logprob(token: ToldToken) -> dict[str, object]:
    piece = [*token.piece] if token.piece else None
    return {"token": token.name, "logprob": token.logprob, "bytes": piece}


@dataclass(frozen=True)
class ChatAnswerFormat:
    """The JSON of the answers to a request.  with_usage: whether parts have the field `usage`"""

    model: str
    with_usage: bool = False
    id: str = field(default_factory=lambda: f"chatcmpl-{secrets.token_hex(12)}")
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self, choices: Sequence[Mapping[str, object]], usage: Usage) -> dict[str, object]:
        """choices: as of `choice`"""
        return self._json("chat.completion", choices) | {"usage": usage.to_json()}

    def choice(
        self, index: int, text: str, finished: str, tokens: Sequence[ToldToken] | None
    ) -> dict[str, object]:
        return {
            "index": index,
            "message": {"role": "assistant", "content": text, "refusal": None},
            "logprobs": _logprobs(tokens),
            "finish_reason": finished,
        }

    def part(
        self, index: int, delta: Mapping[str, str], finished: str | None = None,
        tokens: Sequence[ToldToken] | None = None,
    ) -> dict[str, object]:  # fmt: skip
        choice = {
            "index": index,
            "delta": delta,
            "logprobs": _logprobs(tokens),
            "finish_reason": finished,
        }
        made = self._json("chat.completion.chunk", [choice])
        return made | {"usage": None} if self.with_usage else made

    def last(self, usage: Usage) -> dict[str, object]:
        """The part that has the usage and no choice."""
        return self._json("chat.completion.chunk", []) | {"usage": usage.to_json()}

    def _json(self, kind: str, choices: Sequence[object]) -> dict[str, object]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model,
                "choices": choices}  # fmt: skip


def event(data: object) -> bytes:
    """A server-sent event."""
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


DONE = b"data: [DONE]\n\n"
