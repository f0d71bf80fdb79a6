"""Runs a plan's kernels in their elastic form: each is launched again until it is complete.

Input: a loaded bundle, and the budget word in the device's memory: how many workers may stay.
Output: the same as that of the plain plan, whenever workers must leave: every chunk is computed
exactly once.  The policy decides the budget elsewhere.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tilewright.base.abi import WORD_BYTES
from tilewright.base.budget import BUDGET_BYTES, KERNEL_WORDS, SAVE_AREA_WORDS, UNLIMITED
from tilewright.base.errors import HostError
from tilewright.hosts.cuda import CudaHost
from tilewright.hosts.cuda_devices import CudaDevice
from tilewright.hosts.cuda_tasks import CScalar, Gate, Launch, Settle, SetWord, Task, Zeroes
from tilewright.hosts.inputs_outputs import largest_extents


class Budget:
    """The budget: workers with this number or a higher one leave at their next check.

    Several plans may share one.  The words after it count the workers (base/budget.py).
    address: of an existing budget; None: a new one, under which all workers may stay
    """

    def __init__(self, device: CudaDevice, address: int | None = None) -> None:
        self._device = device
        if address is not None:
            self.address = address
            return
        self._memory = device.memory(BUDGET_BYTES)
        self.address = self._memory.address
        self.set(UNLIMITED)

    def task(self, workers: int) -> SetWord:
        """A task that sets the budget in a stream's order."""
        return SetWord(self.address, workers)

    def settle(self, told: int) -> Settle:
        """A task that sets the budget from numbers at an address, and waits for workers that must
        leave."""
        return Settle(self.address, told)

    def set(self, workers: int, looks: int = 0) -> None:
        """Sets the budget.  looks: CPU only: after this many checks no worker may stay; 0: never"""
        self._device.write(self.address, np.array([workers, looks], np.uint32))


@dataclass(frozen=True)
class ElasticStep:
    """A kernel of the plan; its launch has as many blocks as there is work for.

    inside: the launch inside a recording, which does not report whether it is complete
    """

    number: int
    launch: Launch
    inside: Launch


class ElasticPlan:
    """One plan of a host at fixed extents; it runs one inference at a time.

    most: the most workers of a kernel; None: as many as the device runs at once
    """

    def __init__(
        self,
        host: CudaHost,
        budget: Budget,
        plan: int = -1,
        extents: Sequence[int] | None = None,
        most: int | None = None,
    ) -> None:
        self.device = device = host.device
        self._budget = budget.address
        if extents is None:
            extents = largest_extents(host.bundle.manifest)
        plain = host.steps(plan, extents)
        tiles = [host.tasks(slot, launch) for slot, launch in plain]
        workers = [
            min(count, most or host.residents(slot, launch))
            for count, (slot, launch) in zip(tiles, plain, strict=True)
        ]
        self._areas = max(workers, default=1)
        stride = max((host.forms[slot].saved for slot, _ in plain), default=0)
        # First the words of each kernel, then the save areas.
        self._words = device.memory(
            WORD_BYTES * (KERNEL_WORDS * len(plain) + SAVE_AREA_WORDS * self._areas)
        )
        areas = self._words.address + WORD_BYTES * KERNEL_WORDS * len(plain)
        self._saved = device.memory(self._areas * stride)
        self._told = device.words()

        def launch_of(number: int, told: int) -> Launch:
            slot, launch = plain[number]
            own = self._words.address + WORD_BYTES * KERNEL_WORDS * number
            # Of the kernel before this one: its number of tiles, and the word that counts completed
            # ones.
            needed = tiles[number - 1] if number else 0
            before = self._done(max(0, number - 1))
            addresses = (budget.address, own, areas, self._saved.address, before, told)
            numbers = (needed, number, tiles[number], workers[number], self._areas, stride)
            ends: list[CScalar] = [*map(ctypes.c_void_p, addresses)]
            ends += map(ctypes.c_int, numbers)
            return Launch(
                host.elastic_kernels[slot],
                workers[number],
                launch.group,
                (*launch.args, *ends),
                launch.shared,
            )

        self.steps = [
            ElasticStep(number, launch_of(number, self._told.address), launch_of(number, 0))
            for number in range(len(plain))
        ]
        self._clear = Zeroes(self._words.address, self._words.size)
        self._plain, self._tiles = [launch for _, launch in plain], tiles

    def _done(self, number: int) -> int:
        """The address of the word that counts a kernel's completed tiles."""
        return self._words.address + WORD_BYTES * KERNEL_WORDS * number + WORD_BYTES

    @property
    def complete(self) -> int:
        """The number of complete kernels of this inference; exact at any time.

        Of kernels that `recorded` starts by one call only the last one reports, so the number is
        exact at the ends of runs, and lower within them.
        """
        return int(self._told.value[0])

    def begin(self) -> None:
        """Begins a new inference, in the stream's order."""
        self.device.start(self._clear)
        self.device.start(SetWord(self._told.address, 0))

    def start(self, number: int, workers: int = UNLIMITED) -> None:
        """Starts a kernel, or continues it.  If the kernel before it is not complete by then, all
        its workers leave at once."""
        launch = self.steps[number].launch
        self.device.start(replace(launch, blocks=min(workers, launch.blocks)))

    def start_plain(self, number: int) -> None:
        """Starts a kernel in its plain form, as `recorded_plain` does."""
        for task in self._plain_tasks(number, number + 1):
            self.device.start(task)

    def recorded(
        self,
        first: int | None = None,
        last: int | None = None,
        times: int = 1,
        gates: Collection[int] = (),
    ) -> Callable[[], None]:
        """A function that runs kernels [first, last) by one call, after `begin`.

        Without numbers, it runs new inferences, one after the other; the device must have no other
        user meanwhile.  Only the last kernel reports that it is complete.
        gates: numbers of kernels before which the device waits while no worker may stay
        """
        tasks: list[Task] = [] if first is not None else [self._clear]
        steps = self.steps[first:last]
        for step in steps:
            if step.number in gates:
                tasks.append(Gate(self._budget))
            tasks.append(step.launch if step is steps[-1] else step.inside)
        return self.device.record(tasks * times)

    def recorded_plain(self, first: int, last: int) -> Callable[[], None]:
        """The same kernels in their plain form, which no worker leaves.  They do not check whether
        the kernel before is complete.  The last one is then marked complete and reported."""
        return self.device.record(self._plain_tasks(first, last))

    def _plain_tasks(self, first: int, last: int) -> list[Task]:
        done = SetWord(self._done(last - 1), self._tiles[last - 1])
        return [*self._plain[first:last], done, SetWord(self._told.address, last)]

    def run(self, again: Callable[[], None], rounds: int) -> int:
        """Runs one inference to its end; returns the number of rounds of launches.

        again:  called before each round, for example to raise the budget again
        rounds: the most; a round may complete nothing if its workers must leave too early
        """
        self.begin()
        self.device.wait()
        for count in range(1, rounds + 1):
            again()
            for step in self.steps[self.complete :]:
                self.start(step.number)
            self.device.wait()
            if self.complete == len(self.steps):
                return count
        raise HostError(
            "an elastic plan does not end",
            hint="Report this",
            complete=self.complete,
            kernels=len(self.steps),
            rounds=rounds,
        )
