"""The caches of a model on a host, and the tokens that they hold.

Input: a function that runs the bundle, ids.  Output: logits of the last id.  Ids that the caches
already hold are not computed again.  web/engine/generate.js cuts prompts in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tilewright.base.errors import ContextFull, InputError
from tilewright.base.numpy_scalars import Array
from tilewright.bundle import Manifest
from tilewright.frontend.language import IDS, LAST, LOGITS, ROWS

#: Outputs by name for inputs by name.
Run = Callable[[Mapping[str, Array]], Mapping[str, Array]]
#: Told before each run; if it gives True, the runs end.
Stopped = Callable[[], bool]


class CacheSession:
    """One sequence.  ids: the tokens in the caches;  room: the largest number of tokens"""

    def __init__(self, run: Run, manifest: Manifest, room: int | None = None) -> None:
        """Raises InputError if the bundle is not a language model.

        room: by default that of the smallest state
        """
        names = {info.name for info in manifest.inputs}
        rooms = {state.shape[-2] for state in manifest.states if len(state.shape) > 1}
        if {IDS, LAST} - names or not rooms or ROWS not in manifest.dims:
            raise InputError(
                "the bundle is not a language model",
                hint="See docs/decoders.md for what it needs", inputs=sorted(names),
            )  # fmt: skip
        self._run = run
        self._sizes = sorted(manifest.dims[ROWS])
        self.room = min(rooms) if room is None else room
        self.ids: list[int] = []

    def read(self, ids: Sequence[int], stopped: Stopped = lambda: False) -> Array | None:
        """The logits after these ids, which are the whole text so far; None if it was stopped.

        Raises ContextFull, InputError.
        """
        if not ids:
            raise InputError("the prompt is empty", hint="Give at least one token")
        if len(ids) > self.room:
            raise ContextFull(
                f"the text has {len(ids)} tokens, and the context holds {self.room}",
                hint="Shorten it, start again, or use a larger context (--context)",
                tokens=len(ids), context=self.room,
            )  # fmt: skip
        # the logits of the last id are wanted even if its row is there
        del self.ids[min(self.held(ids), len(ids) - 1) :]
        logits: Array | None = None
        for part in self._parts(ids[len(self.ids) :]):
            if stopped():
                return None
            last = len(self.ids) + len(part) - 1
            given: dict[str, Array] = {IDS: np.array([part], "i8"), LAST: np.array([last], "i4")}
            logits = np.asarray(self._run(given)[LOGITS]).ravel()
            self.ids += part
        return logits

    def after(
        self, prompt: Sequence[int], written: Sequence[int], stopped: Stopped = lambda: False
    ) -> Array | None:
        """The logits after a prompt and the tokens written so far, as of `read`."""
        return self.read([*prompt, *written], stopped)

    def held(self, ids: Sequence[int]) -> int:
        """How many of these ids, the first ones, the caches hold."""
        pairs = enumerate(zip(self.ids, ids, strict=False))
        return next((n for n, (a, b) in pairs if a != b), min(len(self.ids), len(ids)))

    def _parts(self, ids: Sequence[int]) -> list[list[int]]:
        """Parts that are as long as plans; the first of an empty cache may be shorter."""
        longest, rest, parts = self._sizes[-1], list(ids), []
        if not self.ids:
            first = len(rest) % longest or longest
            fits = next((size for size in self._sizes if size >= first), None)
            if fits is not None and fits <= self.room:
                parts.append(rest[:first])
                rest = rest[first:]
        while rest:
            size = next((size for size in reversed(self._sizes) if size <= len(rest)), None)
            if size is None:
                raise InputError("the bundle has no plan for one token", sizes=self._sizes)
            parts.append(rest[:size])
            rest = rest[size:]
        return parts
