"""A model on the CUDA host, for its tuner: times of its kernels, and trials of single kernels.

Input: a loaded `CudaHost`; a kernel as servers send it, and the contents of its buffers.  Output:
the kernel of each step; results of runs with other kernels, and their milliseconds by the device's
clock; the result of a trial, and whether the kernel wrote beyond its buffers.  A kernel that
accesses unmapped memory ends the whole CUDA context (HostError).  tuning/host_tuner.py and
tuning/trial.py decide what to do with the results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache

import msgspec

from tilewright.base.errors import BundleCorrupt, HostError
from tilewright.bundle.format import REBUILD, parse
from tilewright.hosts.cuda import CudaHost, CudaKernel, CudaModule, Recordings, launch_of
from tilewright.hosts.cuda_devices import CudaDevice
from tilewright.hosts.cuda_tasks import Launch
from tilewright.hosts.inputs_outputs import Array
from tilewright.hosts.tuned_plan import (
    BundleKernel,
    CanaryBench,
    TrialMemory,
    TunedPlan,
    TypedStorage,
)

#: Milliseconds of the batch in which one run is timed.
BATCH = 3.0
#: The most launches that are recorded as one graph, so that the host's launch time does not count;
#: the recordings that are kept.
LAUNCHES, MOST_RECORDINGS = 32, 8
#: Launches of a step that are timed together: one alone may be too short for the clock.
TOGETHER = 8


class CudaBench(CanaryBench[CudaKernel]):
    """A CUDA device's bench for trials."""

    storage = TypedStorage()
    batch = BATCH

    def __init__(self, device: CudaDevice) -> None:
        self._device = device
        self._recordings = Recordings(MOST_RECORDINGS)

    def runner(self, text: str, tiles: int) -> CudaKernel:
        """Compiles a kernel.  Raises BundleCorrupt if it is not a kernel, or not one for this
        device."""
        device, module = self._device, parse(text.encode(), CudaModule, "a kernel for CUDA")
        if module.shared > device.shared_bytes:
            raise BundleCorrupt(
                "a kernel needs more shared memory than a block can have",
                hint=REBUILD, bytes=module.shared, limit=device.shared_bytes,
            )  # fmt: skip
        try:
            (kernel,) = device.compile(module.prelude, [module.text], [module.shared])
            residents = device.residents(kernel, module.group, module.shared)
        except HostError as error:
            raise BundleCorrupt(f"a kernel does not compile or load: {error.message}") from error
        if not residents:
            raise BundleCorrupt(
                "a block of a kernel does not fit a multiprocessor", hint=REBUILD,
                threads=module.group, shared=module.shared,
            )  # fmt: skip
        return CudaKernel(module, tiles, kernel)

    def _reserve(self, memory: TrialMemory, scalars: Sequence[int]) -> None:
        self._recordings.clear()
        self._scalars = tuple(scalars)
        self._room = self._device.memory(memory.size)

    def _write(self, image: Array) -> None:
        self._device.write(self._room.address, image)

    def _after(self, runner: CudaKernel) -> bytes:
        if runner.module.scalars != len(self._scalars):
            raise BundleCorrupt(
                "a kernel takes other arguments than the bundle's own",
                hint=REBUILD, scalars=runner.module.scalars, expected=len(self._scalars),
            )  # fmt: skip
        try:
            self._device.start(self._launch(runner))
        except HostError as error:
            raise BundleCorrupt(f"a kernel does not start: {error.message}") from error
        return self._device.read(self._room.address, self._room.size)

    def milliseconds(self, runner: CudaKernel, times: int) -> float:
        """Milliseconds of one run, from at least `times` runs; NaN if the clock did not advance."""
        each = min(times, LAUNCHES)
        recorded, rounds = self._recorded(runner, each), -(-times // each)

        def run() -> None:
            for _ in range(rounds):
                recorded()

        spent = self._device.milliseconds(run)
        return spent / (each * rounds) if spent > 0 else math.nan

    def _recorded(self, runner: CudaKernel, each: int) -> Callable[[], None]:
        def record() -> Callable[[], None]:
            return self._device.record([self._launch(runner)] * each)

        return self._recordings.get((runner, each), record)

    def _launch(self, runner: CudaKernel) -> Launch:
        address = self._room.address
        buffers = (address + begin for begin in self._memory.begins)
        return launch_of(runner, buffers, self._scalars, address)


class CudaModel(TunedPlan[CudaHost, CudaKernel]):
    """The largest plan of a model."""

    def bench(self) -> CudaBench:
        """A bench for trials on the same device."""
        return CudaBench(self._host.device)

    def time(self) -> float:
        """Milliseconds of one warm run, by the device's clock."""
        return self._host.clock(1, self._plan)[0]

    def use(self, kernels: Mapping[int, CudaKernel]) -> None:
        self._host.use(kernels)

    def own(self, spec: int) -> BundleKernel | None:
        places = (place for place, number in enumerate(self._specs) if number == spec)
        steps = (self._host.own(self._plan, place, self._extents) for place in places)
        step = next((step for step in steps if step is not None), None)
        if step is None:
            return None
        return BundleKernel(msgspec.json.encode(step.module).decode(), step.tiles, step.scalars)

    def _stopwatch(self) -> Callable[[int], float]:
        device = self._host.device
        launches = self._host.launches(self._plan, self._extents)

        @cache
        def recorded(at: int) -> Callable[[], None]:
            return device.record([launches[at]] * TOGETHER)

        def step(at: int) -> float:
            return device.milliseconds(recorded(at)) / TOGETHER if launches[at].blocks else 0.0

        return step
