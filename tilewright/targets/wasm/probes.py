"""Sections that measure a host: a plan of hand-made kernels that no specification describes.

Input: how many steps and tiles.  Output: a `Section` with one plan whose only value is an output
of four f32, and its floating point operations.

    peak    one step; every tile multiplies and adds in registers only
    steps   steps that do nothing, each waiting for the one before
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tilewright.base.abi import CONTROL_BYTES
from tilewright.base.alignment import align
from tilewright.base.sections import Build, File, Section
from tilewright.targets.wasm.driver import driver
from tilewright.targets.wasm.emit import CompiledKernel
from tilewright.targets.wasm.image import StepCall, image, image_bytes
from tilewright.targets.wasm.link import link
from tilewright.targets.wasm.peak import FLOPS_PER_TILE, nothing, peak
from tilewright.targets.wasm.target import TARGETS, WasmTarget

#: Where the output of 16 bytes is: behind the control block, before the image.
OUTPUT = align(CONTROL_BYTES)


def peak_section(tiles: int) -> tuple[Section, int]:
    return _section(peak, [StepCall(0, (OUTPUT,), (), tiles, grain=16)]), tiles * FLOPS_PER_TILE


def steps_section(steps: int, tiles: int) -> tuple[Section, int]:
    """One tile: all steps are serial and go with one ticket; more: that number of tickets each."""
    call = StepCall(0, (), (), tiles, grain=1 if tiles > 1 else 0)
    calls = [call, *[replace(call, waits=tiles > 1, chained=tiles == 1)] * (steps - 1)]
    return _section(lambda _: nothing(), calls), 0


def _section(kernel: Callable[[WasmTarget], CompiledKernel], calls: list[StepCall]) -> Section:
    base = OUTPUT + 64
    total = base + align(image_bytes(calls))
    drawn = File(image(calls, base), "bin")
    builds = (
        Build(
            variant=t.name,
            features=tuple(sorted(t.features)),
            code=File(link([kernel(t)], t, 1), "wasm"),
            plans=(drawn,),
            facts={"registers": t.registers},
        )
        for t in TARGETS.values()
        if t.usual
    )
    memory = {
        "bytes": total, "control": 0, "weights": base, "arena": OUTPUT, "arena_bytes": 64,
        "scratch": total, "scratch_bytes": 0,
    }  # fmt: skip
    return Section(
        builds=tuple(builds),
        slots=1,
        memory=total,
        programs={"driver": File(driver(1), "wasm")},
        plans=({"address": base, "arena_bytes": 64, "inputs": [], "outputs": [OUTPUT]},),
        kernels=(),
        facts={"memory": memory, "states": []},
    )
