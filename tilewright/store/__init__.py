"""The kernel database: results that devices report, and the ranking that their votes give.

Input: reports (`Store.submit`).  Output: what a new device of a class starts with
(`Store.standing`).  On SQLite or PostgreSQL; see docs/store.md.  It knows candidates only by
number and holds no code; each device checks results and speed itself.
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
