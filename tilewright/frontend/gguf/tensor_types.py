"""The types of GGUF tensors: how a block of bytes holds integers with their scales.

Input: the bytes of a tensor's rows.  Output: integers, scales and least values, of which

    weight = f32(integer) * scale + least

is the number that llama.cpp's dequantisation gives, rounded at the same places.  Nothing is
requantised.  A new type is a row of `TENSOR_TYPES` and a test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tilewright.graph.ops import Array

#: From the bytes of all blocks [n, bytes of a block].
Part = Callable[[Array], Array]


@dataclass(frozen=True)
class TensorType:
    """A type of tensors.

    elements, bytes: of a block;  stored: "f16" or "bf16" if elements are such numbers
    group:    elements that share a scale; 0 if elements are numbers by themselves
    integers: [n, elements] as i8 or u8, or the numbers as f32
    scale, least: [n, elements / group] as f32; without `least` it is 0
    halves:   whether scales and least values are numbers of f16
    """

    name: str
    elements: int
    bytes: int
    integers: Part
    group: int = 0
    scale: Part | None = None
    least: Part | None = None
    halves: bool = False
    stored: str = ""

    @property
    def signed(self) -> bool:
        """Whether integers are i8."""
        return self.integers(np.zeros((1, self.bytes), np.uint8)).dtype == np.int8

    def values(self, rows: Array) -> Array:
        """All weights [rows, columns] as f32."""
        blocks = rows.reshape(-1, self.bytes)
        whole = self.integers(blocks)
        if self.scale is None:
            return whole.reshape(len(rows), -1)
        parts = whole.reshape(len(blocks), -1, self.group).astype(np.float32)
        made = parts * self.scale(blocks)[..., None]
        if self.least is not None:
            made = made + self.least(blocks)[..., None]
        return made.reshape(len(rows), -1)


# ---- plain numbers -------------------------------------------------------------------------------


def _as(kind: str) -> Part:
    return lambda b: np.ascontiguousarray(b).view(kind).astype(np.float32)


def _bf16(b: Array) -> Array:
    return (np.ascontiguousarray(b).view("<u2").astype(np.uint32) << 16).view(np.float32)


# ---- parts of blocks -----------------------------------------------------------------------------


def _half(at: int) -> Part:
    """The f16 number at this byte, [n, 1]."""
    return lambda b: np.ascontiguousarray(b[:, at : at + 2]).view("<f2").astype(np.float32)


def _bits(b: Array, size: int, bits: int, bytes: int) -> Array:
    """Unpacks integers of `size` bits.  A group of `bytes` bytes gives first the lowest bits of
    each of its bytes, then the next bits of each, and so on."""
    count = len(b)
    shifts = np.arange(0, bits, size, dtype=np.uint8).reshape(1, 1, -1, 1)
    parts = b.reshape(count, -1, 1, bytes) >> shifts
    return np.asarray(parts & np.uint8((1 << size) - 1)).reshape(count, -1)


def _nibbles(at: int) -> Part:
    return lambda b: _bits(b[:, at : at + 16], 4, 8, 16)


def _fives(at: int) -> Part:
    """The fifth bits lie in 32 bits before the nibbles."""

    def part(b: Array) -> Array:
        high = np.unpackbits(b[:, at : at + 4], axis=1, bitorder="little")
        return np.asarray(_nibbles(at + 4)(b) | high << np.uint8(4))

    return part


def _less(part: Part, zero: int) -> Part:
    """The part's unsigned integers minus `zero`, as i8."""
    return lambda b: _centred(part(b), zero)


def _centred(whole: Array, zero: int) -> Array:
    return np.asarray(whole.view(np.int8) - np.int8(zero))


# ---- super-blocks: scales are small integers times a scale of all --------------------------------


def _k_pairs(b: Array) -> tuple[Array, Array]:
    """Scales and least values of 6 bits, eight of each in 12 bytes (Q4_K, Q5_K)."""
    d, m, both = (b[:, at : at + 4] for at in (4, 8, 12))
    scale = np.concatenate([d & 63, both & 15 | d >> 2 & 48], axis=1)
    least = np.concatenate([m & 63, both >> 4 | m >> 2 & 48], axis=1)
    return scale, least


def _q3_scales(b: Array) -> Array:
    """Sixteen of 6 bits in 12 bytes, less 32."""
    low = _bits(b[:, 96:104], 4, 8, 8)
    high = _bits(b[:, 104:108], 2, 8, 4)
    return _centred(low | high << np.uint8(4), 32)


def _q3_integers(b: Array) -> Array:
    """Two bits, and a third one that is there if 4 is not to be subtracted."""
    low, high = _bits(b[:, 32:96], 2, 8, 32), _bits(b[:, :32], 1, 8, 32)
    return _centred(low | high << np.uint8(2), 4)


def _q5_integers(b: Array) -> Array:
    low, high = _bits(b[:, 48:176], 4, 8, 32), _bits(b[:, 16:48], 1, 8, 32)
    return np.asarray(low | high << np.uint8(4))


def _q6_integers(b: Array) -> Array:
    low, high = _bits(b[:, :128], 4, 8, 64), _bits(b[:, 128:192], 2, 8, 32)
    return _centred(low | high << np.uint8(4), 32)


def _times(at: int, part: Part, sign: float = 1.0) -> Part:
    """The f16 number at this byte times small integers."""
    return lambda b: sign * (_half(at)(b) * part(b).astype(np.float32))


def _signed(b: Array) -> Array:
    return np.ascontiguousarray(b).view(np.int8)


#: The supported types, by the number that GGUF files use.
TENSOR_TYPES: dict[int, TensorType] = {
    0: TensorType("F32", 1, 4, _as("<f4")),
    1: TensorType("F16", 1, 2, _as("<f2"), stored="f16"),
    2: TensorType("Q4_0", 32, 18, _less(_nibbles(2), 8), 32, _half(0), halves=True),
    3: TensorType("Q4_1", 32, 20, _nibbles(4), 32, _half(0), _half(2), halves=True),
    6: TensorType("Q5_0", 32, 22, _less(_fives(2), 16), 32, _half(0), halves=True),
    7: TensorType("Q5_1", 32, 24, _fives(4), 32, _half(0), _half(2), halves=True),
    8: TensorType("Q8_0", 32, 34, lambda b: _signed(b[:, 2:]), 32, _half(0), halves=True),
    10: TensorType(
        "Q2_K", 256, 84, lambda b: _bits(b[:, 16:80], 2, 8, 32), 16,
        _times(80, lambda b: b[:, :16] & 15), _times(82, lambda b: b[:, :16] >> 4, -1.0),
    ),
    11: TensorType("Q3_K", 256, 110, _q3_integers, 16, _times(108, _q3_scales)),
    12: TensorType(
        "Q4_K", 256, 144, lambda b: _bits(b[:, 16:144], 4, 8, 32), 32,
        _times(0, lambda b: _k_pairs(b)[0]), _times(2, lambda b: _k_pairs(b)[1], -1.0),
    ),
    13: TensorType(
        "Q5_K", 256, 176, _q5_integers, 32,
        _times(0, lambda b: _k_pairs(b)[0]), _times(2, lambda b: _k_pairs(b)[1], -1.0),
    ),
    14: TensorType(
        "Q6_K", 256, 210, _q6_integers, 16, _times(208, lambda b: _signed(b[:, 192:208]))
    ),
    30: TensorType("BF16", 1, 2, _bf16, stored="bf16"),
}  # fmt: skip

#: Types that are known by name, for errors.
NAMES = {
    9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL",
    21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64",
    29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip
