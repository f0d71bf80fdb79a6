"""Recordings as samples, and where long ones are cut.

Input: a .wav file or numbers.  Output: samples of one channel at the rate of a model, from -1 to 1.
It knows no model.
"""

from __future__ import annotations

import os
import wave
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tilewright.base.errors import InputError, UsageError
from tilewright.base.numpy_scalars import Array

Recording = str | os.PathLike[str] | Sequence[float] | Array
#: The way out for any other file.
CONVERT = "Convert it: ffmpeg -i RECORDING -ar {rate} -ac 1 -c:a pcm_s16le recording.wav"
#: What the module wave raises for files that it cannot read.
DAMAGED = (wave.Error, EOFError, RuntimeError, ValueError)
#: Samples a second of recordings.
RATES = (1000, 1_000_000)
#: A long recording is cut in its quietest part of this many seconds, in the last third of a window.
QUIET = 0.2


def samples_of(recording: Recording, rate: int) -> Array:
    """Raises InputError, UsageError without the package that changes rates.

    recording: a path of a .wav file, or samples at this rate
    """
    if isinstance(recording, str | os.PathLike):
        found = _read(Path(recording), rate)
    else:
        found = np.asarray(recording)
    if found.ndim != 1 or found.dtype.kind != "f":
        raise InputError(
            "samples are floating-point numbers of one channel",
            hint="Divide 16-bit integers by 32768; give the mean of several channels",
            shape=list(found.shape), dtype=str(found.dtype),
        )  # fmt: skip
    if not found.size:
        raise InputError("the recording is empty", hint="Give at least one sample")
    made = found.astype(np.float32)
    if not np.isfinite(made).all():
        raise InputError(
            "the recording has samples that are not finite", hint="Samples lie between -1 and 1"
        )
    return made


def windows(samples: Array, size: int, rate: int) -> list[tuple[int, int]]:
    """Where the parts of a recording begin and end; each has at most `size` samples.

    A part ends in the quietest place of the last third of its window, so that no word is cut.
    """
    found, start, step = [], 0, max(1, int(QUIET * rate) // 2)
    while len(samples) - start > size:
        first = start + size * 2 // 3
        blocks = (start + size - first) // step
        heard = samples[first : first + blocks * step].reshape(blocks, step)
        powers = np.square(heard, dtype=np.float64).sum(1)
        pairs = powers[:-1] + powers[1:]
        end = first + (int(np.argmin(pairs)) + 1) * step if len(pairs) else start + size
        found.append((start, end))
        start = end
    return [*found, (start, len(samples))]


def _read(path: Path, rate: int) -> Array:
    hint = CONVERT.format(rate=rate)
    try:
        most = path.stat().st_size
        with wave.open(os.fspath(path), "rb") as file:
            width, channels, own = file.getsampwidth(), file.getnchannels(), file.getframerate()
            frames = min(file.getnframes(), most // max(1, width * channels))
            data = file.readframes(frames) if width == 2 else b""
    except OSError as cause:
        raise InputError(
            f"cannot read the recording: {cause.strerror}", hint="Check the path", path=str(path)
        ) from cause
    except DAMAGED as cause:
        raise InputError(
            f"the recording is no .wav file of 16-bit PCM: {cause}".rstrip(": "),
            hint=hint, path=str(path),
        ) from cause  # fmt: skip
    if width != 2 or not channels or not RATES[0] <= own <= RATES[1]:
        raise InputError(
            f"the recording has {8 * width} bits, {channels} channels and a rate of {own}",
            hint=hint, path=str(path),
        )  # fmt: skip
    whole = np.frombuffer(data[: len(data) // (2 * channels) * 2 * channels], "<i2")
    mono = whole.reshape(-1, channels).mean(1, dtype=np.float32) / 32768
    return mono if own == rate else _resampled(mono, own, rate)


def _resampled(samples: Array, own: int, rate: int) -> Array:
    try:
        import soxr
    except ImportError as cause:
        raise UsageError(
            f"recordings of another rate than {rate} need the package soxr",
            hint="Install it: pip install 'tilewright[language]'. " + CONVERT.format(rate=rate),
            rate=own,
        ) from cause  # fmt: skip
    return np.asarray(soxr.resample(samples, own, rate), np.float32)
