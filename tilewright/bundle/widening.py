"""Weights in files and in memory: 16-bit numbers and integers with scales become f32 when loaded.

Input: tensors of a bundle's table, as arrays or bytes.  Output: the same numbers in the other type;
no number is rounded.  The browser engine does the same (web/engine/widening.js).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tilewright.base.abi import align
from tilewright.base.dtypes import DTYPES
from tilewright.base.numpy_scalars import Array as Array
from tilewright.bundle.format import TensorEntry, reading
from tilewright.bundle.reader import Bundle


def narrowed(value: Array, tensor: TensorEntry) -> Array:
    """A tensor in the type that shards store it with.  That type must represent each number
    exactly."""
    if tensor.stored == "f16":
        return value.astype(np.float16)
    if tensor.stored == "bf16":
        return (value.view(np.uint32) >> 16).astype(np.uint16)
    return value


def tensors_of(bundle: Bundle) -> Iterator[Array]:
    """All tensors as kernels read them, flat, in the order of the table."""
    stored, table = b"".join(bundle.weights()), bundle.tensors()
    for tensor in table:
        with reading("the table of tensors"):
            made = _widened(stored, table, tensor)
        yield made


def memory_of(bundle: Bundle) -> Iterator[bytes]:
    """The bytes of all tensors in a host's memory, in the table's order, each at a multiple of 64
    bytes."""
    if not bundle.manifest.weights.memory:
        yield from bundle.weights()
        return
    for tensor in tensors_of(bundle):
        data = tensor.tobytes()
        yield data + bytes(align(len(data)) - len(data))


def _widened(stored: bytes, table: Sequence[TensorEntry], tensor: TensorEntry) -> Array:
    """One tensor in the type that kernels read, from the bytes of all shards."""
    raw = np.frombuffer(stored, np.uint8, tensor.bytes, tensor.offset)
    if tensor.stored == "f16":
        return raw.view(np.float16).astype(np.float32)
    if tensor.stored == "bf16":
        return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    if tensor.scale is None:
        return raw.view(DTYPES[tensor.dtype].numpy)
    made = raw.view(DTYPES[tensor.stored].numpy).astype(np.float32).reshape(tensor.shape)
    for part, apply in ((tensor.zero, np.subtract), (tensor.scale, np.multiply)):
        if part is not None:
            number = _widened(stored, table, table[part]).reshape(table[part].shape)
            apply(made, number, out=made)
    return made.reshape(-1)
