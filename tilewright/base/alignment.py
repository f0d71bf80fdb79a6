"""Alignment of buffers and memory regions: multiples of a cache line.

Input: a number of bytes.  Output: the next multiple.
"""

from __future__ import annotations

ALIGNMENT = 64


def align(n: int) -> int:
    return -(-n // ALIGNMENT) * ALIGNMENT
