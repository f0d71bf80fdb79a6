"""The extra parameters of elastic forms, as Python hands them over.

Input: numbers and addresses.  Output: ctypes structures with the layout of the text's own
(forms.py, targets/turns.py).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from tilewright.base.budget import KERNEL, WORD


class TileRange(ctypes.Structure):
    """Tiles [first, last) of a kernel."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("threads", ctypes.c_uint * 3),
        ("first", ctypes.c_uint),
        ("last", ctypes.c_uint),
        ("map", ctypes.c_void_p),
    )


class Turn(ctypes.Structure):
    """One launch of workers; docs/elastic-form.md."""

    _fields_ = (
        ("budget", ctypes.c_void_p),
        ("words", ctypes.c_void_p),
        ("slots", ctypes.c_void_p),
        ("saved", ctypes.c_void_p),
        ("before", ctypes.c_void_p),
        ("told", ctypes.c_void_p),
        ("needed", ctypes.c_int),
        ("number", ctypes.c_int),
        ("tiles", ctypes.c_int),
        ("firsts", ctypes.c_int),
        ("workers", ctypes.c_int),
        ("stride", ctypes.c_int),
    )


def alone(budget: int, words: int, told: int, tiles: int, workers: int) -> Turn:
    """The turn of a kernel before which comes none, by addresses.

    words: the kernel's, and behind them the slots of so many workers; all 0 before the first launch
    """
    slots, firsts = words + KERNEL * WORD, min(tiles, workers)
    return Turn(budget, words, slots, None, words, told, 0, 0, tiles, firsts, workers, 0)


def shard(
    grid: Sequence[int],
    block: Sequence[int],
    first: int = 0,
    last: int | None = None,
    table: int = 0,
) -> TileRange:
    """grid, block: of the kernel as it would be launched;  table: address of a table of blocks"""
    tiles = grid[0] * grid[1] * grid[2]
    end = tiles if last is None else last
    return TileRange((ctypes.c_uint * 3)(*grid), (ctypes.c_uint * 3)(*block), first, end, table)
