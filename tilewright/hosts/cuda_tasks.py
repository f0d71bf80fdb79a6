"""The tasks that a device carries out in order, as plain data: launches, writes, ends of requests.

Input: none.  Output: records.  `cuda_devices.py` carries them out.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, TypeAlias

from tilewright.hosts.cuda_l2_persistence import Window

#: Arguments of kernels: numbers and addresses; for foreign kernels structures, too.
CScalar: TypeAlias = "ctypes._SimpleCData[Any]"
CValue: TypeAlias = "CScalar | ctypes.Structure | ctypes.Array[Any]"


@dataclass(frozen=True)
class Launch:
    """A kernel on blocks of `group` threads.

    kernel: the device's own (`CudaDevice.compile`);  args: of its parameters' types
    shared: bytes of dynamic shared memory
    window: memory that stays in a GPU's L2 cache meanwhile; the CPU ignores it
    """

    kernel: object
    blocks: int
    group: int
    args: tuple[CScalar, ...]
    shared: int = 0
    window: Window | None = None


@dataclass(frozen=True)
class Zeroes:
    """Sets `size` bytes of memory to 0."""

    address: int
    size: int


@dataclass(frozen=True)
class SetWord:
    """Writes a 32-bit number in the stream's order, without a kernel."""

    address: int
    value: int


@dataclass(frozen=True)
class Gate:
    """Makes the stream wait until a 32-bit word is not 0.  No kernel waits, so it takes no place on
    a multiprocessor."""

    address: int


@dataclass(frozen=True)
class Settle:
    """A kernel that sets the budget.  Then the stream waits until at most the workers that the
    tasks may keep are alive, or until a time limit.

    address: of the words of base/budget.py
    told: address of `TOLD` numbers (`CudaDevice.words`), which are read at each run, so that a
          recording works with any of them: the budget, the number of tasks, nanoseconds, and the
          number of the request, which `Release` reads
    """

    address: int
    told: int


@dataclass(frozen=True)
class Release:
    """A kernel that lets all workers stay, and reports to the host that a request has ended.

    address: of the words of base/budget.py; 0: there is no budget
    told: as in `Settle`;  ended: address of the word that becomes the request's number
    """

    address: int
    told: int
    ended: int


#: Numbers that `Settle` and `Release` read.
TOLD = 4
#: Any of these tasks.
Task = Launch | Zeroes | SetWord | Gate | Settle | Release
