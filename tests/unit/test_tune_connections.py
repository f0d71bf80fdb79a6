"""Connections that are lost, silent, stuck or too many: nothing of them stays, others go on."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from helpers.waiting import until
from tuning_client import Client, handshake, hello, masked
from tuning_site import app, digest, stats
from websockets.exceptions import ConnectionClosed

from tilewright.cli.compile_workers import makers
from tilewright.server import BackgroundServer
from tilewright.server.session import SessionLimits
from tilewright.tuning.messages import (
    Bye,
    Want,
    Welcome,
    encode,
)

#: What a client does, one step after the other; it may be cut off behind each.
STEPS: list[Callable[[Client], object]] = [
    lambda c: None,
    lambda c: c.raw(encode(hello("m", digest(), (0, 1)))),
    lambda c: c.next(Welcome),
    lambda c: c.want(3),
    lambda c: c.kernel(),
    lambda c: c.kernel(),
    lambda c: c.result(0, 1),
    lambda c: c.want(64),
    lambda c: c.kernel(),
    lambda c: c.send(Bye()),
]


@pytest.mark.parametrize("count", range(len(STEPS)))
@pytest.mark.parametrize("polite", [True, False], ids=["closed", "cut"])
def test_a_connection_lost_anywhere_leaves_nothing(site: str, count: int, polite: bool) -> None:
    with Client(site) as client:
        for step in STEPS[: count + 1]:
            step(client)
        if not polite:
            # a reset, as of a device that loses its network or a tab that crashes
            linger = b"\1\0\0\0\0\0\0\0"
            with contextlib.suppress(
                OSError
            ):  # after the last step the server may have closed it first
                client.socket.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                client.socket.socket.shutdown(socket.SHUT_RDWR)
            client.socket.socket.close()
    until(lambda: stats(site)["sessions"]["now"] == 0)
    with Client(site) as client:
        client.start(hello("m", digest()))
        client.want(1)
        client.kernel()


def test_a_client_that_says_nothing() -> None:
    limits = SessionLimits(hello=0.2, idle=0.4)
    with BackgroundServer(app(limits=limits)) as server:
        with Client(server.url) as client:
            error, close = client.refusal()
            assert (error.code, close) == ("too-slow", 4408)
        with Client(server.url) as client:
            client.start(hello("m", digest()))
            error, close = client.refusal()
            assert (error.code, close) == ("too-slow", 4408)


def test_a_client_that_takes_nothing() -> None:
    """Its kernels do not pile up: the server sends no more than the network takes, and gives up."""
    real = makers(0)
    made = 0

    def built(*given: Any) -> Any:
        nonlocal made
        made += 1
        return replace(real.built(*given), module=bytes(4 << 20))

    site = app(makers=replace(real, built=built), limits=SessionLimits(send=0.5))
    with BackgroundServer(site) as server:
        with socket.create_connection(server.url.removeprefix("http://").split(":")) as plain:
            handshake(plain, server.url)
            masked(plain, encode(hello("m", digest())))
            masked(plain, encode(Want(count=64)))
            until(lambda: stats(server.url)["refused"] == {"too-slow": 1})
        assert made < 10
        until(lambda: stats(server.url)["sessions"]["now"] == 0)


def test_a_flood_of_messages() -> None:
    with BackgroundServer(app(limits=SessionLimits(messages=20))) as server:
        with Client(server.url) as client:
            client.start(hello("m", digest()))
            with contextlib.suppress(ConnectionClosed):
                for _ in range(200):
                    client.want(1)
            until(lambda: stats(server.url)["refused"] == {"too-many": 1})
        until(lambda: stats(server.url)["sessions"]["now"] == 0)


def test_more_sessions_than_there_are() -> None:
    with BackgroundServer(app(limits=SessionLimits(sessions=2))) as server:
        with Client(server.url) as one, Client(server.url) as two:
            one.start(hello("m", digest()))
            two.start(hello("m", digest()))
            with Client(server.url) as third:
                error, close = third.refusal()
                assert (error.code, close) == ("busy", 4503)
            one.want(1)
            one.kernel()
        until(lambda: stats(server.url)["sessions"]["now"] == 0)
        with Client(server.url) as fourth:
            fourth.start(hello("m", digest()))


def test_done_after_a_hello_without_kernels(site: str) -> None:
    with Client(site) as client:
        assert client.start(hello("m", digest(), ())).kernels == ()
        client.want(1)
        client.bye()
        assert client.closed() == 1000
