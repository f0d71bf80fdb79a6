"""Log-mel features of sound, as Whisper was trained with, computed in the graph.

Input: samples of 16 kHz, and how many of them were recorded.  Output: for each 10 ms the logarithm
of the power in each mel band.  The Fourier transform is a product with cosines and sines, which
runs on the device, so that a page gives samples and no features.

    power[f, k] = |sum over t of samples[160 f - 200 + t] * hann[t] * exp(-2 pi i k t / 400)|²
    x = log10(max(power · bandsᵀ, 1e-10));  (max(x, max of all x - 8) + 4) / 4
"""

from __future__ import annotations

from functools import partial
from math import log

import numpy as np

from tilewright.base.dtypes import F32, I32
from tilewright.frontend import arithmetic as al
from tilewright.frontend.operators.windows import conv
from tilewright.graph import ops
from tilewright.graph.node import (
    Node,
    cast,
    concat,
    contract,
    flip,
    iota,
    node,
    pad,
    reduce,
    reshape,
)
from tilewright.graph.ops import Array

#: Samples a second, samples between two frames, and samples that a frame looks at.
RATE, HOP, WIDTH = 16000, 160, 400
#: Powers below this are no different from silence.
LEAST = 1e-10
#: Powers of ten below the loudest band from which on all bands are the same.
DEPTH = 8.0
_BINS = WIDTH // 2 + 1
#: Where mel bands are no longer of one width: frequency, width of one mel below, mels per e above.
_BEND, _LINEAR, _LOG = 1000.0, 200 / 3, 27 / log(6.4)


def log_mel(samples: Node, count: Node, bands: int) -> Node:
    """[samples / 160, bands].  Frames from the end of the recording on are 0.

    samples: [n], a multiple of 160, zeros behind the recording;  count: samples of the recording
    """
    frames = samples.shape[0] // HOP
    energy = contract("kf,bk->fb", _power(samples), _table("mel.bands", mel_bands(bands)))
    x = al.mul(al.log(al.apply("max", energy, LEAST)), 1 / log(10))
    whole = al.apply("div", cast(reshape(count, (1, 1)), I32), HOP)
    at = cast(iota((frames, 1), 0), I32)
    # the frame in which the recording ends counts for the loudest one, and is no feature itself
    heard = al.where(al.apply("le", at, whole), x, float("-inf"))
    floor = al.sub(reduce("max", heard, (0, 1)), DEPTH)
    scaled = al.mul(al.add(al.apply("max", x, floor), 4.0), 0.25)
    return al.where(al.less(at, whole), scaled, 0.0)


def _power(samples: Node) -> Node:
    """[bins, frames].  Three blocks of 160 samples make a frame: a convolution of 3 taps."""
    before = flip(al.take(samples, 0, 1, WIDTH // 2), (0,))
    blocks = -(-WIDTH // HOP) - 1 + samples.shape[0] // HOP
    after = blocks * HOP - samples.shape[0] - WIDTH // 2
    line = concat([before, pad(samples, [0], [after])], 0)
    x = al.channels_first(reshape(line, (1, blocks, HOP)))
    parts = (conv(x, _table(f"fourier.{name}", wave)) for name, wave in _waves().items())
    real, imaginary = (al.square(part) for part in parts)
    return al.squeeze(al.add(real, imaginary), (0,))


def _waves() -> dict[str, Array]:
    """[bins, 160, taps] of cosines and of sines, times the window (Hann)."""
    t = np.arange(WIDTH, dtype=np.float64)
    window = 0.5 - 0.5 * np.cos(2 * np.pi * t / WIDTH)
    # the remainder keeps angles small and exact
    angle = 2 * np.pi * (np.arange(_BINS)[:, None] * np.arange(WIDTH) % WIDTH) / WIDTH
    taps = -(-WIDTH // HOP)
    made = {}
    for name, wave in (("cos", np.cos(angle)), ("sin", np.sin(angle))):
        whole = np.pad(wave * window, ((0, 0), (0, taps * HOP - WIDTH)))
        made[name] = whole.reshape(_BINS, taps, HOP).transpose(0, 2, 1)
    return made


def mel_bands(bands: int) -> Array:
    """[bands, bins]: triangles over the frequencies, of one area (Slaney's scale of 8 kHz)."""
    top = _BEND / _LINEAR + _LOG * log(RATE / 2 / _BEND)
    mels = np.linspace(0, top, bands + 2)
    bend = _BEND / _LINEAR
    edges = np.where(mels < bend, mels * _LINEAR, _BEND * np.exp((mels - bend) / _LOG))
    low, middle, high = (edges[i : bands + i, None] for i in range(3))
    at = np.arange(_BINS) * (RATE / WIDTH)
    rising, falling = (at - low) / (middle - low), (high - at) / (high - middle)
    return np.asarray(np.maximum(0, np.minimum(rising, falling)) * 2 / (high - low))


def _table(name: str, value: Array) -> Node:
    made = value.astype(np.float32)
    return node(ops.Weight(name, made.shape, F32, partial(_given, made)))


def _given(value: Array) -> Array:
    return value
