"""A GPU for tuners of CUDA kernels: the CPU computes, and what kernels take is made up.

Input: milliseconds by a kernel's text.  Output: a device whose clock adds them up; kernels that
another device would refuse, or that break it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.base.errors import HostError, of_kind
from tilewright.hosts.cuda_devices import CpuDevice, CpuKernel
from tilewright.hosts.cuda_tasks import Launch, Task

#: A comment in a text that breaks the device when it runs, as a wild address breaks a context.
FATAL = "// fatal"


class Timed(CpuKernel):
    """A compiled kernel that knows its text."""

    text: str


def _text(launch: Launch) -> str:
    return of_kind(launch.kernel, Timed, "a kernel of another device").text


class TimedDevice(CpuDevice):
    """times: milliseconds of a launch by the kernel's text;  refused: a reason not to compile one

    compiled: the texts, in their order;  broken: whether nothing can be read from it any more
    """

    name = "a GPU that is made up"

    def __init__(
        self,
        times: Callable[[str], float],
        refused: Callable[[str], str] = lambda _: "",
        most_threads: int = 1024,
    ) -> None:
        super().__init__()
        self._times, self._refused, self._most_threads = times, refused, most_threads
        self._spent: float | None = None
        self.broken = False
        self.compiled: list[str] = []

    def compile(
        self, prelude: str, texts: Sequence[str], shared: Sequence[int] = ()
    ) -> list[Timed]:
        for text in texts:
            if why := self._refused(text):
                raise HostError(why)
        self.compiled += texts
        made = [Timed(*kernel) for kernel in super().compile(prelude, texts, shared)]
        for kernel, text in zip(made, texts, strict=True):
            kernel.text = text
        return made

    def residents(self, kernel: object, group: int, shared: int = 0) -> int:
        return super().residents(kernel, group, shared) if group <= self._most_threads else 0

    def start(self, task: Task) -> None:
        if not isinstance(task, Launch):
            super().start(task)
            return
        if self._spent is not None:
            self._spent += self._times(_text(task))
            return
        self.broken |= FATAL in _text(task)
        super().start(task)

    def read(self, address: int, size: int) -> bytes:
        if self.broken:
            raise HostError("CUDA failed with CUDA_ERROR_ILLEGAL_ADDRESS")
        return super().read(address, size)

    def milliseconds(self, run: Callable[[], None]) -> float:
        """Nothing is computed: results are checked before times."""
        self._spent = 0.0
        run()
        spent, self._spent = self._spent, None
        return spent
