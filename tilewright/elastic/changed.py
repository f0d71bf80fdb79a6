"""A device whose kernels begin with something more: a watch (watch.py), a flag (entry.py).

Input: a device, text for the begin of each kernel's body, parameters in front of its own.  Output:
a device for hosts, which know nothing of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilewright.base.errors import CompilerBug
from tilewright.hosts.cuda_devices import CudaDevice, DeviceMemory, HostWords, Mark
from tilewright.hosts.cuda_tasks import Launch, Task
from tilewright.hosts.tensors import Array

#: A kernel's begin: its parameters, and the line that opens its body.
HEAD = re.compile(r"^(KERNEL void (?:__launch_bounds__\([^)]*\) )?k\()(.*\) \{)$", re.MULTILINE)


@dataclass(frozen=True)
class Change:
    """prelude: what comes before all kernels;  parameters, body: in front of a kernel's own"""

    prelude: str
    parameters: str
    body: str

    def of(self, text: str) -> str:
        """A kernel's text with the change."""
        made, count = HEAD.subn(
            lambda head: f"{head[1]}{self.parameters}, {head[2]}\n  {self.body}", text
        )
        if count != 1:
            raise CompilerBug("a kernel's text has no head that can be changed", found=count)
        return made


class ChangedDevice:
    """args: of the parameters in front, asked for at each launch; a recording keeps them"""

    def __init__(
        self, device: CudaDevice, change: Change, args: Callable[[], tuple[Any, ...]]
    ) -> None:
        self._device, self._change, self._args, self.name = device, change, args, device.name
        self.capability, self.shared_bytes = device.capability, device.shared_bytes
        self.sms, self.returns = device.sms, device.returns

    def compile(self, prelude: str, texts: Sequence[str], shared: Sequence[int] = ()) -> list[Any]:
        changed = [self._change.of(text) for text in texts]
        return self._device.compile(prelude + self._change.prelude, changed, shared)

    def start(self, task: Task) -> None:
        self._device.start(self._with_args(task))

    def record(self, tasks: Sequence[Task]) -> Callable[[], None]:
        return self._device.record([self._with_args(task) for task in tasks])

    def record_after(self, address: int, tasks: Sequence[Task]) -> Callable[[int], None]:
        return self._device.record_after(address, [self._with_args(task) for task in tasks])

    def _with_args(self, task: Task) -> Task:
        if not isinstance(task, Launch):
            return task
        return replace(task, args=(*self._args(), *task.args))

    def memory(self, size: int) -> DeviceMemory:
        return self._device.memory(size)

    def write(self, address: int, data: Array) -> None:
        self._device.write(address, data)

    def read(self, address: int, size: int) -> bytes:
        return self._device.read(address, size)

    def words(self, count: int = 1) -> HostWords:
        return self._device.words(count)

    def residents(self, kernel: Any, group: int, shared: int = 0) -> int:
        return self._device.residents(kernel, group, shared)

    def local_bytes(self, kernel: Any) -> int:
        return self._device.local_bytes(kernel)

    def use(self) -> None:
        self._device.use()

    def wait(self) -> None:
        self._device.wait()

    def mark(self) -> Mark:
        return self._device.mark()

    def milliseconds(self, run: Callable[[], None]) -> float:
        return self._device.milliseconds(run)
