"""A host whose values are at addresses of a device's memory: the base class of such hosts.

Input: a bundle and input arrays.  Output: output arrays.  A subclass reads and writes memory and
runs a plan; the word at address 0 reports an index out of range.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from tilewright.base.dtypes import in_memory
from tilewright.bundle import Bundle
from tilewright.hosts.inputs_outputs import (
    Array,
    Inference,
    as_declared,
    collect,
    extents_of,
    fit,
    largest_extents,
    of_word,
    pick_plan,
    rounded,
    state_array,
    state_number,
)


class DeviceMemoryHost(ABC):
    """One loaded bundle.

    _places: per plan, the addresses of "inputs" and "outputs";  _states: addresses of all states
    _half_states: numbers of those that memory holds as f16
    """

    bundle: Bundle
    _places: Sequence[Mapping[str, Sequence[int]]]
    _states: Sequence[int]
    _half_states: frozenset[int] = frozenset()

    def run(self, inputs: Mapping[str, object]) -> Inference:
        """Runs one inference: outputs by name for inputs by name.  Inputs smaller than the bucket
        are padded."""
        number = self.give(inputs)
        self._execute(number, extents_of(self.bundle.manifest, inputs))
        return self.take(inputs)

    def give(self, inputs: Mapping[str, object]) -> int:
        """Writes the inputs; returns the number of the plan to run on them."""
        manifest = self.bundle.manifest
        number = pick_plan(manifest, inputs)
        places = self._places[number]["inputs"]
        for address, data in zip(
            places, fit(manifest, manifest.plans[number], inputs), strict=True
        ):
            self._write(address, data)
        self._arm()
        return number

    def take(self, inputs: Mapping[str, object]) -> Inference:
        """The outputs for inputs written by `give`, after the plan ran.  Raises KernelTrap."""
        manifest = self.bundle.manifest
        number = pick_plan(manifest, inputs)
        self._check(number)
        places = self._places[number]["outputs"]

        def read(output: int, size: int) -> bytes:
            dtype = in_memory(manifest.outputs[output].dtype)
            return self._read(places[output], dtype.name, size // dtype.size).tobytes()

        return collect(manifest, manifest.plans[number], inputs, read)

    def time(self, runs: int, plan: int = -1) -> list[float]:
        """Milliseconds of each of `runs` inferences, on the current contents of the inputs."""
        times = []
        extents = largest_extents(self.bundle.manifest)
        for _ in range(runs):
            start = time.perf_counter()
            self._submit(plan, extents)
            times.append((time.perf_counter() - start) * 1e3)
        return times

    def reset(self) -> None:
        """Sets all states to zero."""
        for number, state in enumerate(self.bundle.manifest.states):
            self._write_state(number, np.zeros(state.shape, in_memory(state.dtype).numpy))

    def state(self, name: str) -> Array:
        """A copy of a state's contents."""
        number = state_number(self.bundle.manifest, name)
        state = self.bundle.manifest.states[number]
        halves = number in self._half_states
        dtype = "i16" if halves else in_memory(state.dtype).name
        data = self._read(self._states[number], dtype, prod(state.shape))
        data = data.view(np.float16).astype(np.float32) if halves else data
        return as_declared(state, data.reshape(state.shape))

    def set_state(self, name: str, value: object) -> None:
        """Sets a state's contents.  Raises InputError for a wrong shape or type."""
        number = state_number(self.bundle.manifest, name)
        self._write_state(number, state_array(self.bundle.manifest.states[number], value))

    def _write_state(self, number: int, data: Array) -> None:
        """Writes a state; memory may hold it as f16."""
        halves = number in self._half_states
        self._write(self._states[number], rounded(data) if halves else data)

    def _submit(self, plan: int, extents: Sequence[int]) -> None:
        """Runs a plan to its end.  Raises KernelTrap."""
        self._arm()
        self._execute(plan, extents)
        self._check(plan)

    def _arm(self) -> None:
        self._write(0, np.zeros(1, np.int32))

    def _check(self, plan: int) -> None:
        """Waits for the plan's end.  Raises KernelTrap."""
        if word := int(self._read(0, "i32", 1)[0]):
            index = int(self._read(8, "i64", 1)[0])
            raise of_word(self.bundle.manifest.plans[plan].steps, word, index)

    @abstractmethod
    def _execute(self, plan: int, extents: Sequence[int]) -> None:
        """Runs the steps of a plan, with these run-time extents."""

    @abstractmethod
    def _write(self, address: int, data: Array) -> None: ...

    @abstractmethod
    def _read(self, address: int, dtype: str, elements: int) -> Array: ...
