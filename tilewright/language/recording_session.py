"""A window of a recording on a host, and the tokens that were written about it.

Input: a function that runs the bundle, samples, ids.  Output: logits of the last id.  The first run
of a window computes what the decoder reads of it; later runs read that from states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.base.errors import InputError
from tilewright.base.numpy_scalars import Array
from tilewright.bundle import Manifest
from tilewright.frontend.language import DECODER_CACHES, LAST
from tilewright.frontend.speech import COUNT, SAMPLES
from tilewright.language.cache_session import CacheSession, Run, Stopped


class RecordingSession:
    """One window.  room: tokens that prompt and answer may have;  window: samples that fit"""

    def __init__(self, run: Run, manifest: Manifest) -> None:
        """Raises InputError if the bundle is not a speech model."""
        names = {info.name for info in manifest.inputs}
        rooms = {s.shape[-2] for s in manifest.states if s.name.startswith(DECODER_CACHES)}
        if {SAMPLES, COUNT} - names or SAMPLES not in manifest.dims or not rooms:
            raise InputError(
                "the bundle is no speech model",
                hint="See docs/speech.md for what it needs", inputs=sorted(names),
            )  # fmt: skip
        self._run = run
        self.room, self.window = min(rooms), max(manifest.dims[SAMPLES])
        self._caches = CacheSession(self._with_samples, manifest, self.room)
        self._samples: Array = np.zeros(0, np.float32)

    def after(
        self, samples: Array, ids: Sequence[int], stopped: Stopped = lambda: False
    ) -> Array | None:
        """The logits after these ids about a window; None if it was stopped.

        samples: the same object as in the last call, or those of another window

        Raises ContextFull, InputError.
        """
        if len(samples) > self.window:
            raise InputError(f"{len(samples)} samples do not fit a window of {self.window}")
        if samples is not self._samples:
            self._samples = samples
            self._caches.ids = []
        return self._caches.read(ids, stopped)

    def _with_samples(self, given: Mapping[str, Array]) -> Mapping[str, Array]:
        is_first = int(given[LAST][0]) == 0
        samples = self._samples if is_first else self._samples[:0]
        count = np.array([len(self._samples)], "i4")
        return self._run({**given, SAMPLES: samples[None], COUNT: count})
