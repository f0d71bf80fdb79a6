"""What a device does one after the other, as plain data: launches, writes, the ends of requests.

Input: none.  Output: records that `cuda_devices.py` carries out; nothing here does.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, TypeAlias

from tilewright.hosts.cuda_l2 import Window

#: What kernels are given: numbers and addresses; of foreign kernels structures, too.
CScalar: TypeAlias = "ctypes._SimpleCData[Any]"
CValue: TypeAlias = "CScalar | ctypes.Structure | ctypes.Array[Any]"


@dataclass(frozen=True)
class Launch:
    """A kernel on blocks of `group` threads.

    kernel: the device's own (`CudaDevice.compile`);  args: of its parameters' types
    shared: bytes of dynamic shared memory
    window: memory that stays in a GPU's L2 cache meanwhile; the CPU knows none
    """

    kernel: object
    blocks: int
    group: int
    args: tuple[CScalar, ...]
    shared: int = 0
    window: Window | None = None


@dataclass(frozen=True)
class Zeroes:
    """So many bytes of memory become 0."""

    address: int
    size: int


@dataclass(frozen=True)
class SetWord:
    """A number of 32 bits is written, in the stream's order and without a kernel."""

    address: int
    value: int


@dataclass(frozen=True)
class Gate:
    """The stream goes on when a word of 32 bits is not 0.  No kernel waits for it, so it takes no
    place on a multiprocessor."""

    address: int


@dataclass(frozen=True)
class Settle:
    """A kernel sets the budget.  Then the stream goes on when no more workers are alive than some
    tasks may keep under it, or after some time.

    address: of the words of base/budget.py
    told: address of `TOLD` numbers (`CudaDevice.words`), which are read at each run, so that a
          recording serves any of them: the budget, how many tasks, nanoseconds, and the number
          of the request, which `Release` reads
    """

    address: int
    told: int


@dataclass(frozen=True)
class Release:
    """A kernel lets everybody stay, and tells the host that a request has ended.

    address: of the words of base/budget.py; 0: there is no budget
    told: as of `Settle`;  ended: address of the word that becomes the request's number
    """

    address: int
    told: int
    ended: int


#: Numbers that `Settle` and `Release` read.
TOLD = 4
#: What a device does one after the other.
Task = Launch | Zeroes | SetWord | Gate | Settle | Release
