"""Keys and reports for tests of the store and of what feeds it."""

from __future__ import annotations

import itertools

from tilewright.store import Key, StoredGold, StoredReport, StoredVote

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
    """A report with candidates and ratios, in the order of the ratios."""
    votes = sorted((StoredVote(c, r) for c, r in top.items()), key=lambda v: -v.ratio)
    return StoredReport(nonce or f"nonce-{next(_numbers):06d}", of or key(), tuple(votes), gold)
