"""Weights in files and in memory: 16-bit numbers and integers with scales become f32 when loaded.

Input: tensors of a bundle's table, as arrays or bytes.  Output: the same numbers in the other type;
no number is rounded.  The browser engine does the same (web/engine/weight_decoding.js).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tilewright.base.abi import align
from tilewright.base.dtypes import DTYPES
from tilewright.base.errors import BundleCorrupt
from tilewright.base.numpy_scalars import Array as Array
from tilewright.bundle.format import REBUILD, TensorEntry, reading
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
    """All tensors as f32 or their own type, flat, in the order of the table."""
    return (made for _, _, made in _each(bundle))


def memory_of(bundle: Bundle) -> Iterator[bytes]:
    """The bytes of all tensors in a linear memory, in the table's order, each at a multiple of 64
    bytes.  No more than a tensor and a shard are held at once."""
    if not bundle.manifest.weights.memory:
        yield from bundle.weights()
        return
    for tensor, raw, made in _each(bundle):
        data = (raw if tensor.compact else made).tobytes()
        yield data + bytes(align(len(data)) - len(data))


def _each(bundle: Bundle) -> Iterator[tuple[TensorEntry, Array, Array]]:
    """Every tensor: its entry, its bytes in the shards, and as kernels compute with it."""
    table = bundle.tensors()
    parts = {n for t in table for n in (t.scale, t.zero) if n is not None}
    kept: dict[int, Array] = {}
    for number, (tensor, raw) in enumerate(zip(table, _stored(bundle, table), strict=True)):
        with reading("the table of tensors"):
            made = _widened(raw, tensor, table, kept)
        if number in parts:
            kept[number] = made
        yield tensor, raw, made


def _stored(bundle: Bundle, table: Sequence[TensorEntry]) -> Iterator[Array]:
    """The bytes of each tensor in the shards, which are read one after the other."""
    shards = bundle.weights()
    held, start = bytearray(), 0
    for tensor in table:
        end = tensor.offset + tensor.bytes
        while start + len(held) < end and (shard := next(shards, None)) is not None:
            held += shard
        if not start <= tensor.offset <= end <= start + len(held):
            raise BundleCorrupt("the tensors are not in the order of the table", hint=REBUILD)
        yield np.frombuffer(bytes(held[tensor.offset - start : end - start]), np.uint8)
        del held[: end - start]
        start = end


def _widened(
    raw: Array, tensor: TensorEntry, table: Sequence[TensorEntry], known: Mapping[int, Array]
) -> Array:
    """One tensor in the type that kernels compute with.  known: scales and zero points"""
    if tensor.stored == "f16":
        return raw.view(np.float16).astype(np.float32)
    if tensor.stored == "bf16":
        return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    if tensor.scale is None:
        return raw.view(DTYPES[tensor.dtype].numpy)
    made = raw.view(DTYPES[tensor.stored].numpy).astype(np.float32).reshape(tensor.shape)
    for part, apply in ((tensor.zero, np.subtract), (tensor.scale, np.multiply)):
        if part is not None:
            apply(made, known[part].reshape(table[part].shape), out=made)
    return made.reshape(-1)
