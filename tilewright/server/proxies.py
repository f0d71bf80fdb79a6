"""Whose word on addresses is taken: reverse proxies that the site names.

Input: the other end of a connection and the headers of its request.  Output: the address of the
visitor.  Anybody can write these headers, so they are read from right to left, only as far as named
proxies wrote them: what stands left of the first address that is none of theirs is hearsay.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator

from starlette.datastructures import Headers

from tilewright.base.errors import UsageError
from tilewright.server.sources import Address, address_of

_QUOTED = r'"(?:\\.|[^"\\])*+"'
#: RFC 7239, 4: what lies between commas or semicolons that are not quoted.
_PARTS = {mark: re.compile(rf'(?:[^{mark}"]|{_QUOTED})+') for mark in ",;"}
#: A quote that a stranger leaves open would swallow what our own proxy wrote after it.
_CLOSED = re.compile(rf'(?:[^"]|{_QUOTED})*+')
#: Most characters of a header that are looked at.
_LONGEST = 16384


class Proxies:
    """named: addresses, or networks such as 10.0.0.0/8; `UsageError` for anything else."""

    def __init__(self, named: Iterable[str] = ()) -> None:
        try:
            self._networks = [ipaddress.ip_network(name) for name in named]
        except ValueError as error:
            raise UsageError(
                f"No address of a proxy: {error}", hint="Write it as 10.0.0.1 or 10.0.0.0/8"
            ) from error

    def visitor(self, peer: str, headers: Headers) -> str:
        """The address nearest to `peer` that is none of our proxies'; of `peer` if that is none.

        Where a hop is not told, the visitor counts as the last proxy that is known.
        """
        at = address_of(peer)
        for hop in self._hops(headers):
            if hop is None or not self._ours(at):
                break
            at = hop
        return str(at or "")

    def _ours(self, address: Address | None) -> bool:
        return address is not None and any(address in network for network in self._networks)

    def _hops(self, headers: Headers) -> Iterator[Address | None]:
        """Who asked whom, the nearest first.

        A proxy writes one of the two headers, and passes on what came of the other: where both are
        there, nobody can know which is its own.
        """
        plain = ",".join(headers.getlist("x-forwarded-for"))
        standard = ",".join(headers.getlist("forwarded"))
        if plain and not standard:
            yield from (address_of(hop.strip()) for hop in reversed(plain.split(",")))
        closed = len(standard) <= _LONGEST and _CLOSED.fullmatch(standard)
        if standard and not plain and closed:
            yield from (address_of(_for(hop)) for hop in reversed(_PARTS[","].findall(standard)))


def _for(element: str) -> str:
    """`for="[::1]:5";by=…` → `[::1]:5`; nothing if it is not said."""
    for pair in _PARTS[";"].findall(element):
        name, _, value = pair.strip().partition("=")
        if name.strip().lower() == "for":
            return re.sub(r"\\(.)", r"\1", value.strip().removeprefix('"').removesuffix('"'))
    return ""
