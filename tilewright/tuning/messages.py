"""The messages of the tuning socket (docs/tuning-protocol.md): types, limits, frames, meanings.

Input: records to send, or the bytes of a frame.  Output: a frame, or a checked record with its
payload; for anything else a `Refusal` with the code that closes the socket.  A decoded record is
within all limits given here.  Whether its numbers exist is checked elsewhere.

    frame = u32 little-endian length of header | header: JSON, UTF-8 | payload

For `reports preview` there are tables of text: the meaning of each field of a page's messages, and
of what the store keeps of a report.  The page decides which messages it sends
(web/tune/sources/socket.js).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from tilewright.base.errors import TilewrightError
from tilewright.targets.protocol import Fixed
from tilewright.tuning.candidates import Needs

PROTOCOL = 1

#: The most bytes of a frame from a client; the largest is a hello that lists all its tries.
MOST_FROM_CLIENT = 256 << 10
#: The most bytes of a frame from the server; kernels have 1-60 KB.
MOST_FROM_SERVER = 8 << 20

MOST_SPECS = 1024
MOST_FEATURES = 64
MOST_CANDIDATES = 4096
MOST_CREDIT = 64
#: The most candidates that a hello may skip: the server goes through them before it sends any.
MOST_SKIP = 8192
#: The most candidates in a report, and the largest ratio that is accepted: a report of a larger one
#: is a mistake or a lie.
TOP = 5
MOST_VOTE = 20.0

_LENGTH = 4


class Refusal(TilewrightError):
    """Why the server ends a connection; `close` is the WebSocket close code: 4000 + HTTP status."""

    code = "refused"
    close: ClassVar[int] = 4400


class Malformed(Refusal):
    """A frame that is not a message of this protocol, or not allowed now."""

    code = "malformed"


class TooLarge(Refusal):
    """A frame above the limit."""

    code = "too-large"
    close = 4413


class Unknown(Refusal):
    """A bundle, device class, variant, kernel or candidate that does not exist."""

    code = "unknown"
    close = 4404


class OtherVersion(Refusal):
    """Another protocol version, or the bundle was rebuilt since the page loaded it."""

    code = "other-version"
    close = 4409


class TooSlow(Refusal):
    """The client sent nothing, or read nothing, for too long."""

    code = "too-slow"
    close = 4408


class TooMany(Refusal):
    """More messages than a client can need."""

    code = "too-many"
    close = 4429


class Busy(Refusal):
    """The server has its most sessions, or is about to end."""

    code = "busy"
    close = 4503


# ---- values --------------------------------------------------------------------------------------

Spec: TypeAlias = Annotated[int, Meta(ge=0, lt=1 << 16)]
Candidate: TypeAlias = Annotated[int, Meta(ge=0, lt=MOST_CANDIDATES)]
Count: TypeAlias = Annotated[int, Meta(ge=0, lt=1 << 32)]
Checksum: TypeAlias = Annotated[str, Meta(pattern=r"^[0-9a-f]{16}\Z")]
Digest: TypeAlias = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
Nonce: TypeAlias = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]
#: Time of the kernel in use, or of the default, over time of the candidate: above 1 is faster.
Ratio: TypeAlias = Annotated[float, Meta(ge=1e-3, le=1e3)]
Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=200)]
Word: TypeAlias = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}\Z")]
Objective: TypeAlias = Literal["latency", "traffic", "scratch"]
Browser: TypeAlias = Literal["chromium", "firefox", "safari", "wasmtime", "other"]
Verdict: TypeAlias = Literal["faster", "same", "slower", "wrong", "trapped", "hung", "refused"]
Mark: TypeAlias = Literal["default", "lite", "extended"]
#: Why a report was not counted.  After "later" and "rate" the client sends it again, with the same
#: nonce.
Reason: TypeAlias = Literal[
    "", "later", "rate", "repeated", "off", "unknown", "checksum", "range", "gold", "refused"
]
Specs: TypeAlias = Annotated[tuple[Spec, ...], Meta(max_length=MOST_SPECS)]
Tried: TypeAlias = Annotated[tuple[Candidate, ...], Meta(max_length=MOST_CANDIDATES)]


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Undocumented fields are refused, so a client cannot reveal more than documented."""


class _Message(_Record, frozen=True, kw_only=True, tag_field="type", tag=str.lower):
    """A record with its name in `type`."""


class Gold(_Record, frozen=True, kw_only=True):
    """Two candidates to compare.

    If `b` is the number after the last, the answer is known: `a` is much faster.  Otherwise `b` is
    the votes' default, or a candidate in its trial.
    """

    a: Candidate
    b: Candidate


class GoldAnswer(Gold, frozen=True, kw_only=True):
    """A device's measurement for a gold question: time of `b` over time of `a`."""

    ratio: Ratio


class Vote(_Record, frozen=True, kw_only=True):
    """A candidate, with the time of the default over its time."""

    candidate: Candidate
    ratio: Ratio


class Offer(_Record, frozen=True, kw_only=True):
    """A kernel that may be tuned: its space has `count` candidates.

    fixed:   why it has only one, if its kind is the reason
    default: the bundle's candidate; None if its schedule is not in the space
    schedule, needs: of the default
    """

    spec: Spec
    kind: Name
    shape: Name
    checksum: Checksum
    count: Count
    fixed: Fixed = ""
    default: Candidate | None
    schedule: Annotated[str, Meta(max_length=1000)] = ""
    needs: Needs | None = None
    gold: Gold | None = None


# ---- client to server ----------------------------------------------------------------------------


class Hello(_Message, frozen=True, kw_only=True):
    """The first message.  It has all that a server needs, so any server can continue the session.

    specs:  kernels to tune, hottest first;  shares: the share of the time of each (or empty)
    tried:  by kernel, candidates of this visit that need not come again
    skip:   number of untried candidates that come last, because earlier visits tried about this
            many
    features: features of the device beyond its class's that candidates may need
    check:  True if only candidate 0 is wanted, of kernels for which the bundle has another one
    """

    protocol: Annotated[int, Meta(ge=0, lt=1 << 16)]
    bundle: Name
    digest: Digest
    device: Word
    browser: Browser
    variant: Word
    features: Annotated[tuple[Word, ...], Meta(max_length=MOST_FEATURES)] = ()
    objective: Objective = "latency"
    specs: Specs
    shares: Annotated[tuple[Share, ...], Meta(max_length=MOST_SPECS)] = ()
    tried: Annotated[dict[Spec, Tried], Meta(max_length=MOST_SPECS)] = {}
    skip: Annotated[int, Meta(ge=0, le=MOST_SKIP)] = 0
    check: bool = False


class Want(_Message, frozen=True, kw_only=True):
    """Credit: how many more kernels the server may send."""

    count: Annotated[int, Meta(ge=1, le=MOST_CREDIT)]


class Result(_Message, frozen=True, kw_only=True):
    """The outcome of a candidate."""

    spec: Spec
    candidate: Candidate
    verdict: Verdict


class Report(_Message, frozen=True, kw_only=True):
    """A vote for the store, of a site that takes part: the best candidates, best first.

    The list is empty if nothing is faster than the default.
    """

    nonce: Nonce
    spec: Spec
    checksum: Checksum
    top: Annotated[tuple[Vote, ...], Meta(max_length=TOP)]
    gold: GoldAnswer | None = None


class Bye(_Message, frozen=True, kw_only=True):
    """The client is done."""


# ---- server to client ----------------------------------------------------------------------------


class Welcome(_Message, frozen=True, kw_only=True):
    """The answer to hello: the kernels that can be tuned."""

    compiler: Name
    kernels: Annotated[tuple[Offer, ...], Meta(max_length=MOST_SPECS)]


class KernelMessage(_Message, frozen=True, kw_only=True, tag="kernel"):
    """A candidate; the payload is its module.

    grains:  by plan number, tiles per ticket for the steps of this kernel
    features: features that its schedule needs beyond the class's
    scratch: bytes of staging memory that a worker needs;  bytes: length of the payload
    needs:   its resources (`Needs`); None for a candidate outside the space
    signature: by the site's key, if the server has it (bundle/signing.py)
    """

    spec: Spec
    candidate: Candidate
    mark: Mark
    schedule: Annotated[str, Meta(max_length=1000)]
    features: tuple[Word, ...] = ()
    checksum: Checksum
    digest: Digest
    tiles: Count
    grains: Annotated[dict[Spec, Count], Meta(max_length=MOST_SPECS)]
    scratch: Count
    needs: Needs | None = None
    bytes: Count
    signature: str | msgspec.UnsetType = msgspec.UNSET


class Done(_Message, frozen=True, kw_only=True):
    """No candidate of this kernel is left; `milliseconds`: the server's median time per
    candidate."""

    spec: Spec
    sent: Count
    milliseconds: float


class Ack(_Message, frozen=True, kw_only=True):
    """The answer to a report, after it was stored or refused."""

    nonce: Nonce
    accepted: bool
    reason: Reason = ""


class Error(_Message, frozen=True, kw_only=True):
    """Why the socket closes now."""

    code: Word
    message: str
    hint: str
    facts: dict[str, object]


FromClient: TypeAlias = Hello | Want | Result | Report | Bye
FromServer: TypeAlias = Welcome | KernelMessage | Done | Ack | Error
Side = TypeVar("Side", FromClient, FromServer)

_FROM_CLIENT: msgspec.json.Decoder[FromClient] = msgspec.json.Decoder(FromClient)
_FROM_SERVER: msgspec.json.Decoder[FromServer] = msgspec.json.Decoder(FromServer)


# ---- frames --------------------------------------------------------------------------------------


def encode(message: FromClient | FromServer, payload: bytes = b"") -> bytes:
    """The message as one binary frame."""
    header = msgspec.json.encode(message)
    return len(header).to_bytes(_LENGTH, "little") + header + payload


def decode_from_client(frame: bytes) -> FromClient:
    """The record in a client's frame, which has no payload."""
    header, payload = _split(frame, MOST_FROM_CLIENT)
    if payload:
        raise Malformed("A message of a client has no payload", hint=_SEE, bytes=len(payload))
    return _decoded(_FROM_CLIENT, header)


def decode_from_server(frame: bytes) -> tuple[FromServer, bytes]:
    """The record in a server's frame, and the module that comes with a kernel."""
    header, payload = _split(frame, MOST_FROM_SERVER)
    message = _decoded(_FROM_SERVER, header)
    expected = message.bytes if isinstance(message, KernelMessage) else 0
    if len(payload) != expected:
        raise Malformed(
            "The payload does not have the announced length",
            hint=_SEE, bytes=len(payload), expected=expected,
        )  # fmt: skip
    return message, payload


_SEE = "See docs/tuning-protocol.md"


def _split(frame: bytes, limit: int) -> tuple[bytes, bytes]:
    if len(frame) > limit:
        raise TooLarge("The frame is too large", hint=_SEE, bytes=len(frame), limit=limit)
    end = _LENGTH + int.from_bytes(frame[:_LENGTH], "little")
    if len(frame) < _LENGTH or end > len(frame):
        raise Malformed("The frame is cut off", hint=_SEE, bytes=len(frame))
    return frame[_LENGTH:end], frame[end:]


def _decoded(decoder: msgspec.json.Decoder[Side], header: bytes) -> Side:
    try:
        return decoder.decode(header)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(
            "The frame is not a message of this protocol", hint=_SEE, reason=str(error)[:200]
        ) from error


#: Messages that are sent only if results are shared.  The others are sent by every page that tunes
#: with a server.
#: others.
SHARED = ("result", "report")

#: The meaning of each field, by message.
FIELDS: Mapping[str, Mapping[str, str]] = {
    "hello": {
        "protocol": "version of the protocol",
        "bundle": "name under which the server has the bundle that the page loaded",
        "digest": "SHA-256 of its manifest",
        "device": "id of a class of devices: one of the public list at /api/classes",
        "browser": "family of the browser: chromium, firefox, safari, wasmtime or other",
        "variant": "which variant of the bundle's code runs",
        "features": "what kernels may use of the device beyond its class: names from the list that "
        "its interface has for all of them",
        "objective": "what to tune for: latency, traffic or scratch",
        "specs": "numbers of the kernels to tune, hottest first",
        "shares": "share of the time of each, rounded to 1, 1/4, 1/16, ... 1/1024",
        "tried": "by kernel, the candidates that this visit has tried: empty until a connection is "
        "lost",
        "skip": "how many candidates earlier visits tried, rounded down to a power of two: the "
        "server sends that many of the first ones last",
        "check": "whether the page only checks the kernels of a relinked bundle",
    },
    "want": {"count": "how many more candidates the server may send"},
    "result": {
        "spec": "number of the kernel",
        "candidate": "number of the candidate",
        "verdict": "faster, same, slower, wrong, trapped, hung or refused; candidates that an "
        "earlier visit tried get none",
    },
    "report": {
        "nonce": "128 random bits, new for each report: so that none is counted twice",
        "spec": "number of the kernel",
        "checksum": "identifies the space that the numbers of candidates belong to",
        "top": "the fastest candidates, at most 5, the winner of an earlier visit among them: "
        "number, and time of the default over its time, three digits",
        "gold": "answer to a question, if one was asked: two candidates and the ratio of their "
        "times; the order of the two is known, or one is a candidate that devices voted for",
    },
    "bye": {},
}

#: The store's columns of a report, and their meaning.
KEPT: Mapping[str, str] = {
    "nonce": "that of the report",
    "kernel": "digest of the kernel's specification",
    "kind": "kind of the kernel, for people",
    "shape": "its shape, for people",
    "device": "id of the class of devices",
    "space": "checksum of the space of candidates",
    "compiler": "name and version of the compiler, and a digest of its source",
    "browser": "family of the browser",
    "day": "date (UTC)",
    "source": "for two days: keyed hash of the network (/24 or /48), and of the site if the server "
    "lists it, with a key that changes daily",
    "counts": "whether the votes count: not after a wrong answer to a gold question",
    "proven": "whether the source answered a gold question right that day",
    "top": "the votes: number of a candidate, and time of candidate 0 over its time",
    "answers": "the same for voted candidates that the server asked about",
}

NEVER = (
    "inputs, outputs or weights of the model",
    "the address of the visitor, a cookie, or an id that lasts longer than one report",
    "the user agent, the name of the processor or of the graphics card",
    "times: only ratios of times",
    "code",
)
