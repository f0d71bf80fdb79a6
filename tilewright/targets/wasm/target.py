"""The WebAssembly target's implementation of `targets/protocol.py`.

Input: kernels, schedules, programs.  Output: code, and a section of a bundle: for each variant a
module and plan images, the driver, and the memory map as facts (docs/bundle-wasm.md).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial

from tilewright.base.errors import BundleVersion, of_kind
from tilewright.base.sections import Build, File, Section
from tilewright.kernel.loops import at_fixed_shape
from tilewright.kernel.spec import Kernel
from tilewright.plan import Program
from tilewright.targets.device_class import DeviceClass
from tilewright.targets.protocol import Candidate, Code, Facts, setting, slots_of
from tilewright.targets.schedule import Schedule
from tilewright.targets.simd.machine import Machine
from tilewright.targets.simd.strategies import (
    SCRATCH,
    default_schedule,
    lower,
    objection,
    schedule_from_json,
    slow_schedule,
    strategy_of,
)
from tilewright.targets.step_sharing import USUAL, Costs, Work, tiles_per_ticket
from tilewright.targets.strategy import Search
from tilewright.targets.wasm.choices import choices
from tilewright.targets.wasm.device_classes import CLASSES
from tilewright.targets.wasm.driver import driver
from tilewright.targets.wasm.emit import CompiledKernel, compile_tiles, emit_text
from tilewright.targets.wasm.link import link
from tilewright.targets.wasm.memory_map import MemoryMap, memory_map, plan_image, with_scratch
from tilewright.targets.wasm.passes import ALL
from tilewright.targets.wasm.variant import VARIANTS, WasmVariant


@dataclass(frozen=True)
class Wasm:
    """The WebAssembly target.  Its one instance is in targets/__init__.py."""

    name: str = "wasm"
    stages: tuple[str, ...] = ("wasm",)

    @cached_property
    def facts(self) -> Facts:
        return Facts(
            address_bits=32,
            grows=True,
            dtypes=frozenset({"f32", "f64", "i8", "u8", "i16", "i32", "i64", "bool"}),
            features=frozenset().union(*(v.features for v in VARIANTS.values())),
        )

    @property
    def variants(self) -> Mapping[str, WasmVariant]:
        return VARIANTS

    @property
    def classes(self) -> tuple[DeviceClass, ...]:
        return CLASSES

    def default(self, kernel: Kernel, variant: str) -> Schedule:
        return default_schedule(kernel, VARIANTS[variant].machine)

    def schedule(self, data: Mapping[str, object]) -> Schedule:
        return schedule_from_json(data)

    def objection(self, kernel: Kernel, schedule: Schedule) -> str:
        return objection(kernel, schedule)

    def candidates(
        self, kernel: Kernel, device: DeviceClass, relaxation: float
    ) -> Sequence[Candidate]:
        default = self.default(kernel, device.variant)
        search = Search(device.core, relaxation, partial(choices, kernel))
        machine = of_kind(device.machine, Machine, "no machine of this target", device=device.id)
        return list(strategy_of(kernel).candidates(kernel, default, machine, search))

    def slow(self, kernel: Kernel, default: Schedule) -> Schedule | None:
        return slow_schedule(kernel, default)

    def codes(
        self,
        kernel: Kernel,
        schedules: Mapping[str, Schedule],
        *,
        alone: bool = False,
        without: frozenset[str] = frozenset(),
    ) -> dict[str, Code]:
        """A kernel's code by variant; variants with equal schedules share loops."""
        made: dict[str, Code] = {}
        for schedule in dict.fromkeys(schedules.values()):
            loops = lower(kernel, schedule)
            if alone:
                loops = at_fixed_shape(loops)
            # All kernels get the same name here, so that equal kernels give equal code.
            nameless = replace(loops, name="kernel")
            variants = [v for v in schedules if schedules[v] == schedule]
            compiled = compile_tiles(nameless, [VARIANTS[v] for v in variants], ALL - without)
            for variant, code in zip(variants, compiled, strict=True):
                made[variant] = Code(kernel, schedule, loops, code.scratch, code.needs, code)
        return {variant: made[variant] for variant in schedules}

    def module(self, code: Code, variant: str) -> File:
        return File(link([_body(code)], VARIANTS[variant], 1), "wasm")

    def tiles(self, code: Code) -> int:
        return code.loops.tiles

    def grain(self, kernel: Kernel, tiles: int) -> int:
        work = Work(kernel.flops, kernel.bytes, tiles, (), ())
        return tiles_per_ticket(work) or max(1, tiles)

    def encode(
        self,
        program: Program,
        codes: Mapping[str, Sequence[Code]],
        settings: Mapping[str, object],
    ) -> Section:
        """Settings: "costs" (targets/step_sharing.py), and "scratch", the least bytes of a worker's
        area."""
        memory = memory_map(program, codes, setting(settings, "scratch", SCRATCH))
        slots = slots_of(codes)
        costs = setting(settings, "costs", USUAL)
        builds = tuple(
            _build(variant, program, memory, listed, slots, costs)
            for variant, listed in codes.items()
        )
        count = 1 + max(slots, default=-1)
        return Section(
            builds=builds,
            slots=count,
            memory=memory.bytes + program.blocks * program.block_places[1],
            programs={
                "driver": File(driver(count, extents=_resizes(program)), "wasm"),
                "map": _map_file(memory),
            },
            plans=tuple(
                {
                    "address": image,
                    "arena_bytes": arena,
                    "inputs": [values[i] for i in plan.inputs],
                    "outputs": [values[i] for i in plan.outputs],
                }
                for plan, image, arena, values in zip(
                    program.plans, memory.images, memory.arenas, memory.values, strict=True
                )
            ),
            kernels=slots,
            facts=_facts(memory) | _of_states(program),
        )

    def exchange(
        self,
        program: Program,
        old: Section,
        variant: str,
        codes: Sequence[Code],
        changed: frozenset[int],
        settings: Mapping[str, object],
    ) -> Section:
        memory = _map_of(old)
        slots = _moved(old.kernels, codes, changed)
        most = max((code.scratch for code in codes), default=0)
        memory = with_scratch(memory, max(memory.scratch_bytes, most))
        costs = setting(settings, "costs", USUAL)
        build = _build(variant, program, memory, codes, slots, costs)
        fixed = () if program.growth else memory.states
        ends = [*memory.images[1:], (*fixed, memory.arena)[0]]
        for at, end, file in zip(memory.images, ends, build.plans, strict=True):
            if at + len(file.data) > end:
                raise BundleVersion(
                    "The bundle has no room for the plan as this version writes it",
                    hint="Build the bundle again",
                    bytes=len(file.data),
                    room=end - at,
                )
        return replace(
            old,
            slots=max(old.slots, 1 + max(slots, default=0)),
            memory=memory.bytes + old.memory - _map_of(old).bytes,
            builds=tuple(build if b.variant == variant else b for b in old.builds),
            programs={**old.programs, "map": _map_file(memory)},
            facts=_facts(memory) | {k: old.facts[k] for k in OF_STATES if k in old.facts},
        )

    def text(self, code: Code, variant: str, stage: str) -> str:
        return emit_text(code.loops, VARIANTS[variant])


def _moved(old: Sequence[int], codes: Sequence[Code], changed: frozenset[int]) -> tuple[int, ...]:
    """Slots of a variant after some of its kernels changed; unchanged kernels keep their slots.

    slot 0: kernels 0, 1, 2; 1 changed   ->   slot 0: kernels 0, 2; a slot at the end: kernel 1
    """
    total = 1 + max(old, default=-1)
    taken: dict[int, object] = {}
    slots: dict[int, int] = {}
    for number in sorted(range(len(codes)), key=lambda n: (n in changed, n)):
        body, slot = codes[number].body, old[number]
        if taken.setdefault(slot, body) != body:
            slot = next((at for at, known in taken.items() if known == body), total)
            total = max(total, slot + 1)
            taken[slot] = body
        slots[number] = slot
    return tuple(slots[n] for n in range(len(codes)))


def _build(
    variant: str,
    program: Program,
    memory: MemoryMap,
    codes: Sequence[Code],
    slots: Sequence[int],
    costs: Costs,
) -> Build:
    found = VARIANTS[variant]
    by_slot = {slot: _body(code) for slot, code in zip(slots, codes, strict=True)}
    module = link([by_slot[n] for n in sorted(by_slot)], found, 1)
    needs = frozenset[str]().union(*(code.needs for code in codes))
    images = (
        plan_image(program, n, memory, codes, slots, costs) for n in range(len(program.plans))
    )
    return Build(
        variant=variant,
        features=found.asked(needs),
        code=File(module, "wasm"),
        plans=tuple(File(data, "bin") for data in images),
        facts={"registers": found.registers} | ({"engine": found.engine} if found.engine else {}),
    )


def _body(code: Code) -> CompiledKernel:
    return of_kind(code.body, CompiledKernel, "it is not code of this target")


def _facts(memory: MemoryMap) -> dict[str, object]:
    names = ("bytes", "weights", "arena", "arena_bytes", "scratch", "scratch_bytes")
    return {
        "memory": {"control": 0, **{name: getattr(memory, name) for name in names}},
        "states": list(memory.states),
    }


def _resizes(program: Program) -> bool:
    """Whether numbers of plan images depend on extents, or on where states begin that grow."""
    return bool(program.extents) or program.growth is not None


#: Names of a section's facts about states.
OF_STATES = ("compact", "block")


def _of_states(program: Program) -> dict[str, object]:
    """Whether the states of f32 are f16 in memory, if they are; bytes of a block if they grow."""
    found: dict[str, object] = {"compact": True} if any(s.compact for s in program.states) else {}
    return found | ({"block": program.block_places[1]} if program.growth else {})


def _map_file(memory: MemoryMap) -> File:
    """The whole memory map, which exchanging code needs; engines do not read it."""
    return File(json.dumps(asdict(memory), separators=(",", ":")).encode(), "json")


def _map_of(section: Section) -> MemoryMap:
    found = json.loads(section.programs["map"].data)
    images, arenas, states = (tuple(found.pop(name)) for name in ("images", "arenas", "states"))
    values = tuple(map(tuple, found.pop("values")))
    return MemoryMap(**found, images=images, arenas=arenas, states=states, values=values)
