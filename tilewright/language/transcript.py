"""What was said in a recording, as text that is made while it is read.

Input: samples, and a model that hears.  Output: `Transcript`.  A recording is cut into windows, and
each is decoded by itself: always the likeliest token that may be chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.base.numpy_scalars import Array
from tilewright.language.assets import SpeechFacts
from tilewright.language.cache_session import Stopped
from tilewright.language.recordings import windows
from tilewright.language.text_answer import TextAnswer
from tilewright.language.vocabulary import Vocabulary

#: Nobody speaks in a window if this probability of silence is exceeded, and the mean logarithm of
#: the probabilities of its tokens is not.
SILENT, LIKELY = 0.6, -1.0


@dataclass(frozen=True)
class Hearing:
    """room: tokens that prompt and answer may have;  window: samples that fit
    after: the logits after these ids about the samples; None if it was stopped
    """

    room: int
    window: int
    after: Callable[[Array, Sequence[int], Stopped], Array | None]


class Transcript(TextAnswer):
    """duration: seconds of the recording;  language: its code, once it is known; "" of a model that
    knows one language
    """

    def __init__(
        self, hearing: Hearing, vocabulary: Vocabulary, facts: SpeechFacts, samples: Array,
        language: str, task: str,
    ) -> None:  # fmt: skip
        super().__init__()
        self.language, self.task = language, task
        self.duration = len(samples) / facts.rate
        self._hearing, self._vocabulary, self._facts = hearing, vocabulary, facts
        self._samples = samples

    def __repr__(self) -> str:
        how = f"ended: {self.ended}" if self.ended else "not ended"
        return f"<Transcript of {self.duration:.1f} seconds, {len(self.ids)} tokens, {how}>"

    def _bytes(self) -> Iterator[bytes]:
        is_first = True
        for start, end in windows(self._samples, self._hearing.window, self._facts.rate):
            for token in self._window(self._samples[start:end]):
                self._add(token)
                piece = self._piece(token)
                # a text has no space before its first word
                yield piece.removeprefix(b" ") if is_first else piece
                is_first = is_first and not piece
            if self.ended:
                return
        self.ended = "end"

    def _piece(self, token: int) -> bytes:
        """Tokens behind the one that asks for none are times."""
        return b"" if token > self._facts.plain else self._vocabulary.piece(token)

    def _window(self, samples: Array) -> Iterator[int]:
        """The tokens of one window.  If it may be silent they are held back to its end."""
        facts, held, total = self._facts, list[int](), 0.0
        logits = self._after(samples, [facts.start])
        if logits is None:
            return
        if facts.languages and not self.language:
            codes, ids = [*facts.languages], [*facts.languages.values()]
            self.language = codes[int(np.argmax(logits[ids]))]
        is_doubtful = facts.silence is not None and _share(logits, facts.silence) > SILENT
        prompt = [
            facts.start,
            *([facts.languages[self.language]] if facts.languages else []),
            *([facts.tasks[self.task]] if facts.tasks else []),
            facts.plain,
        ]
        written: list[int] = []
        most = min(self._hearing.room // 2, self._hearing.room - len(prompt))
        while len(written) < most:
            logits = self._after(samples, [*prompt, *written])
            if logits is None:
                return
            scores = self._allowed(logits, is_first=not written)
            token = int(np.argmax(scores))
            total += np.log(_share(scores, token))
            if token in self._vocabulary.ends:
                break
            written.append(token)
            if is_doubtful:
                held.append(token)
            else:
                yield token
        if total / (len(written) + 1) > LIKELY:
            yield from held

    def _after(self, samples: Array, ids: Sequence[int]) -> Array | None:
        logits = self._hearing.after(samples, ids, lambda: self._is_stopped)
        if logits is None:
            self.ended = "stopped"
        return logits

    def _allowed(self, logits: Array, is_first: bool) -> Array:
        scores = logits.astype(np.float64)
        scores[list(self._facts.never)] = -np.inf
        if is_first:
            scores[list(self._facts.never_first)] = -np.inf
        return scores


def _share(logits: Array, token: int) -> float:
    """The probability of a token."""
    powers = np.exp(logits.astype(np.float64) - logits.max())
    return float(powers[token] / powers.sum())
