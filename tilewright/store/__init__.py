"""The kernel database: what devices found out about candidates, and what the crowd makes of it.

Input: reports (`Store.submit`).  Output: what a new device of a class starts with
(`Store.standing`).  On SQLite or PostgreSQL; see docs/store.md.  It knows candidates only by their
numbers: what they are, and whether they are right and fast, each device finds out itself.
"""

from tilewright.store.records import (
    Key,
    KeyStanding,
    Ranked,
    Receipt,
    Standing,
    Stats,
    StoredGold,
    StoredReport,
    StoredVote,
)
from tilewright.store.store import KernelStore
from tilewright.store.votes import Thresholds

__all__ = [
    "KernelStore",
    "Key",
    "KeyStanding",
    "Ranked",
    "Receipt",
    "Standing",
    "Stats",
    "StoredGold",
    "StoredReport",
    "StoredVote",
    "Thresholds",
]
