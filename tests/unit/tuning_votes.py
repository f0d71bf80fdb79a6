"""A site with a store, and visitors that vote, for tests of reports.

Input: URL of a store; who votes, for what.  Output: a running server; its answer.
"""

from __future__ import annotations

import json
import urllib.request
from typing import Any

from tuning_client import Client, hello, report
from tuning_site import SECONDS, app, bundle, digest

from tilewright.bundle import open_bundle
from tilewright.server import BackgroundServer
from tilewright.store import KernelStore
from tilewright.targets.device_classes import CLASSES
from tilewright.tuning.candidates import space_of
from tilewright.tuning.catalogue import kernels_of
from tilewright.tuning.messages import Ack

SECRET = "secret of the tests"
#: Votes after which a candidate that all name is the default at last.
MOST = 120


def site(url: str, **tuning: Any) -> BackgroundServer:
    given = {"store": lambda: KernelStore.open(url), "secret": SECRET}
    return BackgroundServer(app(**(given | tuning)))


def who(number: int) -> str:
    """An address in a network of its own."""
    return f"10.{number >> 8}.{number & 255}.1"


def counted(url: str) -> tuple[int, int]:
    with KernelStore.open(url) as store:
        stats = store.stats()
    return stats.reports, stats.counted


def vote(server: str, number: int, ratios: dict[int, float], **changes: Any) -> Ack:
    """One visitor: tries nothing and reports."""
    with Client(server, address=who(number)) as client:
        offer = client.start(hello("m", digest(), **changes)).kernels[0]
        message = report(offer, ratios)
        client.send(message)
        return client.ack(message.nonce)


def agree(server: str, ratios: dict[int, float], first: int = 0) -> None:
    """Visitors vote until the best is the default; one in three is asked in its trial."""
    best = max(ratios, key=lambda candidate: ratios[candidate])
    for number in range(first, first + MOST):
        assert vote(server, number, ratios).accepted
        if number % 5 == 4 and default(server) == best:
            return
    raise AssertionError(f"{best} is no default after {MOST} votes")


def default(server: str) -> int | None:
    """The crowd's, of the only key."""
    with urllib.request.urlopen(server + "/api/standing", timeout=SECONDS) as answer:
        (entry,) = json.loads(answer.read())
    found: int | None = entry["default"]
    return found


def space() -> Any:
    kernel = kernels_of(open_bundle(bundle()))[0]
    return space_of(kernel, CLASSES["wasm-x86-relaxed-32k"])
