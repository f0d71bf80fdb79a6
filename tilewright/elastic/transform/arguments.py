"""The extra parameters of elastic forms, as Python hands them over.

Input: numbers and addresses.  Output: ctypes structures with the layout of the text's own
(forms.py, targets/ticket_protocol.py).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from tilewright.base.budget import KERNEL, WORD
from tilewright.base.errors import UsageError


class TileRange(ctypes.Structure):
    """Tiles [first, last) of a kernel."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("threads", ctypes.c_uint * 3),
        ("first", ctypes.c_uint),
        ("last", ctypes.c_uint),
        ("each", ctypes.c_uint),
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


#: Each worker gets so many tasks at least, of so many tiles at most, and of so many microseconds
#: where several tiles are one: who asks for room waits for a task.
TASKS_EACH, MOST_EACH, MOST_US = 6, 8, 15.0


def each_of(tiles: int, workers: int, tile_us: float = 0.0) -> int:
    """How many tiles should be one task.

    tile_us: what a worker takes for a tile, if that is known; else tiles are taken for short ones
    """
    most = MOST_EACH if tile_us <= 0 else min(MOST_EACH, int(MOST_US / tile_us))
    return max(1, min(most, tiles // (TASKS_EACH * workers)))


def alone(budget: int, words: int, told: int, tasks: int, workers: int) -> Turn:
    """The turn of a kernel before which comes none, by addresses.

    tasks: of the shard (`tasks_of`)
    words: the kernel's, and behind them the slots of so many workers; all 0 before the first launch
    """
    slots, firsts = words + KERNEL * WORD, min(tasks, workers)
    return Turn(budget, words, slots, None, words, told, 0, 0, tasks, firsts, workers, 0)


def tasks_of(tiles: TileRange) -> int:
    """How many tasks a shard has."""
    count: int = tiles.last - tiles.first
    return -(-count // int(tiles.each))


def shard(
    grid: Sequence[int],
    block: Sequence[int],
    first: int = 0,
    last: int | None = None,
    table: int = 0,
    each: int = 1,
) -> TileRange:
    """grid, block: of the kernel as it would be launched;  table: address of a table of blocks;
    each: tiles of a task.  Raises UsageError if that is none."""
    if each < 1:
        raise UsageError(f"a task cannot have {each} tiles", hint="Give each=1 or more")
    tiles = grid[0] * grid[1] * grid[2]
    end = tiles if last is None else last
    whole, threads = (ctypes.c_uint * 3)(*grid), (ctypes.c_uint * 3)(*block)
    return TileRange(whole, threads, first, end, each, table)
