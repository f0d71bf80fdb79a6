"""Runs a kernel and its elastic form on an NVIDIA GPU, to compare their bits and their times.

Input: a transformed source and launches.  Output: effects on the given arrays, and milliseconds.
Another stream makes workers leave while they run.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from math import prod

import numpy as np

from tilewright.base.abi import WORD_BYTES
from tilewright.base.budget import BUDGET_BYTES, KERNEL_WORDS, SAVE_AREA_WORDS, UNLIMITED
from tilewright.base.errors import HostError
from tilewright.elastic.transform.cpu_trial import (
    TrialLaunch,
    names_of_forms,
    shard,
    single_kernel_arguments,
    tasks_of,
    tiles_per_task,
)
from tilewright.hosts.cuda_devices import DeviceMemory, HostWords, NvidiaDevice
from tilewright.hosts.cuda_driver import OPTIONS, compiled_kernels
from tilewright.hosts.cuda_tasks import CValue, Zeroes


class GpuTrial:
    """Kernels of a text that `transform` made.

    names: the C++ name of each kernel, by any name;  options: of NVRTC, such as include paths
    each: tiles of a task; None: as `tiles_per_task` says

    Raises HostError if there is no GPU, or the text does not compile.
    """

    def __init__(
        self,
        text: str,
        names: Mapping[str, str],
        options: Sequence[str] = (),
        each: int | None = None,
    ) -> None:
        self.each = each
        self.device = NvidiaDevice()
        self.driver = self.device.driver
        self.other = self.driver.stream(urgent=True)
        wanted = names_of_forms(names, ("", "_elastic"))
        sm = "".join(map(str, self.device.capability))
        code, entries = compiled_kernels(
            text, [f"--gpu-architecture=sm_{sm}", *OPTIONS, *options], list(wanted.values())
        )
        made = zip(wanted, entries, strict=True)
        self._kernels = {name: self.driver.function(code, entry) for name, entry in made}
        self._budget = self.device.memory(BUDGET_BYTES)

    def _give(self, launch: TrialLaunch) -> tuple[list[CValue], list[DeviceMemory]]:
        """Arguments, and the memory with the arrays among them."""
        values: list[CValue] = []
        memories = []
        for arg in launch.args:
            if isinstance(arg, np.ndarray):
                memory = self.device.memory(arg.nbytes)
                self.device.write(memory.address, arg)
                memories.append(memory)
                values.append(ctypes.c_void_p(memory.address))
            else:
                values.append((ctypes.c_char * arg.nbytes).from_buffer_copy(arg.tobytes()))
        return values, memories

    def _take(self, launch: TrialLaunch, memories: list[DeviceMemory]) -> None:
        arrays = (arg for arg in launch.args if isinstance(arg, np.ndarray))
        for array, memory in zip(arrays, memories, strict=True):
            data = self.device.read(memory.address, array.nbytes)
            array[...] = np.frombuffer(data, array.dtype).reshape(array.shape)

    def plain(self, name: str, launch: TrialLaunch) -> None:
        values, memories = self._give(launch)
        self._start(name, launch.grid, launch, values)
        self._take(launch, memories)

    def _start(
        self, name: str, grid: Sequence[int], launch: TrialLaunch, values: Sequence[CValue]
    ) -> None:
        kernel = self._kernels[name]
        stream = self.device.stream
        self.driver.start(kernel, grid, launch.block, values, launch.shared, stream)

    def workers(self, name: str, launch: TrialLaunch) -> int:
        """The number of workers that the device runs at once, and at most the number of tiles.
        Raises HostError."""
        kernel = self._kernels[f"{name}_elastic"]
        most = self.driver.residents(kernel, prod(launch.block), launch.shared)
        if not most:
            raise HostError(
                f"a multiprocessor has no room for a block of {name}",
                hint="Give the block fewer threads or less shared memory",
                block=launch.block, shared=launch.shared,
            )  # fmt: skip
        return min(launch.tiles, most)

    def tiles_of_task(self, name: str, launch: TrialLaunch) -> int:
        return self.each or tiles_per_task(launch.tiles, self.workers(name, launch))

    def _turn(
        self, name: str, launch: TrialLaunch
    ) -> tuple[ctypes.Structure, ctypes.Structure, DeviceMemory, HostWords]:
        """The extra arguments, the memory that they need, and the words that report the end."""
        workers = self.workers(name, launch)
        each = self.tiles_of_task(name, launch)
        tiles = shard(launch.grid, launch.block, each=each)
        control = self.device.memory(WORD_BYTES * (KERNEL_WORDS + SAVE_AREA_WORDS * workers))
        told = self.device.words()
        budget = self._budget.address
        turn = single_kernel_arguments(
            budget, control.address, told.address, tasks_of(tiles), workers
        )
        return tiles, turn, control, told

    def elastic(self, name: str, launch: TrialLaunch, away: Callable[[], int | None]) -> int:
        """Runs the elastic form; returns the number of rounds of launches.

        away: called while workers run; returns how many may stay from now on, None: all

        Raises HostError if it does not end.
        """
        workers = self.workers(name, launch)
        tiles, turn, control, told = self._turn(name, launch)
        given, memories = self._give(launch)
        values = [*given, tiles, turn]
        for number in range(1, 2 * launch.tiles + 100):
            self.device.write(self._budget.address, np.array([UNLIMITED, 0], np.uint32))
            self._start(f"{name}_elastic", (workers, 1, 1), launch, values)
            stay = away()
            if stay is not None:
                self.driver.write_word(self._budget.address, stay, self.other)
            self.device.wait()
            if told.value[0]:
                self._take(launch, memories)
                return number
        done = self.device.read(control.address + WORD_BYTES, WORD_BYTES)
        raise HostError(
            f"the elastic form of {name} does not end", hint="Report this",
            done=int.from_bytes(done, "little"), tiles=launch.tiles,
        )  # fmt: skip

    def cost(self, name: str, launch: TrialLaunch, times: int) -> tuple[float, float]:
        """Milliseconds of one run: of the plain form, and of the elastic form if all workers may
        stay."""
        workers = self.workers(name, launch)
        tiles, turn, control, _ = self._turn(name, launch)
        values, memories = self._give(launch)
        more = [*values, tiles, turn]
        self.device.write(self._budget.address, np.array([UNLIMITED, 0], np.uint32))
        clear = Zeroes(control.address, control.size)

        def plain() -> None:
            for _ in range(times):
                self._start(name, launch.grid, launch, values)

        def elastic() -> None:
            for _ in range(times):
                self.device.start(clear)
                self._start(f"{name}_elastic", (workers, 1, 1), launch, more)

        found = self._graph(plain), self._graph(elastic)
        del memories  # the kernels used it until here
        return found[0] / times, found[1] / times

    def _graph(self, run: Callable[[], None]) -> float:
        """Milliseconds of one CUDA graph, so that launch times do not count."""
        whole = self.driver.graphs.recorded(run, self.device.stream)
        whole()
        self.device.wait()
        return self.device.milliseconds(whole)
