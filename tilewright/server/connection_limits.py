"""Limits the number of connections, and the time that a client may hold one without using it.

Input: the connections of a server (run.py), as they open and close.  Output: it closes those whose
time is over.  If a network or the server has too many, it closes the one that has waited longest.
It knows no routes and reads no messages.
"""

from __future__ import annotations

import asyncio
import enum
import ipaddress
import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from tilewright.server.rate_limits import address_of, network, trusted

log = logging.getLogger(__name__)

#: File descriptors that the process needs beside connections: the store, workers, its own files.
RESERVE = 128
#: A connection may need two: its socket, and the file that it downloads.
FILES = 2


@dataclass(frozen=True)
class ConnectionLimits:
    """The limits.

    connections: the most connections open at once
    each:    the same for one network (/24 of IPv4, /48 of IPv6)
    head:    seconds from connecting, or from the last answer, until a request or handshake is
             complete
    body:    seconds until the body of a request is complete
    take:    seconds until a client that stopped reading must read on
    close:   seconds to send the last bytes of a closed connection
    message: the most bytes of a WebSocket message
    frames:  WebSocket frames of less than 1 KiB, control frames too, per second; twice as many in a
             burst
    look:    seconds between two checks of all connections
    """

    connections: int = 4096
    each: int = 256
    head: float = 15.0
    body: float = 30.0
    take: float = 120.0
    close: float = 10.0
    message: int = 1 << 20
    frames: float = 500.0
    look: float = 1.0


FOR_EVER = float("inf")
#: Limits for strangers, and for programs and pages on this machine that Python drives: these may
#: be busy for minutes.
STRANGERS = ConnectionLimits()
OWN = ConnectionLimits(each=STRANGERS.connections, take=FOR_EVER, message=1 << 30, frames=FOR_EVER)


class Wait(enum.Enum):
    """What a connection waits for."""

    HEAD = "head"
    BODY = "body"
    TAKE = "take"
    CLOSE = "close"
    #: Not for the client: the app works, or a session is open, which has limits of its own.
    APP = "app"


#: What is waited for, and during which request.
State = tuple[Wait, object]


class Connection(Protocol):
    """A connection."""

    transport: asyncio.Transport

    def state(self) -> State: ...

    def end(self, wait: Wait) -> None:
        """Ends it, as the client is too slow; an answer says so if it can still be sent."""


@dataclass
class _Entry:
    """An open connection.  since: the time at which its state began"""

    line: Connection
    source: str
    state: State
    since: float


class ConnectionLimiter:
    """The connections of one server.

    proxies: addresses and networks of reverse proxies, to which `each` does not apply
    """

    def __init__(self, limits: ConnectionLimits = STRANGERS, proxies: Iterable[str] = ()) -> None:
        self.limits = limits
        self._proxies = [ipaddress.ip_network(name) for name in trusted(proxies)]
        self._seconds: Mapping[Wait, float] = {
            Wait.HEAD: limits.head,
            Wait.BODY: limits.body,
            Wait.TAKE: limits.take,
            Wait.CLOSE: limits.close,
            Wait.APP: FOR_EVER,
        }
        self._entries: dict[asyncio.Transport, _Entry] = {}
        self._of: dict[str, dict[asyncio.Transport, _Entry]] = {}

    def enter(self, line: Connection) -> bool:
        """Registers a connection, or one whose protocol changed; False if there are too many."""
        known = self._entries.get(line.transport)
        if known is not None:
            known.line = line
            return True
        source = self._source(line.transport)
        if source and len(self._of.get(source, ())) >= self.limits.each:
            room = self._make_room(source)
        elif len(self._entries) >= self.limits.connections:
            # networks with the most connections lose one first
            most_first = sorted(self._of, key=lambda name: -len(self._of[name]))
            room = any(self._make_room(name) for name in most_first)
        else:
            room = True
        if not room:
            log.warning("A connection was refused: there are too many, and all are in use")
            return False
        entry = _Entry(line, source, line.state(), time.monotonic())
        self._entries[line.transport] = entry
        self._of.setdefault(source, {})[line.transport] = entry
        return True

    def leave(self, transport: asyncio.Transport) -> None:
        entry = self._entries.pop(transport, None)
        if entry is None:
            return
        same = self._of[entry.source]
        del same[transport]
        if not same:
            del self._of[entry.source]

    async def watch(self) -> None:
        """Checks all connections every `look` seconds; never returns."""
        while True:
            await asyncio.sleep(self.limits.look)
            self.look(time.monotonic())

    def look(self, now: float) -> None:
        """Ends connections whose time is over.  now: of the monotonic clock"""
        for entry in list(self._entries.values()):
            state = entry.line.state()
            if state != entry.state:
                entry.state, entry.since = state, now
            elif now - entry.since >= self._seconds[state[0]]:
                entry.line.end(state[0])

    def _make_room(self, source: str) -> bool:
        """Closes the network's oldest connection without a request under way; False if there is
        none."""
        for transport, entry in self._of[source].items():
            if entry.line.state()[0] is Wait.HEAD:
                transport.abort()
                self.leave(transport)
                return True
        return False

    def _source(self, transport: asyncio.Transport) -> str:
        """The network that the connection counts for; "": a proxy, or no network at all."""
        peer = transport.get_extra_info("peername")
        address = address_of(str(peer[0])) if isinstance(peer, tuple) else None
        if address is None or any(address in proxy for proxy in self._proxies):
            return ""
        return network(str(address))


def within_descriptors(limits: ConnectionLimits) -> ConnectionLimits:
    """The limits, with no more connections than the process may open files for.

    Raises the soft limit of open files, as far as that is allowed, first.
    """
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return limits
    needed = FILES * limits.connections + RESERVE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return limits
    most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (OSError, ValueError):  # macOS allows less than its hard limit says
        most = soft
    connections = min(limits.connections, max(1, (most - RESERVE) // FILES))
    if connections < limits.connections:
        log.warning("Only %d connections: raise the limit of open files, `ulimit -n`", connections)
    return replace(limits, connections=connections)
