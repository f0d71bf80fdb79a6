"""The caches of a model on a host, and the tokens that they hold.

Input: a function that runs the bundle, ids.  Output: logits of the last id.  Ids that the caches
already hold are not computed again.  With a look-up, a run also computes ids that may come next;
their logits are the result of a later call if they came, else the next run overwrites their rows.
web/engine/generate.js cuts prompts and checks proposals in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tilewright.base.errors import ContextFull, InputError, MemoryLimit, UsageError
from tilewright.base.numpy_scalars import Array
from tilewright.bundle import Manifest
from tilewright.frontend.language import CHECKED, IDS, LAST, LOGITS, ROWS
from tilewright.language.lookup import Lookup

#: Outputs by name for inputs by name.
Run = Callable[[Mapping[str, Array]], Mapping[str, Array]]
#: Told before each run; if it gives True, the runs end.
Stopped = Callable[[], bool]


class CacheSession:
    """One sequence.  ids: the tokens in the caches;  room: the largest number of tokens"""

    def __init__(
        self, run: Run, manifest: Manifest, room: int | None = None, lookup: bool = False
    ) -> None:
        """Raises InputError if the bundle is not a language model, UsageError if it was built
        without plans for a look-up.

        room:   by default that of the smallest state
        lookup: whether runs also compute what may come next
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
        checked = max(manifest.dims.get(CHECKED, (1,)))
        if lookup and checked == 1:
            raise UsageError(
                "the bundle has no plan that checks proposed tokens",
                hint="Build it with --lookup, or leave the look-up out",
            )
        self._lookup = Lookup(checked - 1) if lookup else None
        #: Logits of proposed ids and of the id before them, by how many ids come before the logits.
        self._ahead: dict[int, Array] = {}

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
        held = self.held(ids)
        if held == len(ids) in self._ahead:
            return None if stopped() else self._ahead[held]
        # the logits of the last id are wanted even if its row is there
        del self.ids[min(held, len(ids) - 1) :]
        self._ahead = {}
        logits: Array | None = None
        rest = ids[len(self.ids) :]
        for part in self._parts(rest):
            if stopped():
                return None
            proposed = self._proposed(ids) if len(rest) == 1 else []
            try:
                logits = self._computed(part, proposed)
            except MemoryLimit:
                if not proposed:
                    raise
                logits = self._computed(part, [])
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

    def _proposed(self, ids: Sequence[int]) -> list[int]:
        """Ids that may follow, if they fit."""
        if self._lookup is None or len(ids) + self._lookup.count > self.room:
            return []
        return self._lookup.next(ids)

    def _computed(self, part: list[int], proposed: list[int]) -> Array:
        """The logits after a part; those after proposed ids are kept."""
        end, count = len(self.ids) + len(part), len(proposed)
        places = np.arange(end + count - 1, end - 2, -1).astype(np.int32)
        given: dict[str, Array] = {IDS: np.array([part + proposed], "i8"), LAST: places}
        rows = np.asarray(self._run(given)[LOGITS]).reshape(count + 1, -1)
        self.ids += part + proposed
        if proposed:
            self._ahead = {end + n: np.asarray(rows[count - n]) for n in range(count + 1)}
        return np.asarray(rows[count])

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
