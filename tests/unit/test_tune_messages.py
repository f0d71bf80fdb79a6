"""Frames of the tuning socket: encode then decode is the identity; nothing else is accepted."""

from __future__ import annotations

import json
import pickle
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.base.dtypes import DTYPES
from tilewright.tuning import messages
from tilewright.tuning.messages import (
    MOST_CREDIT,
    MOST_FROM_CLIENT,
    MOST_SPECS,
    Ack,
    Browser,
    Bye,
    Done,
    Error,
    Gold,
    GoldAnswer,
    Hello,
    KernelMessage,
    Malformed,
    Mark,
    Objective,
    Offer,
    Reason,
    Refusal,
    Report,
    Result,
    TooLarge,
    Verdict,
    Vote,
    Want,
    Welcome,
    decode_from_client,
    decode_from_server,
    encode,
)

specs = st.integers(0, (1 << 16) - 1)
candidates = st.integers(0, messages.MOST_CANDIDATES - 1)
counts = st.integers(0, (1 << 32) - 1)
ratios = st.floats(1e-3, 1e3)
names = st.text(min_size=1, max_size=200)
words = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,63}", fullmatch=True)
digests = st.from_regex(r"[0-9a-f]{64}", fullmatch=True)
checksums = st.from_regex(r"[0-9a-f]{16}", fullmatch=True)
nonces = st.from_regex(r"[0-9a-f]{32}", fullmatch=True)


def tuples(of: st.SearchStrategy[Any], most: int) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(of, max_size=most).map(tuple)


def one_of(kind: object) -> st.SearchStrategy[Any]:
    return st.sampled_from(get_args(kind))


golds = st.builds(Gold, a=candidates, b=candidates)
from_client = st.one_of(
    st.builds(
        Hello,
        protocol=st.integers(0, 65535), bundle=names, digest=digests, device=words,
        browser=one_of(Browser), variant=words, objective=one_of(Objective),
        specs=tuples(specs, 9), shares=tuples(st.floats(0, 1), 9),
        tried=st.dictionaries(specs, tuples(candidates, 9), max_size=9),
        skip=st.integers(0, 8192),
    ),
    st.builds(Want, count=st.integers(1, MOST_CREDIT)),
    st.builds(
        Result,
        spec=specs, candidate=candidates, verdict=one_of(Verdict),
    ),
    st.builds(
        Report,
        nonce=nonces, spec=specs, checksum=checksums,
        top=tuples(st.builds(Vote, candidate=candidates, ratio=ratios), 5),
        gold=st.none() | st.builds(GoldAnswer, a=candidates, b=candidates, ratio=ratios),
    ),
    st.just(Bye()),
)  # fmt: skip
from_server = st.one_of(
    st.builds(
        Welcome,
        compiler=names,
        kernels=tuples(
            st.builds(
                Offer,
                spec=specs, kind=names, shape=names, checksum=checksums, count=counts,
                default=candidates, gold=st.none() | golds,
            ),
            4,
        ),
    ),
    st.builds(Done, spec=specs, sent=counts, milliseconds=st.floats(0, 1e6)),
    st.builds(Ack, nonce=nonces, accepted=st.booleans(), reason=one_of(Reason)),
    st.builds(
        Error,
        code=words, message=st.text(max_size=99), hint=st.text(max_size=99),
        facts=st.dictionaries(names, st.integers(0, 9) | st.text(max_size=9), max_size=3),
    ),
)  # fmt: skip


@given(from_client)
def test_what_a_client_sends_arrives(message: Any) -> None:
    assert decode_from_client(encode(message)) == message


@given(from_server)
def test_what_a_server_sends_arrives(message: Any) -> None:
    assert decode_from_server(encode(message)) == (message, b"")


@given(st.binary(max_size=300), st.dictionaries(specs, counts, max_size=5), one_of(Mark))
def test_a_module_arrives(module: bytes, grains: dict[int, int], mark: Mark) -> None:
    message = KernelMessage(
        spec=3, candidate=7, mark=mark, schedule="x0=6", checksum="0" * 16, digest="a" * 64,
        tiles=9, grains=grains, scratch=64, bytes=len(module),
    )  # fmt: skip
    assert decode_from_server(encode(message, module)) == (message, module)
    with pytest.raises(Malformed):
        decode_from_server(encode(message, module + b"x"))


@given(from_client, st.data())
def test_a_frame_cut_anywhere_is_refused(message: Any, data: st.DataObject) -> None:
    frame = encode(message)
    cut = data.draw(st.integers(0, len(frame) - 1))
    with pytest.raises(Malformed):
        decode_from_client(frame[:cut])


@given(st.binary(max_size=200))
def test_noise_is_refused_and_nothing_else_happens(frame: bytes) -> None:
    with pytest.raises(Refusal):
        decode_from_client(frame)


@given(from_client, st.data())
def test_a_changed_byte_is_a_message_or_refused(message: Any, data: st.DataObject) -> None:
    frame = bytearray(encode(message))
    frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    try:
        decoded = decode_from_client(bytes(frame))
    except Refusal:
        return
    assert decode_from_client(encode(decoded)) == decoded


REPORT = {
    "type": "report", "nonce": "0" * 32, "spec": 1, "checksum": "0" * 16,
    "top": [{"candidate": 1, "ratio": 1.5}], "gold": None,
}  # fmt: skip
HELLO = {
    "type": "hello", "protocol": 1, "bundle": "m", "digest": "0" * 64, "device": "wasm",
    "browser": "firefox", "variant": "x86", "specs": [0],
}  # fmt: skip


def frame_of(header: object) -> bytes:
    text = header if isinstance(header, str) else json.dumps(header)
    return len(text.encode()).to_bytes(4, "little") + text.encode()


def test_the_examples_are_good() -> None:
    assert isinstance(decode_from_client(frame_of(REPORT)), Report)
    assert isinstance(decode_from_client(frame_of(HELLO)), Hello)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "[]",
        "7",
        "{" * 100_000,
        '{"type":"want","count":' + "[" * 100_000,
        "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
        {},
        {"type": "nothing"},
        {"type": "welcome", "compiler": "x", "kernels": []},
        {"type": "want"},
        {"type": "want", "count": 0},
        {"type": "want", "count": MOST_CREDIT + 1},
        {"type": "want", "count": 1.5},
        {"type": "want", "count": "1"},
        {"type": "bye", "id": "who I am"},
        {"type": "result", "spec": 1, "candidate": 1, "verdict": "great"},
        {"type": "result", "spec": -1, "candidate": 1, "verdict": "same"},
        {"type": "result", "spec": 1, "candidate": 1, "verdict": "same", "ratio": 1.25},
        REPORT | {"top": [{"candidate": 1, "ratio": float("nan")}]},
        REPORT | {"nonce": "0" * 31},
        REPORT | {"nonce": "0" * 32 + "\n"},
        REPORT | {"nonce": "G" * 32},
        REPORT | {"top": [{"candidate": 1, "ratio": 1.0}] * 6},
        REPORT | {"top": [{"candidate": 1, "ratio": 0.0}]},
        REPORT | {"top": [{"candidate": 1, "ratio": 1e6}]},
        REPORT | {"top": [{"candidate": 1 << 40, "ratio": 1.0}]},
        REPORT | {"userAgent": "Mozilla"},
        HELLO | {"device": "Wasm X86"},
        HELLO | {"device": "w" * 65},
        HELLO | {"browser": "my own"},
        HELLO | {"bundle": "m" * 201},
        HELLO | {"digest": "0" * 64 + "\n"},
        HELLO | {"specs": list(range(MOST_SPECS + 1))},
        HELLO | {"specs": [1 << 16]},
        HELLO | {"shares": [2.0]},
        HELLO | {"skip": -1},
        HELLO | {"skip": 8193},
        HELLO | {"tried": {"x": []}},
        HELLO | {"tried": {"1": [-1]}},
    ],
    ids=lambda header: str(header)[:60],
)
def test_what_is_outside_the_limits_is_refused(header: object) -> None:
    with pytest.raises(Malformed) as caught:
        decode_from_client(frame_of(header))
    assert caught.value.close == 4400


def test_a_client_has_no_payload() -> None:
    with pytest.raises(Malformed, match="payload"):
        decode_from_client(encode(Bye(), b"code"))


def test_a_frame_that_is_too_large() -> None:
    with pytest.raises(TooLarge) as caught:
        decode_from_client(b"\0" * (MOST_FROM_CLIENT + 1))
    assert caught.value.close == 4413


def test_the_largest_hello_fits() -> None:
    """All tries of the largest model that the limits allow us to think of: 1,024 kernels."""
    tried = {spec: tuple(range(40)) for spec in range(MOST_SPECS)}
    hello = Hello(
        protocol=1, bundle="m", digest="0" * 64, device="wasm", browser="other", variant="x86",
        specs=tuple(tried), tried=tried,
    )  # fmt: skip
    assert decode_from_client(encode(hello)) == hello


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_types_stay_themselves_in_other_processes(dtype: object) -> None:
    """Workers get kernels as pickles, and types compare by identity."""
    assert pickle.loads(pickle.dumps(dtype)) is dtype
