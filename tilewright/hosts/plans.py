"""A host that runs neutral plans step by step: the base class of hosts for checking.

Input: a bundle and input arrays.  Output: output arrays.  Each value is a separate array; a
subclass computes a step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tilewright.base.dtypes import DTYPES
from tilewright.base.errors import KernelTrap
from tilewright.bundle import Bundle, kernels, open_bundle
from tilewright.bundle.stored import tensors_of
from tilewright.hosts.tensors import (
    Array,
    Inference,
    collect,
    extents_of,
    fit,
    pick_plan,
    state_array,
    state_number,
)
from tilewright.kernel.serial import kernel_from_data
from tilewright.plan import Step, Value, plan_from_data


class PlanHost(ABC):
    """One loaded bundle."""

    def __init__(self, path: Path) -> None:
        self.bundle: Bundle = open_bundle(path)
        manifest = self.bundle.manifest
        self._tensors = list(tensors_of(self.bundle))
        self._states = [np.zeros(prod(s.shape), DTYPES[s.dtype].numpy) for s in manifest.states]
        self._plans = [
            plan_from_data(msgspec.json.decode(self.bundle.read(plan.file)))
            for plan in manifest.plans
        ]
        listed = kernels.unpack(self.bundle.read(manifest.kernels))
        self.kernels = [kernel_from_data(entry.spec) for entry in listed]

    def run(self, inputs: Mapping[str, Any]) -> Inference:
        """Outputs by name for inputs by name; inputs smaller than the bucket are padded."""
        manifest = self.bundle.manifest
        number = pick_plan(manifest, inputs)
        plan, shapes = self._plans[number], manifest.plans[number]
        values = [self._value(value) for value in plan.values]
        for place, data in zip(plan.inputs, fit(manifest, shapes, inputs), strict=True):
            values[place] = data.reshape(-1)
        extents = extents_of(manifest, inputs)
        for at, step in enumerate(plan.steps):
            self._step(number, at, step, values, extents)
        return collect(manifest, shapes, inputs, lambda n, _: values[plan.outputs[n]].tobytes())

    def reset(self) -> None:
        """Sets all states to zero."""
        for state in self._states:
            state[:] = 0

    def state(self, name: str) -> Array:
        """A copy of a state's contents."""
        number = state_number(self.bundle.manifest, name)
        return self._states[number].reshape(self.bundle.manifest.states[number].shape).copy()

    def set_state(self, name: str, value: Any) -> None:
        """Sets a state's contents.  Raises InputError for another shape or dtype."""
        number = state_number(self.bundle.manifest, name)
        self._states[number][:] = state_array(self.bundle.manifest, number, value).reshape(-1)

    def _value(self, value: Value) -> Array:
        if value.kind == "weight":
            return self._tensors[value.tensor]
        if value.kind == "state":
            return self._states[value.tensor]
        return np.zeros(value.size, value.dtype.numpy)

    @abstractmethod
    def step(
        self, plan: int, number: int, step: Step, views: list[Array], extents: Sequence[int]
    ) -> None:
        """Computes one step; `views` are the kernel's buffers, the output first."""

    def _step(
        self, plan: int, number: int, step: Step, values: list[Array], extents: Sequence[int]
    ) -> None:
        kernel = self.kernels[step.kernel]
        views = [
            values[access.value][access.offset : access.offset + buffer.size]
            for access, buffer in zip(step.accesses, kernel.buffers, strict=True)
        ]
        try:
            self.step(plan, number, step, views, extents)
        except KernelTrap as trap:
            raise KernelTrap(
                trap.message,
                hint="Check the values of index inputs (token ids)",
                kernel=kernel.name,
                node=step.node,
                **trap.facts,
            ) from trap
