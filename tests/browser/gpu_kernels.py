"""WebGPU candidates for the tuning tests: other tiles of a bundle's products, and wrong kernels.

Input: a bundle folder with the section `wgsl`, a number of a kernel specification.  Output: what a
source sends: the header of docs/tuning-protocol.md with the text in base64.
"""

from __future__ import annotations

import base64
import hashlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from lab.subjects import compile_matmul
from tilewright.bundle import open_bundle, write
from tilewright.compiler import Options
from tilewright.kernel.expr import Const
from tilewright.kernel.spec import Kernel
from tilewright.targets import target
from tilewright.targets.device_classes import CLASSES
from tilewright.targets.gpu.product.schedule import RegisterGemmSchedule
from tilewright.targets.schedule import Schedule
from tilewright.targets.wgsl.device_classes import VARIANT
from tilewright.tuning.candidates import build, plans_of, space_of
from tilewright.tuning.catalogue import kernels_of

Sent = dict[str, Any]

#: What every wrong kernel with a visible result gives.
MARK = 7.0
#: Tiles far larger than the product of `write_poor`: most of the work is wasted.  The text is short
#: all the same, since a trial that fails has the device compile it again.
POOR = RegisterGemmSchedule(x0=8, y0=8, r0=1, x1=128, y1=128, r1=4)


def write_poor(folder: Path) -> None:
    """A product of [4, 512] and [512, 96] that `POOR` computes."""
    options = Options(targets=("wgsl",), schedule=lambda *_: POOR)
    write(compile_matmul(4, 512, 96, options).contents, folder)


class GpuKernels:
    """The kernels of one bundle that groups of threads compute."""

    def __init__(self, folder: Path) -> None:
        self.bundle = open_bundle(folder)
        self.kernels = kernels_of(self.bundle)
        self.device = CLASSES["webgpu"]

    def specs(self) -> list[int]:
        """Those with candidates, one of each kind first."""
        found = [n for n, kernel in enumerate(self.kernels) if target("wgsl").strategy_of(kernel)]
        kinds = {self.kernels[n].anchor: n for n in reversed(found)}
        return [*kinds.values(), *(n for n in found if n not in kinds.values())]

    def others(self, spec: int, most: int = 2) -> list[Sent]:
        """Some candidates that need no feature, the likely best first."""
        space = space_of(self.kernels[spec], self.device)
        able = [n for n in space.order if not space.schedules[n].features]
        chosen = able[:: max(1, len(able) // most)][:most]
        return [self.sent(spec, n, space.schedules[n]) for n in chosen]

    def smallest(self, spec: int) -> Sent:
        """The one with the smallest tile: on a processor many times as fast as `POOR`."""
        schedules = space_of(self.kernels[spec], self.device).schedules
        tiled = [
            (s.x1 * s.y1, n) for n, s in enumerate(schedules) if isinstance(s, RegisterGemmSchedule)
        ]
        _, best = min(tiled)
        return self.sent(spec, best, schedules[best])

    def sent(
        self, spec: int, candidate: int, schedule: Schedule, kernel: Kernel | None = None
    ) -> Sent:
        made = build(kernel or self.kernels[spec], schedule, "wgsl", VARIANT)
        return self._header(spec, candidate, made.module.decode(), made.tiles, str(schedule))

    def wrong(self, how: str, spec: int, candidate: int = 900) -> Sent:
        """A kernel with a fault; all else about it is right."""
        kernel = self.kernels[spec]
        schedule = space_of(kernel, self.device).schedules[0]
        good = self.sent(spec, candidate, schedule)
        text = base64.b64decode(good["module"]).decode()
        head, main = text.split("  let workgroup = ")
        match how:
            case "value":
                constant = replace(kernel, value=Const(MARK, kernel.dtype))
                return self.sent(spec, candidate, schedule, constant)
            case "outside":
                return self.sent(spec, candidate, schedule, replace(kernel, store=kernel.store + 4))
            case "input":
                # the last bits of the first input's first element: too few to change a result
                wide = "array<vec4<u32>>" in text
                place = "memory[at(1u) >> 2u].x" if wide else "memory[at(1u)]"
                text = f"{head}  {place} = {place} & 0xfffff000u;\n  let workgroup = {main}"
            case "nothing":
                good["tiles"] = 1
                return good
            case "endless":
                text = (
                    f"{head}  loop {{ if (word(0u) == 0u) {{ break; }} }}\n  let workgroup = {main}"
                )
            case "slow":
                # many seconds on a processor, less than one on a GPU
                times = 600_000_000 * (os.cpu_count() or 2) // good["tiles"]
                text = text.replace(
                    "  sum0_0 =",
                    f"  for (var more: i32 = 0; more < {times}; more += 1) {{\n"
                    "    b3[local & 3u] = b3[local & 3u] * 1.5 + vec4<f32>(1.0);\n  }\n  sum0_0 =",
                    1,
                )
            case "syntax":
                text = text.replace("let tile = i32(workgroup);", "let tile = i32(workgroup;")
            case "types":
                text = text.replace("let tile = i32(workgroup);", "let tile = true;")
            case "shared":
                text = text.replace(
                    "struct Step", "var<workgroup> more: array<vec4<f32>, 9999>;\nstruct Step"
                ).replace("  let workgroup", "  more[local] = vec4<f32>();\n  let workgroup")
            case "binding":
                text = text.replace("@binding(1)", "@binding(2)")
            case "digest":
                return good | {"digest": hashlib.sha256(b"another").hexdigest()}
            case "scratch":
                return good | {"scratch": 1}
            case _:
                raise AssertionError(how)
        assert text.encode() != base64.b64decode(good["module"])
        return self._header(spec, candidate, text, good["tiles"], how)

    def _header(
        self, spec: int, candidate: int, text: str, invocations: int, schedule: str
    ) -> Sent:
        module = text.encode()
        steps = [[step.spec for step in plan.steps] for plan in self.bundle.manifest.plans]
        return {
            "type": "kernel",
            "spec": spec,
            "candidate": candidate,
            "mark": "lite",
            "schedule": schedule,
            "checksum": "0" * 16,
            "digest": hashlib.sha256(module).hexdigest(),
            "tiles": invocations,
            "grains": dict.fromkeys(plans_of(steps)[spec], invocations),
            "scratch": 0,
            "bytes": len(module),
            "module": base64.b64encode(module).decode(),
        }
