"""Candidates: the space of one kernel on one class of devices, and the code of each of them.

Input: kernels of a bundle, a `DeviceClass`.  Output: `Space`: numbered schedules with their order
of trial, the same in every process; `Built`: one of them as a module.  It measures nothing.
Only the standard library is needed, so that a page can do the same under Pyodide.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from tilewright import __version__
from tilewright.base.errors import CompilerBug, UsageError
from tilewright.kernel.loops import settled
from tilewright.kernel.lower import lower
from tilewright.kernel.schedule import Schedule, default_schedule
from tilewright.kernel.serial import kernel_from_data, kernel_to_data
from tilewright.kernel.sharing import USUAL, Costs, Work, tiles_per_ticket
from tilewright.kernel.space import Objective, lite
from tilewright.kernel.space_schedules import Candidate, candidates, product_of
from tilewright.kernel.spec import Kernel
from tilewright.targets.classes import DeviceClass
from tilewright.targets.wasm import TARGETS, WasmTarget, compile_tile, link

if TYPE_CHECKING:
    from tilewright.bundle import Bundle, Step


@dataclass(frozen=True)
class Space:
    """The numbered candidates of a kernel on a class of devices.

    key:       SHA-256 of the kernel's specification without its name
    kind:      `Kernel.anchor`; shape: its sizes, "384x768x768" for a product (m, k, n)
    schedules: the index in it is the number of the candidate; 0 is what the bundle starts with
    marks:     "default", "lite" (the paper's space) or "extended" (our own), one per schedule
    order:     numbers in the order of trial; never 0
    checksum:  16 hex digits over all that the numbers mean
    """

    key: str
    kind: str
    shape: str
    device: DeviceClass
    schedules: tuple[Schedule, ...]
    marks: tuple[str, ...]
    order: tuple[int, ...]
    checksum: str


@dataclass(frozen=True)
class Built:
    """One candidate as code.

    module:   exports `k0`, and fills entry 0 of the table that it is given
    digest:   SHA-256 of module
    tiles:    of the kernel under this schedule
    scratch:  bytes of a worker's scratch area that it needs
    features: what a host must have to run it

    It reads no run-time scalars, so that the argument block of any other candidate suits it.
    """

    module: bytes
    digest: str
    tiles: int
    scratch: int
    schedule: Schedule
    features: tuple[str, ...]


def space_of(kernel: Kernel, device: DeviceClass, objective: Objective = "latency") -> Space:
    """Every candidate of a kernel; equal arguments give an equal space in every process."""
    found = _candidates(kernel, device)
    key = key_of(kernel)
    schedules = tuple(c.schedule for c in found)
    figures = [device.id, asdict(device.core), device.machine and asdict(device.machine)]
    told = [key, figures, __version__, [s.to_json() for s in schedules]]
    return Space(
        key=key,
        kind=kernel.anchor,
        shape=shape_of(kernel),
        device=device,
        schedules=schedules,
        marks=tuple(c.mark for c in found),
        order=_order(found, objective),
        checksum=_digest(told)[:16],
    )


def _candidates(kernel: Kernel, device: DeviceClass) -> list[Candidate]:
    if device.machine is not None:
        default = default_schedule(kernel, TARGETS[device.variant].machine)
        return candidates(kernel, default, device.machine, device.core)
    matrix = product_of(kernel)
    if matrix is None:
        raise UsageError(
            "Only the space of matrix products is known for WebGPU",
            hint="Choose a Wasm class of `tilewright space --classes`",
            kernel=kernel.name,
            kind=kernel.anchor,
            device=device.id,
        )
    tiles = [
        Schedule(t.x0, t.y0, t.r0, t.x1, t.y1, t.r1, stage=t.cache_read)
        for t in lite(matrix, device.core)
    ]
    return [Candidate(s, "lite" if n else "default", float(n), 0, 0.0) for n, s in enumerate(tiles)]


#: What comes first is small; equal ones follow by latency.
_KEYS: Mapping[Objective, Callable[[Candidate], float]] = {
    "latency": lambda c: c.cost,
    "traffic": lambda c: c.words,
    "scratch": lambda c: c.scratch,
}


def _order(found: list[Candidate], objective: Objective) -> tuple[int, ...]:
    key = _KEYS[objective]
    return tuple(
        sorted(range(1, len(found)), key=lambda n: (round(key(found[n]), 6), found[n].cost, n))
    )


def build(kernel: Kernel, schedule: Schedule, target: WasmTarget) -> Built:
    """One candidate as a module of its own; `CompilerBug` if it cannot be made."""
    try:
        fn = settled(replace(lower(kernel, schedule), name="kernel"))
        compiled = compile_tile(fn, target)
        module = link([compiled], target, 1)
    except AssertionError as error:
        raise CompilerBug(
            f"a schedule cannot be made: {error}",
            kernel=kernel.name,
            schedule=str(schedule),
            target=target.name,
        ) from error
    return Built(
        module=module,
        digest=hashlib.sha256(module).hexdigest(),
        tiles=fn.tiles,
        scratch=compiled.scratch,
        schedule=schedule,
        features=tuple(sorted(compiled.needs - {"simd", ""})),
    )


def kernels_of(bundle: Bundle) -> tuple[Kernel, ...]:
    """The kernels of a bundle by spec number."""
    listed = json.loads(bundle.read(bundle.manifest.kernels))
    return tuple(kernel_from_data(entry["spec"]) for entry in listed)


def key_of(kernel: Kernel) -> str:
    """What names a kernel everywhere: its specification, whatever a model calls it."""
    data = kernel_to_data(kernel)
    del data["name"]
    return _digest(data)


def shape_of(kernel: Kernel) -> str:
    """For people: "12x384x384x64" for a product ([batch,] m, k, n), else the extents of the output
    and, after a colon, of the first reduction."""
    matrix = product_of(kernel)
    if matrix is not None:
        return str(matrix)
    axes = "x".join(str(v.extent) for v in kernel.axes) or "1"
    reduced = "x".join(str(v.extent) for v in kernel.stages[0].axes) if kernel.stages else ""
    return f"{axes}:{reduced}" if reduced else axes


def grain_of(step: Step, tiles: int, costs: Costs = USUAL) -> int:
    """Tiles per ticket of a plan's step when its kernel has so many tiles.

    The same rule as the compiler's.  A step that is serial stays so: its grain is all tiles.
    """
    return tiles_per_ticket(Work(step.flops, step.bytes, tiles, (), ()), costs) or max(1, tiles)


def _digest(data: Any) -> str:
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
