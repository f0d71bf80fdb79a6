"""Weights in files and in memory: numbers of 16 bits in shards become f32 where they are loaded.

Input: tensors of a bundle's table, arrays or bytes.  Output: the same numbers, every one exact.
The browser engine does the same (web/engine/weights.js).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tilewright.base.alignment import align
from tilewright.base.dtypes import DTYPES
from tilewright.bundle.format import TensorEntry
from tilewright.bundle.reader import Bundle

Array = np.ndarray[Any, np.dtype[Any]]


def narrowed(value: Array, tensor: TensorEntry) -> Array:
    """What the shards hold of a tensor; each of its numbers must be one of the narrower type."""
    if tensor.stored == "f16":
        return value.astype(np.float16)
    return (value.view(np.uint32) >> 16).astype(np.uint16) if tensor.stored else value


def widened(stored: bytes, tensor: TensorEntry) -> Array:
    """A tensor as kernels read it, from the bytes of all shards."""
    raw = np.frombuffer(stored, np.uint8, tensor.bytes, tensor.offset)
    if tensor.stored == "f16":
        return raw.view(np.float16).astype(np.float32)
    if tensor.stored:
        return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return raw.view(DTYPES[tensor.dtype].numpy)


def memory_of(bundle: Bundle) -> Iterator[bytes]:
    """All tensors as they lie in memory, one after the other, each at a multiple of 64 bytes."""
    if not bundle.manifest.weights.memory:
        yield from bundle.weights()
        return
    stored = b"".join(bundle.weights())
    for tensor in bundle.tensors():
        data = widened(stored, tensor).tobytes()
        yield data + bytes(align(len(data)) - len(data))
