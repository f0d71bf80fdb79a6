"""A model on the wgpu host, for its tuner: the time of each kernel, the kernel of each step, and
runs with other kernels.

Input: a loaded `WgpuHost`.  Output: milliseconds, results, kernels. tuning/loop.py decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from tilewright.hosts.tuned_plan import BundleKernel, TunedPlan
from tilewright.hosts.wgpu import WgpuHost, wgpu
from tilewright.hosts.wgpu_bench import WgpuBench, WgpuKernel
from tilewright.hosts.wgpu_calls import WgpuCall, apart, number_at, takes
from tilewright.hosts.wgpu_clock import Clock


class WgpuModel(TunedPlan[WgpuHost, WgpuKernel]):
    """The largest plan of a model."""

    def bench(self) -> WgpuBench:
        """A bench for trials on the same device."""
        most = self._host.device.device.limits["max-storage-buffer-binding-size"]
        return WgpuBench(self._host.device, wgpu(), most)

    def time(self) -> float:
        """Milliseconds from the call to its end."""
        return self._host.time(1, self._plan)[0]

    def use(self, kernels: Mapping[int, WgpuKernel]) -> None:
        self._host.use({n: (k.text, k.tiles, k.group) for n, k in kernels.items()})

    def own(self, spec: int) -> BundleKernel | None:
        steps = zip(self._specs, self._calls, strict=True)
        call = next((call for number, call in steps if number == spec and takes(call)), None)
        if call is None:
            return None
        tiles, *scalars = (number_at(n, self._extents) for n in (call.tiles, *call.scalars))
        return BundleKernel(self._host.text(call.slot), tiles, tuple(scalars))

    def _stopwatch(self) -> Callable[[int], float]:
        clock = Clock(self._host.device, wgpu().BufferUsage)
        steps = self._host.dispatches(apart(self._calls))
        steps.resize(self._extents)
        return lambda at: clock.milliseconds(partial(steps.put, at=at))

    @property
    def _calls(self) -> Sequence[WgpuCall]:
        return self._host.calls[self._plan]
