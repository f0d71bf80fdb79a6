"""A device whose kernels begin with more code, such as a record of their blocks.

Input: a device, text for the start of each kernel's body, and parameters before the kernel's own.
Output: a device that hosts use like any other.  Results are not changed, unless the code ends
blocks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tilewright.base.errors import CompilerBug
from tilewright.hosts.cuda_devices import CudaDevice, DeviceEvent, DeviceMemory, HostWords
from tilewright.hosts.cuda_tasks import CScalar, Launch, Task
from tilewright.hosts.inputs_outputs import Array

#: The start of a kernel: its parameters, and the line that opens its body.
HEAD = re.compile(r"^(KERNEL void (?:__launch_bounds__\([^)]*\) )?k\()(.*\) \{)$", re.MULTILINE)


@dataclass(frozen=True)
class Instrumentation:
    """prelude: text before all kernels;  parameters, body: text before a kernel's own"""

    prelude: str
    parameters: str
    body: str

    def of(self, text: str) -> str:
        """A kernel's text with the code added."""
        made, count = HEAD.subn(
            lambda head: f"{head[1]}{self.parameters}, {head[2]}\n  {self.body}", text
        )
        if count != 1:
            raise CompilerBug("a kernel's text has no head to add code behind", found=count)
        return made


class InstrumentedDevice:
    """A device whose kernels have the added code.

    args: gives the values of the added parameters at each launch; a recording keeps them
    """

    def __init__(
        self, device: CudaDevice, added: Instrumentation, args: Callable[[], tuple[CScalar, ...]]
    ) -> None:
        self._device, self._added, self._args, self.name = device, added, args, device.name
        self.capability, self.shared_bytes = device.capability, device.shared_bytes
        self.sms, self.returns = device.sms, device.returns

    def compile(
        self, prelude: str, texts: Sequence[str], shared: Sequence[int] = ()
    ) -> Sequence[object]:
        longer = [self._added.of(text) for text in texts]
        return self._device.compile(prelude + self._added.prelude, longer, shared)

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

    def residents(self, kernel: object, group: int, shared: int = 0) -> int:
        return self._device.residents(kernel, group, shared)

    def local_bytes(self, kernel: object) -> int:
        return self._device.local_bytes(kernel)

    def use(self) -> None:
        self._device.use()

    def ensure_current(self) -> None:
        self._device.ensure_current()

    def wait(self) -> None:
        self._device.wait()

    def mark(self) -> DeviceEvent:
        return self._device.mark()

    def milliseconds(self, run: Callable[[], None]) -> float:
        return self._device.milliseconds(run)
