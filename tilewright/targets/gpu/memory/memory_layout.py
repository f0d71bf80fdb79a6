"""The memory layout of a model on a GPU: its own buffer, banks and annexes.

Input: a program, what is special about a target's memory, settings, or an old section. Output: the
place of each step's buffers, and facts for a section. Most models need one buffer. Weights go to
banks before states and values go to annexes (buffer_assignment.py), since a page cannot exchange
kernels that use annexes. Targets encode their steps themselves: this file knows no code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import NamedTuple, TypedDict

from tilewright.base.abi import align
from tilewright.base.dtypes import DType
from tilewright.base.errors import MemoryLimit
from tilewright.base.sections import Section
from tilewright.plan import Access, Plan, Program, State, Step, Tensor, Value
from tilewright.plan.arena import arena_of, consecutive, with_joined_lifetimes
from tilewright.targets.gpu.memory.buffer_assignment import (
    BufferAssignment,
    assign_banks,
    assign_states,
    assign_values,
)
from tilewright.targets.protocol import setting


@dataclass(frozen=True)
class MemoryTraits:
    """What is special about the memory of a target.  It is counted in units, words or bytes; all
    parts of a buffer begin at multiples of 64 units (base/abi.py).

    unit_bytes: bytes of a unit
    reserved_units: units at the start; the first ones report an index out of range
    units_of: units of an element of a type
    packed_weights: weights of a program, other than f16, that have several elements where one of
        the type would be, with the number of elements
    bank_bytes: default bytes of a buffer if a model needs several; None: one is always large enough
    """

    unit_bytes: int
    reserved_units: int
    units_of: Callable[[DType], int]
    packed_weights: Callable[[Program], dict[int, int]] = lambda program: {}
    bank_bytes: int | None = None

    def state_sizes(self, program: Program) -> list[int]:
        """Units of each state."""
        halves, sizes = f16_states(program), map(self.size_of, program.states)
        return [size // 2 if n in halves else size for n, size in enumerate(sizes)]

    def size_of(self, tensor: Tensor | State | Value) -> int:
        """Units of a tensor, state or value; a weight must not be in `density`, a state not in
        `f16_states`."""
        units = tensor.size * self.units_of(tensor.dtype)
        return units // 2 if isinstance(tensor, Value) and tensor.as_f16 else units

    def density(self, program: Program) -> dict[int, int]:
        """Weights that are stored as f16 or packed, with the number of elements that take the
        units of one."""
        return dict.fromkeys(f16_weights(program), 2) | self.packed_weights(program)


def f16_weights(program: Program) -> frozenset[int]:
    """Weights that are stored as f16, two in a word: those all of whose readers allow it
    (fusion/f16_operands.py)."""
    return frozenset(
        plan.values[access.value].tensor
        for plan in program.plans
        for step in plan.steps
        for access, buffer in zip(step.accesses, program.kernels[step.kernel].buffers, strict=True)
        if buffer.as_f16 and plan.values[access.value].kind == "weight"
    )


def f16_states(program: Program) -> frozenset[int]:
    """States that are stored as f16."""
    values = (v for plan in program.plans for v in plan.values)
    return frozenset(v.tensor for v in values if v.kind == "state" and v.as_f16)


class Location(NamedTuple):
    """The first unit of a value or buffer, and its bank or annex; 0 for both: it is in the model's
    own buffer."""

    begin: int
    bank: int = 0
    annex: int = 0


@dataclass(frozen=True)
class Arena:
    """The memory of a plan's values.

    joined: ranges of steps that one launch may compute
    own_units: units in the model's own buffer
    """

    plan: Plan
    joined: Sequence[range]
    values: BufferAssignment
    own_units: int


#: For each plan of a program, the ranges of steps that one launch may compute.
JoinedRanges = Sequence[Sequence[range]]


class BankFacts(TypedDict):
    """Facts of a section: bytes of each bank, the bank of each tensor."""

    bytes: list[int]
    of: list[int]


class AnnexFacts(BankFacts):
    """The same for annexes and states; and the most bytes of an annex."""

    most: int


@dataclass(frozen=True)
class MemoryLayout:
    """density: the result of `MemoryTraits.density`;  banks: the memory of weights
    values_at: first unit of values in the model's own buffer
    annex_units: the most units of an annex; 0: there are none
    """

    traits: MemoryTraits
    density: Mapping[int, int]
    banks: BufferAssignment
    states: BufferAssignment
    values_at: int
    arenas: tuple[Arena, ...]
    annex_units: int = 0

    @property
    def own_units(self) -> int:
        """Units of the model's own buffer."""
        return self.values_at + max((arena.own_units for arena in self.arenas), default=0)

    @property
    def annexes(self) -> tuple[int, ...]:
        """Units of each annex: first those of states, then those of values, which plans share."""
        values = zip_longest(*(arena.values.sizes for arena in self.arenas), fillvalue=0)
        return (*self.states.sizes, *map(max, values))

    @property
    def bytes(self) -> int:
        """Bytes of all buffers."""
        return (self.own_units + sum(self.banks.sizes) + sum(self.annexes)) * self.traits.unit_bytes

    def places(self, arena: Arena) -> list[Location]:
        """The places of a plan's values."""
        values = zip(arena.plan.values, arena.values.offsets, arena.values.buffers, strict=True)
        return [self._place(v, begin, annex) for v, begin, annex in values]

    def buffers(self, arena: Arena, places: Sequence[Location]) -> list[list[Location]]:
        """The places of each step's buffers.  places: those of the plan's values"""
        values = arena.plan.values

        def part(access: Access) -> Location:
            begin, bank, annex = places[access.value]
            return Location(begin + self._units(values[access.value], access.offset), bank, annex)

        return [[part(access) for access in step.accesses] for step in arena.plan.steps]

    def ends(self, arena: Arena, places: Sequence[Location]) -> dict[str, object]:
        """The facts of a section about a plan: the first byte of each input and output."""
        plan, unit = arena.plan, self.traits.unit_bytes
        return {
            "inputs": [places[i].begin * unit for i in plan.inputs],
            "outputs": [places[i].begin * unit for i in plan.outputs],
        }

    def to_facts(self) -> dict[str, object]:
        """The facts of a section about tensors and states."""
        unit = self.traits.unit_bytes
        found: dict[str, object] = {
            "tensors": [begin * unit for begin in self.banks.offsets],
            "states": [begin * unit for begin in self.states.offsets],
        }
        if self.banks.sizes:
            found["banks"] = BankFacts(
                bytes=[n * unit for n in self.banks.sizes], of=[*self.banks.buffers]
            )
        if self.annex_units:
            sizes = [n * unit for n in self.annexes]
            found["annexes"] = AnnexFacts(
                bytes=sizes, of=[*self.states.buffers], most=self.annex_units * unit
            )
        return found

    def _place(self, value: Value, begin: int, annex: int) -> Location:
        """begin, annex: in the arena; ignored for weights and states"""
        if value.kind == "weight":
            return Location(self.banks.offsets[value.tensor], bank=self.banks.buffers[value.tensor])
        if value.kind == "state":
            return Location(
                self.states.offsets[value.tensor], annex=self.states.buffers[value.tensor]
            )
        return Location(begin + (0 if annex else self.values_at), annex=annex)

    def _units(self, value: Value, elements: int) -> int:
        """Units of a number of elements of a value."""
        density = self.density.get(value.tensor, 1) if value.kind == "weight" else 1 + value.as_f16
        return elements * self.traits.units_of(value.dtype) // density


def new_layout(
    program: Program, traits: MemoryTraits, joined: JoinedRanges, settings: Mapping[str, object]
) -> MemoryLayout:
    """Makes a layout.  settings: "bank", the most bytes of a buffer if a model needs several

    Raises MemoryLimit if the model does not fit.
    """
    density, arenas = traits.density(program), _arenas_in_one_buffer(program, traits, joined)
    sizes = [-(-traits.size_of(t) // density.get(n, 1)) for n, t in enumerate(program.tensors)]
    states = traits.state_sizes(program)

    def in_one(banks: BufferAssignment, end: int) -> MemoryLayout:
        """The layout with states and values in the model's own buffer, after its weights."""
        begins, at = consecutive(states, end)
        return MemoryLayout(traits, density, banks, BufferAssignment.in_one(begins), at, arenas)

    begins, end = consecutive(sizes, traits.reserved_units)
    found = in_one(BufferAssignment.in_one(begins), end)
    if traits.bank_bytes is None:
        return found
    most = setting(settings, "bank", traits.bank_bytes) // traits.unit_bytes
    if found.own_units > most:
        shapes = [t.shape for t in program.tensors]
        banks, end = assign_banks(
            *_tensors_read(arenas), sizes, shapes, traits.reserved_units, most, traits.unit_bytes
        )
        found = in_one(banks, end)
    if found.own_units > most:
        found = _with_annexes(
            program, replace(found, states=assign_states(states, end, most)), most
        )
        if "bank" in settings:
            _require_fits(program, found)
    return found


def layout_in_section(
    program: Program, traits: MemoryTraits, joined: JoinedRanges, section: Section
) -> MemoryLayout:
    """The layout that an existing section has, read from its facts, so that relinking keeps the
    addresses of weights."""
    facts, unit = section.facts, traits.unit_bytes
    tensors, states = (tuple(at // unit for at in facts[n]) for n in ("tensors", "states"))
    banked: BankFacts = facts.get("banks", BankFacts(bytes=[], of=[0] * len(tensors)))
    annexed: AnnexFacts = facts.get("annexes", AnnexFacts(bytes=[], of=[0] * len(states), most=0))
    sizes = [tuple(size // unit for size in known["bytes"]) for known in (banked, annexed)]
    own = max(annexed["of"], default=0)
    found = MemoryLayout(
        traits,
        traits.density(program),
        BufferAssignment(tuple(banked["of"]), tensors, sizes[0]),
        BufferAssignment(tuple(annexed["of"]), states, sizes[1][:own]),
        0,
        _arenas_in_one_buffer(program, traits, joined),
    )
    if annexed["most"]:
        return _with_annexes(program, found, annexed["most"] // unit)
    return replace(found, values_at=_end_of_states(program, found))


def _arenas_in_one_buffer(
    program: Program, traits: MemoryTraits, joined: JoinedRanges
) -> tuple[Arena, ...]:
    """The arenas of plans, each in one buffer."""
    found = []
    for plan, runs in zip(program.plans, joined, strict=True):
        offsets, size = arena_of(with_joined_lifetimes(plan, runs), traits.size_of)
        found.append(Arena(plan, runs, BufferAssignment.in_one(offsets), size))
    return tuple(found)


def _with_annexes(program: Program, found: MemoryLayout, most: int) -> MemoryLayout:
    """The layout with values in annexes if the rest of the model's own buffer is too small."""
    at, arenas = _end_of_states(program, found), []
    for arena in found.arenas:
        plan, size_of = with_joined_lifetimes(arena.plan, arena.joined), found.traits.size_of
        values, own = assign_values(plan, size_of, most - at, most, len(found.states.sizes))
        arenas.append(replace(arena, values=values, own_units=own))
    return replace(found, values_at=at, arenas=tuple(arenas), annex_units=most)


def _end_of_states(program: Program, found: MemoryLayout) -> int:
    """The first unit after weights and states in the model's own buffer."""
    ends = [found.traits.reserved_units]
    for value in (v for plan in program.plans for v in plan.values if v.kind == "weight"):
        if not found.banks.buffers[value.tensor]:
            size = -(-found.traits.size_of(value) // found.density.get(value.tensor, 1))
            ends.append(align(found.banks.offsets[value.tensor] + size))
    sizes = found.traits.state_sizes(program)
    states = zip(sizes, found.states.offsets, found.states.buffers, strict=True)
    ends += [align(at + size) for size, at, annex in states if not annex]
    return max(ends)


#: The tensors that each of several steps, or ranges of steps, reads.
Reads = list[list[int]]


def _tensors_read(arenas: Sequence[Arena]) -> tuple[Reads, Reads]:
    """The tensors that each step reads, and those that each range of steps reads."""

    def weights(plan: Plan, steps: Sequence[Step]) -> list[int]:
        values = (plan.values[a.value] for step in steps for a in step.reads)
        return [v.tensor for v in values if v.kind == "weight"]

    each = [weights(arena.plan, (step,)) for arena in arenas for step in arena.plan.steps]
    together = [
        weights(arena.plan, arena.plan.steps[run.start : run.stop])
        for arena in arenas
        for run in arena.joined
    ]
    return each, together


def _require_fits(program: Program, found: MemoryLayout) -> None:
    """Raises MemoryLimit if a buffer has more units than `found.annex_units`."""
    traits, most = found.traits, found.annex_units
    values = (v for plan in program.plans for v in plan.values if v.kind != "weight")
    every: list[State | Value] = [*values, *program.states]
    largest = max(every, key=traits.size_of, default=None)
    what, need = "what inputs, outputs and small tensors share", found.own_units
    if largest and traits.size_of(largest) > most:
        what = f"{largest.name or 'an intermediate result'} of shape {list(largest.shape)}"
        need = traits.size_of(largest)
    if max((found.own_units, *found.annexes)) > most:
        raise MemoryLimit(
            f"{what} needs more than one GPU buffer",
            hint="Raise --bank, build smaller buckets, or split the largest tensors of the model",
            bytes=need * traits.unit_bytes,
            limit=most * traits.unit_bytes,
        )
