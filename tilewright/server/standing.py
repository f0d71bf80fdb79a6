"""Standings of the store: as JSON pages for GET /api/standing, and as defaults to link.

Input: the store, a device class.  Output: a `Page`; candidates by kernel and space.  Called in
threads of the store: the event loop never handles rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from tilewright.base.compiler_digest import compiler_name
from tilewright.server.client import Page
from tilewright.tuning.messages import Browser

if TYPE_CHECKING:
    from tilewright.store import KernelStore, KeyStanding

#: The default candidate, by digest of the kernel and checksum of the space.
Settled: TypeAlias = Mapping[str, Mapping[str, int]]

#: Keys per page.
ROWS = 2000
#: Limit of pages per query.
PAGES = 1000


def page(store: KernelStore, device: str | None, number: int) -> Page:
    entries = store.overview(device, start=number * ROWS, limit=ROWS + 1)
    data = msgspec.json.encode([plain(entry) for entry in entries[:ROWS]])
    return Page(data, more=len(entries) > ROWS and number + 1 < PAGES)


def settled(store: KernelStore, device: str, browser: Browser) -> Settled:
    """The defaults of this class and browser that are not the compiler's own."""
    found: dict[str, dict[str, int]] = {}
    for entry in store.overview(device, settled=True):
        key, default = entry.key, entry.standing.default
        if default and (key.browser, key.compiler) == (browser, compiler_name()):
            found.setdefault(key.kernel, {})[key.space] = default
    return found


def plain(entry: KeyStanding) -> dict[str, object]:
    """A key and its standing in one flat record; `current`: of the compiler that serves it."""
    ranked = [
        {k: v for k, v in vars(one).items() if k not in ("device", "space", "browser")}
        for one in entry.standing.ranked
    ]
    own = {"current": entry.key.compiler == compiler_name(), "ranked": ranked, "day": entry.day}
    # not `asdict`: its copies took a third of the time of a page
    return vars(entry.key) | vars(entry.standing) | own
