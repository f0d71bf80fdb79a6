"""Proposes how a text goes on: as it went on when its last tokens came before.

Input: the ids of a text.  Output: ids that may follow, for a run that checks them all at once.  A
proposal decides nothing.  web/language/lookup.js proposes the same.
"""

from __future__ import annotations

from collections.abc import Sequence

#: Tokens that must have come before in the same order.
SPAN = 3


class Lookup:
    """Of one text after the other.  count: how many ids it proposes"""

    def __init__(self, count: int) -> None:
        self.count = count
        self._ids: list[int] = []
        #: Where the text went on behind some tokens, the last time.
        self._places: dict[tuple[int, ...], int] = {}

    def next(self, ids: Sequence[int]) -> list[int]:
        """`count` ids; none if the last tokens did not come before."""
        self._read(ids)
        place = self._places.get(tuple(ids[-SPAN:]))
        if place is None:
            return []
        period = len(ids) - place
        return [ids[place + n % period] for n in range(self.count)]

    def _read(self, ids: Sequence[int]) -> None:
        known = len(self._ids)
        if self._ids != list(ids[:known]):
            known, self._places = 0, {}
        for place in range(max(known, SPAN), len(ids)):
            self._places[tuple(ids[place - SPAN : place])] = place
        self._ids = list(ids)
