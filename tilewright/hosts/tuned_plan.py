"""The largest plan of a loaded model, for its tuner, on any device.

Input: a host, whose inputs are generated once.  Output: results, the time of each kernel, and the
bundle's own kernels.  wgpu_model.py and cuda_model.py have the device's part; tuning/loop.py
decides.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from tilewright.base.dtypes import in_memory
from tilewright.bundle import Manifest
from tilewright.hosts.device_memory import DeviceMemoryHost
from tilewright.hosts.tensors import Array, largest_extents

#: Measurements of a step, of which the shortest counts.
LOOKS = 3

#: The device's host; a kernel that is ready to run on the device.
H = TypeVar("H", bound=DeviceMemoryHost)
R = TypeVar("R")


@dataclass(frozen=True)
class BundleKernel:
    """The bundle's own kernel of a step, on the largest extents.

    text: in the server's form for candidates of the target (`Target.module`)
    """

    text: str
    tiles: int
    scalars: tuple[int, ...]


class TunedPlan(ABC, Generic[H, R]):
    """The largest plan of a model."""

    def __init__(self, host: H) -> None:
        self._host, self._manifest = host, host.bundle.manifest
        self._plan = len(self._manifest.plans) - 1
        self._extents = largest_extents(self._manifest)
        self._specs = [step.spec for step in self._manifest.plans[self._plan].steps]
        self._inputs = _made_up(self._manifest)

    def results(self) -> dict[str, Array]:
        """The outputs for the inputs.  Raises KernelTrap."""
        self._host.reset()
        return dict(self._host.run(self._inputs).outputs)

    def profile(self) -> dict[int, float]:
        """By kernel, the milliseconds of all of its steps."""
        self.results()
        step = self._stopwatch()
        found: dict[int, float] = {}
        for at, spec in enumerate(self._specs):
            known = [ms for ms in (step(at) for _ in range(LOOKS)) if not math.isnan(ms)]
            found[spec] = found.get(spec, 0.0) + min(known, default=0.0)
        return found

    def flops(self, spec: int) -> int:
        """Floating-point operations of one step of the kernel."""
        steps = self._manifest.plans[self._plan].steps
        return next(step.flops for step in steps if step.spec == spec)

    @abstractmethod
    def time(self) -> float:
        """Milliseconds of one warm run."""

    @abstractmethod
    def use(self, kernels: Mapping[int, R]) -> None:
        """Runs these kernels, by number, instead of the bundle's own."""

    @abstractmethod
    def own(self, spec: int) -> BundleKernel | None:
        """The kernel that a step runs; None if no step could run another one."""

    @abstractmethod
    def _stopwatch(self) -> Callable[[int], float]:
        """A function that measures a step by number, in milliseconds; NaN if the clock stood
        still."""


def _made_up(manifest: Manifest) -> dict[str, Array]:
    """Inputs of the largest bucket: small floats; for integers zeros, which are valid in any
    table."""
    rng = np.random.default_rng(0)
    found = dict[str, Array]()
    for info, shape in zip(manifest.inputs, manifest.plans[-1].inputs, strict=True):
        kind: np.dtype[np.generic] = np.dtype(in_memory(info.dtype).numpy)
        data = rng.standard_normal(shape) if kind.kind == "f" else np.zeros(shape)
        found[info.name] = data.astype(kind)
    return found
