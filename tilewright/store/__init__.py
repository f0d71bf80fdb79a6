"""The kernel database: what devices found out about candidates, and what the crowd makes of it.

Input: reports (`Store.submit`).  Output: what a new device of a class starts with
(`Store.standing`).  On SQLite or PostgreSQL; see docs/store.md.  It knows candidates only by their
numbers: what they are, and whether they are right and fast, each device finds out itself.
"""

from tilewright.store.records import (
    Entry,
    Gold,
    Key,
    Ranked,
    Receipt,
    Report,
    Standing,
    Stats,
    Vote,
)
from tilewright.store.store import Store
from tilewright.store.votes import Limits

__all__ = [
    "Entry",
    "Gold",
    "Key",
    "Limits",
    "Ranked",
    "Receipt",
    "Report",
    "Standing",
    "Stats",
    "Store",
    "Vote",
]
