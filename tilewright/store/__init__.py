"""The kernel database: results that devices report, and the ranking that their votes give.

Input: reports (`Store.submit`).  Output: what a new device of a class starts with
(`Store.standing`).  On SQLite or PostgreSQL; see docs/store.md.  It knows candidates only by
number and holds no code; each device checks results and speed itself.
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
