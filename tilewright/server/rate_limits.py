"""Pseudonyms of networks (keyed hashes that change every day), and rate limits per pseudonym.

Input: the address of a connection, and its site if it is on the allow-list.  Output: a name that is
the same for one network (and site) during one day (UTC), in all processes that share the secret.
Addresses are never stored.  Without a secret the keys are random, and this process keeps those of
the last few days in memory.
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
import ipaddress
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable

from tilewright.base.errors import UsageError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

#: The number of days whose keys are kept, so that a network keeps its name if the clock jumps.
DAYS = 3


def today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


class Pseudonyms:
    """Names sources.

    secret: shared by the processes of a site; "": random keys
    day:    gives the date as YYYY-MM-DD, which may go back
    """

    def __init__(self, secret: str = "", day: Callable[[], str] = today) -> None:
        self._secret = secret.encode()
        self._day = day
        self._keys: OrderedDict[str, bytes] = OrderedDict()

    def name(self, address: str, site: str = "") -> str:
        """32 hex digits for this network today.

        site: an origin on the allow-list, or ""; never an unchecked header of the client
        """
        text = f"{network(address)}|{site}"
        return hmac.new(self._key(), text.encode(), hashlib.sha256).hexdigest()[:32]

    def _key(self) -> bytes:
        day = self._day()
        key = self._keys.pop(day, None) or self._made(day)
        self._keys[day] = key
        if len(self._keys) > DAYS:
            self._keys.popitem(last=False)
        return key

    def _made(self, day: str) -> bytes:
        if not self._secret:
            return secrets.token_bytes(32)
        return hmac.new(self._secret, day.encode(), hashlib.sha256).digest()


def address_of(text: str) -> Address | None:
    """`1.2.3.4`, `1.2.3.4:5`, `::1`, `[::1]:5`, `fe80::1%eth0`; None for anything else."""
    forms = r"\[(.+)\](?::\d+)?|(\d+(?:\.\d+){3}):\d+"
    ported = re.fullmatch(forms, text)
    plain = ported.group(ported.lastindex or 0) if ported else text
    try:
        found = ipaddress.ip_address(plain.partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def trusted(proxies: Iterable[str]) -> list[str]:
    """Addresses or networks of proxies, as uvicorn takes them.  Raises UsageError for others.

    A dual-stack socket gives an IPv4 address as a mapped one, `::ffff:10.0.0.1`: both are listed.
    """
    try:
        networks = [ipaddress.ip_network(name) for name in proxies]
    except ValueError as error:
        raise UsageError(
            f"Not a proxy's address: {error}", hint="Write it as 10.0.0.1 or 10.0.0.0/8"
        ) from error
    old = [n for n in networks if n.version == 4]
    mapped = [f"::ffff:{n.network_address}/{96 + n.prefixlen}" for n in old]
    return [*map(str, networks), *mapped]


def network(address: str) -> str:
    """The network of an address, /24 of IPv4 or /48 of IPv6; "" if the text is not an address."""
    found = address_of(address)
    if found is None:
        return ""
    bits = 24 if found.version == 4 else 48
    return str(ipaddress.ip_network((found, bits), strict=False))


class TokenBucket:
    """A token bucket: `rate` tokens per second, at most `burst` of them."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._left = burst
        self._at = time.monotonic()

    def take(self, count: int = 1) -> bool:
        """Takes `count` tokens if there are that many; else takes none and returns False."""
        now = time.monotonic()
        self._left = min(self._burst, self._left + self._rate * (now - self._at))
        self._at = now
        if self._left < count:
            return False
        self._left -= count
        return True


class TokenBuckets:
    """A bucket per source; beyond `most` sources the least recently used is dropped."""

    def __init__(self, rate: float, burst: float, most: int = 100_000) -> None:
        self._rate = rate
        self._burst = burst
        self._most = most
        self._of: OrderedDict[str, TokenBucket] = OrderedDict()

    def take(self, source: str) -> bool:
        bucket = self._of.pop(source, None) or TokenBucket(self._rate, self._burst)
        self._of[source] = bucket
        if len(self._of) > self._most:
            self._of.popitem(last=False)
        return bucket.take()
