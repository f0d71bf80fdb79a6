"""The CUDA target's implementation of `targets/protocol.py`.

Input: kernels and programs.  Output: a section with one JSON file of texts (a prelude, and for each
slot a kernel's plain and elastic form), and for each plan a list of launches with the byte offset
of each buffer (docs/bundle-cuda.md).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from tilewright.base.budget import PROTOCOL
from tilewright.base.sections import Build, File, Section
from tilewright.kernel.loops import TileFn
from tilewright.kernel.spec import Kernel
from tilewright.plan import Program
from tilewright.targets.c_family import TYPES
from tilewright.targets.cuda.device_classes import CLASSES, VARIANT
from tilewright.targets.cuda.elastic import elastic
from tilewright.targets.cuda.emit import dynamic_of
from tilewright.targets.cuda.emit import kernel as text_of
from tilewright.targets.cuda.features import BASE_FEATURES, FEATURES
from tilewright.targets.cuda.prelude import prelude
from tilewright.targets.cuda.steps import LaunchEncoder
from tilewright.targets.cuda.strategies import TENSOR_CORES, TRANSPOSED_TILE
from tilewright.targets.gpu.attention.strategies import ATTENTION_ONE_ROW
from tilewright.targets.gpu.gpu_target import (
    GROUP_THREADS,
    STRATEGIES,
    WorkgroupTarget,
    workgroup_threads,
)
from tilewright.targets.gpu.memory.memory_layout import MemoryTraits, f16_states, new_layout
from tilewright.targets.gpu.pointwise.strategies import SINGLE
from tilewright.targets.gpu.product.strategies import FEW_ROWS_INT8, REGISTER_GEMM, SUBGROUP_GEMM
from tilewright.targets.gpu.vector_buffers import alignments
from tilewright.targets.gpu.workgroup_limits import MATRIX_FEATURE, WARPGROUP, subgroup_feature
from tilewright.targets.protocol import Code, Facts, slots_of
from tilewright.targets.scalar_lowering import PlainVariant, numbers_of
from tilewright.targets.ticket_protocol import TURNS

#: CUDA counts bytes, and one buffer is large enough for every model.
MEMORY = MemoryTraits(unit_bytes=1, reserved_units=256, units_of=lambda dtype: dtype.size)


class Cuda(WorkgroupTarget):
    """The CUDA target.  Its one instance is in targets/__init__.py."""

    name = "cuda"
    variant = PlainVariant(VARIANT)
    facts = Facts(
        address_bits=40,
        dtypes=frozenset(TYPES),
        features=FEATURES,
        group=GROUP_THREADS,
        f16_memory=True,
        f16_states=True,
    )
    classes = CLASSES
    strategies = tuple(TRANSPOSED_TILE if s is REGISTER_GEMM else s for s in STRATEGIES)
    #: f16 values are multiplied by matrix units only; attention is computed in f32.
    alternatives = (TENSOR_CORES, ATTENTION_ONE_ROW, SUBGROUP_GEMM)
    others = (SINGLE, FEW_ROWS_INT8)

    def lacking(self, needs: frozenset[str]) -> frozenset[str]:
        """Features of `needs` that CUDA lacks.  Only matrix units work across warps: every other
        feature needs subgroups of one warp."""
        apart = frozenset() if MATRIX_FEATURE in needs else needs & {subgroup_feature(WARPGROUP)}
        return super().lacking(needs) | apart

    def emit(self, kernel: Kernel, fn: TileFn, needs: frozenset[str] = frozenset()) -> str:
        return text_of(fn)

    def module(self, code: Code, variant: str) -> File:
        """What a launch needs besides its buffers, as JSON for hosts/cuda.py."""
        _, *scalars = numbers_of(code.loops, 0)
        made = {
            "prelude": prelude(),
            "text": str(code.body),
            "group": workgroup_threads(code.loops),
            "shared": dynamic_of(code.loops),
            "scalars": len(scalars),
        }
        return File(json.dumps(made).encode(), "json")

    def encode(
        self,
        program: Program,
        codes: Mapping[str, Sequence[Code]],
        settings: Mapping[str, object],
    ) -> Section:
        ((variant, listed),) = codes.items()

        def usable_codes(number: int, begins: tuple[int, ...]) -> tuple[Code, ...]:
            def fits(fn: TileFn) -> bool:
                return not any(begins[n] % by for n, by in alignments(fn).items())

            return self.usable_codes(listed[number], fits, BASE_FEATURES)

        steps = LaunchEncoder(listed, usable_codes)
        layout = new_layout(program, MEMORY, [()] * len(program.plans), settings)
        plans, files = [], []
        for arena in layout.arenas:
            places = layout.places(arena)
            plans.append(layout.ends(arena, places))
            calls = steps.of(arena.plan, layout.buffers(arena, places))
            files.append(File(json.dumps(calls, separators=(",", ":")).encode(), "json"))
        texts = File(_texts(steps.loops), "json")
        return Section(
            builds=(Build(variant, (), texts, tuple(files), {}),),
            slots=len(steps.loops),
            memory=layout.bytes,
            programs={},
            plans=tuple(plans),
            kernels=slots_of(codes),
            facts=layout.to_facts() | _f16_facts(layout.density, program),
        )


def _f16_facts(density: Mapping[int, int], program: Program) -> dict[str, object]:
    """The facts of a section about weights and states that are stored as f16."""
    states = sorted(f16_states(program))
    return {"halves": sorted(density), **({"half_states": states} if states else {})}


def _texts(loops: Mapping[str, TileFn]) -> bytes:
    """The file of texts.  loops: the kernel of each text, in the order of the slots"""
    return json.dumps({
        "prelude": prelude(),
        "kernels": list(loops),
        "turns": TURNS,
        "protocol": PROTOCOL,
        "elastic": [asdict(elastic(fn)) for fn in loops.values()],
    }).encode()  # fmt: skip
