"""What a broker and its clients say: events and actions of the policy, in frames on a Unix socket.

Input: records of the policy.  Output: bytes, and back.  A frame is its length (4 bytes, the last
first) and MessagePack: [kind, body].  Whoever can open the socket is trusted with the GPU anyway,
but not with the broker's life: sizes are bounded and types are checked.
"""

from __future__ import annotations

import socket
from typing import Any

import msgspec

from tilewright.base.errors import AdmissionRefused, HostError, InputError, UsageError
from tilewright.bundle.format import MALFORMED
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

MOST_BYTES = 1 << 20


class BrokerWelcome(msgspec.Struct, frozen=True):
    """The first that a client hears.

    client: its number, which its requests begin with;  policy: the design's name
    word: where the budget lies, for `SharedWord` of its kind;  by_kernels: as the design says
    """

    client: int
    kind: str
    word: bytes
    policy: str
    by_kernels: bool


class Refused(msgspec.Struct, frozen=True):
    """An AdmissionRefused: of a request, or of a task (request -1)."""

    request: int
    message: str
    hint: str
    facts: dict[str, Any]

    @property
    def error(self) -> AdmissionRefused:
        return AdmissionRefused(self.message, hint=self.hint, **self.facts)


class Joined(msgspec.Struct, frozen=True):
    task: str


class Withdrawn(msgspec.Struct, frozen=True):
    """A `Withdraw`: a normal task that was taken is refused now."""

    task: str
    why: Refused


Message = (
    BrokerWelcome | Refused | Joined | Withdrawn | Critical | Normal | Arrived | Reached | Finished
    | Ended | Gone | Begin | Proceed | Enqueue | Noticed | Recalibrated | Overdue
)  # fmt: skip
KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (BrokerWelcome, Refused, Joined, Withdrawn, Critical, Normal, Arrived, Reached,
                 Finished, Ended, Gone, Begin, Proceed, Enqueue, Noticed, Recalibrated, Overdue)
}  # fmt: skip


def refused(request: int, error: AdmissionRefused) -> Refused:
    found = error.to_json()
    facts = found["facts"]
    assert isinstance(facts, dict)
    return Refused(request, error.message, error.hint, facts)


def told(action: Action) -> Message:
    """What a client hears of an action of its tasks."""
    assert not isinstance(action, Allow | Recount)
    match action:
        case Refuse(request, error):
            assert isinstance(error, AdmissionRefused)
            return refused(request, error)
        case Withdraw(task, error):
            assert isinstance(error, AdmissionRefused)
            return Withdrawn(task, refused(-1, error))
        case _:
            return action


def encoded(message: Message) -> bytes:
    data = msgspec.msgpack.encode([type(message).__name__, msgspec.to_builtins(message)])
    return len(data).to_bytes(4, "little") + data


def decoded(data: bytes) -> Any:
    """Raises InputError for what is no message."""
    try:
        name, body = msgspec.msgpack.decode(data, type=tuple[str, Any])
        return msgspec.convert(body, KINDS[name])
    except (*MALFORMED, UsageError) as error:
        raise InputError(
            f"this is no message of a broker: {error}", hint="Use one version"
        ) from error


def receive(link: socket.socket) -> Any:
    """The next message.  Raises HostError at the end of the connection, InputError."""
    size = int.from_bytes(_exactly(link, 4), "little")
    if size > MOST_BYTES:
        raise InputError("a message is too long", hint="Use one version", bytes=size)
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
