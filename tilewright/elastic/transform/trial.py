"""Runs a kernel and its elastic forms on the CPU, to compare what they write, bit by bit.

Input: a transformed source and launches.  Output: effects on the arrays that are given.  Workers
are sent away after any number of looks at the budget, and others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from tilewright.base.budget import ALIVE, BLOCK, EVERYBODY, KERNEL, SLOT, WORD
from tilewright.base.errors import HostError
from tilewright.base.numpy_scalars import Array
from tilewright.elastic.transform.arguments import alone, shard, tasks_of
from tilewright.hosts.cuda_on_cpu import Kernels

#: Looks that are never used up.
ALWAYS = 0
ROUNDS = 8
Extents = tuple[int, int, int]


@dataclass(frozen=True)
class TrialLaunch:
    """A kernel's grid and block as it would be launched.

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
class Crew:
    """How many blocks work, on how many threads of the CPU, and how they are sent away.

    looks:   by round of launches, after how many looks at the budget nobody may stay; 0: never
    threads: of a block, where one does the work of several of the kernel's; None: as many
    each:    tiles of a task
    """

    count: int = 2
    processors: int = 1
    looks: Callable[[int], int] = lambda _: ALWAYS
    threads: int | None = None
    each: int = 1


def names_of_forms(names: Mapping[str, str], forms: Iterable[str]) -> dict[str, str]:
    """By name and form, the form as C++ calls it: scale<float> -> scale_elastic<float>."""
    parted = {name: kernel.partition("<") for name, kernel in names.items()}
    return {
        name + form: base + form + angle + arguments
        for name, (base, angle, arguments) in parted.items()
        for form in forms
    }


class Trial:
    """Kernels of a text that `transform` made.

    names: by any name, the kernel as C++ calls it ("scale", "scale<float>")
    bounds: the process ends where an index goes beyond an array whose size the compiler knows
    folders: where the text's own headers are
    Raises HostError where the text does not compile for the CPU.
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
        """The kernel as it is."""
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
        """Tiles [first, last) without tickets."""
        at = 0 if table is None else table.ctypes.data
        given = shard(launch.grid, launch.block, first, last, at)
        self._kernels.run(
            f"{name}_slice", [workers], launch.block, [*launch.args, given], shared=launch.shared
        )

    def elastic(
        self,
        name: str,
        launch: TrialLaunch,
        workers: Crew,
        tiles: tuple[int, int] | None = None,
        table: Array | None = None,
    ) -> int:
        """Tiles [first, last), by default all, by workers; the rounds it took.

        table: three numbers for each tile, the block that it is
        Raises HostError if the tiles are not all done after ROUNDS for each tile and worker: one
        that is too short for a search may do nothing.
        """
        first, last = tiles or (0, launch.tiles)
        if first >= last:
            return 0
        at = 0 if table is None else table.ctypes.data
        given = shard(launch.grid, launch.block, first, last, at, workers.each)
        budget, words, told = (
            np.zeros(n, np.uint32) for n in (BLOCK // WORD, KERNEL + SLOT * workers.count, 1)
        )
        turn = alone(
            budget.ctypes.data, words.ctypes.data, told.ctypes.data, tasks_of(given), workers.count
        )
        block = launch.block if workers.threads is None else (workers.threads, 1, 1)
        for number in range(ROUNDS * (last - first + workers.count)):
            budget[:ALIVE] = EVERYBODY, workers.looks(number)
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


def looks_of(launch: TrialLaunch, workers: int) -> int:
    """The most looks that one run takes: one before each task, and each worker's last."""
    return launch.tiles + 2 * workers


def copies(launch: TrialLaunch) -> TrialLaunch:
    """The same launch on copies of its arrays."""
    args = tuple(a.copy() if isinstance(a, np.ndarray) else a for a in launch.args)
    return TrialLaunch(launch.grid, launch.block, args, launch.shared)


def bits(launch: TrialLaunch) -> list[bytes]:
    """What its arrays hold."""
    return [a.tobytes() for a in launch.args if isinstance(a, np.ndarray)]


def every_look(launch: TrialLaunch, workers: int) -> Sequence[int]:
    """Looks after which workers may be sent away so that something was done."""
    return range(2, looks_of(launch, workers) + 1)
