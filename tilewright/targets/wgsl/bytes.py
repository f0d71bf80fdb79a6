"""Weights of 8 bits that lie as bytes, four in a word, the first in the low bits.

Input: buffers of kernels, programs.  Output: which ones lie so, and the text of what is read there.
Other elements of 8 bits take a word each: several threads may store them.
"""

from __future__ import annotations

from tilewright.base.dtypes import I8, U8, DType
from tilewright.kernel.layout import Blocks
from tilewright.kernel.spec import Buffer
from tilewright.plan import Program

#: Bytes of a word.
EACH = 4


def in_bytes(buffer: Buffer) -> bool:
    """True for block-quantised weights of 8 bits, and zero points: they are always constants."""
    return buffer.dtype in (I8, U8) and isinstance(buffer.layout, Blocks)


def byte_tensors(program: Program) -> frozenset[int]:
    """The tensors that lie as bytes: all who read them say so."""
    found: dict[bool, set[int]] = {True: set(), False: set()}
    for plan in program.plans:
        for step in plan.steps:
            buffers = program.kernels[step.kernel].buffers
            for access, buffer in zip(step.accesses, buffers, strict=True):
                value = plan.values[access.value]
                if value.kind == "weight":
                    assert not in_bytes(buffer) or access.offset % EACH == 0, "it begins in a word"
                    found[in_bytes(buffer)].add(value.tensor)
                else:
                    assert not in_bytes(buffer), f"{value} is no weight and lies as bytes"
    assert not found[True] & found[False], "a tensor lies as bytes for some readers alone"
    return frozenset(found[True])


def element(word: str, at: str, dtype: DType) -> str:
    """The element of a buffer that lies in a word."""
    return f"{dtype.name}_at({word}, u32({at}))"


def as_floats(word: str, dtype: DType) -> str:
    """All four of a word as f32."""
    return f"{dtype.name}_real({word})"
