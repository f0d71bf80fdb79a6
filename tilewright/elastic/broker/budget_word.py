"""The budget word that processes share: in a mapped file for CPU kernels, in GPU memory for CUDA.

Input: a kind and the bytes of a `BrokerWelcome`.  Output: an address that this process's kernels
read and its streams write.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from pathlib import Path
from typing import Protocol

from tilewright.base.abi import WORD_BYTES
from tilewright.base.budget import ALIVE, BUDGET_BYTES, UNLIMITED
from tilewright.base.errors import HostError
from tilewright.hosts.cuda_driver import Driver

#: The last bytes of such a file, which distinguish it from the user's files.
MARK = b"tilewright budget word\n"


def file_of(socket: Path) -> Path:
    """The path of the broker's file for CPU kernels, next to its socket."""
    return socket.with_name(f"{socket.name}.word")


def remove_left(path: Path) -> None:
    """Removes the file that a dead broker left; any other file stays."""
    with contextlib.suppress(OSError):
        sized = path.is_file() and path.stat().st_size == mmap.PAGESIZE
        if sized and path.read_bytes().endswith(MARK):
            path.unlink()


class SharedWord(Protocol):
    kind: str
    address: int

    def handle_bytes(self) -> bytes:
        """The bytes with which another process opens it."""

    def set(self, workers: int) -> None:
        """Writes the budget at once."""

    def recount(self) -> None:
        """Sets the count of running workers to 0 before it returns."""

    def close(self) -> None:
        """Called by the process that made it: no other process can open it afterwards."""


class FileWord:
    """A budget word for kernels on the CPU.

    create: make the file; an existing file is never overwritten

    Raises HostError.
    """

    kind = "cpu"

    def __init__(self, path: Path, create: bool = False) -> None:
        self._path, self._made = path, create
        flags = os.O_RDWR | (os.O_CREAT | os.O_EXCL if create else 0)
        try:
            file = os.open(path, flags, 0o600)
        except OSError as error:
            raise HostError(
                f"the broker's budget word cannot be opened: {error.strerror}",
                hint="Name another socket" if create else "Use the broker's account",
                path=path,
            ) from error
        try:
            if create:
                os.pwrite(file, MARK, mmap.PAGESIZE - len(MARK))
            self._map = mmap.mmap(file, mmap.PAGESIZE)
        except ValueError as error:
            raise HostError(
                "this file is not a budget word", hint="Start the broker again", path=path
            ) from error
        finally:
            os.close(file)
        self._word = ctypes.c_uint32.from_buffer(self._map)
        self._alive = ctypes.c_uint32.from_buffer(self._map, WORD_BYTES * ALIVE)
        self.address = ctypes.addressof(self._word)
        if create:
            self.set(UNLIMITED)

    def handle_bytes(self) -> bytes:
        return os.fsencode(self._path)

    def set(self, workers: int) -> None:
        self._word.value = workers

    def recount(self) -> None:
        self._alive.value = 0

    def close(self) -> None:
        if self._made:
            self._path.unlink(missing_ok=True)


class GpuWord:
    """A budget word in GPU memory, which other processes open by a CUDA IPC handle."""

    kind = "gpu"

    def __init__(self, driver: Driver, handle: bytes | None = None) -> None:
        self._driver = driver
        if handle is None:
            address = driver.allocate(BUDGET_BYTES)
            if address is None:
                raise HostError("the GPU has no room for the budget word", hint="Free memory")
            self.address, self._handle = address, driver.shared(address)
        else:
            self.address, self._handle = driver.opened(handle), handle
        self._stream = driver.stream(urgent=True)
        if handle is None:
            self.set(UNLIMITED)

    def handle_bytes(self) -> bytes:
        return self._handle

    def set(self, workers: int) -> None:
        self._driver.use()
        self._driver.write_word(self.address, workers, self._stream)

    def recount(self) -> None:
        self._driver.use()
        self._driver.write_word(self.address + WORD_BYTES * ALIVE, 0, self._stream)
        self._driver.wait(self._stream)

    def close(self) -> None:
        """Keeps the memory until the process ends: kernels in flight may still read it."""


def open_budget_word(kind: str, handle: bytes, driver: Driver | None = None) -> SharedWord:
    """Opens the word of a broker.  Raises HostError."""
    if kind == FileWord.kind:
        return FileWord(Path(os.fsdecode(handle)))
    return GpuWord(driver or Driver(0), handle)
