"""Keys and reports for tests of the store and of what feeds it."""

from __future__ import annotations

import itertools

from tilewright.store import Key, StoredGold, StoredReport, StoredVote
from tilewright.store.records import ANSWERS

#: Voices that make a default, if all were asked and agree.
AGREED = 16

_numbers = itertools.count()


def key(kernel: str = "a" * 64, **other: str) -> Key:
    facts = {
        "kind": "matmul",
        "shape": "384x768x768",
        "device": "wasm-x86-relaxed-32k",
        "space": "0123456789abcdef",
        "compiler": "0.1.0",
        "browser": "chromium",
    }
    return Key(kernel=kernel, **(facts | other))


def report(
    top: dict[int, float], of: Key | None = None, *gold: StoredGold, nonce: str = ""
) -> StoredReport:
    """A report with candidates and ratios, in the order of the ratios; the first two were asked
    for."""
    votes = tuple(sorted((StoredVote(c, r) for c, r in top.items()), key=lambda v: -v.ratio))
    name = nonce or f"nonce-{next(_numbers):06d}"
    return StoredReport(name, of or key(), votes, gold, votes[:ANSWERS])
