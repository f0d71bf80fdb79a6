"""The prompt of an encoder-decoder model on a host.

Input: a function that runs the bundle, ids of a prompt and of the tokens written so far.  Output:
logits of the last token.  The bundle's states hold what the decoder reads of one prompt, which is
computed once.  A bundle with caches of past tokens computes each token once; others compute all
written tokens in each run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.base.errors import ContextFull, InputError
from tilewright.base.numpy_scalars import Array
from tilewright.bundle import Manifest
from tilewright.frontend.exports import PROMPT, PROMPT_LAST, PROMPT_ROWS
from tilewright.frontend.language import DECODER_CACHES, IDS, LAST, LOGITS, ROWS
from tilewright.language.cache_session import CacheSession, Run, Stopped


class PromptSession:
    """One prompt.

    room: tokens that a prompt may have;  most: tokens that an answer may have, its start included
    """

    def __init__(self, run: Run, manifest: Manifest, starts: Sequence[int]) -> None:
        """Raises InputError if the bundle is not an encoder-decoder model.

        starts: the ids that the decoder begins with
        """
        names = {info.name for info in manifest.inputs}
        if {PROMPT, PROMPT_LAST, IDS, LAST} - names or {PROMPT_ROWS, ROWS} - manifest.dims.keys():
            raise InputError(
                "the bundle is not an encoder-decoder model",
                hint="See docs/language-exports.md for what it needs", inputs=sorted(names),
            )  # fmt: skip
        self._run, self._starts = run, tuple(starts)
        self._first = min(manifest.dims[ROWS])
        rooms = [s.shape[-2] for s in manifest.states if s.name.startswith(DECODER_CACHES)]
        self.room, self.most = max(manifest.dims[PROMPT_ROWS]), max(manifest.dims[ROWS])
        self._caches: CacheSession | None = None
        if rooms:
            self.most = min(rooms)
            self._caches = CacheSession(self._with_prompt, manifest, self.most)
        self.prompt: list[int] = []
        self._asked: list[int] = []

    def after(
        self, prompt: Sequence[int], written: Sequence[int], stopped: Stopped = lambda: False
    ) -> Array | None:
        """The logits after the prompt and the tokens written so far; None if it was stopped.

        Raises ContextFull, InputError.
        """
        if not prompt:
            raise InputError("the prompt is empty", hint="Give at least one token")
        self._check(len(prompt), self.room, "prompt")
        tokens = [*self._starts, *written]
        self._check(len(tokens), self.most, "answer")
        if stopped():
            return None
        if self._caches is not None:
            return self._after_caches(self._caches, prompt, tokens, stopped)
        if self.held(prompt):
            return self._logits([], len(prompt), tokens)
        self.prompt = []  # until the run is over, nobody knows what the states hold
        logits = self._logits(prompt, len(prompt), tokens[: self._first])
        self.prompt = list(prompt)
        if len(tokens) <= self._first:
            return logits
        return None if stopped() else self._logits([], len(prompt), tokens)

    def _after_caches(
        self, caches: CacheSession, prompt: Sequence[int], tokens: Sequence[int], stopped: Stopped
    ) -> Array | None:
        if not self.held(prompt):
            self.prompt, caches.ids = [], []
        self._asked = list(prompt)
        return caches.read(tokens, stopped)

    def _with_prompt(self, given: Mapping[str, Array]) -> Mapping[str, Array]:
        """One token; the prompt too, unless the states are of it."""
        asked = [] if self.prompt == self._asked else self._asked
        made = self._run({**given, **_prompt(asked, len(self._asked))})
        self.prompt = self._asked
        return made

    def held(self, prompt: Sequence[int]) -> int:
        """How many tokens of the prompt need not be computed: all or none."""
        return len(prompt) if self.prompt == list(prompt) else 0

    def _logits(self, prompt: Sequence[int], count: int, tokens: Sequence[int]) -> Array:
        """count: as of `_prompt`"""
        given: dict[str, Array] = {
            IDS: np.array([tokens], "i8"),
            LAST: np.array([len(tokens) - 1], "i4"),
        }
        return np.asarray(self._run({**_prompt(prompt, count), **given})[LOGITS]).ravel()

    def _check(self, count: int, room: int, what: str) -> None:
        if count > room:
            raise ContextFull(
                f"the {what} has {count} tokens, and the bundle holds {room}",
                hint="Shorten it, or build the model with a larger context (--context)",
                tokens=count, context=room,
            )  # fmt: skip


def _prompt(prompt: Sequence[int], count: int) -> dict[str, Array]:
    """Inputs.  count: tokens of the prompt that the states hold, or are to hold"""
    ids = np.array([prompt], "i8").reshape(1, -1)
    return {PROMPT: ids, PROMPT_LAST: np.array([count - 1], "i4")}
