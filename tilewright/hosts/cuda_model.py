"""A model on the CUDA host, for its tuner: the time of each kernel, the kernel of each step, and
runs with other kernels.

Input: a loaded `CudaHost`.  Output: milliseconds by the device's clock, results, kernels.
tuning/loop.py decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import msgspec

from tilewright.hosts.cuda import CudaHost, CudaKernel
from tilewright.hosts.cuda_bench import CudaBench
from tilewright.hosts.tuned_plan import BundleKernel, TunedPlan

#: Launches of a step that are timed together: one alone may be too short for the clock.
TOGETHER = 8


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
