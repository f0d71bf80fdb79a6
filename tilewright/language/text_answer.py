"""An answer of a model, made while it is read: pieces of text, why it ended, how fast it came.

Input: what makes the bytes of one token after the other.  Output: whole characters.  It knows no
model.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Literal

from tilewright.base.errors import ContextFull, MemoryLimit
from tilewright.language.stream import TextStream

#: Why an answer ended: by a token, by a stop string, because it was long enough, because it was
#: stopped; "context" if the caches are full, "memory" if there is no memory for them to grow.
Ended = Literal["end", "stop", "most", "stopped", "context", "memory"]


class TextAnswer(ABC):
    """Iterate over it for pieces of its text, in an event loop by `async for`.

    text, ids: the answer so far;  ended: why it ended, None before
    first, seconds: until the first token, and from then on
    """

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self.text = ""
        self.ids: list[int] = []
        self.ended: Ended | None = None
        self.first = self.seconds = 0.0
        self._start = 0.0
        self._is_stopped = False
        self._pieces = self._shown(TextStream(stops))

    def stop(self) -> None:
        """Ends the answer before its next token.  Any thread and any signal handler may call it."""
        self._is_stopped = True

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        return next(self._pieces)

    async def __aiter__(self) -> AsyncIterator[str]:
        """Computes in another thread, so that the loop goes on; ends with whoever reads."""
        try:
            while (piece := await asyncio.to_thread(next, self._pieces, None)) is not None:
                yield piece
        finally:
            self.stop()

    @property
    def speed(self) -> float:
        """Tokens a second after the first one; 0 if there are none."""
        return (len(self.ids) - 1) / self.seconds if self.seconds else 0.0

    @abstractmethod
    def _bytes(self) -> Iterator[bytes]:
        """Of one token after the other; says why it ended."""

    def _add(self, token: int) -> None:
        """Counts a token, and how long it took."""
        now = time.perf_counter()
        if self.ids:
            self.seconds = now - self._start - self.first
        else:
            self.first = now - self._start
        self.ids.append(token)

    def _shown(self, stream: TextStream) -> Iterator[str]:
        self._start = time.perf_counter()
        try:
            for piece in self._bytes():
                text = stream.add(piece)
                self.text += text
                if stream.stopped:
                    self.ended = "stop"
                if text:
                    yield text
                if stream.stopped:
                    return
        except (ContextFull, MemoryLimit) as error:
            self.ended = "context" if isinstance(error, ContextFull) else "memory"
            raise
        finally:
            self.text += (rest := stream.add(b"", last=True))
        if rest:
            yield rest
