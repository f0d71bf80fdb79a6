"""A host that runs neutral plans step by step: the base class of hosts for checking.

Input: a bundle and input arrays.  Output: output arrays.  Each value is a separate array; a
subclass computes a step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tilewright.base.dtypes import DTYPES, in_memory
from tilewright.base.errors import MemoryLimit, OutOfRange
from tilewright.bundle import Bundle, open_bundle, section_files
from tilewright.bundle.format import checking, parse, reading
from tilewright.bundle.weight_decoding import tensors_of
from tilewright.hosts.inputs_outputs import (
    Array,
    Inference,
    as_declared,
    collect,
    extents_of,
    fit,
    out_of_range,
    pick_plan,
    rounded,
    state_array,
    state_number,
)
from tilewright.hosts.state_blocks import from_blocks, into_blocks
from tilewright.kernel.extents import RuntimeNumber
from tilewright.kernel.layout import RowBlocks
from tilewright.kernel.serialise import kernel_from_data
from tilewright.kernel.spec import check as check_kernel
from tilewright.plan import Extent, Program, State, Step, Tensor, Value, check, plan_from_data

#: A number of an encoded plan, or the fields of a `RuntimeNumber`.
PlanNumber = int | list[int]
#: The most bytes of all values of a plan: those of a 32-bit linear memory.
MOST_BYTES = 2**32


def program_of(bundle: Bundle) -> Program:
    """The neutral program of a bundle, checked for consistency and against the manifest.

    Raises BundleCorrupt, MemoryLimit.
    """
    manifest, growth = bundle.manifest, bundle.manifest.grown
    table = bundle.tensors()
    with reading("the plans and kernels"):
        listed = section_files.unpack(bundle.read(manifest.kernels))
        plans = [
            parse(bundle.read(plan.file), dict[str, object], "a plan") for plan in manifest.plans
        ]
        program = Program(
            tuple(kernel_from_data(entry.spec) for entry in listed),
            tuple(map(plan_from_data, plans)),
            tuple(Tensor(DTYPES[t.dtype], t.shape) for t in table),
            tuple(
                State(s.name, in_memory(s.dtype), s.shape, rows=growth.rows if growth else 0)
                for s in manifest.states
            ),
            tuple(Extent(name, manifest.dims[name][-1]) for name in manifest.extents),
        )
        with checking():
            check(program)
            for kernel in program.kernels:
                check_kernel(kernel)
        for plan, entry in zip(program.plans, manifest.plans, strict=True):
            given = [plan.values[i].shape for i in plan.inputs]
            made = [plan.values[i].shape for i in plan.outputs]
            if given != list(entry.inputs) or made != list(entry.outputs):
                raise ValueError("a plan has other inputs or outputs than the manifest")
            size = sum(value.bytes for value in plan.values)
            if size > MOST_BYTES or any(n < 0 for v in plan.values for n in v.shape):
                raise MemoryLimit("the values of a plan do not fit into memory", bytes=size)
    return program


def _layouts(program: Program) -> dict[int, RowBlocks]:
    """How the rows of each state that grows lie in memory."""
    return {
        plan.values[access.value].tensor: buffer.layout
        for plan in program.plans
        for step in plan.steps
        for access, buffer in zip(step.accesses, program.kernels[step.kernel].buffers, strict=True)
        if isinstance(buffer.layout, RowBlocks)
    }


class PlanHost(ABC):
    """One loaded bundle."""

    def __init__(self, path: Path) -> None:
        self.bundle: Bundle = open_bundle(path)
        self._tensors = list(tensors_of(self.bundle))
        program = program_of(self.bundle)
        self._plans, self.kernels = program.plans, program.kernels
        values = (value for plan in program.plans for value in plan.values)
        self._half_states = {v.tensor for v in values if v.kind == "state" and v.as_f16}
        with reading("the states"):
            self._layouts, manifest = _layouts(program), self.bundle.manifest
            spans = {n: layout.span(manifest.blocks) for n, layout in self._layouts.items()}
            self._states = [
                np.zeros(spans.get(n, s.size), s.dtype.numpy) for n, s in enumerate(program.states)
            ]

    def run(self, inputs: Mapping[str, object]) -> Inference:
        """Runs one inference: outputs by name for inputs by name.  Inputs smaller than the bucket
        are padded."""
        manifest = self.bundle.manifest
        number = pick_plan(manifest, inputs)
        plan, shapes = self._plans[number], manifest.plans[number]
        with reading("the values of the plan"):
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
        entry, blocks = self.bundle.manifest.states[number], self._parts(number)
        growth = self.bundle.manifest.grown
        whole = from_blocks(blocks, entry.shape, growth.rows) if growth else blocks[0]
        return as_declared(entry, whole.reshape(entry.shape))

    def set_state(self, name: str, value: object) -> None:
        """Sets a state's contents.  Raises InputError for a wrong shape or type."""
        number = state_number(self.bundle.manifest, name)
        data = state_array(self.bundle.manifest.states[number], value)
        if number in self._half_states:
            data = rounded(data).astype(np.float32)
        growth, parts = self.bundle.manifest.grown, self._parts(number)
        given = into_blocks(data, growth.rows, len(parts)) if growth else [data.reshape(-1)]
        for part, block in zip(parts, given, strict=True):
            part[:] = block

    def _parts(self, number: int) -> list[Array]:
        """A state, in each of its blocks if it grows."""
        state, layout = self._states[number], self._layouts.get(number)
        if layout is None:
            return [state]
        size, step = layout.size, layout.step
        return [state[at : at + size] for at in range(0, state.size, step)]

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
            values[access.value][access.offset : access.offset + buffer.span]
            for access, buffer in zip(step.accesses, kernel.buffers, strict=True)
        ]
        try:
            with reading(f"the kernel {kernel.name}"):
                self.step(plan, number, step, views, extents)
            written = self._plans[plan].values[step.write.value]
            if written.kind == "state" and written.as_f16:
                views[0][:] = rounded(views[0])
        except OutOfRange as trap:
            steps = self.bundle.manifest.plans[plan].steps
            raise out_of_range(steps, number, trap.check, trap.index) from trap


def number_at(number: PlanNumber, extents: Sequence[int]) -> int:
    """A number of an encoded plan, which may depend on an extent."""
    if isinstance(number, int):
        return number
    count = RuntimeNumber(*number)
    return count.at(extents[count.extent])
