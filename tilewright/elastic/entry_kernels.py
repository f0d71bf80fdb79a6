"""Kernels whose blocks end at once while the budget is 0, as in REEF: a design for comparison.

Input: a device, the budget; a loaded bundle.  Output: a `NormalPlan` that starts a kernel again if
blocks of it ended at once.  It is for timing only: a kernel that overwrites its own input gives
another result the second time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from tilewright.hosts.cuda import CudaHost
from tilewright.hosts.cuda_devices import CudaDevice, HostWords
from tilewright.hosts.cuda_elastic import Budget
from tilewright.hosts.cuda_instrumented import Instrumentation, InstrumentedDevice
from tilewright.hosts.cuda_tasks import Launch

#: Launches whose answers have their own words: more than are ever in flight.
WORDS = 8
FLAG_CHECK = Instrumentation(
    "",
    "const volatile unsigned *entry_flag, volatile unsigned *entry_told, unsigned entry_launch",
    "__shared__ bool entry_goes;"
    " if (threadIdx.x == 0 && (entry_goes = *entry_flag == 0)) *entry_told = entry_launch;"
    " __syncthreads(); if (entry_goes) return;",
)


class EntryFlag:
    """A device for a host, and a record of launches of which some block ended at once."""

    def __init__(self, device: CudaDevice, budget: Budget) -> None:
        self._budget, self._launches = budget, 0
        self._told: list[HostWords] = [device.words() for _ in range(WORDS)]
        self.device = InstrumentedDevice(device, FLAG_CHECK, self._args)

    def _args(self) -> tuple[ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint]:
        self._launches += 1
        return (
            ctypes.c_void_p(self._budget.address),
            ctypes.c_void_p(self._told[self._launches % WORDS].address),
            ctypes.c_uint(self._launches),
        )

    @property
    def launches(self) -> int:
        return self._launches

    def dropped(self, launch: int) -> bool:
        return int(self._told[launch % WORDS].value[0]) == launch


class EntryKernels:
    """A plan in which a kernel is complete if no block of its launch ended at once."""

    def __init__(self, host: CudaHost, launches: Sequence[Launch], flag: EntryFlag) -> None:
        self._host, self._launches, self._flag = host, launches, flag
        self.ends, self._complete = range(1, 1 + len(launches)), 0
        self._started: list[tuple[int, int]] = []

    def begin(self) -> None:
        self._complete = 0
        self._started.clear()

    def start(self, number: int, workers: int, plain: bool = False) -> None:
        self._host.device.start(self._launches[number])
        self._started.append((number, self._flag.launches))

    def complete_after(self, number: int) -> int:
        """The number of complete kernels; launches end in order."""
        kernel, launch = self._started.pop(0)
        # A kernel after a dropped one has read values that were not computed yet.
        if kernel == self._complete and not self._flag.dropped(launch):
            self._complete += 1
        return self._complete
