"""Tables of cosines and sines for rotary embeddings, with the scalings that GGUF files name.

Input: a file's metadata and tensors.  Output: `[room, pairs]` of cosines and of sines.  They are
computed as llama.cpp does, in f64.
"""

from __future__ import annotations

from math import ceil, floor, log, pi

import numpy as np

from tilewright.base.errors import InvalidModel, UnsupportedOp
from tilewright.frontend.gguf.file import GgufFile
from tilewright.frontend.gguf.hyperparameters import Hyperparameters
from tilewright.graph.ops import Array

#: Of YaRN: rotations of a pair over the trained length from which it keeps its rate, and up to
#: which it is slowed down fully.
FAST, SLOW = 32.0, 1.0


def tables(file: GgufFile, sizes: Hyperparameters, room: int, local: bool) -> tuple[Array, Array]:
    """Cosines and sines for positions from 0 on.  Raises InvalidModel, UnsupportedOp.

    local: of layers that see only a window; Gemma 3 gives them another base and no scaling
    """
    name = sizes.name
    width = file.whole(f"{name}.rope.dimension_count", sizes.head)
    if width % 2 or not 0 < width <= sizes.head:
        raise InvalidModel(f"a head of {sizes.head} numbers cannot be rotated by {width}")
    base = file.number(f"{name}.rope.freq_base", 10000.0)
    if local and name == "gemma3":
        base = file.number(f"{name}.rope.freq_base_swa", 10000.0)
        rates, size = _rates(base, width), 1.0
    else:
        rates, size = _scaled(file, sizes, _rates(base, width), base, room)
    angles = np.arange(room, dtype=np.float64)[:, None] * rates
    return (size * np.cos(angles)).astype(np.float32), (size * np.sin(angles)).astype(np.float32)


def _rates(base: float, width: int) -> Array:
    if base <= 0:
        raise InvalidModel(f"the base of the rotation cannot be {base}")
    return np.asarray(base ** (-np.arange(0, width, 2, dtype=np.float64) / width))


def _scaled(
    file: GgufFile, sizes: Hyperparameters, rates: Array, base: float, room: int
) -> tuple[Array, float]:
    """The rates as the file scales them, and what all numbers are multiplied by."""
    scaling = f"{sizes.name}.rope.scaling"
    trained = file.whole(f"{scaling}.original_context_length", sizes.trained)
    rates = rates / _factors(file, len(rates), room > trained)
    size = file.number(f"{scaling}.attn_factor", 1.0)
    kind, factor = file.text(f"{scaling}.type", "none"), file.number(f"{scaling}.factor", 1.0)
    if factor <= 0:
        raise InvalidModel(f"the rotation cannot be scaled by {factor}")
    if kind in ("none", "longrope"):
        return rates, size
    if kind == "linear":
        return rates / factor, size
    if kind != "yarn":
        raise UnsupportedOp(f"rotations scaled by {kind!r} are not supported", scaling=kind)
    count, most = 2 * len(rates), 2 * len(rates) - 1

    def place(turns: float) -> float:
        return count * log(max(trained, 1) / (turns * 2 * pi)) / (2 * log(base))

    low, high = max(0, floor(place(FAST))), min(most, ceil(place(SLOW)))
    kept = 1 - np.clip((np.arange(len(rates)) - low) / max(0.001, high - low), 0, 1)
    return rates / factor * (1 - kept) + rates * kept, size * (1 + 0.1 * log(factor))


def _factors(file: GgufFile, pairs: int, is_long: bool) -> Array:
    """What the rate of each pair is divided by: a tensor of Llama 3 and of Phi 3, else 1."""
    for name in ("rope_freqs.weight", f"rope_factors_{'long' if is_long else 'short'}.weight"):
        tensor = file.tensors.get(name)
        if tensor is None:
            continue
        found = tensor.block.values(tensor.data).reshape(-1).astype(np.float64)
        if len(found) != pairs or not (found > 0).all():
            raise InvalidModel(f"the tensor {name!r} has no factor for each pair", tensor=name)
        return np.asarray(found)
    return np.ones(pairs)
