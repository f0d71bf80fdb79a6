"""Who reports, without knowing who: a keyed hash of the network, and limits per hash.

Input: the address of a connection, and the site if it is one that the server lists.  Output: a name
that is the same for one network (and site) during one day (UTC), and for all processes that have
the same secret.  Addresses are never stored; without a secret the keys are random and live in this
process, those of the last few days.
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

#: Days whose keys are kept: who reports while a date goes back and forth is still one voice.
DAYS = 3


def today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


class Sources:
    """Names sources.  `day` tells the date, which may also go back."""

    def __init__(self, secret: str = "", day: Callable[[], str] = today) -> None:
        self._secret = secret.encode()
        self._day = day
        self._keys: OrderedDict[str, bytes] = OrderedDict()

    def name(self, address: str, site: str = "") -> str:
        """32 hex digits for this network today; `site`: never what only the client says."""
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
    """Addresses or networks of proxies, as uvicorn takes them; `UsageError` for anything else.

    A socket of both families tells an IPv4 address as a mapped one: `::ffff:10.0.0.1`.
    """
    try:
        networks = [ipaddress.ip_network(name) for name in proxies]
    except ValueError as error:
        raise UsageError(
            f"No address of a proxy: {error}", hint="Write it as 10.0.0.1 or 10.0.0.0/8"
        ) from error
    old = [n for n in networks if n.version == 4]
    mapped = [f"::ffff:{n.network_address}/{96 + n.prefixlen}" for n in old]
    return [*map(str, networks), *mapped]


def network(address: str) -> str:
    """The part of an address that many share: /24 of IPv4, /48 of IPv6."""
    found = address_of(address)
    if found is None:
        return ""
    bits = 24 if found.version == 4 else 48
    return str(ipaddress.ip_network((found, bits), strict=False))


class Bucket:
    """So many tokens a second, and at most `burst` at once."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._left = burst
        self._at = time.monotonic()

    def take(self) -> bool:
        now = time.monotonic()
        self._left = min(self._burst, self._left + self._rate * (now - self._at))
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Buckets:
    """A bucket per source; of too many sources the least recent is forgotten."""

    def __init__(self, rate: float, burst: float, most: int = 100_000) -> None:
        self._rate = rate
        self._burst = burst
        self._most = most
        self._of: OrderedDict[str, Bucket] = OrderedDict()

    def take(self, source: str) -> bool:
        bucket = self._of.pop(source, None) or Bucket(self._rate, self._burst)
        self._of[source] = bucket
        if len(self._of) > self._most:
            self._of.popitem(last=False)
        return bucket.take()
