"""The memory layout of a model on a GPU: its own buffer, banks and annexes.

Input: a program, what is special about a target's memory, settings, or an old section. Output: the
place of each step's buffers, and facts for a section. Most models need one buffer. Weights go to
banks before states and values go to annexes (further_buffers.py), since a page cannot exchange
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
from tilewright.plan.arena import arena_of, consecutive, lasting
from tilewright.targets.gpu.memory.further_buffers import (
    Regions,
    banks_of,
    states_apart,
    values_apart,
)
from tilewright.targets.protocol import setting


@dataclass(frozen=True)
class MemoryKind:
    """What is special about the memory of a target.  It is counted in units, words or bytes; all
    parts of a buffer begin at multiples of 64 units (base/abi.py).

    unit_bytes: of a unit
    head:   units reserved at the start; the first ones report an index out of range
    each:   units of an element of a type
    packed: weights of a program, other than f16, of which several elements are stored where one
            element of the type would be, with their number
    bank:   default bytes of a buffer if a model needs several; None: one is always large enough
    """

    unit_bytes: int
    head: int
    each: Callable[[DType], int]
    packed: Callable[[Program], dict[int, int]] = lambda program: {}
    bank: int | None = None

    def size_of(self, tensor: Tensor | State | Value) -> int:
        """Units of a tensor, state or value; a weight must not be in `dense`."""
        units = tensor.size * self.each(tensor.dtype)
        return units // 2 if isinstance(tensor, Value) and tensor.halves else units

    def dense(self, program: Program) -> dict[int, int]:
        """Weights that are stored as f16 or packed, with the number of elements that take the
        units of one."""
        return dict.fromkeys(halves_of(program), 2) | self.packed(program)


def halves_of(program: Program) -> frozenset[int]:
    """Weights that are stored as f16, two in a word: those all of whose readers allow it
    (fusion/f16_weights.py)."""
    return frozenset(
        plan.values[access.value].tensor
        for plan in program.plans
        for step in plan.steps
        for access, buffer in zip(step.accesses, program.kernels[step.kernel].buffers, strict=True)
        if buffer.halves and plan.values[access.value].kind == "weight"
    )


class Location(NamedTuple):
    """The first unit of a value or buffer, and its bank or annex; 0 for both: it is in the model's
    own buffer."""

    begin: int
    bank: int = 0
    annex: int = 0


@dataclass(frozen=True)
class Arena:
    """The memory of a plan's values.

    together: ranges of steps that one launch may compute
    own:      units in the model's own buffer
    """

    plan: Plan
    together: Sequence[range]
    values: Regions
    own: int


#: For each plan of a program, the ranges of steps that one launch may compute.
Together = Sequence[Sequence[range]]


class Banked(TypedDict):
    """Facts of a section: bytes of each bank, the bank of each tensor."""

    bytes: list[int]
    of: list[int]


class Annexed(Banked):
    """The same for annexes and states; and the most bytes of an annex."""

    most: int


@dataclass(frozen=True)
class MemoryLayout:
    """dense: the result of `MemoryKind.dense`;  banks: the memory of weights
    at:    first unit of values in the model's own buffer
    most:  the most units of an annex; 0: there are none
    """

    kind: MemoryKind
    dense: Mapping[int, int]
    banks: Regions
    states: Regions
    at: int
    arenas: tuple[Arena, ...]
    most: int = 0

    @property
    def own(self) -> int:
        """Units of the model's own buffer."""
        return self.at + max((arena.own for arena in self.arenas), default=0)

    @property
    def annexes(self) -> tuple[int, ...]:
        """Units of each annex: first those of states, then those of values, which plans share."""
        values = zip_longest(*(arena.values.sizes for arena in self.arenas), fillvalue=0)
        return (*self.states.sizes, *map(max, values))

    @property
    def bytes(self) -> int:
        """Bytes of all buffers."""
        return (self.own + sum(self.banks.sizes) + sum(self.annexes)) * self.kind.unit_bytes

    def places(self, arena: Arena) -> list[Location]:
        """The places of a plan's values."""
        values = zip(arena.plan.values, arena.values.begins, arena.values.of, strict=True)
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
        plan, unit = arena.plan, self.kind.unit_bytes
        return {
            "inputs": [places[i].begin * unit for i in plan.inputs],
            "outputs": [places[i].begin * unit for i in plan.outputs],
        }

    def to_facts(self) -> dict[str, object]:
        """The facts of a section about tensors and states."""
        unit = self.kind.unit_bytes
        found: dict[str, object] = {
            "tensors": [begin * unit for begin in self.banks.begins],
            "states": [begin * unit for begin in self.states.begins],
        }
        if self.banks.sizes:
            found["banks"] = Banked(bytes=[n * unit for n in self.banks.sizes], of=[*self.banks.of])
        if self.most:
            sizes = [n * unit for n in self.annexes]
            found["annexes"] = Annexed(bytes=sizes, of=[*self.states.of], most=self.most * unit)
        return found

    def _place(self, value: Value, begin: int, annex: int) -> Location:
        """begin, annex: in the arena; ignored for weights and states"""
        if value.kind == "weight":
            return Location(self.banks.begins[value.tensor], bank=self.banks.of[value.tensor])
        if value.kind == "state":
            return Location(self.states.begins[value.tensor], annex=self.states.of[value.tensor])
        return Location(begin + (0 if annex else self.at), annex=annex)

    def _units(self, value: Value, elements: int) -> int:
        """Units of a number of elements of a value."""
        dense = self.dense.get(value.tensor, 1) if value.kind == "weight" else 1 + value.halves
        return elements * self.kind.each(value.dtype) // dense


def lay_out(
    program: Program, kind: MemoryKind, together: Together, settings: Mapping[str, object]
) -> MemoryLayout:
    """Makes a layout.  settings: "bank", the most bytes of a buffer if a model needs several

    Raises MemoryLimit if the model does not fit.
    """
    dense, arenas = kind.dense(program), _arenas(program, kind, together)
    sizes = [-(-kind.size_of(t) // dense.get(n, 1)) for n, t in enumerate(program.tensors)]
    states = [kind.size_of(s) for s in program.states]

    def in_one(banks: Regions, end: int) -> MemoryLayout:
        """The layout with states and values in the model's own buffer, after its weights."""
        begins, at = consecutive(states, end)
        return MemoryLayout(kind, dense, banks, Regions.in_one(begins), at, arenas)

    begins, end = consecutive(sizes, kind.head)
    found = in_one(Regions.in_one(begins), end)
    if kind.bank is None:
        return found
    most = setting(settings, "bank", kind.bank) // kind.unit_bytes
    if found.own > most:
        shapes = [t.shape for t in program.tensors]
        banks, end = banks_of(
            *_tensors_read(arenas), sizes, shapes, kind.head, most, kind.unit_bytes
        )
        found = in_one(banks, end)
    if found.own > most:
        found = _apart(program, replace(found, states=states_apart(states, end, most)), most)
        if "bank" in settings:
            _require_fits(program, found)
    return found


def layout_of(
    program: Program, kind: MemoryKind, together: Together, section: Section
) -> MemoryLayout:
    """The layout that an existing section has, read from its facts, so that relinking keeps the
    addresses of weights."""
    facts, unit = section.facts, kind.unit_bytes
    tensors, states = (tuple(at // unit for at in facts[n]) for n in ("tensors", "states"))
    banked: Banked = facts.get("banks", Banked(bytes=[], of=[0] * len(tensors)))
    annexed: Annexed = facts.get("annexes", Annexed(bytes=[], of=[0] * len(states), most=0))
    sizes = [tuple(size // unit for size in known["bytes"]) for known in (banked, annexed)]
    own = max(annexed["of"], default=0)
    found = MemoryLayout(
        kind,
        kind.dense(program),
        Regions(tuple(banked["of"]), tensors, sizes[0]),
        Regions(tuple(annexed["of"]), states, sizes[1][:own]),
        0,
        _arenas(program, kind, together),
    )
    if annexed["most"]:
        return _apart(program, found, annexed["most"] // unit)
    return replace(found, at=_end(program, found))


def _arenas(program: Program, kind: MemoryKind, together: Together) -> tuple[Arena, ...]:
    """The arenas of plans, each in one buffer."""
    found = []
    for plan, runs in zip(program.plans, together, strict=True):
        offsets, size = arena_of(lasting(plan, runs), kind.size_of)
        found.append(Arena(plan, runs, Regions.in_one(offsets), size))
    return tuple(found)


def _apart(program: Program, found: MemoryLayout, most: int) -> MemoryLayout:
    """The layout with values in annexes if the rest of the model's own buffer is too small."""
    at, arenas = _end(program, found), []
    for arena in found.arenas:
        plan, size_of = lasting(arena.plan, arena.together), found.kind.size_of
        values, own = values_apart(plan, size_of, most - at, most, len(found.states.sizes))
        arenas.append(replace(arena, values=values, own=own))
    return replace(found, at=at, arenas=tuple(arenas), most=most)


def _end(program: Program, found: MemoryLayout) -> int:
    """The first unit after weights and states in the model's own buffer."""
    ends = [found.kind.head]
    for value in (v for plan in program.plans for v in plan.values if v.kind == "weight"):
        if not found.banks.of[value.tensor]:
            size = -(-found.kind.size_of(value) // found.dense.get(value.tensor, 1))
            ends.append(align(found.banks.begins[value.tensor] + size))
    states = zip(program.states, found.states.begins, found.states.of, strict=True)
    ends += [align(at + found.kind.size_of(s)) for s, at, annex in states if not annex]
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
        for run in arena.together
    ]
    return each, together


def _require_fits(program: Program, found: MemoryLayout) -> None:
    """Raises MemoryLimit if a buffer has more units than `found.most`."""
    kind, most = found.kind, found.most
    values = (v for plan in program.plans for v in plan.values if v.kind != "weight")
    every: list[State | Value] = [*values, *program.states]
    largest = max(every, key=kind.size_of, default=None)
    what, need = "what inputs, outputs and small tensors share", found.own
    if largest and kind.size_of(largest) > most:
        what = f"{largest.name or 'an intermediate result'} of shape {list(largest.shape)}"
        need = kind.size_of(largest)
    if max((found.own, *found.annexes)) > most:
        raise MemoryLimit(
            f"{what} needs more than one GPU buffer",
            hint="Raise --bank, build smaller buckets, or split the largest tensors of the model",
            bytes=need * kind.unit_bytes,
            limit=most * kind.unit_bytes,
        )
