"""What the crowd knows, as GET /api/standing gives it: JSON, a page at a time.

Input: the store, a device class or none, the number of a page.  Output: bytes, and whether there is
a page after it.  Called in threads of the store: the event loop never sees the rows.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import msgspec

from tilewright.server.client import Page

if TYPE_CHECKING:
    from tilewright.store import Entry, Store

#: Keys of a page.
ROWS = 2000
#: Pages that can be asked for: who asks for more is not reading.
PAGES = 1000


def page(store: Store, device: str | None, number: int) -> Page:
    entries = store.overview(device, start=number * ROWS, limit=ROWS + 1)
    data = msgspec.json.encode([plain(entry) for entry in entries[:ROWS]])
    return Page(data, more=len(entries) > ROWS and number + 1 < PAGES)


def plain(entry: Entry) -> dict[str, object]:
    """A key and its standing in one flat record."""
    standing = asdict(entry.standing)
    ranked = [
        {k: v for k, v in one.items() if k not in ("device", "space", "browser")}
        for one in standing["ranked"]
    ]
    return asdict(entry.key) | standing | {"ranked": ranked, "day": entry.day}
