"""Finds the parts of a source that may read the block's number: words, assembly, and their users.

Input: a `WordIndex`.  Output: units and names by which the block's number may be read, and their
tokens.  Every occurrence of a name counts, so the result has too many parts rather than too few.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tilewright.elastic.transform.definitions import LANES
from tilewright.elastic.transform.pasting import pastes
from tilewright.elastic.transform.tokens import Token
from tilewright.elastic.transform.word_index import SourceUnit, WordIndex

#: Registers of the block's number, in texts of assembly.
_REGISTER = re.compile(r"ctaid|clusterid|cluster_n?cta")
_CONDITIONS = frozenset({"if", "ifdef", "ifndef", "elif", "elifdef", "elifndef"})


@dataclass(frozen=True, eq=False)
class Identity:
    """The words that lead to the block's number.

    words: words that are the block's number
    live: starts of kernels whose lanes are counted; if empty, lane functions stay unchanged
    """

    index: WordIndex = field(repr=False)
    words: frozenset[str]
    live: frozenset[int] = frozenset()

    @cached_property
    def lanes(self) -> frozenset[str]:
        """Lane functions, if some kernel's lanes are counted."""
        if not self.live:
            return frozenset()
        every = {word for unit in self.index.units for word in unit.words}
        return frozenset(word for word in every if LANES.match(word))

    @cached_property
    def units(self) -> frozenset[SourceUnit]:
        """All units that read the block's number, directly or through what they mention."""
        start = [unit for unit in self.index.units if registers(unit.tokens)]
        return self.index.leading_to(start, self.words | self.lanes)

    @cached_property
    def names(self) -> frozenset[str]:
        """Names of these units."""
        return frozenset(
            name for unit in self.units if unit.kind not in ("kernel", "operator")
            for name in unit.names
        )  # fmt: skip

    def counts_lanes(self, unit: SourceUnit) -> bool:
        return unit.start in self.live if unit.kind == "kernel" else bool(self.live)

    def tokens(self, unit: SourceUnit) -> list[Token]:
        """The unit's tokens that may stand for the block's number."""
        wanted = self.words | self.names | (self.lanes if self.counts_lanes(unit) else frozenset())
        found = [t for t in unit.tokens if t.kind == "word" and t.text in wanted]
        return sorted([*found, *registers(unit.tokens)], key=lambda t: t.start)

    @cached_property
    def undefined(self) -> frozenset[str]:
        """Names that some directive undefines."""
        return self._mentioned(frozenset({"undef"}))

    @cached_property
    def conditions(self) -> frozenset[str]:
        """Names that preprocessor conditions test."""
        return self._mentioned(_CONDITIONS)

    def _mentioned(self, kinds: frozenset[str]) -> frozenset[str]:
        return frozenset(
            token.text
            for source in {unit.source for unit in self.index.units}
            for directive in source.lexed.directives
            if directive.name in kinds
            for token in directive.tokens
        )

    @cached_property
    def pasting(self) -> frozenset[str]:
        """Macros that paste or stringify their arguments, or pass them to a macro that does."""
        first = [u for u in self.index.units if u.kind == "macro" and pastes(u)]
        return frozenset(
            name for u in self.index.leading_to(first, ()) if u.kind == "macro" for name in u.names
        )


def registers(tokens: Sequence[Token]) -> list[Token]:
    """Strings that name a register of the block's number, alone or joined with adjacent strings."""
    found: list[Token] = []
    run: list[Token] = []
    for token in (*tokens, None):
        if token is not None and token.kind in ("string", "raw"):
            run.append(token)
        elif run:
            found += _named(run)
            run = []
    return found


def _named(run: Sequence[Token]) -> Sequence[Token]:
    single = [token for token in run if _REGISTER.search(token.text)]
    if single or len(run) == 1:
        return single
    joined = "".join(re.sub(r'^[^"]*"|"$', "", token.text) for token in run)
    return run[:1] if _REGISTER.search(joined) else []
