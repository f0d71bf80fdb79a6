"""Messages between a broker and its clients: events and actions of the policy, on a Unix socket.

Input: records of the policy.  Output: bytes, and back.  A frame is its length (4 bytes, little
endian) and MessagePack: [kind, body].  A client that may open the socket is trusted with the GPU,
but must not be able to crash the broker, so sizes are bounded and types are checked.
"""

from __future__ import annotations

import socket
from typing import get_args

import msgspec

from tilewright.base.errors import (
    AdmissionRefused,
    CompilerBug,
    HostError,
    InputError,
    TilewrightError,
    UsageError,
)
from tilewright.bundle.format import MALFORMED
from tilewright.elastic.coordination import ONE_VERSION
from tilewright.elastic.policy import (
    Action,
    Allow,
    Arrived,
    Begin,
    Critical,
    Ended,
    Enqueue,
    Finished,
    Gone,
    Normal,
    Noticed,
    Overdue,
    Proceed,
    Reached,
    Recalibrated,
    Recount,
    Refuse,
    Withdraw,
)

#: The most bytes of a message.
MOST_BYTES = 1 << 20
#: Bits of a request's number that the client chooses; the upper ones are the client's number.
OWN_BITS = 32


class BrokerWelcome(msgspec.Struct, frozen=True):
    """The broker's first message.

    client: the client's number, the upper bits of its request numbers;  policy: the policy's name
    word: the bytes that open the budget word of this kind (budget_word.py)
    by_kernels: the field of the policy
    """

    client: int
    kind: str
    word: bytes
    policy: str
    by_kernels: bool


#: Errors that are passed to clients, by code; a client sees any other error as a HostError.
ERRORS = {kind.code: kind for kind in (AdmissionRefused, InputError, UsageError)}


class Refused(msgspec.Struct, frozen=True):
    """An error of a request, or of a task (request -1)."""

    request: int
    message: str
    hint: str
    facts: dict[str, object]
    code: str = AdmissionRefused.code

    @property
    def error(self) -> TilewrightError:
        return ERRORS.get(self.code, HostError)(self.message, hint=self.hint, **self.facts)


class JoinAnswer(msgspec.Struct, frozen=True):
    """The answer to a task that asked to join; refused: why it may not, None: it is admitted."""

    task: str
    refused: Refused | None = None


class Withdrawn(msgspec.Struct, frozen=True):
    """A `Withdraw`: an admitted normal task must stop."""

    task: str
    why: Refused


Message = (
    BrokerWelcome | Refused | JoinAnswer | Withdrawn | Critical | Normal | Arrived | Reached
    | Finished | Ended | Gone | Begin | Proceed | Enqueue | Noticed | Recalibrated | Overdue
)  # fmt: skip
KINDS: dict[str, type[Message]] = {kind.__name__: kind for kind in get_args(Message)}


def refused(request: int, error: TilewrightError) -> Refused:
    facts = msgspec.convert(error.to_json()["facts"], dict[str, object])
    return Refused(request, error.message, error.hint, facts, error.code)


def message_for(action: Action) -> Message:
    """The message for an action of a client's task."""
    match action:
        case Refuse(request, error):
            return refused(request, error)
        case Withdraw(task, error):
            return Withdrawn(task, refused(-1, error))
        case Allow() | Recount():
            raise CompilerBug("the coordinator's own action was given to a client")
        case _:
            return action


def encoded(message: Message) -> bytes:
    data = msgspec.msgpack.encode([type(message).__name__, msgspec.to_builtins(message)])
    return len(data).to_bytes(4, "little") + data


def decoded(data: bytes) -> Message:
    """Decodes a message.  Raises InputError for bytes that are not a message."""
    try:
        name, body = msgspec.msgpack.decode(data, type=tuple[str, object])
        return msgspec.convert(body, KINDS[name])
    except (*MALFORMED, UsageError) as error:
        raise InputError(f"this is not a message of a broker: {error}", hint=ONE_VERSION) from error


def receive(link: socket.socket) -> Message:
    """The next message.  Raises HostError at the end of the connection, InputError."""
    size = int.from_bytes(_exactly(link, 4), "little")
    if size > MOST_BYTES:
        raise InputError("a message is too long", hint=ONE_VERSION, bytes=size)
    return decoded(_exactly(link, size))


def _exactly(link: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        try:
            part = link.recv(size - len(found))
        except OSError as error:
            raise _ended() from error
        if not part:
            raise _ended()
        found += part
    return bytes(found)


def _ended() -> HostError:
    return HostError("the connection to the broker has ended", hint="Start the broker again")
