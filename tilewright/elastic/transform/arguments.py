"""The extra parameters of elastic forms, as ctypes structures for calls from Python.

Input: numbers and addresses.  Output: structures with the same layout as in the kernels' text
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
    """The parameters of one launch of workers; docs/elastic-form.md."""

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


#: Limits for joining tiles to tasks: each worker gets at least this many tasks, a task has at most
#: this many tiles, and takes at most this many microseconds, since a worker leaves only after its
#: task.
TASKS_EACH, MOST_EACH, MOST_US = 6, 8, 15.0


def each_of(tiles: int, workers: int, tile_us: float = 0.0) -> int:
    """How many tiles should form one task.

    tile_us: the time of a worker for a tile, if known; otherwise tiles are assumed to be short
    """
    most = MOST_EACH if tile_us <= 0 else min(MOST_EACH, int(MOST_US / tile_us))
    return max(1, min(most, tiles // (TASKS_EACH * workers)))


def alone(budget: int, words: int, told: int, tasks: int, workers: int) -> Turn:
    """The parameters of a kernel that follows no other one; all arguments but the counts are
    addresses.

    tasks: of the shard (`tasks_of`)
    words: the kernel's words, followed by the workers' slots; all 0 before the first launch
    """
    slots, firsts = words + KERNEL * WORD, min(tasks, workers)
    return Turn(budget, words, slots, None, words, told, 0, 0, tasks, firsts, workers, 0)


def tasks_of(tiles: TileRange) -> int:
    """The number of tasks in a shard."""
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
    """A range of tiles.  Raises UsageError if it is invalid.

    grid, block: those of an ordinary launch of the kernel;  table: address of a table of blocks
    each: tiles of a task
    """
    if each < 1:
        raise UsageError(f"a task cannot have {each} tiles", hint="Give each=1 or more")
    tiles = grid[0] * grid[1] * grid[2]
    end = tiles if last is None else last
    whole, threads = (ctypes.c_uint * 3)(*grid), (ctypes.c_uint * 3)(*block)
    return TileRange(whole, threads, first, end, each, table)
