"""Turns tokens into text that can be shown: whole characters, and no part of a stop string.

Input: the bytes of one token after the other.  Output: text.  It knows no model.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence


class TextStream:
    """stopped: whether one of the stop strings came; the text ends before it"""

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self._stops = [s for s in stops if s]
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self.stopped = False

    def add(self, piece: bytes, last: bool = False) -> str:
        """What can be shown after these bytes; `last` shows all that is held back."""
        if self.stopped:
            return ""
        text = self._held + self._decoder.decode(piece, final=last)
        found = [at for s in self._stops if (at := text.find(s)) >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)]
        keep = 0 if last else max((_begun(text, s) for s in self._stops), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]


def _begun(text: str, stop: str) -> int:
    """How many characters at the end of the text begin the stop string."""
    most = min(len(text), len(stop) - 1)
    return next((n for n in range(most, 0, -1) if text.endswith(stop[:n])), 0)
