"""The WGSL target's implementation of `targets/protocol.py`.

Input: kernels and programs.  Output: a section with one JSON file of shader modules, and for each
plan a list of dispatches with the first word of each of their buffers (docs/bundle-wgsl.md).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from tilewright.base.abi import WORD_BYTES
from tilewright.base.dtypes import DType
from tilewright.base.errors import UnsupportedDType
from tilewright.base.sections import Build, File, Section
from tilewright.kernel.expr import dtype_of
from tilewright.kernel.loops import TileFn
from tilewright.kernel.spec import Kernel
from tilewright.kernel.tree import walk
from tilewright.plan import Program
from tilewright.targets.gpu.gpu_target import GROUP_THREADS, WorkgroupTarget
from tilewright.targets.gpu.memory.memory_layout import (
    MemoryLayout,
    MemoryTraits,
    layout_in_section,
    new_layout,
)
from tilewright.targets.gpu.step_joining.joined_steps import JoinedSteps, find_joined_steps
from tilewright.targets.gpu.vector_buffers import needs_whole_vectors
from tilewright.targets.gpu.workgroup_limits import FEATURES
from tilewright.targets.protocol import Code, Facts, setting, slots_of
from tilewright.targets.scalar_lowering import PlainVariant
from tilewright.targets.wgsl.device_classes import CLASSES, VARIANT
from tilewright.targets.wgsl.emit import WORDS, module
from tilewright.targets.wgsl.packed_bytes import byte_tensors
from tilewright.targets.wgsl.steps import Steps

#: WGSL counts words: bindings begin at multiples of 256 bytes, 64 words.  Desktop adapters bind at
#: least 2^30 bytes.
MEMORY = MemoryTraits(
    unit_bytes=WORD_BYTES,
    reserved_units=64,
    units_of=lambda dtype: WORDS[dtype.name],
    packed_weights=lambda program: dict.fromkeys(byte_tensors(program), WORD_BYTES),
    bank_bytes=2**30,
)


class Wgsl(WorkgroupTarget):
    """The WGSL target.  Its one instance is in targets/__init__.py."""

    name = "wgsl"
    variant = PlainVariant(VARIANT)
    classes = CLASSES
    facts = Facts(
        address_bits=32,
        dtypes=frozenset(WORDS),
        features=FEATURES,
        group=GROUP_THREADS,
        f16_memory=True,
        banks=True,
        subnormals=False,
    )

    def emit(self, kernel: Kernel, fn: TileFn, needs: frozenset[str] = frozenset()) -> str:
        _require_types(kernel)
        return module(fn, needs)

    def encode(
        self,
        program: Program,
        codes: Mapping[str, Sequence[Code]],
        settings: Mapping[str, object],
    ) -> Section:
        for value in (v for plan in program.plans for v in plan.values):
            _require(value.dtype, f"the {value.kind} {value.name}".rstrip())
        joined = _joined_by_plan(program, settings)
        layout = new_layout(program, MEMORY, _step_ranges(joined), settings)
        return self._section(codes, layout, joined)

    def exchange(
        self,
        program: Program,
        old: Section,
        variant: str,
        codes: Sequence[Code],
        changed: frozenset[int],
        settings: Mapping[str, object],
    ) -> Section:
        joined = _joined_by_plan(program, settings)
        layout = layout_in_section(program, MEMORY, _step_ranges(joined), old)
        return self._section({variant: codes}, layout, joined)

    def _section(
        self,
        codes: Mapping[str, Sequence[Code]],
        layout: MemoryLayout,
        joined_by_plan: Sequence[Sequence[JoinedSteps]],
    ) -> Section:
        ((variant, listed),) = codes.items()
        texts = list(dict.fromkeys(str(code.body) for code in listed))

        def usable_codes(number: int, whole: bool) -> tuple[Code, ...]:
            fits = (lambda _: True) if whole else (lambda loops: not needs_whole_vectors(loops))
            return self.usable_codes(listed[number], fits, frozenset())

        steps = Steps(texts, usable_codes)
        plans, files = [], []
        for arena, own in zip(layout.arenas, joined_by_plan, strict=True):
            places = layout.places(arena)
            calls = steps.of(arena.plan, own, layout.buffers(arena, places))
            joined = (call.get("joined") for call in calls)
            saved = sum(found["steps"] - 1 for found in joined if isinstance(found, dict))
            plans.append(layout.ends(arena, places) | {"dispatches": len(calls) - saved})
            files.append(File(json.dumps(calls, separators=(",", ":")).encode(), "json"))
        code = json.dumps(list(steps.slots)).encode()
        return Section(
            builds=(Build(variant, (), File(code, "json"), tuple(files), _facts(steps.needs)),),
            slots=len(steps.slots),
            memory=layout.bytes,
            programs={},
            plans=tuple(plans),
            kernels=slots_of(codes),
            facts={
                "memory": {"bytes": layout.own_units * WORD_BYTES},
                **layout.to_facts(),
                **_density_facts(layout.density),
            },
        )


def _joined_by_plan(
    program: Program, settings: Mapping[str, object]
) -> list[tuple[JoinedSteps, ...]]:
    """The joined steps of each plan.  settings: "joined", false to run each step by itself"""
    if not setting(settings, "joined", True):
        return [()] * len(program.plans)
    return [find_joined_steps(plan, program.kernels) for plan in program.plans]


def _step_ranges(found: Sequence[Sequence[JoinedSteps]]) -> list[list[range]]:
    return [[join.steps for join in own] for own in found]


def _facts(needs: Mapping[int, list[str]]) -> dict[str, object]:
    """The facts of a build about slots: the features that each slot needs, if any."""
    return {"needs": {str(slot): names for slot, names in sorted(needs.items())}} if needs else {}


def _density_facts(density: Mapping[int, int]) -> dict[str, list[int]]:
    """The facts of a section about tensors with several elements in a word."""
    named = {"halves": 2, "packed": WORD_BYTES}
    found = {name: sorted(n for n in density if density[n] == each) for name, each in named.items()}
    return {name: tensors for name, tensors in found.items() if tensors}


def _require_types(kernel: Kernel) -> None:
    """Raises `UnsupportedDType` for a kernel that computes a type for which WGSL has no words."""
    values = (kernel.value, *(stage.value for stage in kernel.stages))
    found = {b.dtype for b in kernel.buffers} | {dtype_of(e) for v in values for e in walk(v)}
    for dtype in sorted(found, key=lambda d: d.name):
        _require(dtype, f"kernel {kernel.name}")


def _require(dtype: DType, who: str) -> None:
    if dtype.name not in WORDS:
        raise UnsupportedDType(
            f"{who} has elements of {dtype}, which WGSL does not have",
            hint="Convert the model to f32, or build it with --target wasm",
            dtype=dtype.name,
            target="wgsl",
        )
