"""Candidates for the tuning tests: other schedules of a bundle's kernels, and wrong kernels.

Input: a bundle folder, a number of a kernel specification.  Output: what a source sends: the header
of docs/tuning-protocol.md with the module in base64.  Wrong ones look right from outside.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from tilewright.bundle import open_bundle
from tilewright.bundle.linear_memory import facts_of
from tilewright.kernel.expr import Const
from tilewright.kernel.spec import Kernel
from tilewright.targets import target
from tilewright.targets.device_classes import CLASSES, DeviceClass
from tilewright.targets.schedule import Schedule
from tilewright.targets.wasm import VARIANTS, CompiledKernel, WasmVariant, link
from tilewright.targets.wasm.emit import assemble, flatten
from tilewright.targets.wasm.ir import BrIf, Func, Local, Loop, Stmt, Trap, const
from tilewright.targets.wasm.isa import uleb
from tilewright.tuning.candidates import build, plans_of, space_of
from tilewright.tuning.catalogue import kernels_of

Sent = dict[str, Any]

#: Bytes of a page of WebAssembly's memory.
PAGE = 65536

#: What every wrong kernel with a visible result gives.
MARK = 7.0


def device_of(variant: str) -> DeviceClass:
    """The widest class that runs this code."""
    return [c for c in CLASSES.values() if c.variant == variant and c.kind == "wasm"][-1]


class Kernels:
    """The kernels of one bundle as one variant runs them."""

    def __init__(self, folder: Path, variant: str) -> None:
        self.bundle = open_bundle(folder)
        self.kernels = kernels_of(self.bundle)
        self.variant: WasmVariant = VARIANTS[variant]
        self.device = device_of(variant)
        self.memory = facts_of(self.bundle.manifest.section("wasm")).memory

    def specs(self, anchor: str) -> list[int]:
        return [n for n, kernel in enumerate(self.kernels) if kernel.anchor == anchor]

    def others(self, spec: int, most: int = 2) -> list[Sent]:
        """Some candidates, from the best to the worst in their order of trial."""
        space = space_of(self.kernels[spec], self.device)
        chosen = space.order[:: max(1, len(space.order) // most)][:most]
        sent = [self.sent(spec, n, space.schedules[n]) for n in chosen]
        limit = self.memory.scratch_bytes
        return [header for header in sent if header["scratch"] <= limit]

    def sent(
        self, spec: int, candidate: int, schedule: Schedule, kernel: Kernel | None = None
    ) -> Sent:
        made = build(kernel or self.kernels[spec], schedule, "wasm", self.variant.name)
        return self._header(spec, candidate, made.module, made.tiles, made.scratch, str(schedule))

    def wrong(self, how: str, spec: int, candidate: int = 900) -> Sent:
        """A kernel with a fault; all else about it is right."""
        kernel = self.kernels[spec]
        schedule = space_of(kernel, self.device).schedules[0]
        match how:
            case "value":
                return self.marked(spec, MARK, candidate)
            case "outside":
                beyond = replace(kernel, store=kernel.store + 4)
                return self.sent(spec, candidate, schedule, beyond)
            case "nan":
                nan = replace(kernel, value=Const(float("nan"), kernel.dtype))
                return self.sent(spec, candidate, schedule, nan)
            case "tile":
                small = replace(schedule, x1=schedule.x0, y1=schedule.y0)
                sent = self.sent(spec, candidate, small)
                tiles = sent["tiles"] - 1
                return sent | {"tiles": tiles, "grains": self._grains(spec, tiles)}
            case "trap":
                return self._made_by_hand(spec, candidate, (Trap(),))
            case "endless":
                made = self._made_by_hand(spec, candidate, (Loop((BrIf(0, const(1)),)),))
                return made | {"hangs": True}
            case "digest":
                sent = self.sent(spec, candidate, schedule)
                return sent | {"digest": hashlib.sha256(b"another").hexdigest()}
            case "deep":
                call_itself = b"\x20\0\x20\1\x20\2\x10\0"
                return self._raw(spec, candidate, (), call_itself)
            case "empty":
                return self._header(spec, candidate, b"\0asm\1\0\0\0", 1, 0, "")
            case "bytes":
                return self._header(spec, candidate, b"\0asm no module", 1, 0, "")
            case "scratch":
                most = self.memory.scratch_bytes
                return self.sent(spec, candidate, schedule) | {"scratch": most + 1}
        raise AssertionError(how)

    def marked(self, spec: int, mark: float, candidate: int = 900) -> Sent:
        """All that it gives is this number."""
        kernel = self.kernels[spec]
        constant = replace(kernel, value=Const(mark, kernel.dtype))
        schedule = space_of(kernel, self.device).schedules[0]
        return self.sent(spec, candidate, schedule, constant)

    def unlinkable(self, spec: int) -> Sent:
        """It imports more memory than there is."""
        table, memory = b"\3env\5table\1\x70\0\1", b"\3env\6memory\2\3\x80\x80\4\x80\x80\4"
        return self._of_sections(spec, {2: b"\2" + table + memory})

    def crowded(self, spec: int) -> Sent:
        """Only the first worker can instantiate it: behind the last one's scratch area memory ends.

        Its data lies from the start of the worker's own area to one page behind its end.
        """
        area = self.memory.scratch_bytes
        assert area >= PAGE, "the first of two workers must have a page behind its area"
        return self._raw(spec, 901, ((b"\x23\0\x0b", bytes(area + PAGE)),))

    def scribbling(self, spec: int) -> Sent:
        """Writes over what lies first in memory, then no place is left for the rest: it traps."""
        over = (b"\x41\0\x0b", b"U" * 2 * PAGE), (b"\x41\x7f\x0b", b"UU")
        return self._raw(spec, 902, over)

    def _raw(
        self, spec: int, candidate: int, data: tuple[tuple[bytes, bytes], ...], code: bytes = b""
    ) -> Sent:
        """A kernel that only runs this code, in a module with data: where it goes, and what."""
        memory = b"\3env\6memory\2\3\1\x80\x80\4"
        table, scratch = b"\3env\5table\1\x70\0\1", b"\3env\7scratch\3\x7f\0"
        segments = b"".join(b"\0" + place + uleb(len(what)) + what for place, what in data)
        body = uleb(len(code) + 2) + b"\0" + code + b"\x0b"
        more = {2: b"\3" + memory + table + scratch, 10: b"\1" + body}
        if data:
            more[11] = uleb(len(data)) + segments
        return self._of_sections(spec, more, candidate)

    def _of_sections(self, spec: int, more: dict[int, bytes], candidate: int = 901) -> Sent:
        """A kernel that does nothing, with these sections beside its own, or instead."""
        signature = b"\x60\3\x7f\x7f\x7f\0"
        own = {1: b"\1" + signature, 3: b"\1\0", 7: b"\1\2k0\0\0", 10: b"\1\2\0\x0b"}
        own |= {2: b"\1\3env\5table\1\x70\0\1", 9: b"\1\0\x41\0\x0b\1\0"}
        sections = sorted((own | more).items())
        body = b"".join(bytes([n]) + uleb(len(s)) + s for n, s in sections)
        return self._header(spec, candidate, b"\0asm\1\0\0\0" + body, 4, 0, "by hand")

    def _made_by_hand(self, spec: int, candidate: int, body: tuple[Stmt, ...]) -> Sent:
        params = tuple(Local(name, "i32", 0) for name in ("args", "first", "last"))
        code = assemble([flatten(Func("kernel", params, body))], self.variant)
        module = link([CompiledKernel("kernel", code)], self.variant, 1)
        return self._header(spec, candidate, module, 4, 0, "by hand")

    def _header(
        self, spec: int, candidate: int, module: bytes, tiles: int, scratch: int, schedule: str
    ) -> Sent:
        return {
            "type": "kernel",
            "spec": spec,
            "candidate": candidate,
            "mark": "extended",
            "schedule": schedule,
            "checksum": "0" * 16,
            "digest": hashlib.sha256(module).hexdigest(),
            "tiles": tiles,
            "grains": self._grains(spec, tiles),
            "scratch": scratch,
            "bytes": len(module),
            "module": base64.b64encode(module).decode(),
        }

    def _grains(self, spec: int, tiles: int) -> dict[int, int]:
        steps = [[step.spec for step in plan.steps] for plan in self.bundle.manifest.plans]
        return dict.fromkeys(plans_of(steps)[spec], target("wasm").grain(self.kernels[spec], tiles))
