"""Macros that paste tokens, and the names that they may make.

Input: units of a `WordIndex`.  Output: whether a macro pastes, whether a name can be pasted, and
all units that a kernel leads to.  Macros are not expanded, so there may be too many of these.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.elastic.transform.word_index import SourceUnit, WordIndex


def pastes(unit: SourceUnit) -> bool:
    """True if a macro has # or ##, except in `, ##__VA_ARGS__`."""
    before = ""
    for token in unit.tokens:
        if token.text == "#" or (token.text == "##" and before != ","):
            return True
        before = token.text
    return False


def pieces(units: Iterable[SourceUnit]) -> set[str]:
    """Parts from which names may be pasted."""
    return {t.text for u in units for t in u.tokens if t.kind in ("word", "number")}


def is_made(name: str, parts: set[str]) -> bool:
    """True if a name can be composed of two or more parts."""
    reachable = {0}
    for start in range(len(name)):
        if start in reachable:
            ends = range(start + 1, len(name) + (start > 0))
            reachable |= {end for end in ends if name[start:end] in parts}
    return len(name) in reachable


def units_from(index: WordIndex, kernel: SourceUnit) -> list[SourceUnit]:
    """The kernel and all units that its words, also pasted ones, lead to."""
    found = index.reached(kernel)
    more: set[str] = set()
    while any(unit.kind == "macro" and pastes(unit) for unit in found):
        parts = pieces(found)
        made = {name for name in index.named if is_made(name, parts)} - more
        if not made:
            break
        more |= made
        found = index.reached(kernel, more)
    return found
