"""Runs a kernel and its elastic forms on the CPU, to compare their results bit by bit.

Input: a transformed source and launches.  Output: effects on the given arrays.  Workers are made to
leave after any number of budget checks, and others continue.  The extra parameters of elastic forms
are ctypes structures with the same layout as in the kernels' text (forms.py,
targets/ticket_protocol.py).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from tilewright.base.abi import WORD_BYTES
from tilewright.base.budget import ALIVE, BUDGET_BYTES, KERNEL_WORDS, SAVE_AREA_WORDS, UNLIMITED
from tilewright.base.errors import HostError, UsageError
from tilewright.base.numpy_scalars import Array
from tilewright.hosts.cuda_on_cpu import Kernels


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


def tiles_per_task(tiles: int, workers: int, tile_us: float = 0.0) -> int:
    """How many tiles should form one task.

    tile_us: the time of a worker for a tile, if known; otherwise tiles are assumed to be short
    """
    most = MOST_EACH if tile_us <= 0 else min(MOST_EACH, int(MOST_US / tile_us))
    return max(1, min(most, tiles // (TASKS_EACH * workers)))


def single_kernel_arguments(budget: int, words: int, told: int, tasks: int, workers: int) -> Turn:
    """The parameters of a kernel that follows no other one; all arguments but the counts are
    addresses.

    tasks: of the shard (`tasks_of`)
    words: the kernel's words, followed by the workers' save areas; all 0 before the first launch
    """
    areas, firsts = words + KERNEL_WORDS * WORD_BYTES, min(tasks, workers)
    return Turn(budget, words, areas, None, words, told, 0, 0, tasks, firsts, workers, 0)


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


#: A number of budget checks that is never reached.
ALWAYS = 0
ROUNDS = 8
Extents = tuple[int, int, int]


@dataclass(frozen=True)
class TrialLaunch:
    """An ordinary launch of a kernel.

    shared: bytes of dynamic shared memory;  args: arrays and scalars of the exact types
    """

    grid: Extents
    block: Extents
    args: tuple[Array | np.generic, ...]
    shared: int = 0

    @property
    def tiles(self) -> int:
        return prod(self.grid)


@dataclass(frozen=True)
class TrialWorkers:
    """The workers of a trial, and when they must leave.

    looks:   for each round of launches, the budget checks after which no worker may stay; 0: never
    threads: of a block, if each does the work of several of the kernel's threads; None: no folding
    each:    tiles of a task
    """

    count: int = 2
    processors: int = 1
    looks: Callable[[int], int] = lambda _: ALWAYS
    threads: int | None = None
    each: int = 1


def names_of_forms(names: Mapping[str, str], forms: Iterable[str]) -> dict[str, str]:
    """The C++ name of each form, by kernel name and form: scale<float> -> scale_elastic<float>."""
    parted = {name: kernel.partition("<") for name, kernel in names.items()}
    return {
        name + form: base + form + angle + arguments
        for name, (base, angle, arguments) in parted.items()
        for form in forms
    }


class Trial:
    """Kernels of a text that `transform` made.

    names: the C++ name of each kernel ("scale", "scale<float>"), by any name
    bounds: the process ends if an index exceeds an array whose size the compiler knows
    folders: with the text's own headers

    Raises HostError if the text does not compile for the CPU.
    """

    def __init__(
        self,
        text: str,
        names: Mapping[str, str],
        bounds: bool = False,
        folders: Sequence[Path] = (),
    ) -> None:
        wanted = names_of_forms(names, ("", "_elastic", "_slice"))
        self._kernels = Kernels("#define CUDA_ON_CPU\n" + text, wanted, bounds, folders)

    def plain(self, name: str, launch: TrialLaunch, processors: int = 1) -> None:
        """Runs the unchanged kernel."""
        self._kernels.run(
            name, launch.grid, launch.block, launch.args,
            shared=launch.shared, processors=processors,
        )  # fmt: skip

    def slice(
        self,
        name: str,
        launch: TrialLaunch,
        first: int,
        last: int,
        workers: int = 1,
        table: Array | None = None,
    ) -> None:
        """Runs tiles [first, last) without tickets."""
        at = 0 if table is None else table.ctypes.data
        given = shard(launch.grid, launch.block, first, last, at)
        self._kernels.run(
            f"{name}_slice", [workers], launch.block, [*launch.args, given], shared=launch.shared
        )

    def elastic(
        self,
        name: str,
        launch: TrialLaunch,
        workers: TrialWorkers,
        tiles: tuple[int, int] | None = None,
        table: Array | None = None,
    ) -> int:
        """Runs tiles [first, last), by default all, by workers; returns the number of rounds.

        table: three numbers for each tile, its block

        Raises HostError if tiles are left after ROUNDS rounds for each tile and worker.  A round
        may complete nothing if its workers must leave too early.
        """
        first, last = tiles or (0, launch.tiles)
        if first >= last:
            return 0
        at = 0 if table is None else table.ctypes.data
        given = shard(launch.grid, launch.block, first, last, at, workers.each)
        budget, words, told = (
            np.zeros(n, np.uint32)
            for n in (BUDGET_BYTES // WORD_BYTES, KERNEL_WORDS + SAVE_AREA_WORDS * workers.count, 1)
        )
        turn = single_kernel_arguments(
            budget.ctypes.data, words.ctypes.data, told.ctypes.data, tasks_of(given), workers.count
        )
        block = launch.block if workers.threads is None else (workers.threads, 1, 1)
        for number in range(ROUNDS * (last - first + workers.count)):
            budget[:ALIVE] = UNLIMITED, workers.looks(number)
            self._kernels.run(
                f"{name}_elastic", [workers.count], block, [*launch.args, given, turn],
                shared=launch.shared, processors=workers.processors,
            )  # fmt: skip
            if budget[ALIVE]:
                raise HostError(
                    f"workers of {name} that have left count as alive", hint="Report this",
                    alive=int(budget[ALIVE]),
                )  # fmt: skip
            if told[0]:
                return number + 1
        raise HostError(
            f"the elastic form of {name} does not end", hint="Report this", done=int(words[1]),
            tiles=last - first,
        )  # fmt: skip


def budget_checks(launch: TrialLaunch, workers: int) -> int:
    """The most budget checks of one run: one before each task, and each worker's last."""
    return launch.tiles + 2 * workers


def copies(launch: TrialLaunch) -> TrialLaunch:
    """The launch, on copies of its arrays."""
    args = tuple(a.copy() if isinstance(a, np.ndarray) else a for a in launch.args)
    return TrialLaunch(launch.grid, launch.block, args, launch.shared)


def bits(launch: TrialLaunch) -> list[bytes]:
    """The bytes of its arrays."""
    return [a.tobytes() for a in launch.args if isinstance(a, np.ndarray)]
