"""A model on the wgpu host as its tuner sees it: where its time goes, what each kernel runs, and
runs with other kernels in place.

Input: a loaded `WgpuHost`.  Output: milliseconds, results, kernels.  Who decides is tuning/loop.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tilewright.base.dtypes import in_memory
from tilewright.hosts.tensors import Array, largest_extents
from tilewright.hosts.wgpu import WgpuHost, wgpu
from tilewright.hosts.wgpu_bench import KernelBench
from tilewright.hosts.wgpu_calls import WgpuCall, apart, number_at, takes
from tilewright.hosts.wgpu_clock import Clock

#: Looks at a step, of which the shortest counts.
LOOKS = 3


@dataclass(frozen=True)
class Own:
    """The kernel that a step runs of the bundle itself, on the largest extents."""

    text: str
    tiles: int
    scalars: tuple[int, ...]


class WgpuModel:
    """The largest plan of a model, whose inputs are made up once."""

    def __init__(self, host: WgpuHost) -> None:
        self._host, self._manifest = host, host.bundle.manifest
        self._plan = len(self._manifest.plans) - 1
        self._extents = largest_extents(self._manifest)
        self._specs = [step.spec for step in self._manifest.plans[self._plan].steps]
        self._inputs = _made_up(host)

    def bench(self) -> KernelBench:
        """A place for trials on the same device."""
        most = self._host.device.device.limits["max-storage-buffer-binding-size"]
        return KernelBench(self._host.device, wgpu(), most)

    def results(self) -> dict[str, Array]:
        """The outputs for the inputs.  Raises KernelTrap."""
        self._host.reset()
        return dict(self._host.run(self._inputs).outputs)

    def time(self) -> float:
        """Milliseconds of one warm run, from the call to its end."""
        return self._host.time(1, self._plan)[0]

    def use(self, kernels: Mapping[int, tuple[str, int, int]]) -> None:
        self._host.use(kernels)

    def profile(self) -> dict[int, float]:
        """By kernel, the milliseconds of all of its steps."""
        self.results()
        clock = Clock(self._host.device, wgpu().BufferUsage)
        steps = self._host.dispatches(apart(self._calls))
        steps.resize(self._extents)
        found: dict[int, float] = {}
        for at, spec in enumerate(self._specs):
            put = partial(steps.put, at=at)
            times = [clock.milliseconds(put) for _ in range(LOOKS)]
            known = [ms for ms in times if not math.isnan(ms)]
            found[spec] = found.get(spec, 0.0) + min(known, default=0.0)
        return found

    def own(self, spec: int) -> Own | None:
        """What a step of the kernel runs; None where no step could run another one."""
        steps = zip(self._specs, self._calls, strict=True)
        call = next((call for number, call in steps if number == spec and takes(call)), None)
        if call is None:
            return None
        tiles, *scalars = (number_at(n, self._extents) for n in (call.tiles, *call.scalars))
        return Own(self._host.text(call.slot), tiles, tuple(scalars))

    def flops(self, spec: int) -> int:
        """Of one step of the kernel."""
        steps = self._manifest.plans[self._plan].steps
        return next(step.flops for step in steps if step.spec == spec)

    @property
    def _calls(self) -> Sequence[WgpuCall]:
        return self._host.calls[self._plan]


def _made_up(host: WgpuHost) -> dict[str, Any]:
    """Inputs of the largest bucket: small numbers; of integers zeros, which index any table."""
    manifest, plan = host.bundle.manifest, host.bundle.manifest.plans[-1]
    rng = np.random.default_rng(0)
    found = {}
    for info, shape in zip(manifest.inputs, plan.inputs, strict=True):
        kind: Any = np.dtype(in_memory(info.dtype).numpy)
        data = rng.standard_normal(shape) if kind.kind == "f" else np.zeros(shape)
        found[info.name] = data.astype(kind)
    return found
